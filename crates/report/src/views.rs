//! The figures of a study: which numbers go into which picture.

use std::collections::BTreeMap;

use bqrl_math::buffer::eta;
use bqrl_math::score::{buffered_score, sort};
use bqrl_runs::reader::{Evaluation, ProblemFacts};

use crate::axis::four_digits;
use crate::curves::{self, Curve, CurvePanel, CurvePlot, Over};
use crate::figure::Figure;
use crate::policy_map::{self, Panel, PolicyMap};
use crate::prediction_plot::{self, ActionPrediction, PredictionPanel, PredictionPlot};
use crate::quantile_curve::{self, ExactCurve, Learned, QuantileCurve, Role};
use crate::statistics::{curve, moving_average, thinned};
use crate::study::{Level, Measure, Method, Study, Trained, WINDOW};

/// Points of a curve: one per unit of a narrow plot, few enough for a small file after 100 000 episodes.
const POINTS: usize = 250;
/// Panels of a figure that shows single agents.
const PANELS: usize = 3;

/// Cumulative measures, or the moving-average reward, over training: a row of panels per measure, one per level.
pub fn learning_curves(study: &Study<'_>, title: &str, measures: &[Measure], taus: &[f64]) -> Figure {
    let panel = |measure: Measure, tau: f64| CurvePanel {
        heading: format!("τ = {}", four_digits(tau)),
        measure: measure.title().to_owned(),
        over: Over::Numbers("training episodes".to_owned()),
        curves: study
            .methods
            .iter()
            .enumerate()
            .flat_map(|(colour, method)| curves_of(method, colour, measure, tau))
            .collect(),
    };
    let panels: Vec<CurvePanel> =
        measures.iter().flat_map(|&measure| taus.iter().map(move |&tau| panel(measure, tau))).collect();
    let mut notes = Vec::new();
    if measures.iter().all(|measure| measure.is_loss()) {
        notes.push("lower is better");
    }
    let shared_scale = measures == [Measure::MovingAverageReward];
    if !shared_scale && panels.len() > 1 {
        notes.push("each panel has its own scale");
    }
    if panels.iter().flat_map(|panel| &panel.curves).any(|curve| curve.dashed) {
        notes.push("dashed: the stochastic policy itself, solid: its most probable actions");
    }
    curves::draw(&CurvePlot {
        title: title.to_owned(),
        problem: format!("{} · {}", study.problem_name(), seeds_in_words(study, taus)),
        panels,
        shared_scale,
        note: notes.join("; "),
    })
}

fn curves_of(method: &Method<'_>, colour: usize, measure: Measure, tau: f64) -> Vec<Curve> {
    let Some(level) = method.level(tau) else { return Vec::new() };
    let label = method.name.clone();
    if measure == Measure::MovingAverageReward {
        let episodes = level.seeds.iter().map(|trained| trained.record.returns.len()).min().unwrap_or(0);
        // Only whole windows, unless the run has none.
        let first = WINDOW.min(episodes).saturating_sub(1);
        let at: Vec<usize> = thinned(episodes - first, POINTS).into_iter().map(|k| k + first).collect();
        let x: Vec<f64> = at.iter().map(|&k| (k + 1) as f64).collect();
        let seeds: Vec<Vec<f64>> =
            level.seeds.iter().map(|trained| moving_average(&trained.record.returns, WINDOW, &at)).collect();
        return vec![Curve { label, colour, dashed: false, points: curve(&x, &seeds) }];
    }
    let value = |row: &Evaluation| match measure {
        Measure::QuantilePolicyGap => row.quantile_policy_gap,
        Measure::ExpectedReturnRegret => row.expected_return_regret,
        Measure::FinalQuantile => row.quantile,
        Measure::FinalBufferedQuantile => row.buffered_quantile,
        Measure::FinalMean | Measure::MovingAverageReward => row.mean,
    };
    let over = |evaluations: &dyn Fn(&Trained<'_>) -> Option<Vec<Evaluation>>| {
        let seeds: Vec<Vec<Evaluation>> = level.seeds.iter().map(evaluations).collect::<Option<_>>()?;
        let rows = seeds.iter().map(Vec::len).min().unwrap_or(0);
        let at = thinned(rows, POINTS);
        let x: Vec<f64> = at.iter().map(|&k| seeds[0][k].episode as f64).collect();
        let values: Vec<Vec<f64>> =
            seeds.iter().map(|seed| at.iter().map(|&k| value(&seed[k])).collect()).collect();
        Some(curve(&x, &values))
    };
    let mut curves = Vec::new();
    if let Some(points) = over(&|trained| Some(trained.evaluations().to_vec())) {
        curves.push(Curve { label, colour, dashed: false, points });
    }
    // Regret is what training collected: the same whichever policy is looked at.
    if measure != Measure::ExpectedReturnRegret
        && let Some(points) = over(&|trained| trained.distribution().map(<[Evaluation]>::to_vec))
    {
        curves.push(Curve { label: format!("{} drawn", method.name), colour, dashed: true, points });
    }
    curves
}

/// "mean of 3 seeds, pointwise 95 % Student-t interval", with the numbers of each method where they differ.
pub(crate) fn seeds_in_words(study: &Study<'_>, taus: &[f64]) -> String {
    let counts: Vec<(&str, usize)> = study
        .methods
        .iter()
        .flat_map(|method| {
            let levels = method.levels.iter().filter(|level| taus.contains(&level.facts.tau));
            levels.map(|level| (method.name.as_str(), level.seeds.len()))
        })
        .collect();
    let (fewest, most) = (
        counts.iter().map(|count| count.1).min().unwrap_or(0),
        counts.iter().map(|count| count.1).max().unwrap_or(0),
    );
    if most <= 1 {
        return "one seed, so there is no interval".to_owned();
    }
    if fewest == most {
        return format!("mean of {most} seeds, band: pointwise 95 % Student-t interval");
    }
    let mut by_method: Vec<(&str, usize, usize)> = Vec::new();
    for (name, n) in counts {
        match by_method.iter_mut().find(|known| known.0 == name) {
            Some(known) => *known = (name, known.1.min(n), known.2.max(n)),
            None => by_method.push((name, n, n)),
        }
    }
    let words = by_method.iter().map(|&(name, low, high)| {
        if low == high { format!("{name} {low}") } else { format!("{name} {low} to {high}") }
    });
    let words = words.collect::<Vec<_>>().join(", ");
    format!("mean over seeds ({words}), band: pointwise 95 % Student-t interval")
}

/// Achieved quantiles against their levels; nothing where no run has exact references and none serves all levels.
pub fn quantile_curve(study: &Study<'_>) -> Option<Figure> {
    let learned: Vec<Learned> =
        study.methods.iter().enumerate().map(|(colour, method)| learned(method, colour)).collect();
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
        notes.push("curves: agents that serve every level, thin lines are their seeds");
    }
    if learned.iter().any(|learned| !learned.connected) {
        notes.push("dots: agents evaluated at the levels of their runs only, side by side at each level");
    }
    Some(quantile_curve::draw(&QuantileCurve {
        title: "Achieved quantile at every level".to_owned(),
        problem: format!(
            "{} · {}",
            study.problem_name(),
            seeds_in_words(study, &study.taus()).replace("band: ", "band or bar: ")
        ),
        exact,
        learned,
        note: notes.join("; "),
    }))
}

fn learned(method: &Method<'_>, colour: usize) -> Learned {
    let label = method.name.clone();
    let agents = method.agents();
    let achieved: Option<Vec<Vec<(f64, f64)>>> = agents
        .iter()
        .map(|agent| {
            let rows = agent.record.achieved.as_ref()?.iter();
            Some(rows.map(|row| (row.tau, row.quantile)).collect())
        })
        .collect();
    let taus = |seed: &[(f64, f64)]| seed.iter().map(|point| point.0).collect::<Vec<f64>>();
    if let Some(seeds) = achieved.filter(|seeds| seeds.iter().all(|seed| taus(seed) == taus(&seeds[0]))) {
        let values: Vec<Vec<f64>> =
            seeds.iter().map(|seed| seed.iter().map(|point| point.1).collect()).collect();
        let points = curve(&taus(&seeds[0]), &values);
        return Learned { label, colour, points, seeds, connected: true };
    }
    let point = |level: &Level<'_>| {
        let samples = level.samples(Measure::FinalQuantile);
        curve(&[level.facts.tau], &samples.iter().map(|&value| vec![value]).collect::<Vec<_>>())[0]
    };
    Learned {
        label,
        colour,
        points: method.levels.iter().map(point).collect(),
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

/// The final policies of a method; nothing where none was written down.
pub fn policies(study: &Study<'_>, method: &Method<'_>) -> Option<Figure> {
    let problem = study.problem()?;
    let mut agents = shown_agents(method);
    let same = agents.iter().all(Trained::serves_all_levels);
    if same {
        agents = method.agents().into_iter().take(PANELS).collect();
    }
    let title = format!("Final policies of {}", method.name);
    let heading = |agent: &Trained<'_>| {
        let level =
            if same { "every τ".to_owned() } else { format!("τ = {}", four_digits(agent.facts().tau)) };
        format!("{level} · seed {}", agent.record.seed)
    };
    policy_panels(&title, problem, &agents, heading)
}

/// Policies side by side.
pub(crate) fn policy_panels(
    title: &str,
    problem: &ProblemFacts,
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
    let map = PolicyMap {
        title: title.to_owned(),
        problem: problem.name.clone(),
        actions: problem.actions.clone(),
        state_axis: "state".to_owned(),
        states: problem.states.clone(),
        panels,
        note: "Learned, most probable action at C_h = 0; each panel is one agent, not an average.".to_owned(),
    };
    Some(policy_map::draw(&map.where_something_is_chosen()))
}

/// Laws of a method's final policies beside what its critics predict; nothing where no law was written down.
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
    let exact = study.runs.iter().all(|run| run.summary.exact);
    Some(prediction_plot::draw(&PredictionPlot {
        title: format!("What {} believes, and what is true", method.name),
        problem: study.problem_name().to_owned(),
        panels,
        note: if exact { "exact laws, no sampling" } else { "laws of played episodes" }.to_owned(),
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
        Some(buffer) => buffered_score(&buffer.weights(levels.len()), buffer.beta(), sorted),
        None => sorted.iter().sum::<f64>() / sorted.len() as f64,
    }
}
