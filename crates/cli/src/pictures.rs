//! Figures of plans and comparisons, for the command and for Python.

use bqrl_lab::compare::{Comparison, Quantile, Row};
use bqrl_lab::plan::Solved;
use bqrl_math::law::ReturnLaw;
use bqrl_mdp::evaluate::{Evaluation, Evaluator, Policy};
use bqrl_mdp::model::Problem;
use bqrl_mdp::trajectory::AugmentedInput;
use bqrl_report::figure::Figure;
use bqrl_report::heat_map::{self, HeatMap, HeatPanel};
use bqrl_report::law_plot::{self, LawPanel, LawPlot};
use bqrl_report::numbers::number;
pub use bqrl_report::numbers::often;
pub use bqrl_report::policy_map::usual;
use bqrl_report::policy_map::{self, GridMap, Panel, PolicyMap};

/// Actions by stage and state.
pub type Cells = Vec<Vec<Option<usize>>>;

/// Actions by stage and state, at the collected reward that is most likely there; and that reward in words.
pub fn policy_cells(evaluator: &Evaluator, policy: &dyn Policy) -> (Cells, &'static str) {
    let typical = evaluator.typical_collected(policy);
    let always_zero = typical.iter().flatten().flatten().all(|&c| c == 0.0);
    let at = if always_zero { "with nothing collected" } else { "at the most likely collected reward" };
    let mut choice = Vec::new();
    let mut action = |stage, state, collected: &Option<f64>| {
        let collected = (*collected)?;
        choice.clear();
        policy.decide(&AugmentedInput { stage, state, collected }, &mut choice);
        choice.first().map(|&(action, _)| action)
    };
    let mut cells = Vec::with_capacity(typical.len());
    for (stage, states) in typical.iter().enumerate() {
        cells.push(states.iter().enumerate().map(|(state, c)| action(stage, state, c)).collect());
    }
    (cells, at)
}

/// The headline of a level: what its policy is for, and what it attains.
pub fn heading(solved: &Solved) -> String {
    let (tau, often) = (number(solved.plan.best.tau), often(solved.plan.best.tau));
    match (&solved.promise, &solved.buffered) {
        (Some(promise), _) if promise.supported => {
            format!("promised: {often} at least {} (τ={tau})", number(promise.certified_quantile))
        }
        (Some(_), _) => format!("nothing is promised (τ={tau})"),
        (None, Some((plan, _))) => {
            format!("τ = {tau}, β = {} · Q_τ^β = {}", number(plan.buffer.beta()), number(plan.lower))
        }
        (None, None) => format!("{often} at least {} (τ={tau})", number(solved.plan.best.value)),
    }
}

/// A map of each policy, with the line above it.
pub fn policies(problem: &Problem, evaluator: &Evaluator, policies: &[(String, &dyn Policy)]) -> Figure {
    let mapped: Vec<_> = policies.iter().map(|(_, policy)| policy_cells(evaluator, *policy)).collect();
    let note = mapped.first().map_or("", |(_, at)| at);
    let panels = policies
        .iter()
        .zip(&mapped)
        .map(|((heading, _), (cells, _))| Panel { heading: heading.clone(), cells: cells.clone() });
    let grid = problem.data.look.grid.as_ref();
    let map = PolicyMap {
        title: "Planned policies".into(),
        problem: problem.name.clone(),
        actions: problem.actions.clone(),
        state_axis: problem.state_axis().to_owned(),
        states: problem.state_labels().to_vec(),
        grid: grid.and_then(|grid| GridMap::new(grid.columns, &grid.letters, problem.states.len())),
        panels: panels.collect(),
        note: format!(
            "Planned, not learned; actions {note}.{}",
            if problem.data.counts.is_some() { " Probabilities are estimates from counts." } else { "" }
        ),
    };
    policy_map::draw(&map.where_something_is_chosen())
}

/// The laws of a plan, each beside that of the largest mean.
pub fn laws(problem: &Problem, exact: bool, neutral: &Evaluation, solved: &[Solved]) -> Figure {
    let panel = |solved: &Solved| {
        let law = &solved.evaluation.law;
        let tau = solved.plan.best.tau;
        let buffered = solved.buffered.as_ref().map(|(plan, _)| plan.buffer);
        LawPanel {
            heading: heading(solved),
            values: law.values().to_vec(),
            probabilities: law.probabilities().to_vec(),
            references: vec![reference("risk-neutral policy", &neutral.law)],
            tau,
            beta: buffered.map(|buffer| buffer.beta()),
            quantile: law.quantile(tau),
            buffered: buffered.map(|buffer| law.buffered_quantile(&buffer)),
        }
    };
    law_plot::draw(&LawPlot {
        title: "Law of the total return".into(),
        problem: problem.name.clone(),
        policy: "planned policy".into(),
        panels: solved.iter().map(panel).collect(),
        note: match (problem.data.counts.is_some(), exact) {
            (true, _) => "Laws under the estimated probabilities: no promise.".into(),
            (false, true) => "Exact laws.".into(),
            (false, false) => "Rewards rounded down: a lower bound.".into(),
        },
    })
}

/// The law of one policy with its quantiles.
pub fn law(problem: &str, policy: &str, law: &ReturnLaw, taus: &[f64], note: &str) -> Figure {
    let panel = |&tau: &f64| LawPanel {
        heading: format!("{} at least {} (τ={})", often(tau), number(law.quantile(tau)), number(tau)),
        values: law.values().to_vec(),
        probabilities: law.probabilities().to_vec(),
        references: Vec::new(),
        tau,
        beta: None,
        quantile: law.quantile(tau),
        buffered: None,
    };
    law_plot::draw(&LawPlot {
        title: "Law of the total return".into(),
        problem: problem.to_owned(),
        policy: policy.to_owned(),
        panels: taus.iter().map(panel).collect(),
        note: note.to_owned(),
    })
}

/// The best law at each level, beside those of the given policy and of the largest mean.
pub fn comparison(comparison: &Comparison, policy: &str) -> Figure {
    let (yours, neutral) = (&comparison.policies[0], &comparison.policies[1]);
    let panel = |(place, row): (usize, &Row)| {
        let Quantile { tau, quantile } = row.quantiles[place];
        LawPanel {
            heading: format!("best: {} at least {} (τ={})", often(tau), number(quantile), number(tau)),
            values: row.law.values().to_vec(),
            probabilities: row.law.probabilities().to_vec(),
            references: vec![reference("your rule", &yours.law), reference("largest mean", &neutral.law)],
            tau,
            beta: None,
            quantile,
            buffered: None,
        }
    };
    law_plot::draw(&LawPlot {
        title: "Your rule and the best percentiles".into(),
        problem: comparison.problem.clone(),
        policy: "best at this level".into(),
        panels: comparison.policies[2..].iter().enumerate().map(panel).collect(),
        note: format!(
            "Your rule: {policy}.{}",
            if comparison.estimated { " Laws under the estimated probabilities: no promise." } else { "" }
        ),
    })
}

/// How often each action was tried in each state; `None` for a table without counts.
pub fn counts(problem: &Problem) -> Option<Figure> {
    let counts = problem.data.counts.as_ref()?;
    let tried = |s: usize, a: usize| (0..counts.n_kernels()).map(|k| counts.tried(k, s, a)).sum::<u64>();
    let row = |state: usize| -> Vec<Option<f64>> {
        let times = |action| Some(tried(state, action) as f64).filter(|&n| n > 0.0);
        (0..problem.actions.len()).map(times).collect()
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = (0..problem.states.len())
        .map(|state| (problem.states[state].clone(), row(state)))
        .filter(|(_, cells)| cells.iter().any(Option::is_some))
        .collect();
    let (states, cells) = rows.into_iter().unzip();
    Some(heat_map::draw(&HeatMap {
        title: "How often each action was tried".into(),
        measure: problem.name.clone(),
        columns: ("action".into(), problem.actions.clone()),
        rows: (problem.state_axis().to_owned(), states),
        panels: vec![HeatPanel { heading: String::new(), cells, notes: Vec::new() }],
        note: "Hatched: never.".into(),
    }))
}

fn reference(name: &str, law: &ReturnLaw) -> (String, Vec<f64>, Vec<f64>) {
    (name.to_owned(), law.values().to_vec(), law.probabilities().to_vec())
}
