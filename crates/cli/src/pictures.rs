//! Figures of plans and comparisons, for the command and for Python.

use bqrl_lab::compare::{Comparison, Quantile, Row};
use bqrl_lab::plan::Solved;
use bqrl_math::law::ReturnLaw;
use bqrl_mdp::evaluate::Policy;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Planner;
use bqrl_mdp::trajectory::AugmentedInput;
use bqrl_report::figure::Figure;
use bqrl_report::law_plot::{self, LawPanel, LawPlot};
use bqrl_report::numbers::number;
use bqrl_report::policy_map::{self, Panel, PolicyMap};

/// Actions by stage and state.
pub type Cells = Vec<Vec<Option<usize>>>;

/// Actions by stage and state, at the collected reward that is most likely there; and that reward in words.
pub fn policy_cells(planner: &Planner, policy: &dyn Policy) -> (Cells, &'static str) {
    let typical = planner.typical_collected(policy);
    let always_zero = typical.iter().flatten().flatten().all(|&c| c == 0.0);
    let at = if always_zero { "at C_h = 0" } else { "at the most likely C_h" };
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
    let tau = number(solved.plan.best.tau);
    match (&solved.promise, &solved.buffered) {
        (Some(promise), _) if promise.supported => {
            format!("τ = {tau} · promised {}", number(promise.certified_quantile))
        }
        (Some(_), _) => format!("τ = {tau} · nothing is promised"),
        (None, Some((plan, _))) => {
            format!("τ = {tau}, β = {} · Q_τ^β = {}", number(plan.buffer.beta()), number(plan.lower))
        }
        (None, None) => format!("τ = {tau} · Q*_τ = {}", number(solved.plan.best.value)),
    }
}

/// A map of each policy, with the line above it.
pub fn policies(problem: &Problem, planner: &Planner, policies: &[(String, &dyn Policy)]) -> Figure {
    let mapped: Vec<_> = policies.iter().map(|(_, policy)| policy_cells(planner, *policy)).collect();
    let note = mapped.first().map_or("", |(_, at)| at);
    let panels = policies
        .iter()
        .zip(&mapped)
        .map(|((heading, _), (cells, _))| Panel { heading: heading.clone(), cells: cells.clone() });
    let map = PolicyMap {
        title: "Planned policies".into(),
        problem: problem.name.clone(),
        actions: problem.actions.clone(),
        state_axis: "state".into(),
        states: problem.states.clone(),
        panels: panels.collect(),
        note: format!("Planned, not learned; actions {note}."),
    };
    policy_map::draw(&map.where_something_is_chosen())
}

/// The laws of a plan, each beside that of the largest mean.
pub fn laws(problem: &Problem, planner: &Planner, solved: &[Solved]) -> Figure {
    let neutral = &planner.mean_evaluation().law;
    let panel = |solved: &Solved| {
        let law = &solved.evaluation.law;
        let tau = solved.plan.best.tau;
        let buffered = solved.buffered.as_ref().map(|(plan, _)| plan.buffer);
        LawPanel {
            heading: heading(solved),
            values: law.values().to_vec(),
            probabilities: law.probabilities().to_vec(),
            references: vec![reference("risk-neutral policy", neutral)],
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
        note: match (problem.data.counts.is_some(), planner.is_exact()) {
            (true, _) => "Laws under the estimated probabilities: no promise.".into(),
            (false, true) => "Exact laws.".into(),
            (false, false) => "Rewards rounded down: a lower bound.".into(),
        },
    })
}

/// The law of one policy with its quantiles.
pub fn law(problem: &str, policy: &str, law: &ReturnLaw, taus: &[f64], note: &str) -> Figure {
    let panel = |&tau: &f64| LawPanel {
        heading: format!("τ = {} · Q_τ = {}", number(tau), number(law.quantile(tau))),
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
            heading: format!("best at τ = {} · Q_τ = {}", number(tau), number(quantile)),
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
        note: format!("Your rule: {policy}."),
    })
}

fn reference(name: &str, law: &ReturnLaw) -> (String, Vec<f64>, Vec<f64>) {
    (name.to_owned(), law.values().to_vec(), law.probabilities().to_vec())
}
