//! The figures of a study: which numbers go into which figure.

mod learning;

use std::collections::BTreeMap;

use bqrl_math::Interval;
use bqrl_math::buffer::eta;
use bqrl_math::score::{Score, sort};
use bqrl_runs::schema::TaskFacts;

use self::learning::seeds_in_words;
pub use self::learning::{Printed, learning_curves, learning_of};
use crate::axis::four_digits;
use crate::figure::Figure;
use crate::policy_map::{self, GridMap, Panel, PolicyMap};
use crate::prediction_plot::{self, ActionPrediction, PredictionPanel, PredictionPlot};
use crate::quantile_curve::{self, ExactCurve, Learned, QuantileCurve, Role};
use crate::statistics::{CurvePoint, curve, cut};
use crate::study::{Level, Measure, Method, Study, Trained};

/// Panels of a figure that shows single agents.
const PANELS: usize = 3;

/// Achieved quantiles against their levels; `None` where no run has exact references and none serves all levels.
pub fn quantile_curve(study: &Study<'_>) -> Option<Figure> {
    let best = best_quantiles(study);
    let methods = study.methods.iter();
    let learned: Vec<Learned> =
        methods.map(|method| learned(method, &best)).filter(|learned| !learned.points.is_empty()).collect();
    if study.reference().is_none() && learned.iter().all(|learned| !learned.connected) {
        return None;
    }
    let exact = |(policy, label, role): (&str, &str, Role)| {
        let rows = study.reference()?.iter().filter(|row| row.policy == policy);
        let points: Vec<(f64, f64)> = rows.map(|row| (row.tau, row.quantile)).collect();
        (!points.is_empty()).then(|| ExactCurve { label: label.to_owned(), role, points })
    };
    let exact = [
        ("optimal", "best possible, exact", Role::Best),
        ("risk-neutral", "risk-neutral policy, exact", Role::RiskNeutral),
        ("conditional-rule", "the paper's rule, solved exactly (β = τ)", Role::Rule),
    ]
    .into_iter()
    .filter_map(exact)
    .collect();
    let mut notes = Vec::new();
    if learned.iter().any(|learned| learned.connected) {
        notes.push(
            "curves: agents that serve every level, thin lines are their seeds; each holds the value of a level until the \
             next level that was evaluated",
        );
    }
    if learned.iter().any(|learned| !learned.connected) {
        notes.push("dots: agents evaluated at the levels of their runs only, side by side at each level");
    }
    Some(quantile_curve::draw(&QuantileCurve {
        title: "Achieved quantile at every level".to_owned(),
        problem: format!(
            "{} · {}",
            study.problem_name(),
            seeds_in_words(study, &[Measure::FinalQuantile], &study.taus())
                .replace("band: ", "band or bar: ")
        ),
        exact,
        learned,
        note: notes.join("; "),
    }))
}

/// (τ, Q*_τ), where it is exact.
fn best_quantiles(study: &Study<'_>) -> Vec<(f64, f64)> {
    let rows = study.reference().unwrap_or_default().iter().filter(|row| row.policy == "optimal");
    rows.map(|row| (row.tau, row.quantile)).collect()
}

fn learned(method: &Method<'_>, best: &[(f64, f64)]) -> Learned {
    let (label, colour) = (method.name.clone(), method.colour);
    let agents = method.agents();
    let achieved: Option<Vec<Vec<(f64, f64)>>> = agents
        .iter()
        .map(|agent| {
            let rows = agent.record.achieved.as_ref()?.iter();
            Some(rows.map(|row| (row.tau, row.quantile)).collect())
        })
        .collect();
    let taus = |seed: &[(f64, f64)]| seed.iter().map(|point| point.0).collect::<Vec<f64>>();
    let achieved = achieved.filter(|seeds| seeds.iter().all(|seed| taus(seed) == taus(&seeds[0])));
    if let Some(seeds) = achieved.filter(|seeds| !seeds.is_empty()) {
        let values: Vec<Vec<f64>> =
            seeds.iter().map(|seed| seed.iter().map(|point| point.1).collect()).collect();
        // No quantile is above the best one, and none below the lowest return that was seen.
        let lowest = method.levels.iter().map(|level| level.bounds(Measure::FinalQuantile).low);
        let low = lowest.chain(values.iter().flatten().copied()).fold(f64::INFINITY, f64::min);
        let possible = |point: CurvePoint| {
            let best = best.iter().find(|(tau, _)| *tau == point.x).map_or(f64::INFINITY, |&(_, best)| best);
            CurvePoint { band: point.band.map(|band| cut(band, Interval { low, high: best })), ..point }
        };
        let points = curve(&taus(&seeds[0]), &values).into_iter().map(possible).collect();
        return Learned { label, colour, points, seeds, connected: true };
    }
    let point = |level: &Level<'_>| {
        let estimate = level.estimate(Measure::FinalQuantile)?;
        Some(CurvePoint { x: level.facts.tau, mean: estimate.mean, band: estimate.interval })
    };
    Learned {
        label,
        colour,
        points: method.levels.iter().filter_map(point).collect(),
        seeds: Vec::new(),
        connected: false,
    }
}

/// The agents to show one by one: the first seeds of a single level, or the first seed of each of several.
pub fn shown_agents<'a>(method: &Method<'a>) -> Vec<Trained<'a>> {
    match method.levels.as_slice() {
        [level] => level.seeds.iter().copied().take(PANELS).collect(),
        levels => levels.iter().filter_map(|level| level.seeds.first().copied()).collect(),
    }
}

/// The final policies of a method; `None` where no run has them.
pub fn policies(study: &Study<'_>, method: &Method<'_>) -> Option<Figure> {
    let problem = study.problem()?;
    let mut agents = shown_agents(method);
    let same = agents.iter().all(Trained::serves_all_levels);
    if same {
        agents = method.agents().into_iter().take(PANELS).collect();
    }
    let title = format!("{} policies of {}", latest(method), method.name);
    let heading = |agent: &Trained<'_>| {
        let level =
            if same { "every τ".to_owned() } else { format!("τ = {}", four_digits(agent.facts().tau)) };
        format!("{level} · seed {}", agent.record.seed)
    };
    policy_panels(&title, problem, &agents, heading)
}

/// "Final", or "Latest" while a seed is training.
fn latest(method: &Method<'_>) -> &'static str {
    if method.agents().iter().all(Trained::is_done) { "Final" } else { "Latest" }
}

/// Policies side by side.
pub(crate) fn policy_panels(
    title: &str,
    problem: &TaskFacts,
    agents: &[Trained<'_>],
    heading: impl Fn(&Trained<'_>) -> String,
) -> Option<Figure> {
    let panels: Vec<Panel> = agents
        .iter()
        .filter_map(|agent| Some(Panel { heading: heading(agent), cells: agent.policy(problem)? }))
        .collect();
    if panels.is_empty() {
        return None;
    }
    // A file may say anything: a look that does not fit the states is ignored.
    let look = problem.look.clone().unwrap_or_default();
    let labels = Some(look.labels).filter(|labels| labels.len() == problem.states.len());
    let grid = look.grid.and_then(|(columns, letters)| GridMap::new(columns, &letters, problem.states.len()));
    let map = PolicyMap {
        title: title.to_owned(),
        problem: problem.name.clone(),
        actions: problem.actions.clone(),
        state_axis: if look.axis.is_empty() { "state".to_owned() } else { look.axis },
        states: labels.unwrap_or_else(|| problem.states.clone()),
        grid,
        panels,
        note: "Learned, most probable action at C_h = 0; each panel is one agent, not an average.".to_owned(),
    };
    Some(policy_map::draw(&map.where_something_is_chosen()))
}

/// Laws of a method's final policies beside the predictions of its critics; `None` where no run has a law.
pub fn laws(study: &Study<'_>, method: &Method<'_>) -> Option<Figure> {
    let actions = study.problem().map_or(&[][..], |problem| problem.actions.as_slice());
    let panel = |agent: Trained<'_>| {
        let law = agent.law()?;
        let facts = agent.facts();
        Some(PredictionPanel {
            heading: format!(
                "τ = {}, β = {} · seed {} · Q_τ = {}",
                four_digits(facts.tau),
                four_digits(facts.beta),
                agent.record.seed,
                four_digits(law.quantile(facts.tau))
            ),
            values: law.values().to_vec(),
            probabilities: law.probabilities().to_vec(),
            tau: facts.tau,
            beta: facts.beta,
            quantile: law.quantile(facts.tau),
            actions: predictions(&agent, actions),
        })
    };
    let panels: Vec<PredictionPanel> = shown_agents(method).into_iter().filter_map(panel).collect();
    if panels.is_empty() {
        return None;
    }
    Some(prediction_plot::draw(&PredictionPlot {
        title: format!("Predicted and attained returns of {}", method.name),
        problem: study.problem_name().to_owned(),
        panels,
        note: if study.is_exact() { "exact laws, no sampling" } else { "laws of played episodes" }.to_owned(),
    }))
}

/// The predictions of an agent, by action, the action with the highest mean score first.
fn predictions(agent: &Trained<'_>, names: &[String]) -> Vec<ActionPrediction> {
    // action → critic → (level, value)
    let mut table: BTreeMap<usize, BTreeMap<usize, Vec<(f64, f64)>>> = BTreeMap::new();
    for row in agent.record.predictions.iter().flatten() {
        table.entry(row.action).or_default().entry(row.critic).or_default().push((row.level, row.value));
    }
    let mut scored: Vec<(f64, ActionPrediction)> = Vec::new();
    for (action, critics) in table {
        let mut levels: Vec<Vec<f64>> =
            critics.values().map(|rows| sort(&rows.iter().map(|row| row.0).collect::<Vec<_>>())).collect();
        let critics: Vec<Vec<f64>> =
            critics.values().map(|rows| sort(&rows.iter().map(|row| row.1).collect::<Vec<_>>())).collect();
        levels.dedup();
        // Critics that predict at different levels cannot be averaged.
        let [levels] = levels.as_slice() else { return Vec::new() };
        let scores: Vec<f64> = critics.iter().map(|critic| score(agent, levels, critic)).collect();
        let name = names.get(action).cloned().unwrap_or_else(|| format!("action {action}"));
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        scored.push((mean, ActionPrediction { action: name, levels: levels.clone(), critics }));
    }
    // Stable: of equal scores the lowest index stays first.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().map(|(_, prediction)| prediction).collect()
}

/// B̂ on the paper's grid of levels; the mean for an agent that serves all levels with one policy, or on another grid.
fn score(agent: &Trained<'_>, levels: &[f64], sorted: &[f64]) -> f64 {
    let grid = eta(levels.len());
    let on_grid = grid.iter().zip(levels).all(|(a, b)| (a - b).abs() < 1e-6);
    match agent.buffer().filter(|_| on_grid && !agent.serves_all_levels()) {
        Some(buffer) => Score::buffered(&buffer, levels.len()).of(sorted),
        None => sorted.iter().sum::<f64>() / sorted.len() as f64,
    }
}
