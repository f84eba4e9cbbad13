//! All levels of a problem as one JSON object.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use bqrl_math::law::ReturnLaw;
use bqrl_mdp::evaluate::Evaluation;
use bqrl_mdp::model::{Grid, Model, Problem};
use bqrl_mdp::plan::{Planner, QuantilePlan};
use bqrl_mdp::returns::Rounding;
use bqrl_mdp::trajectory::AugmentedInput;
use bqrl_report::policy_map::{self, GridMap, Stroke, arrow, is_named};
use hyper::body::Bytes;
use serde::Serialize;

use super::buffered::SHARES;
use super::{Dial, MOST_OUTLOOK, Planned, kept_cells};

/// Updates of the backward pass that a plan may cost in all: several seconds.
const MOST_UPDATES: u64 = 5_000_000_000;
/// Updates that may be spent on raising the mean of policies.
const REFINE_UPDATES: u64 = 1_000_000_000;
/// Values of the return if they must be rounded.
const GRID: usize = 5_000;
/// Atoms of a law that are drawn; neighbours are merged.
const ATOMS: usize = 400;
/// Cells of a policy map; further stages are left out evenly.
const CELLS: usize = 12_000;
/// Actions that a cell can name with one letter.
const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The answer to `GET /api/dial`.
#[derive(Serialize)]
struct Answer<'a> {
    problem: &'a str,
    states: &'a [String],
    actions: &'a [String],
    /// One per action, as in reports.
    colours: Vec<String>,
    grid: Option<GridAnswer>,
    horizon: usize,
    ordered: bool,
    exact: bool,
    max_mean: f64,
    range: (f64, f64),
    /// The columns of the map: stages, from 0.
    stages: &'a [usize],
    /// Its rows: states in which something is chosen.
    rows: &'a [usize],
    neutral: Outcome,
    levels: &'a [Level],
    plans: Vec<Plan>,
}

/// The map of a grid world, as in reports.
#[derive(Serialize)]
struct GridAnswer {
    columns: usize,
    /// A word per cell, row by row: empty for open ground.
    letters: Vec<String>,
    /// A path in a square from −1 to 1 per action; `null` for actions that are no direction.
    arrows: Vec<Option<String>>,
}

/// One level.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// τ.
    pub tau: f64,
    /// Q*_τ, or a bound that is attained.
    pub best: f64,
    /// Q_τ of the policy with the largest mean.
    pub neutral: f64,
    /// Its number among the plans.
    pub plan: usize,
    /// The plan's P(R ≥ Q*_τ).
    pub at_least: f64,
    /// The plan's `E[R]`.
    pub mean: f64,
}

/// A law as it is drawn.
#[derive(PartialEq, Serialize)]
pub struct Outcome {
    mean: f64,
    values: Vec<f64>,
    probabilities: Vec<f64>,
    /// Whether neighbouring returns were merged.
    merged: bool,
}

/// A policy as it is drawn.
#[derive(PartialEq, Serialize)]
pub struct Plan {
    target: f64,
    #[serde(flatten)]
    outcome: Outcome,
    /// A word per column of the map, a letter per row: the action, or `.`.
    map: Vec<String>,
    /// Whether the map is at c = 0 everywhere.
    at_zero: bool,
    /// For a grid world, a letter per cell: the action of most periods, or `.`; and whether there are others: `1` or `0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    usual: Option<[String; 2]>,
}

/// Plans exactly, or with rounded returns if there are too many.
pub fn planner(model: &Model) -> Result<Planner<'static>, String> {
    let quiet: bqrl_mdp::plan::Progress<'static> = &|_, _, _| {};
    Planner::exact(model, quiet)
        .or_else(|_| Planner::rounded(model, GRID, Rounding::Down, quiet))
        .map_err(|error| error.to_string())
}

/// Plans every level.
pub fn dial(problem: Problem) -> Result<Dial, String> {
    let model = &problem.model;
    let planner = planner(model)?;
    let taus: Vec<f64> = (1..100).map(|percent| f64::from(percent) / 100.0).collect();
    // The first pass is done; its cost predicts that of the others. An evaluation costs about as much.
    let pass = planner.cost().1.max(1);
    if pass.saturating_mul(taus.len() as u64) > MOST_UPDATES {
        return Err(
            "the problem is too large to be planned at 99 levels while you wait; `bqrl plan` plans it \
                    at the levels that you name"
                .to_owned(),
        );
    }
    let refine = (REFINE_UPDATES / pass / taus.len() as u64).min(12) as usize;
    let (stages, rows) = map_axes(&problem);
    let mut levels = Vec::with_capacity(taus.len());
    let mut plans: Vec<Planned> = Vec::new();
    let mut answers: Vec<Plan> = Vec::new();
    // Levels with the same target and the same law have the same plan.
    let mut known: HashMap<(u64, u64), Vec<(usize, ReturnLaw)>> = HashMap::new();
    let neutral = planner.mean_evaluation().clone();
    for tau in taus {
        let QuantilePlan { best, policy, evaluation, probability_at_least } =
            planner.quantile_policy(tau, refine);
        let same = known.entry((best.value.to_bits(), evaluation.mean.to_bits())).or_default();
        let plan = if let Some(&(plan, _)) = same.iter().find(|(_, law)| *law == evaluation.law) {
            plan
        } else {
            let typical = planner.evaluator().typical_collected(&policy);
            let axes = Axes { stages: &stages, rows: &rows };
            answers.push(Plan::new(&problem, axes, &|x| policy.action(x), &evaluation, best.value, &typical));
            let typical = kept_cells(axes, &typical);
            plans.push(Planned { target: best.value, policy, typical });
            same.push((plans.len() - 1, evaluation.law.clone()));
            plans.len() - 1
        };
        levels.push(Level {
            tau,
            best: best.value,
            neutral: neutral.law.quantile(tau),
            plan,
            at_least: probability_at_least,
            mean: evaluation.mean,
        });
    }
    let max_mean = planner.max_mean();
    let answer = Answer {
        problem: &problem.name,
        states: problem.state_labels(),
        actions: &problem.actions,
        colours: policy_map::colours(&problem.actions),
        grid: grid_answer(&problem),
        horizon: model.horizon(),
        ordered: problem.ordered,
        exact: planner.is_exact(),
        max_mean,
        range: planner.range(),
        stages: &stages,
        rows: &rows,
        neutral: outcome(&neutral.law, neutral.mean),
        levels: &levels,
        plans: answers,
    };
    let json: Bytes = serde_json::to_vec(&answer).expect("plain numbers and text serialise").into();
    // A policy has a table of its own if its mean was raised: at most a byte for each update of the pass that made it.
    let tables = if refine > 0 { plans.len() } else { 1 } * pass as usize;
    let cells = plans.len() * stages.len() * rows.len() * 16;
    // The plans with β > 0, if somebody asks for them, are about as many again for each share.
    let bytes = (1 + SHARES.len()) * (json.len() + tables + cells) + 8 * MOST_OUTLOOK;
    Ok(Dial {
        json,
        bytes,
        stages,
        states: rows,
        rows: levels,
        max_mean,
        plans,
        planner: Mutex::new(planner),
        outlook: OnceLock::new(),
        buffered: OnceLock::new(),
        problem,
    })
}

/// The stages and the states of the map: those in which a decision can be due, and as many stages as there is space for.
fn map_axes(problem: &Problem) -> (Vec<usize>, Vec<usize>) {
    let model = &problem.model;
    let reachable = model.reachable();
    let due = |stage: usize, state: usize| reachable[stage][state] && !model.is_terminal(stage, state);
    let mut rows: Vec<usize> =
        (0..model.n_states()).filter(|&state| (0..model.horizon()).any(|stage| due(stage, state))).collect();
    // A map of thousands of states cannot be read, nor can a cell be hit.
    rows.truncate(CELLS / 4);
    let most = (CELLS / rows.len().max(1)).max(1);
    let stride = model.horizon().div_ceil(most);
    ((0..model.horizon()).step_by(stride).collect(), rows)
}

impl Plan {
    /// A policy with its law, as it is drawn.
    pub fn new(
        problem: &Problem,
        axes: Axes<'_>,
        policy: &dyn Fn(&AugmentedInput) -> usize,
        evaluation: &Evaluation,
        target: f64,
        typical: &[Vec<Option<f64>>],
    ) -> Self {
        let letter = |stage: usize, state: usize| match typical[stage][state] {
            Some(collected) => char::from(LETTERS[policy(&AugmentedInput { stage, state, collected })]),
            None => '.',
        };
        let column = |&stage: &usize| axes.rows.iter().map(|&state| letter(stage, state)).collect();
        let drawable = problem.actions.len() <= LETTERS.len();
        let map: Vec<String> = if drawable { axes.stages.iter().map(column).collect() } else { Vec::new() };
        let usual = grid(problem).filter(|_| drawable).map(|_| usual(problem, axes, &map));
        Self {
            target: rounded(target),
            outcome: outcome(&evaluation.law, evaluation.mean),
            map,
            at_zero: typical.iter().flatten().flatten().all(|&collected| collected == 0.0),
            usual,
        }
    }
}

/// The map of a problem whose states are the cells of a grid.
fn grid(problem: &Problem) -> Option<&Grid> {
    let grid = problem.data.look.grid.as_ref()?;
    GridMap::new(grid.columns, &grid.letters, problem.states.len()).map(|_| grid)
}

fn grid_answer(problem: &Problem) -> Option<GridAnswer> {
    let grid = grid(problem)?;
    let letter = |letter: char| if is_named(letter) { letter.to_string() } else { String::new() };
    let path = |strokes: [Stroke; 3]| {
        strokes.iter().fold(String::new(), |path, [from, to]| {
            path + &format!("M{} {}L{} {}", from.0, from.1, to.0, to.1)
        })
    };
    Some(GridAnswer {
        columns: grid.columns,
        letters: grid.letters.chars().map(letter).collect(),
        arrows: problem.actions.iter().map(|action| arrow(action).map(path)).collect(),
    })
}

/// The action that a policy takes in each cell of a grid in most of the periods that are shown.
fn usual(problem: &Problem, axes: Axes<'_>, map: &[String]) -> [String; 2] {
    let mut cells = vec![vec![None; problem.states.len()]; map.len()];
    for (stage, column) in cells.iter_mut().zip(map) {
        for (&state, letter) in axes.rows.iter().zip(column.bytes()) {
            stage[state] = LETTERS.iter().position(|&known| known == letter);
        }
    }
    let cell = |state: usize| match policy_map::usual(&cells, state) {
        Some((action, changes)) => (char::from(LETTERS[action]), if changes { '1' } else { '0' }),
        None => ('.', '0'),
    };
    let (actions, changes) = (0..problem.states.len()).map(cell).unzip();
    [actions, changes]
}

/// The columns and rows of a policy map.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// Stages.
    pub stages: &'a [usize],
    /// States.
    pub rows: &'a [usize],
}

/// A law as it is drawn: with at most [`ATOMS`] atoms, each the mean of those that it stands for.
fn outcome(law: &ReturnLaw, mean: f64) -> Outcome {
    let per = law.values().len().div_ceil(ATOMS);
    let values = law.values().chunks(per);
    let (mut at, mut chances) = (Vec::new(), Vec::new());
    for (values, probabilities) in values.zip(law.probabilities().chunks(per)) {
        let mass: f64 = probabilities.iter().sum();
        if mass > 0.0 {
            let sum: f64 = values.iter().zip(probabilities).map(|(value, p)| value * p).sum();
            // Quotients of tiny masses may leave the range of the values by rounding.
            at.push(rounded((sum / mass).clamp(values[0], values[values.len() - 1])));
            chances.push(rounded(mass));
        }
    }
    Outcome { mean: rounded(mean), values: at, probabilities: chances, merged: per > 1 }
}

/// Nine digits: more than a picture shows, and fewer bytes.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.8e}").parse().expect("a number that was just written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bqrl_mdp::problems;

    #[test]
    fn every_built_in_problem_has_a_dial_with_all_levels() {
        for name in problems::names() {
            let dial = dial(problems::build(name, &[]).unwrap()).unwrap();
            let levels: Vec<f64> = dial.rows.iter().map(|level| level.tau).collect();
            assert_eq!((levels.len(), levels[0], levels[98]), (99, 0.01, 0.99));
            for pair in dial.rows.windows(2) {
                assert!(pair[0].best <= pair[1].best, "{name}: a higher level has a higher quantile");
            }
            for level in &dial.rows {
                // 1e-9: the tolerance of the planner's probabilities.
                assert!(level.at_least > 1.0 - level.tau - 1e-9, "{name} at {}", level.tau);
                assert!(level.best >= level.neutral - 1e-9 && level.mean <= dial.max_mean + 1e-9);
            }
            assert!(dial.json.len() < 2 << 20, "{name}: {} bytes", dial.json.len());
        }
    }

    #[test]
    fn the_dial_of_asset_selling_is_the_plan() {
        let dial = dial(problems::build("asset-selling", &[]).unwrap()).unwrap();
        let tenth = &dial.rows[9];
        assert!((tenth.best - 19.0 / 24.0).abs() < 1e-12 && tenth.at_least > 0.9);
        // Offer 18 in the second period: refused for 19 of 24, and accepting it can never reach that.
        let cell = dial.cell(1, 18).unwrap();
        let at = cell.plans[tenth.plan].as_ref().unwrap();
        assert_eq!((at.action, at.actions[0].1), (1, 0.0));
        assert!(dial.cell(10, 0).is_err() && dial.cell(0, 99).is_err());
    }

    #[test]
    fn merged_laws_keep_mass_and_mean() {
        let law = ReturnLaw::from_samples(&(0..5000).map(f64::from).collect::<Vec<_>>()).unwrap();
        let drawn = outcome(&law, law.mean());
        assert!(drawn.values.len() <= ATOMS && drawn.merged);
        let mass: f64 = drawn.probabilities.iter().sum();
        let mean: f64 = drawn.values.iter().zip(&drawn.probabilities).map(|(v, p)| v * p).sum();
        assert!((mass - 1.0).abs() < 1e-6 && (mean - law.mean()).abs() < 1e-3);
    }
}
