//! Plays a problem by sampling the same table that evaluation integrates.
//!
//! One uniform draw a step picks an outcome by inverse CDF: the first whose cumulative probability exceeds the draw.
//! If rounding leaves the draw above the sum, the last outcome is taken. Rewards are those of the table; callers apply the
//! discount.

use std::sync::Arc;

use bqrl_math::rng::Rng;

use crate::env::{Env, EnvSpec, KnownRewards, ObservationSpace, Step};
use crate::lanes::EnvError;
use crate::model::{Kernel, Model, Problem};
use crate::trajectory::{End, Observation};

/// A table that can be played.
#[derive(Clone, Debug)]
pub struct TabularEnv {
    problem: Arc<Problem>,
    spec: EnvSpec,
    /// Per kernel, beside its outcomes: the probability up to and including each within its row.
    cumulative: Vec<Vec<f64>>,
    start: Vec<f64>,
    stage: usize,
    state: usize,
}

impl TabularEnv {
    /// Prepares a problem for play.
    pub fn new(problem: impl Into<Arc<Problem>>) -> Self {
        let problem = problem.into();
        let model = &problem.model;
        let rows = || (0..model.n_states()).flat_map(|s| (0..model.n_actions()).map(move |a| (s, a)));
        let cumulative: Vec<Vec<f64>> = model
            .kernels()
            .iter()
            .map(|kernel| {
                rows()
                    .flat_map(|(s, a)| running_sums(kernel.outcomes(s, a).iter().map(|o| o.probability)))
                    .collect()
            })
            .collect();
        let rewards = || model.kernels().iter().flat_map(Kernel::all_outcomes).map(|o| o.reward);
        let spec = EnvSpec {
            name: problem.name.clone(),
            observations: ObservationSpace::Discrete { n: model.n_states(), ordered: problem.ordered },
            normalize_observations: true,
            n_actions: model.n_actions(),
            horizon: model.horizon(),
            horizon_is_task: true,
            reward_bounds: rewards().reduce(f64::min).zip(rewards().reduce(f64::max)),
            discount: model.discount(),
            stationary: model.kernels().len() == 1,
            known_rewards: known_rewards(model),
            terminal: terminal_states(model),
        };
        let start = running_sums(model.start().iter().map(|&(_, p)| p)).collect();
        // No episode is in progress until reset: the stage is at the end.
        let stage = model.horizon();
        Self { problem, spec, cumulative, start, stage, state: 0 }
    }

    /// The problem being played.
    pub fn problem(&self) -> &Arc<Problem> {
        &self.problem
    }
}

/// r(s, a) or r(s'), if the table has that form at all stages. Entries that no transition reaches are 0.
fn known_rewards(model: &Model) -> Option<KnownRewards> {
    let n_actions = model.n_actions();
    let mut of_action = Some(vec![None; model.n_states() * n_actions]);
    let mut of_next = Some(vec![None; model.n_states()]);
    // Each entry must have a single value, otherwise the table does not have this form.
    let note = |table: &mut Option<Vec<Option<f64>>>, entry: usize, reward: f64| {
        if let Some(values) = table
            && *values[entry].get_or_insert(reward) != reward
        {
            *table = None;
        }
    };
    for kernel in model.kernels() {
        for row in 0..model.n_states() * n_actions {
            for outcome in kernel.outcomes(row / n_actions, row % n_actions) {
                note(&mut of_action, row, outcome.reward);
                note(&mut of_next, outcome.next, outcome.reward);
            }
        }
    }
    let filled = |values: Vec<Option<f64>>| values.into_iter().map(|reward| reward.unwrap_or(0.0)).collect();
    // r(s') first: if every action has one outcome, r(s, a) would reveal which pairs lead to a reward.
    let of_action = of_action.map(|values| KnownRewards::OfAction(filled(values)));
    of_next.map(|values| KnownRewards::OfNext(filled(values))).or(of_action)
}

/// The terminal states, if they are the same at all stages.
fn terminal_states(model: &Model) -> Option<Vec<bool>> {
    let terminal =
        |kernel: &Kernel| (0..model.n_states()).map(|s| kernel.is_terminal(s)).collect::<Vec<bool>>();
    let first = terminal(model.kernel(0));
    model.kernels().iter().all(|kernel| terminal(kernel) == first).then_some(first)
}

fn running_sums(probabilities: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    probabilities.scan(0.0, |sum, p| {
        *sum += p;
        Some(*sum)
    })
}

/// The first position whose running sum exceeds `u`, or the last.
fn inverse_cdf(running_sums: &[f64], u: f64) -> usize {
    running_sums.partition_point(|&sum| sum <= u).min(running_sums.len() - 1)
}

impl Env for TabularEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, rng: &mut Rng) -> Observation {
        self.stage = 0;
        (self.state, _) = self.problem.model.start()[inverse_cdf(&self.start, rng.uniform())];
        Observation::Index(self.state)
    }

    /// Samples (s', r) from P_h(· | s, a).
    ///
    /// # Panics
    /// If the episode is over or the action is not available: both are mistakes in the calling code.
    fn step(&mut self, action: usize, rng: &mut Rng) -> Step {
        let Problem { model, states, actions, .. } = &*self.problem;
        assert!(self.stage < model.horizon(), "the episode is over or has not begun: reset first");
        assert!(action < actions.len(), "action {action} is out of range, there are {}", actions.len());
        let kernel = model.kernel(self.stage);
        let row = kernel.row(self.state, action);
        assert!(
            !row.is_empty(),
            "action {:?} is not available in state {:?} at stage {}",
            actions[action],
            states[self.state],
            self.stage
        );
        let cumulative = &self.cumulative[self.stage.min(self.cumulative.len() - 1)];
        let outcome = kernel.outcomes(self.state, action)[inverse_cdf(&cumulative[row], rng.uniform())];

        self.state = outcome.next;
        self.stage += 1;
        let end = if model.is_terminal(self.stage, self.state) {
            End::Terminated
        } else if self.stage == model.horizon() {
            End::Horizon
        } else {
            End::NotYet
        };
        if end.is_over() {
            self.stage = model.horizon();
        }
        Step { observation: Observation::Index(self.state), reward: outcome.reward, end }
    }

    fn save(&self) -> Vec<u64> {
        vec![self.stage as u64, self.state as u64]
    }

    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError> {
        let model = &self.problem.model;
        match *state {
            [h, s]
                if h <= model.horizon() as u64
                    && s < model.n_states() as u64
                    // Nothing can be done in a terminal state, so no episode is open there.
                    && (h == model.horizon() as u64 || !model.is_terminal(h as usize, s as usize)) =>
            {
                (self.stage, self.state) = (h as usize, s as usize);
                Ok(())
            }
            _ => Err(EnvError::new(format!(
                "want a stage and a state of {}, got {state:?}",
                self.problem.name
            ))),
        }
    }

    fn is_at(&self, stage: usize, observation: &Observation) -> bool {
        (self.stage, Observation::Index(self.state)) == (stage, observation.clone())
    }
}

#[cfg(test)]
mod tests {
    use bqrl_math::rng::{Purpose, stream};

    use super::*;
    use crate::model::{Data, Outcome};
    use crate::problems;

    fn built(name: &str) -> TabularEnv {
        TabularEnv::new(problems::build(name, &[]).unwrap())
    }

    fn rng() -> Rng {
        stream(42, Purpose::Test)
    }

    #[test]
    fn a_draw_picks_the_outcome_whose_slice_it_falls_into() {
        // Slices [0, 0.25), [0.25, 0.5), [0.5, 0.999…); the last also takes what rounding left out.
        let sums = [0.25, 0.5, 0.999_999];
        let picks = [0.0, 0.249, 0.25, 0.499, 0.5, 0.9999999].map(|u| inverse_cdf(&sums, u));
        assert_eq!(picks, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn the_spec_tells_the_table_apart() {
        let env = built("asset-selling");
        let spec = EnvSpec {
            name: "asset-selling".to_owned(),
            observations: ObservationSpace::Discrete { n: 26, ordered: true },
            normalize_observations: true,
            n_actions: 2,
            horizon: 10,
            horizon_is_task: true,
            reward_bounds: Some((0.0, 1.0)),
            discount: 1.0,
            stationary: true,
            // Stopping pays the offer, waiting nothing; "sold" has no actions.
            known_rewards: Some(KnownRewards::OfAction(
                (0..25).flat_map(|offer| [f64::from(offer) / 24.0, 0.0]).chain([0.0, 0.0]).collect(),
            )),
            terminal: Some((0..26).map(|state| state == 25).collect()),
        };
        assert_eq!(env.spec(), &spec);
    }

    #[test]
    fn rewards_are_known_where_one_end_of_a_transition_decides_them() {
        let known = |name| built(name).spec().known_rewards.clone();
        // Only entering the goal pays, whatever led there.
        let goal = KnownRewards::OfNext((0..16).map(|state| f64::from(u8::from(state == 15))).collect());
        assert_eq!(known("frozen-lake"), Some(goal));
        assert!(matches!(known("river-swim"), Some(KnownRewards::OfAction(_))));
        assert!(matches!(known("american-put"), Some(KnownRewards::OfAction(_))));
        // A gamble pays one thing or another; a fall and a step may end in the same cell; a profit needs both stocks.
        for name in ["gamble-chain", "cliff-walk", "inventory", "machine-replacement", "gamblers-ruin"] {
            assert_eq!(known(name), None, "{name}");
        }
    }

    #[test]
    fn what_is_known_says_nothing_of_where_actions_lead() {
        // The same rewards on ice that does not slip: the same knowledge.
        let firm = problems::build("frozen-lake", &[("slippery".to_owned(), "false".to_owned())]).unwrap();
        let (firm, wet) = (TabularEnv::new(firm), built("frozen-lake"));
        assert_eq!(firm.spec(), wet.spec());
    }

    #[test]
    fn selling_terminates_and_waiting_runs_into_the_horizon() {
        let (mut env, mut rng) = (built("asset-selling"), rng());
        assert_eq!(env.reset(&mut rng), Observation::Index(5));
        let step = env.step(0, &mut rng);
        let sold = Step { observation: Observation::Index(25), reward: 5.0 / 24.0, end: End::Terminated };
        assert_eq!(step, sold);

        env.reset(&mut rng);
        let ends: Vec<End> = (0..10).map(|_| env.step(1, &mut rng).end).collect();
        assert!(ends[..9].iter().all(|&end| end == End::NotYet));
        assert_eq!(ends[9], End::Horizon);
    }

    #[test]
    fn selling_at_the_last_decision_terminates() {
        let (mut env, mut rng) = (built("asset-selling"), rng());
        env.reset(&mut rng);
        for _ in 0..9 {
            env.step(1, &mut rng);
        }
        assert_eq!(env.step(0, &mut rng).end, End::Terminated);
    }

    #[test]
    fn each_stage_is_played_by_its_own_kernel() {
        let to = |next: usize, reward| [(0, 0, Outcome { probability: 1.0, next, reward })];
        let kernels = vec![Kernel::new(2, 1, to(0, 1.0)).unwrap(), Kernel::new(2, 1, to(1, 2.0)).unwrap()];
        let model = Model::new(kernels, 2, 1.0, vec![(0, 1.0)]).unwrap();
        let (states, actions) = (vec!["a".to_owned(), "b".to_owned()], vec!["go".to_owned()]);
        let mut env = TabularEnv::new(Problem {
            name: "two stages".to_owned(),
            model,
            states,
            actions,
            ordered: false,
            data: Data::default(),
        });
        let mut rng = rng();
        env.reset(&mut rng);
        assert_eq!(
            env.step(0, &mut rng),
            Step { observation: Observation::Index(0), reward: 1.0, end: End::NotYet }
        );
        assert_eq!(
            env.step(0, &mut rng),
            Step { observation: Observation::Index(1), reward: 2.0, end: End::Terminated }
        );
    }

    #[test]
    #[should_panic(expected = "action \"b\" is not available in state \"only\" at stage 0")]
    fn an_unavailable_action_is_named() {
        let row = (0, 0, Outcome { probability: 1.0, next: 0, reward: 0.0 });
        let kernel = Kernel::new(1, 2, [row]).unwrap();
        let model = Model::new(vec![kernel], 2, 1.0, vec![(0, 1.0)]).unwrap();
        let (states, actions) = (vec!["only".to_owned()], vec!["a".to_owned(), "b".to_owned()]);
        let mut env = TabularEnv::new(Problem {
            name: "restricted".to_owned(),
            model,
            states,
            actions,
            ordered: false,
            data: Data::default(),
        });
        env.reset(&mut rng());
        env.step(1, &mut rng());
    }

    #[test]
    #[should_panic(expected = "reset first")]
    fn a_finished_episode_cannot_go_on() {
        let (mut env, mut rng) = (built("asset-selling"), rng());
        env.reset(&mut rng);
        env.step(0, &mut rng);
        env.step(0, &mut rng);
    }
}
