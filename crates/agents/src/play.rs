//! The play loop: the only one. Training, evaluation, Python and the tests all play through it.
//!
//! ```text
//! for every lane between episodes:   s_0 = reset,  memo = player.begin(s_0),  h = 0, c = 0
//! a_1 … a_n   = player.act((h, s, c) and memo of every lane that waits)
//! (s', r, end) of every lane = one step of all lanes
//! player.observe(lane, (x, a, γ^h r, x', d)),  then  h ← h + 1, c ← c + γ^h r
//! player.tick_is_over()
//! ```
//!
//! One pass through this is a *tick*. With one lane a tick is one step of Algorithm 1's inner loop (lines 5–29). A lane's
//! episode never depends on the other lanes but through what the player learned from them.

use bqrl_mdp::lanes::{EnvError, Lanes, SavedLanes, Seen};
use bqrl_mdp::trajectory::{End, Observation};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Agent, Clock, Input, LearnError, Memo, Transition, Waiting};

/// Whoever decides in the lanes: a learner, or a policy that is evaluated.
pub trait Player {
    /// An episode starts in a lane.
    fn begin(&mut self, lane: usize, start: &Observation) -> Memo;
    /// One action per lane that waits; `lanes` says which they are.
    fn act(&mut self, lanes: &[usize], waiting: &[Waiting]) -> Vec<usize>;
    /// What came of an action.
    fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError>;
    /// Every lane has been observed.
    fn tick_is_over(&mut self) -> Result<(), LearnError>;
}

/// Why play stopped.
#[derive(Debug, Error)]
pub enum PlayError {
    /// The environment failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The agent could not learn.
    #[error(transparent)]
    Learn(#[from] LearnError),
}

/// A finished episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// Where.
    pub lane: usize,
    /// G, discounted.
    pub episode_return: f64,
    /// The plain sum of its rewards.
    pub undiscounted: f64,
    /// Decisions taken.
    pub length: usize,
}

/// One lane's episode.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Episode {
    stage: usize,
    observation: Observation,
    collected: f64,
    undiscounted: f64,
    memo: Memo,
}

/// Lanes that are played.
pub struct Play {
    lanes: Box<dyn Lanes>,
    /// By lane; `None` between episodes.
    episodes: Vec<Option<Episode>>,
    /// Lanes that start no further episode.
    closed: Vec<bool>,
    discount: f64,
}

/// The state of lanes in the middle of their episodes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SavedPlay {
    lanes: SavedLanes,
    episodes: Vec<Option<Episode>>,
}

impl Play {
    /// Before the first episode of every lane.
    pub fn new(lanes: Box<dyn Lanes>) -> Self {
        let n = lanes.n_lanes();
        let discount = lanes.spec().discount;
        Self { lanes, episodes: vec![None; n], closed: vec![false; n], discount }
    }

    /// The environment.
    pub fn lanes(&self) -> &dyn Lanes {
        &*self.lanes
    }

    /// Gives up every open episode; the next tick starts new ones.
    pub fn abandon(&mut self) {
        self.episodes.fill(None);
    }

    /// Starts no further episode in a lane.
    pub fn close(&mut self, lane: usize) {
        self.closed[lane] = true;
    }

    /// Whether some lane is in an episode.
    pub fn is_open(&self) -> bool {
        self.episodes.iter().any(Option::is_some)
    }

    /// One step of all lanes; returns the steps that were taken and the episodes that ended, in the order of the lanes.
    pub fn tick(&mut self, player: &mut dyn Player) -> Result<(usize, Vec<Finished>), PlayError> {
        for lane in 0..self.episodes.len() {
            if self.episodes[lane].is_none()
                && !self.closed[lane]
                && let Some(observation) = self.lanes.reset(lane)?
            {
                self.begin(lane, observation, player);
            }
        }
        let actions = self.act(player);
        let seen = self.lanes.step(&actions)?;
        assert_eq!(seen.len(), actions.len(), "results of a step, want one per lane");
        let (mut steps, mut finished) = (0, Vec::new());
        for (lane, (seen, action)) in seen.into_iter().zip(actions).enumerate() {
            match (seen, action) {
                (Seen::Start(_), None) if self.closed[lane] => {}
                (Seen::Start(observation), None) => self.begin(lane, observation, player),
                (Seen::Step(step), Some(action)) => {
                    steps += 1;
                    finished.extend(self.observe(lane, action, step, player)?);
                }
                (Seen::Nothing, _) | (Seen::Step(_), None) => {}
                (Seen::Start(_), Some(_)) => {
                    return Err(
                        EnvError::new(format!("lane {lane} started an episode instead of a step")).into()
                    );
                }
            }
        }
        player.tick_is_over()?;
        Ok((steps, finished))
    }

    fn begin(&mut self, lane: usize, observation: Observation, player: &mut dyn Player) {
        let memo = player.begin(lane, &observation);
        self.episodes[lane] =
            Some(Episode { stage: 0, observation, collected: 0.0, undiscounted: 0.0, memo });
    }

    fn act(&self, player: &mut dyn Player) -> Vec<Option<usize>> {
        let open =
            self.episodes.iter().enumerate().filter_map(|(lane, episode)| Some((lane, episode.as_ref()?)));
        let (lanes, waiting): (Vec<usize>, Vec<Waiting>) =
            open.map(|(lane, episode)| (lane, Waiting { memo: &episode.memo, x: episode.x() })).unzip();
        let mut actions = vec![None; self.episodes.len()];
        if !lanes.is_empty() {
            let chosen = player.act(&lanes, &waiting);
            assert_eq!(chosen.len(), lanes.len(), "actions, want one per waiting lane");
            lanes.into_iter().zip(chosen).for_each(|(lane, action)| actions[lane] = Some(action));
        }
        actions
    }

    /// One lane's transition; the episode, if it is over.
    fn observe(
        &mut self,
        lane: usize,
        action: usize,
        step: bqrl_mdp::env::Step,
        player: &mut dyn Player,
    ) -> Result<Option<Finished>, PlayError> {
        let episode = self.episodes[lane].take().expect("an action was taken in an episode");
        let reward = self.discount.powi(episode.stage as i32) * step.reward;
        let (stage, collected) = (episode.stage + 1, episode.collected + reward);
        let undiscounted = episode.undiscounted + step.reward;
        let next = Input { stage, observation: &step.observation, collected };
        player.observe(lane, &Transition { x: episode.x(), action, reward, next, end: step.end })?;
        if step.end == End::NotYet {
            let observation = step.observation;
            self.episodes[lane] = Some(Episode { stage, observation, collected, undiscounted, ..episode });
            return Ok(None);
        }
        Ok(Some(Finished { lane, episode_return: collected, undiscounted, length: stage }))
    }

    /// Everything that play resumes from. Where the environment cannot be saved in the middle of an episode, the open
    /// episodes are left out.
    pub fn save(&self) -> SavedPlay {
        let episodes = match self.lanes.resumes_mid_episode() {
            true => self.episodes.clone(),
            false => vec![None; self.episodes.len()],
        };
        SavedPlay { lanes: self.lanes.save(), episodes }
    }

    /// Restores what [`save`](Self::save) gave, into lanes of the same kind and number.
    pub fn restore(&mut self, saved: SavedPlay) -> Result<(), EnvError> {
        let n = self.episodes.len();
        if !self.lanes.resumes_mid_episode() {
            // Episodes start anew, in any number of lanes.
            self.episodes = vec![None; n];
            return self.lanes.restore(&saved.lanes);
        }
        if saved.episodes.len() != n {
            return Err(EnvError::new(format!(
                "the checkpoint has {} lanes, want {n}",
                saved.episodes.len()
            )));
        }
        self.lanes.restore(&saved.lanes)?;
        self.episodes = saved.episodes;
        Ok(())
    }
}

impl Episode {
    fn x(&self) -> Input<'_> {
        Input { stage: self.stage, observation: &self.observation, collected: self.collected }
    }
}

/// An agent that learns while it plays.
pub struct Learning<'a> {
    /// The agent.
    pub agent: &'a mut dyn Agent,
    /// How far training was when the tick began.
    pub clock: Clock,
}

impl Player for Learning<'_> {
    fn begin(&mut self, lane: usize, start: &Observation) -> Memo {
        self.agent.begin(&self.clock, lane, start)
    }

    fn act(&mut self, _lanes: &[usize], waiting: &[Waiting]) -> Vec<usize> {
        self.agent.act(&self.clock, waiting)
    }

    fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.agent.store(lane, transition)
    }

    fn tick_is_over(&mut self) -> Result<(), LearnError> {
        self.agent.learn(&self.clock)
    }
}

impl Play {
    /// One tick of training; the clock moves on by it.
    pub fn train(&mut self, agent: &mut dyn Agent, clock: &mut Clock) -> Result<Vec<Finished>, PlayError> {
        let (steps, finished) = self.tick(&mut Learning { agent, clock: *clock })?;
        clock.steps += steps as u64;
        clock.episodes += finished.len() as u64;
        Ok(finished)
    }
}
