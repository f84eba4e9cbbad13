//! Agents: one folder per algorithm, with the equations at the top of its file, all behind one small interface.
//!
//! An agent sees an [`EnvSpec`](bqrl_mdp::env::EnvSpec) and transitions; it never sees the true model. Evaluating it cannot change it:
//! [`Agent::serve`] and [`Agent::decide`] take `&self`. The loop that plays is [`play`]; the memory of agents is in
//! [`experience`].

pub mod deep_bqrl;
pub mod experience;
pub mod play;
pub mod policy_gradient;
pub mod ppo;
pub mod qppo;
pub mod qr_dqn;
pub mod quantile_critics;
mod settings;
pub mod target_tracking;
pub mod trpo;
pub mod ucb_bqrl;
pub mod var_q;

use std::cmp::Ordering;

use bqrl_math::buffer::Buffer;
use bqrl_math::schedule::Clock;
use bqrl_mdp::evaluate::{Choice, Policies, Policy};
use bqrl_mdp::trajectory::{AugmentedInput, End, Observation};
use bqrl_nn::UpdateError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::experience::arrays::RestoreError;
pub use self::experience::encode::Moments;
pub use self::experience::replay::ReplayTooLarge;
pub use self::experience::saved::{Body, Part};
pub use self::settings::{AgentError, Kernels};

/// x = (h, s, c) with any observation in the place of s (§3, Approximation I).
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Decisions taken so far, counted from 0.
    pub stage: usize,
    /// The observation.
    pub observation: &'a Observation,
    /// The reward collected before this decision.
    pub collected: f64,
}

/// (x, a, r, x', d); d is in `end`.
#[derive(Clone, Copy, Debug)]
pub struct Transition<'a> {
    /// x: where the action was taken.
    pub x: Input<'a>,
    /// The action.
    pub action: usize,
    /// Its reward.
    pub reward: f64,
    /// x': where the action led.
    pub next: Input<'a>,
    /// Whether, and why, the episode is over.
    pub end: End,
}

/// The memory of one episode: the loop keeps it for each lane and passes it to every decision.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Memo {
    /// The target of the whole episode, for an agent that has one.
    pub target: Option<Target>,
    /// The critic that the episode follows; `None` for all of them.
    pub critic: Option<usize>,
}

/// A lane that waits for an action.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// Which.
    pub lane: usize,
    /// The memory of its episode.
    pub memo: &'a Memo,
    /// Its input x.
    pub x: Input<'a>,
}

/// The target of an episode: the policy maximises w U(R) + (1−w) R/σ, where U is a step or a ramp.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Target {
    /// u: a return below it gains nothing.
    pub u: f64,
    /// v: a return above it gains no more. With a step, every return from u on gains the same, and v is the return aimed at.
    pub v: f64,
    /// w: the weight of the target against the mean.
    pub weight: f64,
    /// 0: U is the step 1{R ≥ u}. k: U is clip((R−u)/(v−u), 0, 1), with the agent's k-th ramp.
    pub ramp: usize,
}

/// The statistic to maximise at a level (τ, β).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The point quantile Q_τ.
    Quantile,
    /// The lower-buffered quantile Q_τ^β.
    Buffered,
}

/// The policies that an agent serves, each as the memo that it starts an episode with.
#[derive(Clone, Debug, PartialEq)]
pub enum Served {
    /// One policy for every level.
    One(Memo),
    /// One policy per level, in the order of the levels that were asked for.
    PerLevel(Vec<Memo>),
}

impl Served {
    /// The memos, one or one per level.
    pub fn memos(&self) -> &[Memo] {
        match self {
            Served::One(memo) => std::slice::from_ref(memo),
            Served::PerLevel(memos) => memos,
        }
    }

    /// The memo of the level with this index.
    pub fn at(&self, level: usize) -> &Memo {
        match self {
            Served::One(memo) => memo,
            Served::PerLevel(memos) => &memos[level],
        }
    }

    /// Whether every level has its own policy.
    pub fn is_per_level(&self) -> bool {
        matches!(self, Served::PerLevel(_))
    }
}

/// One critic's quantile of c + Z(x, a).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// m, counted from 0.
    pub critic: usize,
    /// a.
    pub action: usize,
    /// The level of the quantile.
    pub level: f64,
    /// Its value, in the problem's own units.
    pub value: f64,
}

/// A learner. It may move to another thread, and several threads may ask for its decisions.
///
/// Acting, storing and learning are separate calls: learning from a log is `store` and `learn` without `act`.
pub trait Agent: Send + Sync {
    /// An episode starts in a lane; returns the memory of the episode. If an earlier episode of the lane did not end, it was
    /// abandoned.
    fn begin(&mut self, clock: &Clock, lane: usize, start: &Observation) -> Memo;
    /// The behaviour policy, exploration included: one action per waiting lane.
    fn act(&mut self, clock: &Clock, waiting: &[Waiting]) -> Vec<usize>;
    /// Remembers a transition of a lane.
    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError>;
    /// Makes the updates that are due after the stored transitions.
    fn learn(&mut self, clock: &Clock) -> Result<(), LearnError>;
    /// The policies that the agent would output now for these levels. An agent that was trained for one objective
    /// serves that one.
    fn serve(&self, levels: &[Buffer], objective: Objective) -> Served;
    /// A served policy at x: appends (action, probability) pairs to `choice`, which is empty; probabilities sum to 1.
    fn decide(&self, memo: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>);
    /// The same for several policies, each at an x of its own. An agent with networks sends all through at once.
    fn decide_all(&self, asked: &[(&Memo, Input)]) -> Vec<Choice> {
        let one = |(memo, x): &(&Memo, Input)| {
            let mut choice = Vec::new();
            self.decide(memo, x, &mut choice);
            choice
        };
        asked.iter().map(one).collect()
    }
    /// The critics' predictions of the return from x on; empty for an agent that does not predict laws.
    fn predictions(&self, x: &Input) -> Vec<Prediction>;
    /// Whether [`decide`](Self::decide) gives distributions; evaluation then reports both the mode and the
    /// distribution itself.
    fn is_stochastic(&self) -> bool;
    /// Gradient updates made so far; an agent without gradients counts its own kind of update.
    fn updates(&self) -> u64;
    /// A number that is another one whenever the output policies are, for an agent that rarely changes them; `None`: they may
    /// have changed since they were last evaluated.
    fn policy_version(&self) -> Option<u64> {
        None
    }
    /// How much it explores now: ε_t or λ_t; `None` for an agent that has neither.
    fn exploration(&self, _clock: &Clock) -> Option<f64> {
        None
    }
    /// A running mean of the loss, for an agent with networks that has made an update.
    fn loss(&self) -> Option<f64> {
        None
    }
    /// The predicted probability that a served policy reaches its target; `None` for an agent without targets.
    fn chance(&self, _target: &Target) -> Option<f64> {
        None
    }
    /// The running moments that vectors are normalised by; `None` where nothing is normalised.
    fn moments(&self) -> Option<Moments> {
        None
    }
    /// Everything that training resumes from, as named files: safetensors for arrays, JSON for the rest.
    /// A sealed part that the store already `has` is named without its bytes.
    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part>;
    /// Restores the result of [`save`](Self::save), into an agent made with the same settings.
    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError>;
    /// Refuses the memory of an open episode that this agent cannot have given. Most agents give an empty one.
    fn check_memo(&self, memo: &Memo) -> Result<(), RestoreError> {
        if *memo == Memo::default() {
            Ok(())
        } else {
            Err(RestoreError(format!("the memo of an episode must be empty, got {memo:?}")))
        }
    }
    /// The learned networks or tables, as a safetensors file that other tools can read.
    fn weights(&self) -> Vec<u8>;
}

/// A policy that an agent serves.
#[derive(Clone, Copy)]
pub struct ServedPolicy<'a> {
    agent: &'a dyn Agent,
    memo: &'a Memo,
    mode: bool,
}

impl<'a> ServedPolicy<'a> {
    /// The policy itself, which may draw its actions.
    pub fn new(agent: &'a dyn Agent, memo: &'a Memo) -> Self {
        Self { agent, memo, mode: false }
    }

    /// Its most probable action, for certain; ties go to the lowest index.
    pub fn mode(agent: &'a dyn Agent, memo: &'a Memo) -> Self {
        Self { agent, memo, mode: true }
    }

    /// The memo that it starts an episode with.
    pub fn memo(&self) -> Memo {
        *self.memo
    }

    /// Appends (action, probability) pairs to `choice`, which is empty.
    pub fn decide(&self, x: &Input, choice: &mut Vec<(usize, f64)>) {
        self.agent.decide(self.memo, x, choice);
        if self.mode {
            let action = most_probable(choice);
            choice.clear();
            choice.push((action, 1.0));
        }
    }

    /// The same at several x.
    pub fn decide_all<'x>(&self, xs: impl Iterator<Item = Input<'x>>) -> Vec<Choice> {
        let Self { agent, memo, mode } = *self;
        ServedPolicies { agent, memos: std::slice::from_ref(memo), mode }.decide_all(xs.map(|x| (0, x)))
    }

    /// The most probable action at x.
    pub fn action(&self, x: &Input) -> usize {
        let mut choice = Vec::new();
        self.agent.decide(self.memo, x, &mut choice);
        most_probable(&choice)
    }
}

/// The most probable action; ties go to the lowest index.
fn most_probable(choice: &[(usize, f64)]) -> usize {
    let more = |best: (usize, f64), next: &(usize, f64)| match next.1.total_cmp(&best.1) {
        Ordering::Greater => *next,
        Ordering::Equal if next.0 < best.0 => *next,
        _ => best,
    };
    // From the first on: of probabilities that are not numbers, some action is the result, and no index that does not exist.
    choice.iter().copied().reduce(|best, next| more(best, &next)).map_or(usize::MAX, |best| best.0)
}

/// On a table, ready for exact evaluation.
impl Policy for ServedPolicy<'_> {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        let observation = Observation::Index(x.state);
        let x = Input { stage: x.stage, observation: &observation, collected: x.collected };
        ServedPolicy::decide(self, &x, choice);
    }
}

/// Several policies of an agent.
#[derive(Clone, Copy)]
pub struct ServedPolicies<'a> {
    agent: &'a dyn Agent,
    memos: &'a [Memo],
    mode: bool,
}

impl<'a> ServedPolicies<'a> {
    /// One per memo; with `mode`, each takes its most probable action for certain, ties going to the lowest index.
    pub fn new(agent: &'a dyn Agent, memos: &'a [Memo], mode: bool) -> Self {
        Self { agent, memos, mode }
    }

    /// Each of them by itself.
    pub fn each(self) -> impl Iterator<Item = ServedPolicy<'a>> {
        self.memos.iter().map(move |memo| ServedPolicy { agent: self.agent, memo, mode: self.mode })
    }

    /// The choices of policies. A question names a policy by its number, and an x.
    pub fn decide_all<'x>(&self, asked: impl Iterator<Item = (usize, Input<'x>)>) -> Vec<Choice> {
        let asked: Vec<(&Memo, Input)> = asked.map(|(policy, x)| (&self.memos[policy], x)).collect();
        let mut choices = self.agent.decide_all(&asked);
        if self.mode {
            for choice in &mut choices {
                *choice = vec![(most_probable(choice), 1.0)];
            }
        }
        choices
    }
}

impl Policies for ServedPolicies<'_> {
    fn n_policies(&self) -> usize {
        self.memos.len()
    }

    fn decide_all(&self, asked: &[(usize, AugmentedInput)]) -> Vec<Choice> {
        let states: Vec<Observation> = asked.iter().map(|(_, x)| Observation::Index(x.state)).collect();
        let input = |(&(policy, x), observation): (&(usize, AugmentedInput), _)| {
            (policy, Input { stage: x.stage, observation, collected: x.collected })
        };
        ServedPolicies::decide_all(self, asked.iter().zip(&states).map(input))
    }
}

/// Why an agent could not learn.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum LearnError {
    /// A network could not be updated.
    #[error(transparent)]
    Network(#[from] UpdateError),
    /// A reward is not a finite number. It was not stored.
    #[error("the reward must be finite, got {reward}")]
    Reward {
        /// The reward.
        reward: f64,
    },
    /// An entry of a table is no longer a finite number; smaller steps may help.
    #[error("the table of {table} is no longer finite after update {step}")]
    TableDiverged {
        /// The contents of the table.
        table: &'static str,
        /// The agent's updates so far.
        step: u64,
    },
}

/// Refuses a reward that is not finite.
pub(crate) fn finite(reward: f64) -> Result<(), LearnError> {
    if reward.is_finite() { Ok(()) } else { Err(LearnError::Reward { reward }) }
}

/// The index of a state, for agents that keep tables.
pub(crate) fn state(x: &Input) -> usize {
    state_of(x.observation)
}

/// The same of an observation.
pub(crate) fn state_of(observation: &Observation) -> usize {
    match observation {
        Observation::Index(state) => *state,
        _ => unreachable!("refused by settings::n_states when the agent was made"),
    }
}
