//! The replay buffer 𝒟: a ring of transitions per lane, each observation stored once.
//!
//! x' of a transition is x of the next one in its lane, so only x is stored: an index as u32, a vector as f32, bits
//! packed, and of a stack of frames only the newest group where the rest is in the observation before. x' that follows the
//! newest transition of a lane waits in a place of its own until it is stored as the next x. Where it is not (a cut-off; an
//! episode that was given up) it is kept beside the ring; after an end that leaves nothing to earn it is not needed.
//!
//! The capacity N is split evenly over the lanes, rounded up. Each lane holds exactly its newest transitions. All that are
//! held are sampled uniformly with replacement from the caller's stream.

mod lane;
mod memory;
mod rows;
mod save;
#[cfg(test)]
mod tests;

use bqrl_math::rng::Rng;
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::trajectory::Observation;

use self::lane::Lane;
pub use self::memory::{ReplayTooLarge, machine, memory};
use self::rows::{HEADER, Layout};
use self::save::Segments;
use crate::Transition;

/// Rings of transitions.
#[derive(Clone, Debug)]
pub struct Replay {
    lanes: Vec<Lane>,
    /// Transitions held.
    len: usize,
    segments: Segments,
    /// The actions and observations that a restored transition may have; `None` where nothing is known.
    limits: Option<Limits>,
}

/// Indices below these exist.
#[derive(Clone, Copy, Debug)]
struct Limits {
    n_actions: usize,
    /// Only where observations are indices.
    n_observations: Option<usize>,
}

/// A transition as it is read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// No other transition ever stored has this number. With one lane: the transitions stored before it.
    pub number: u64,
    /// (h, s, c).
    pub x: (usize, Observation, f64),
    /// The action.
    pub action: usize,
    /// Its reward; of several steps, their sum, each discounted by the steps before it.
    pub reward: f64,
    /// x'; `None` after a last transition, where nothing is left to earn.
    pub next: Option<(usize, Observation, f64)>,
    /// The discount of x'; 0 if there is no x'.
    pub continuation: f64,
    /// Its steps.
    pub n_steps: usize,
}

impl Remembered {
    /// The same transition at another stage, where the horizon leaves room for its steps. In a stationary task it is as true there,
    /// but for γ. A last transition at the horizon stays where it is: what would have followed is not known.
    #[must_use]
    pub fn at_stage(mut self, stage: usize, horizon: usize, gamma: f64) -> Self {
        let (before, end) = (self.x.0, stage + self.n_steps);
        assert!(end <= horizon, "stage {stage} leaves no room for {} steps", self.n_steps);
        // A forged file may hold stages beyond the horizon.
        if before >= horizon || (self.next.is_none() && before + self.n_steps == horizon) {
            return self;
        }
        self.reward *= gamma.powf(stage as f64 - before as f64);
        self.x.0 = stage;
        self.next = self.next.filter(|_| end < horizon).map(|(_, observation, c)| (end, observation, c));
        if self.next.is_none() {
            self.continuation = 0.0;
        }
        self
    }
}

impl Replay {
    /// Empty rings for transitions with such observations.
    pub fn new(capacity: usize, n_lanes: usize, observations: &ObservationSpace) -> Self {
        assert!(capacity > 0, "capacity must be at least 1, got 0");
        assert!(n_lanes > 0, "n_lanes must be at least 1, got 0");
        let layout = Layout::of(observations);
        let lane = Lane::new(capacity.div_ceil(n_lanes), layout);
        let segments = Segments::new(n_lanes, HEADER + layout.group());
        Self { lanes: vec![lane; n_lanes], len: 0, segments, limits: None }
    }

    /// Restores only transitions that such an environment can have.
    #[must_use]
    pub fn within(self, spec: &EnvSpec) -> Self {
        let n_observations = match spec.observations {
            ObservationSpace::Discrete { n, .. } => Some(n),
            _ => None,
        };
        Self { limits: Some(Limits { n_actions: spec.n_actions, n_observations }), ..self }
    }

    /// Transitions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True before the first transition.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores a transition of a lane, in the place of its oldest when its ring is full. Lanes beyond the rings share them.
    pub fn store(&mut self, lane: usize, transition: &Transition) {
        let ring = lane % self.lanes.len();
        let replaced = self.lanes[ring].store(transition);
        self.len += usize::from(!replaced);
        self.segments.stored(&self.lanes);
    }

    /// One transition, uniformly, over `n_steps` steps or to the end of its episode: the reward is their sum and x' follows the
    /// last of them.
    pub fn sample(&self, n_steps: usize, discount: f64, rng: &mut Rng) -> Remembered {
        self.get(rng.below(self.len()), n_steps, discount)
    }

    /// The rewards of the newest transitions of a lane, newest first, back to the first of their episode.
    pub fn newest_rewards(&self, lane: usize) -> impl Iterator<Item = f64> + '_ {
        let lane = &self.lanes[lane % self.lanes.len()];
        let mut at_start = false;
        (lane.oldest()..lane.stored).rev().map_while(move |number| {
            if at_start {
                return None;
            }
            let header = lane.header(number);
            at_start = header.stage == 0;
            Some(header.reward)
        })
    }

    /// The transition at a place: lane after lane, and within a lane by slot.
    fn get(&self, mut place: usize, n_steps: usize, discount: f64) -> Remembered {
        let mut index = 0;
        while place >= self.lanes[index].len() {
            place -= self.lanes[index].len();
            index += 1;
        }
        let lane = &self.lanes[index];
        let number = lane.number_at(place);
        let (header, x) = (lane.header(number), lane.x(number));
        let (mut last, mut reward, mut after) = (number, header.reward, discount);
        while last + 1 < number + n_steps as u64 && lane.is_followed(last) {
            last += 1;
            reward += after * lane.header(last).reward;
            after *= discount;
        }
        let next = if last == number { lane.next(number, &x) } else { lane.next(last, &lane.x(last)) };
        let continuation = if next.is_some() { after } else { 0.0 };
        Remembered {
            number: number * self.lanes.len() as u64 + index as u64,
            x,
            action: header.action as usize,
            reward,
            next,
            continuation,
            n_steps: (last - number) as usize + 1,
        }
    }
}
