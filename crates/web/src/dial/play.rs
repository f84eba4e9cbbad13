//! An episode under a plan or under the policy of a run, step by step: what is offered, what is chosen, what is still missing.

use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::env::Env;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Planner;
use bqrl_mdp::plan::outlook::Outlook;
use bqrl_mdp::tabular::TabularEnv;
use bqrl_mdp::trajectory::{AugmentedInput, End, Observation};
use serde::Serialize;

/// A played episode.
#[derive(Debug, Serialize)]
pub struct Episode {
    target: f64,
    steps: Vec<Turn>,
    /// R.
    total: f64,
    /// Whether the target was reached.
    reached: bool,
    /// The state in which it ended.
    last: usize,
}

/// One decision.
#[derive(Debug, Serialize)]
struct Turn {
    stage: usize,
    state: usize,
    /// c, before the decision.
    collected: f64,
    /// The chance to reach the target from here, if that is all that counts.
    chance: f64,
    action: usize,
    /// γ^h r.
    reward: f64,
}

/// Plays. The simulator is the one that agents learn on.
pub fn episode(
    problem: &Problem,
    planner: &Planner<'_>,
    outlook: &Outlook,
    policy: &dyn Fn(&AugmentedInput) -> usize,
    target: f64,
    seed: u64,
) -> Episode {
    let mut env = TabularEnv::new(problem.clone());
    let mut rng = stream(seed, Purpose::Evaluation);
    let index = |observation: Observation| match observation {
        Observation::Index(state) => state,
        _ => unreachable!("a table shows its state"),
    };
    let mut state = index(env.reset(&mut rng));
    let mut collected = 0.0;
    let mut steps = Vec::new();
    for stage in 0..problem.model.horizon() {
        let x = AugmentedInput { stage, state, collected };
        let actions = planner.actions_at(outlook, &x, target);
        let chance = actions.iter().map(|action| action.chance).fold(0.0, f64::max);
        let action = policy(&x);
        let step = env.step(action, &mut rng);
        let reward = problem.model.discount_at(stage) * step.reward;
        steps.push(Turn { stage, state, collected, chance, action, reward });
        collected += reward;
        state = index(step.observation);
        if step.end != End::NotYet {
            break;
        }
    }
    // Sums of rewards may miss the target by rounding.
    let tolerance = 1e-9 * (1.0 + target.abs());
    Episode { target, steps, total: collected, reached: collected >= target - tolerance, last: state }
}
