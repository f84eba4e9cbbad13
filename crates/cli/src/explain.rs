//! `bqrl explain`: what each action is worth at one point, for the plan of a level.

use std::fmt::Write as _;

use bqrl_lab::given::{listed, place};
use bqrl_math::buffer::check_tau;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Planner;
use bqrl_mdp::plan::outlook::{ActionOutlook, following};
use bqrl_mdp::trajectory::AugmentedInput;
use serde::Serialize;

use crate::failure::Failure;
use crate::problem::{self, ProblemFlags};
use crate::text::{number, often, table};

/// Passes of the planner that raise the mean within the slack, as in `bqrl plan`.
const REFINE: usize = 12;

/// Flags of `bqrl explain`.
#[derive(clap::Args)]
pub struct ExplainArgs {
    /// A built-in problem or an MDP file
    problem: String,
    #[command(flatten)]
    flags: ProblemFlags,
    /// Risk level in (0, 1)
    #[arg(long, allow_negative_numbers = true, default_value_t = 0.1, value_name = "TAU")]
    tau: f64,
    /// The point: stage (from 0), state, and the reward collected so far
    #[arg(long, allow_hyphen_values = true, value_name = "STAGE,STATE,COLLECTED")]
    at: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The output of `--json`, which users and scripts rely on.
#[derive(Serialize)]
struct Report<'a> {
    problem: &'a str,
    /// Whether the probabilities are estimates from counts.
    estimated: bool,
    tau: f64,
    target: f64,
    stage: usize,
    state: &'a str,
    collected: f64,
    actions: Vec<Worth<'a>>,
}

/// The value of an action.
#[derive(Serialize)]
struct Worth<'a> {
    action: &'a str,
    chance: f64,
    expected: f64,
    chosen: bool,
}

/// Explains, and returns the text to print.
pub fn run(args: &ExplainArgs) -> Result<String, Failure> {
    let tau = check_tau(args.tau).map_err(Failure::usage)?;
    let problem = problem::load(&args.flags.config(&args.problem)?)?;
    let x = point(&args.at, &problem)?;
    let planner = Planner::exact(&problem.model, &|_, _, _| {}).map_err(Failure::usage)?;
    let refuse = |error| Failure::usage(format!("--at: {error}"));
    planner.evaluator().points().check(&problem, &x).map_err(refuse)?;
    let plan = planner.quantile_policy(tau, REFINE);
    let target = plan.best.value;
    let actions = following(&problem.model, &plan.policy, target, &x).map_err(Failure::usage)?;
    let chosen = plan.policy.action(&x);
    let state = &problem.states[x.state];
    if args.json {
        let worth = |worth: &ActionOutlook| Worth {
            action: &problem.actions[worth.action],
            chance: worth.chance,
            expected: worth.mean,
            chosen: worth.action == chosen,
        };
        let report = Report {
            problem: &problem.name,
            estimated: problem.data.counts.is_some(),
            tau,
            target,
            stage: x.stage,
            state,
            collected: x.collected,
            actions: actions.iter().map(worth).collect(),
        };
        return Ok(serde_json::to_string(&report).expect("plain numbers and text serialise") + "\n");
    }
    Ok(human(&problem, tau, target, &x, &actions, chosen))
}

fn human(
    problem: &Problem,
    tau: f64,
    target: f64,
    x: &AugmentedInput,
    actions: &[ActionOutlook],
    chosen: usize,
) -> String {
    let name = |choice: &ActionOutlook| &problem.actions[choice.action];
    let mut out = format!(
        "The plan for τ = {} aims at a total of {}, which it reaches {} or more often. Stage {}, state {}, {} collected.\n",
        number(tau),
        number(target),
        often(tau),
        x.stage,
        problem.states[x.state],
        number(x.collected)
    );
    if let Some(choice) = actions.iter().find(|choice| choice.action == chosen) {
        let _ = write!(
            out,
            "Choose {}: the chance to reach {} is {}, and the expected total is {}.\n\n",
            name(choice),
            number(target),
            number(choice.chance),
            number(choice.mean)
        );
    }
    let headings = ["", "action", "chance to reach the target", "expected total"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for choice in actions {
        let mark = if choice.action == chosen { "→" } else { "" };
        rows.push(vec![mark.to_owned(), name(choice).clone(), number(choice.chance), number(choice.mean)]);
    }
    out += &table(&rows);
    if problem.data.counts.is_some() {
        out += "\nEstimates from counts, no promises: all of this holds if the estimated probabilities are true.\n";
    }
    out
}

fn point(text: &str, problem: &Problem) -> Result<AugmentedInput, Failure> {
    let wrong = || Failure::usage(format!("--at: want STAGE,STATE,COLLECTED such as 0,5,0, got {text:?}"));
    let [stage, state, collected] = &text.split(',').map(str::trim).collect::<Vec<_>>()[..] else {
        return Err(wrong());
    };
    let horizon = problem.model.horizon();
    let stage: usize = stage.parse().map_err(|_| wrong())?;
    if stage >= horizon {
        return Err(Failure::usage(format!("--at: stages are 0 to {}, got {stage}", horizon - 1)));
    }
    let unknown = || {
        Failure::usage(format!(
            "--at: the problem has no state {state:?}; it has {}",
            listed(&problem.states)
        ))
    };
    let state = place(&problem.states, state).ok_or_else(unknown)?;
    let collected: f64 = collected.parse().map_err(|_| wrong())?;
    if !collected.is_finite() {
        return Err(wrong());
    }
    Ok(AugmentedInput { stage, state, collected })
}
