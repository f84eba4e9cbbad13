//! A finite-horizon Markov decision process as a table (§2): 𝓜 = (𝒮, 𝒜, H, P_h, r_h).
//!
//! The simulator samples this table, and the planners integrate it. One kernel serves every stage
//! (stationary), or there is one per stage. Rows (s, a) lie end to end; an action without outcomes is not available in
//! that state, and a state without available actions is terminal: the episode ends on arrival.
//!
//! ```text
//! R = Σ_h γ^h r_h(S_h, A_h, S_{h+1}),   γ = 1 unless a discount is given
//! ```

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use crate::counts::Counts;

/// Probabilities of a row may miss 1 by this much; they are then normalised.
pub const SUM_TOLERANCE: f64 = 1e-6;

/// The most (stage, state) pairs that a model may have: planning keeps a few numbers for each.
pub const MAX_CELLS: usize = 1 << 26;

/// One outcome of (s, a).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Its probability, positive.
    pub probability: f64,
    /// The next state.
    pub next: usize,
    /// The reward of the transition.
    pub reward: f64,
}

/// A table that is not a Markov decision process. States and actions are given by index.
#[derive(Clone, Debug, Error, PartialEq)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum ModelError {
    #[error("state {state}, action {action}: next state {next} is out of range, there are {n_states} states")]
    NextOutOfRange { state: usize, action: usize, next: usize, n_states: usize },
    #[error(
        "state {state}, action {action} is out of range: there are {n_states} states and {n_actions} actions"
    )]
    RowOutOfRange { state: usize, action: usize, n_states: usize, n_actions: usize },
    #[error("state {state}, action {action}: a probability must be a number in [0, 1], got {probability}")]
    Probability { state: usize, action: usize, probability: f64 },
    #[error("state {state}, action {action}: the reward must be a finite number, got {reward}")]
    Reward { state: usize, action: usize, reward: f64 },
    #[error("state {state}, action {action}: probabilities must sum to 1 within 1e-6, got {sum}")]
    Sum { state: usize, action: usize, sum: f64 },
    #[error("the horizon must be at least 1, got {horizon}")]
    Horizon { horizon: usize },
    #[error("a horizon of {horizon} with {n_states} states makes more than {MAX_CELLS} (stage, state) pairs")]
    TooLong { horizon: usize, n_states: usize },
    #[error("the sum of rewards as large as {reward} over {horizon} stages overflows floating point")]
    Overflow { reward: f64, horizon: usize },
    #[error("the discount must lie in (0, 1], got {discount}")]
    Discount { discount: f64 },
    #[error("start state {state} is out of range: there are {n_states} states")]
    StartOutOfRange { state: usize, n_states: usize },
    #[error("start state {state} is terminal: there is nothing to decide")]
    StartTerminal { state: usize },
    #[error("start probabilities must be positive and sum to 1 within 1e-6, got {sum}")]
    StartSum { sum: f64 },
    #[error("there must be one kernel for all stages or one per stage ({horizon}), got {kernels}")]
    Kernels { kernels: usize, horizon: usize },
    #[error("all kernels must have {n_states} states and {n_actions} actions, that of stage {stage} differs")]
    KernelShape { stage: usize, n_states: usize, n_actions: usize },
}

/// P(·, · | s, a) for every state and action of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    n_states: usize,
    n_actions: usize,
    first: Vec<usize>,
    outcomes: Vec<Outcome>,
}

impl Kernel {
    /// Builds the table from (s, a, outcome) rows in any order. Identical outcomes add up, zero probabilities are
    /// dropped, and each row is normalised after its sum has been checked. A row that differs from 1 only by
    /// rounding is left as it is, so that a table that is written out and read back stays bit-identical.
    pub fn new(
        n_states: usize,
        n_actions: usize,
        rows: impl IntoIterator<Item = (usize, usize, Outcome)>,
    ) -> Result<Self, ModelError> {
        let mut sorted: Vec<(usize, usize, Outcome)> = rows.into_iter().collect();
        for &(state, action, Outcome { probability, next, reward }) in &sorted {
            if state >= n_states || action >= n_actions {
                return Err(ModelError::RowOutOfRange { state, action, n_states, n_actions });
            }
            if next >= n_states {
                return Err(ModelError::NextOutOfRange { state, action, next, n_states });
            }
            if !(0.0..=1.0 + SUM_TOLERANCE).contains(&probability) {
                return Err(ModelError::Probability { state, action, probability });
            }
            if !reward.is_finite() {
                return Err(ModelError::Reward { state, action, reward });
            }
        }
        // Rewards are compared as numbers, so that 0.0 and -0.0 are one outcome.
        sorted.sort_by(|(s, a, x), (t, b, y)| {
            (s, a, x.next).cmp(&(t, b, y.next)).then(x.reward.partial_cmp(&y.reward).expect("finite"))
        });

        let mut first = Vec::with_capacity(n_states * n_actions + 1);
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(sorted.len());
        let mut rows = sorted.into_iter().peekable();
        for row in 0..n_states * n_actions {
            let start = outcomes.len();
            first.push(start);
            let mut any = false;
            while let Some((.., outcome)) = rows.next_if(|&(s, a, _)| s * n_actions + a == row) {
                any = true;
                match outcomes[start..].last_mut() {
                    _ if outcome.probability == 0.0 => {}
                    Some(last) if last.next == outcome.next && last.reward == outcome.reward => {
                        last.probability += outcome.probability;
                    }
                    _ => outcomes.push(outcome),
                }
            }
            let sum: f64 = outcomes[start..].iter().map(|o| o.probability).sum();
            if any && (sum - 1.0).abs() > SUM_TOLERANCE {
                return Err(ModelError::Sum { state: row / n_actions, action: row % n_actions, sum });
            }
            // n terms divided by their computed sum add up to 1 within nε: (n − 1)ε/2 from either summation, ε/2 from
            // the division.
            let rounding = (outcomes.len() - start) as f64 * f64::EPSILON;
            if (sum - 1.0).abs() > rounding {
                for outcome in &mut outcomes[start..] {
                    outcome.probability /= sum;
                }
            }
        }
        first.push(outcomes.len());
        Ok(Self { n_states, n_actions, first, outcomes })
    }

    /// The outcomes of (s, a); empty if the action is not available.
    pub fn outcomes(&self, state: usize, action: usize) -> &[Outcome] {
        &self.outcomes[self.row(state, action)]
    }

    /// The range of the outcomes of (s, a) in [`Kernel::all_outcomes`].
    pub fn row(&self, state: usize, action: usize) -> Range<usize> {
        let row = state * self.n_actions + action;
        self.first[row]..self.first[row + 1]
    }

    /// True when no action is available.
    pub fn is_terminal(&self, state: usize) -> bool {
        let row = state * self.n_actions;
        self.first[row] == self.first[row + self.n_actions]
    }

    /// Every outcome of the table.
    pub fn all_outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }
}

/// A Markov decision process with a horizon, a discount and a start distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    kernels: Vec<Kernel>,
    horizon: usize,
    discount: f64,
    start: Vec<(usize, f64)>,
}

impl Model {
    /// Checks the parts and builds the model. `kernels` holds one kernel for all stages, or one per stage; `start` lists states with
    /// their probabilities.
    pub fn new(
        kernels: Vec<Kernel>,
        horizon: usize,
        discount: f64,
        start: Vec<(usize, f64)>,
    ) -> Result<Self, ModelError> {
        if horizon == 0 {
            return Err(ModelError::Horizon { horizon });
        }
        if kernels.is_empty() || (kernels.len() != 1 && kernels.len() != horizon) {
            return Err(ModelError::Kernels { kernels: kernels.len(), horizon });
        }
        if !(discount > 0.0 && discount <= 1.0) {
            return Err(ModelError::Discount { discount });
        }
        let (n_states, n_actions) = (kernels[0].n_states, kernels[0].n_actions);
        if let Some(stage) = kernels.iter().position(|k| k.n_states != n_states || k.n_actions != n_actions) {
            return Err(ModelError::KernelShape { stage, n_states, n_actions });
        }
        if horizon.saturating_mul(n_states) > MAX_CELLS {
            return Err(ModelError::TooLong { horizon, n_states });
        }
        let rewards = kernels.iter().flat_map(|kernel| &kernel.outcomes).map(|outcome| outcome.reward.abs());
        let reward = rewards.fold(0.0, f64::max);
        // Planning forms sums and squares of a few returns; this leaves room for them.
        if reward * horizon as f64 > 1e150 {
            return Err(ModelError::Overflow { reward, horizon });
        }
        if let Some(&(state, _)) = start.iter().find(|(state, _)| *state >= n_states) {
            return Err(ModelError::StartOutOfRange { state, n_states });
        }
        if let Some(&(state, _)) = start.iter().find(|(state, _)| kernels[0].is_terminal(*state)) {
            return Err(ModelError::StartTerminal { state });
        }
        let sum: f64 = start.iter().map(|(_, p)| p).sum();
        let positive = start.iter().all(|&(_, p)| p > 0.0);
        if !positive || (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(ModelError::StartSum { sum });
        }
        let start = start.into_iter().map(|(state, p)| (state, p / sum)).collect();
        Ok(Self { kernels, horizon, discount, start })
    }

    /// |𝒮|.
    pub fn n_states(&self) -> usize {
        self.kernels[0].n_states
    }

    /// |𝒜|, the largest number of actions in any state.
    pub fn n_actions(&self) -> usize {
        self.kernels[0].n_actions
    }

    /// H.
    pub fn horizon(&self) -> usize {
        self.horizon
    }

    /// γ.
    pub fn discount(&self) -> f64 {
        self.discount
    }

    /// The weight of a reward of stage h: γ^h.
    pub fn discount_at(&self, stage: usize) -> f64 {
        self.discount.powi(stage as i32)
    }

    /// The start distribution.
    pub fn start(&self) -> &[(usize, f64)] {
        &self.start
    }

    /// True when one kernel serves every stage.
    pub fn is_stationary(&self) -> bool {
        self.kernels.len() == 1
    }

    /// P_h, r_h.
    pub fn kernel(&self, stage: usize) -> &Kernel {
        if self.is_stationary() { &self.kernels[0] } else { &self.kernels[stage.min(self.horizon - 1)] }
    }

    /// The kernels as given: one, or one per stage.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The outcomes of (s, a) at stage h.
    pub fn outcomes(&self, stage: usize, state: usize, action: usize) -> &[Outcome] {
        self.kernel(stage).outcomes(state, action)
    }

    /// True if an episode that arrives in `state` at `stage` is over because no action is available there.
    pub fn is_terminal(&self, stage: usize, state: usize) -> bool {
        self.kernel(stage).is_terminal(state)
    }

    /// The actions available at (h, s).
    pub fn actions(&self, stage: usize, state: usize) -> impl Iterator<Item = usize> + '_ {
        let kernel = self.kernel(stage);
        (0..self.n_actions()).filter(move |&a| !kernel.outcomes(state, a).is_empty())
    }

    /// For every stage 0..=H, which states can be reached under some policy.
    pub fn reachable(&self) -> Vec<Vec<bool>> {
        let mut stages = vec![vec![false; self.n_states()]];
        for &(state, _) in &self.start {
            stages[0][state] = true;
        }
        for stage in 0..self.horizon {
            let mut next = vec![false; self.n_states()];
            for state in (0..self.n_states()).filter(|&s| stages[stage][s]) {
                for action in 0..self.n_actions() {
                    for outcome in self.outcomes(stage, state, action) {
                        next[outcome.next] = true;
                    }
                }
            }
            stages.push(next);
        }
        stages
    }
}

/// A model with names: a problem of `bqrl envs`, or a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Its name, or the file it came from.
    pub name: String,
    /// The table.
    pub model: Model,
    /// A label per state.
    pub states: Vec<String>,
    /// A name per action.
    pub actions: Vec<String>,
    /// True when neighbouring indices are similar states (offers, stock, wear): a hint for encodings, nothing more.
    pub ordered: bool,
    /// The data that it was made of.
    pub data: Data,
}

/// The data behind a problem; a problem whose rules are known has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// How often each outcome was seen, if the probabilities are estimates.
    pub counts: Option<Arc<Counts>>,
    /// Remarks of the reader that a user should see.
    pub notes: Vec<String>,
    /// Whether states and actions have names of their own, which files should keep.
    pub named: bool,
    /// How figures show the states.
    pub look: Look,
}

/// How figures show the states of a problem.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// What a state is, in a word: stock, price, …; empty if that is not known.
    pub axis: &'static str,
    /// A label per state, where that says more than its name; otherwise empty.
    pub labels: Vec<String>,
    /// The map of a grid world.
    pub grid: Option<Grid>,
}

/// The map of a grid world: state i lies in row i / columns and column i % columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The number of columns.
    pub columns: usize,
    /// A letter per cell, row by row.
    pub letters: String,
}

impl Problem {
    /// The same problem, shown in another way.
    #[must_use]
    pub fn looking(mut self, look: Look) -> Self {
        self.data.look = look;
        self
    }

    /// What a state is, in a word.
    pub fn state_axis(&self) -> &'static str {
        if self.data.look.axis.is_empty() { "state" } else { self.data.look.axis }
    }

    /// The labels of the states in figures.
    pub fn state_labels(&self) -> &[String] {
        if self.data.look.labels.is_empty() { &self.states } else { &self.data.look.labels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(probability: f64, next: usize, reward: f64) -> Outcome {
        Outcome { probability, next, reward }
    }

    #[test]
    fn identical_outcomes_add_up_and_different_rewards_stay_apart() {
        let rows = [
            (0, 0, outcome(0.25, 1, 2.0)),
            (0, 0, outcome(0.25, 1, 3.0)),
            (0, 0, outcome(0.25, 1, 2.0)),
            (0, 0, outcome(0.25, 0, 2.0)),
            (0, 0, outcome(0.0, 0, 9.0)),
        ];
        let kernel = Kernel::new(2, 1, rows).unwrap();
        assert_eq!(
            kernel.outcomes(0, 0),
            [outcome(0.25, 0, 2.0), outcome(0.5, 1, 2.0), outcome(0.25, 1, 3.0)]
        );
        assert!(kernel.is_terminal(1));
        assert!(!kernel.is_terminal(0));
    }

    #[test]
    fn rows_are_normalised_within_the_tolerance_and_refused_beyond_it() {
        let kernel = Kernel::new(1, 1, [(0, 0, outcome(0.9999995, 0, 0.0))]).unwrap();
        assert_eq!(kernel.outcomes(0, 0)[0].probability, 1.0);
        let error = Kernel::new(1, 1, [(0, 0, outcome(0.9, 0, 0.0))]).unwrap_err();
        assert_eq!(error.to_string(), "state 0, action 0: probabilities must sum to 1 within 1e-6, got 0.9");
    }

    #[test]
    fn building_a_table_again_from_its_own_outcomes_changes_no_bit() {
        // Seven sevenths and ten tenths do not sum to 1 in floating point, and neither do their normalised values.
        for n in [3, 7, 10, 49, 1000] {
            let rows = (0..n).map(|next| (0, 0, outcome(1.0 / n as f64 + 1e-10, next, 0.0)));
            let once = Kernel::new(n, 1, rows).unwrap();
            let twice = Kernel::new(n, 1, once.outcomes(0, 0).iter().map(|&o| (0, 0, o))).unwrap();
            assert_eq!(once, twice);
        }
    }

    #[test]
    fn wrong_tables_are_refused_with_their_place() {
        let bad = |o| Kernel::new(2, 1, [(1, 0, o)]).unwrap_err();
        assert!(matches!(bad(outcome(f64::NAN, 0, 0.0)), ModelError::Probability { state: 1, .. }));
        assert!(matches!(bad(outcome(-0.1, 0, 0.0)), ModelError::Probability { .. }));
        assert!(matches!(bad(outcome(1.0, 2, 0.0)), ModelError::NextOutOfRange { next: 2, .. }));
        assert!(matches!(bad(outcome(1.0, 0, f64::INFINITY)), ModelError::Reward { .. }));
        let kernel = || Kernel::new(1, 1, [(0, 0, outcome(1.0, 0, 0.0))]).unwrap();
        assert!(matches!(
            Model::new(vec![kernel()], 0, 1.0, vec![(0, 1.0)]),
            Err(ModelError::Horizon { .. })
        ));
        assert!(matches!(
            Model::new(vec![kernel()], 1, 1.5, vec![(0, 1.0)]),
            Err(ModelError::Discount { .. })
        ));
        assert!(matches!(
            Model::new(vec![kernel()], 1, 1.0, vec![(7, 1.0)]),
            Err(ModelError::StartOutOfRange { state: 7, .. })
        ));
        assert!(matches!(
            Model::new(vec![kernel()], usize::MAX, 1.0, vec![(0, 1.0)]),
            Err(ModelError::TooLong { .. })
        ));
        let large = Kernel::new(1, 1, [(0, 0, outcome(1.0, 0, -1e308))]).unwrap();
        assert!(matches!(Model::new(vec![large], 3, 1.0, vec![(0, 1.0)]), Err(ModelError::Overflow { .. })));
        assert!(matches!(
            Model::new(vec![kernel(); 2], 3, 1.0, vec![(0, 1.0)]),
            Err(ModelError::Kernels { .. })
        ));
    }
}
