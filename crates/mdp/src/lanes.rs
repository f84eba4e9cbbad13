//! Lanes: n copies of an environment that are played side by side.
//!
//! ```text
//! reset(i)              starts an episode in lane i and returns its first observation
//! step(actions)         takes one action per lane that is in an episode and returns the results
//! ```
//!
//! A native environment is copied ([`NativeLanes`]). Lane i draws from its own stream, so that a lane depends only on the
//! actions taken in it. Another environment, such as a vector environment of Python, implements [`Lanes`] itself; it may
//! fail, and it may show the first observation of an episode only with the next step of all lanes.

use std::error::Error;

use bqrl_math::rng::{Purpose, Rng, RngState, lane_stream};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::env::{Env, EnvSpec, Step};
use crate::trajectory::Observation;

/// The failure of an environment; keeps the original error.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct EnvError(pub Box<dyn Error + Send + Sync>);

impl EnvError {
    /// An error that is only a message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into().into())
    }
}

/// The result of a lane after a step of all lanes.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// The lane had no decision to take, and has no result.
    Nothing,
    /// An episode started with this step.
    Start(Observation),
    /// The result of the action that was taken.
    Step(Step),
}

/// Several copies of an environment.
pub trait Lanes: Send {
    /// The facts that an agent may know of each lane.
    fn spec(&self) -> &EnvSpec;
    /// The number of lanes.
    fn n_lanes(&self) -> usize;
    /// Starts an episode in a lane. `None`: its first observation comes with the next [`step`](Self::step).
    fn reset(&mut self, lane: usize) -> Result<Option<Observation>, EnvError>;
    /// Takes an action in every lane that has one.
    fn step(&mut self, actions: &[Option<usize>]) -> Result<Vec<Seen>, EnvError>;
    /// Everything that is needed to continue. If an environment cannot be saved in the middle of an episode, this is the state
    /// of its random streams, and new episodes start.
    fn save(&self) -> SavedLanes;
    /// Whether [`restore`](Self::restore) restores unfinished episodes.
    fn resumes_mid_episode(&self) -> bool;
    /// Restores the result of [`save`](Self::save), into the same number of copies of the same environment.
    fn restore(&mut self, saved: &SavedLanes) -> Result<(), EnvError>;
    /// Whether the episode of a lane is at this stage and shows this observation, as far as can be told.
    fn is_at(&self, _lane: usize, _stage: usize, _observation: &Observation) -> bool {
        true
    }
}

/// The saved state of native lanes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct SavedLanes {
    /// The result of [`Env::save`], per lane.
    pub envs: Vec<Vec<u64>>,
    /// Seed, stream and position of each lane's stream.
    pub rngs: Vec<[u64; 3]>,
}

/// Copies of a native environment.
pub struct NativeLanes {
    envs: Vec<Box<dyn Env>>,
    rngs: Vec<Rng>,
}

impl NativeLanes {
    /// `n` lanes, each a fresh environment with its own stream of the seed.
    pub fn new(n: usize, seed: u64, purpose: Purpose, make: impl Fn() -> Box<dyn Env>) -> Self {
        assert!(n > 0, "lanes must be at least 1, got 0");
        Self {
            envs: (0..n).map(|_| make()).collect(),
            rngs: (0..n).map(|lane| lane_stream(seed, purpose, lane)).collect(),
        }
    }
}

impl Lanes for NativeLanes {
    fn spec(&self) -> &EnvSpec {
        self.envs[0].spec()
    }

    fn n_lanes(&self) -> usize {
        self.envs.len()
    }

    fn reset(&mut self, lane: usize) -> Result<Option<Observation>, EnvError> {
        Ok(Some(self.envs[lane].reset(&mut self.rngs[lane])))
    }

    fn step(&mut self, actions: &[Option<usize>]) -> Result<Vec<Seen>, EnvError> {
        assert_eq!(actions.len(), self.envs.len(), "actions, want one per lane");
        let lanes = self.envs.iter_mut().zip(&mut self.rngs).zip(actions);
        let seen = lanes.map(|((env, rng), action)| match action {
            Some(action) => Seen::Step(env.step(*action, rng)),
            None => Seen::Nothing,
        });
        Ok(seen.collect())
    }

    fn resumes_mid_episode(&self) -> bool {
        true
    }

    fn save(&self) -> SavedLanes {
        let position = |rng: &Rng| {
            let RngState { seed, stream, word_pos } = rng.state();
            [seed, stream, word_pos]
        };
        SavedLanes {
            envs: self.envs.iter().map(|env| env.save()).collect(),
            rngs: self.rngs.iter().map(position).collect(),
        }
    }

    fn restore(&mut self, saved: &SavedLanes) -> Result<(), EnvError> {
        let SavedLanes { envs, rngs } = saved;
        let n = self.envs.len();
        if envs.len() != n || rngs.len() != n {
            let got = envs.len().max(rngs.len());
            return Err(EnvError::new(format!("the checkpoint has {got} lanes, want {n}")));
        }
        for (env, state) in self.envs.iter_mut().zip(envs) {
            env.restore(state)?;
        }
        let at = |&[seed, stream, word_pos]: &[u64; 3]| Rng::from_state(RngState { seed, stream, word_pos });
        self.rngs = rngs.iter().map(at).collect();
        Ok(())
    }

    fn is_at(&self, lane: usize, stage: usize, observation: &Observation) -> bool {
        self.envs[lane].is_at(stage, observation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems;
    use crate::tabular::TabularEnv;

    fn lanes(n: usize) -> NativeLanes {
        let env = TabularEnv::new(problems::build("frozen-lake", &[]).unwrap());
        NativeLanes::new(n, 42, Purpose::Test, || Box::new(env.clone()))
    }

    /// Plays `ticks` steps of all lanes, action (tick + lane) mod 4, and returns what was seen in each.
    fn play(lanes: &mut NativeLanes, over: &mut [bool], ticks: std::ops::Range<usize>) -> Vec<Vec<Seen>> {
        let mut seen = vec![Vec::new(); lanes.n_lanes()];
        for tick in ticks {
            for lane in 0..lanes.n_lanes() {
                if over[lane] {
                    seen[lane].push(Seen::Start(lanes.reset(lane).unwrap().unwrap()));
                }
            }
            let actions: Vec<_> = (0..lanes.n_lanes()).map(|lane| Some((tick + lane) % 4)).collect();
            for (lane, result) in lanes.step(&actions).unwrap().into_iter().enumerate() {
                let Seen::Step(step) = &result else { panic!("an action was taken") };
                over[lane] = step.end.is_over();
                seen[lane].push(result);
            }
        }
        seen
    }

    #[test]
    fn a_lane_does_not_depend_on_the_others() {
        let (mut two, mut three) = (lanes(2), lanes(3));
        let [a, b] = [play(&mut two, &mut [true; 2], 0..200), play(&mut three, &mut [true; 3], 0..200)];
        assert_eq!(a[..2], b[..2]);
        assert_ne!(b[0], b[1]);
    }

    #[test]
    fn saved_in_the_middle_of_episodes_lanes_continue_as_they_would_have() {
        let mut whole = lanes(3);
        let mut over = vec![true; 3];
        play(&mut whole, &mut over, 0..37);
        let saved = whole.save();
        let mut restored = lanes(3);
        restored.restore(&saved).unwrap();
        let mut over_too = over.clone();
        assert_eq!(play(&mut whole, &mut over, 37..200), play(&mut restored, &mut over_too, 37..200));
        assert!(lanes(2).restore(&saved).unwrap_err().to_string().contains("3 lanes, want 2"));
        let wrong = SavedLanes { envs: vec![vec![1_000_000, 0]; 3], ..saved };
        assert!(restored.restore(&wrong).is_err());
    }
}
