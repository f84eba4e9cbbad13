//! Draws every kind of figure, so that a change to the drawing code can be looked at.
//!
//! ```text
//! cargo run -p bqrl-report --example gallery -- FOLDER
//! ```
//!
//! The data is made up; it has the shapes that real policies and laws have.

use std::error::Error;
use std::path::Path;

use bqrl_math::Interval;
use bqrl_report::curves::{self, Curve, CurvePanel, CurvePlot, Kind, Over};
use bqrl_report::figure::Figure;
use bqrl_report::law_plot::{self, LawPanel, LawPlot};
use bqrl_report::policy_map::{self, Panel, PolicyMap};
use bqrl_report::prediction_plot::{self, ActionPrediction, PredictionPanel, PredictionPlot};
use bqrl_report::quantile_curve::{self, ExactCurve, Learned, QuantileCurve, Role};
use bqrl_report::statistics::CurvePoint;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: gallery FOLDER")?;
    std::fs::create_dir_all(&folder)?;
    let figures = [
        ("map-asset-selling", asset_selling()),
        ("map-frozen-lake", frozen_lake()),
        ("map-inventory", inventory()),
        ("map-single", single()),
        ("map-five-panels", five_panels()),
        ("law-buffered", law_plot::draw(&three_levels(true))),
        ("law-levels", law_plot::draw(&three_levels(false))),
        ("law-two-atoms", two_atoms()),
        ("law-many-atoms", many_atoms()),
        ("law-negative", negative()),
        ("curves-four-methods", learning(&["UCB-BQRL", "Deep-BQRL", "PPO", "TRPO"], 4)),
        (
            "curves-ten-methods",
            learning(&["a", "b", "c", "d", "e", "f", "g", "h", "a longer name (runs/x)", "j"], 3),
        ),
        ("curves-single", learning(&["Deep-BQRL"], 1)),
        ("quantile-curve", achieved()),
        ("predictions", predictions()),
    ];
    for (name, figure) in figures {
        for extension in ["svg", "png"] {
            let path = Path::new(&folder).join(name).with_extension(extension);
            std::fs::write(&path, figure.encode(&path)?)?;
        }
    }
    Ok(())
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Stops at offers above a threshold that falls towards the last period.
fn thresholds(top: f64, fall: f64) -> Vec<Vec<Option<usize>>> {
    let continues = |h: usize, offer: usize| usize::from((offer as f64) < top - fall * h as f64 && h < 9);
    (0..10).map(|h| (0..25).map(|offer| Some(continues(h, offer))).collect()).collect()
}

fn selling(panels: Vec<Panel>) -> PolicyMap {
    PolicyMap {
        title: "Exact quantile-optimal policies".to_owned(),
        problem: "asset-selling: 10 periods, 25 offers".to_owned(),
        actions: strings(&["Stop", "Continue"]),
        state_axis: "state: offer".to_owned(),
        states: (0..25).map(|offer| format!("{:.2}", f64::from(offer) / 24.0)).collect(),
        grid: None,
        panels,
        note: "exact policies, evaluated at C_h = 0".to_owned(),
    }
}

fn asset_selling() -> Figure {
    let levels = [("0.1", "0.7917", 19.0, 0.2), ("0.5", "0.9167", 22.0, 0.15), ("0.9", "1.0000", 24.0, 0.0)];
    let panel = |(tau, value, top, fall): (&str, &str, f64, f64)| Panel {
        heading: format!("τ = {tau} · Q*_τ = {value}"),
        cells: thresholds(top, fall),
    };
    policy_map::draw(&selling(levels.into_iter().map(panel).collect()))
}

fn single() -> Figure {
    let heading = "τ = 0.1 · Q*_τ = 0.7917".to_owned();
    policy_map::draw(&selling(vec![Panel { heading, cells: thresholds(19.0, 0.4) }]))
}

fn five_panels() -> Figure {
    let panel = |k: u32| Panel {
        heading: format!("τ = 0.{} · seed 1004{k}, the best of three runs by final Q_τ", 1 + 2 * k),
        cells: thresholds(16.0 + 2.0 * f64::from(k), 0.5),
    };
    policy_map::draw(&selling((0..5).map(panel).collect()))
}

fn frozen_lake() -> Figure {
    let holes = [5, 7, 11, 12, 15];
    let cell = |h: usize, state: usize, k: usize| {
        (!holes.contains(&state) && state % 4 + state / 4 <= h).then_some((state * 7 + h * (k + 1) / 30) % 4)
    };
    let panel = |(k, tau): (usize, &str)| Panel {
        heading: format!("τ = {tau}"),
        cells: (0..100).map(|h| (0..16).map(|state| cell(h, state, k)).collect()).collect(),
    };
    policy_map::draw(&PolicyMap {
        title: "Exact quantile-optimal policies".to_owned(),
        problem: "frozen-lake, slippery, 4 × 4".to_owned(),
        actions: strings(&["Left", "Down", "Right", "Up"]),
        state_axis: "state: square, by rows".to_owned(),
        states: (0..16).map(|state| state.to_string()).collect(),
        grid: None,
        panels: ["0.1", "0.5", "0.9"].into_iter().enumerate().map(panel).collect(),
        note: "exact policies, evaluated at C_h = 0; hatched squares are holes, the goal, or out of reach so far"
            .to_owned(),
    })
}

fn inventory() -> Figure {
    let order = |h: usize, stock: usize, k: usize| (8 + k).saturating_sub(stock + h / 4).min(10);
    let panel = |(k, tau): (usize, &str)| Panel {
        heading: format!("τ = {tau}"),
        cells: (0..24).map(|h| (0..11).map(|stock| Some(order(h, stock, 2 * k))).collect()).collect(),
    };
    policy_map::draw(&PolicyMap {
        title: "Exact quantile-optimal policies".to_owned(),
        problem: "inventory: up to 10 units".to_owned(),
        actions: (0..11).map(|units| format!("order {units}")).collect(),
        state_axis: "state: units in stock".to_owned(),
        states: (0..11).map(|stock| stock.to_string()).collect(),
        grid: None,
        panels: ["0.1", "0.5"].into_iter().enumerate().map(panel).collect(),
        note: "exact policies, evaluated at C_h = 0".to_owned(),
    })
}

/// The lowest value at which the cumulative probability reaches `tau`.
fn quantile(values: &[f64], probabilities: &[f64], tau: f64) -> f64 {
    let mut cumulative = 0.0;
    let reached = values.iter().zip(probabilities).find(|(_, probability)| {
        cumulative += **probability;
        cumulative >= tau - 1e-12
    });
    reached.map_or(f64::NAN, |(value, _)| *value)
}

/// The mean of the quantiles in the window, by the midpoint rule.
fn buffered(values: &[f64], probabilities: &[f64], tau: f64, beta: f64) -> f64 {
    let at = |j: u32| quantile(values, probabilities, tau - beta + beta * (f64::from(j) + 0.5) / 1000.0);
    (0..1000).map(at).sum::<f64>() / 1000.0
}

fn law_panel(values: Vec<f64>, weights: &[f64], tau: f64, beta: Option<f64>) -> LawPanel {
    let total: f64 = weights.iter().sum();
    let probabilities: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
    LawPanel {
        heading: match beta {
            Some(beta) => format!("τ = {tau}, β = {beta}"),
            None => format!("τ = {tau}"),
        },
        quantile: quantile(&values, &probabilities, tau),
        buffered: beta.map(|beta| buffered(&values, &probabilities, tau, beta)),
        values,
        probabilities,
        references: Vec::new(),
        tau,
        beta,
    }
}

fn law_figure(problem: &str, panels: Vec<LawPanel>) -> LawPlot {
    LawPlot {
        title: "Return law of the quantile-optimal policy".to_owned(),
        problem: problem.to_owned(),
        policy: "planned policy".to_owned(),
        panels,
        note: "exact laws, no sampling".to_owned(),
    }
}

fn three_levels(with_buffer: bool) -> LawPlot {
    let offers: Vec<f64> = (0..25).map(|offer| f64::from(offer) / 24.0).collect();
    let neutral: Vec<f64> = (0..25).map(|offer| if offer < 20 { 0.012 } else { 0.152 }).collect();
    let panel = |(tau, threshold): (f64, usize)| {
        let weights: Vec<f64> = (0..25).map(|offer| if offer < threshold { 0.002 } else { 0.2 }).collect();
        let mut panel = law_panel(offers.clone(), &weights, tau, with_buffer.then_some(0.05));
        panel.references = vec![("risk-neutral policy".to_owned(), offers.clone(), neutral.clone())];
        panel
    };
    law_figure("asset-selling", [(0.1, 15), (0.5, 21), (0.9, 24)].into_iter().map(panel).collect())
}

fn two_atoms() -> Figure {
    let panels = vec![
        law_panel(vec![0.0, 1.0], &[0.3, 0.7], 0.1, Some(0.05)),
        law_panel(vec![0.0, 1.0], &[0.3, 0.7], 0.5, Some(0.4)),
    ];
    law_plot::draw(&law_figure("frozen-lake, slippery", panels))
}

fn many_atoms() -> Figure {
    let values: Vec<f64> = (0..5000).map(|k| f64::from(k) * 0.3 - 500.0).collect();
    let weight = |value: &f64| (-0.5 * ((value - 120.0) / 90.0).powi(2)).exp();
    let weights: Vec<f64> = values.iter().map(weight).collect();
    let wide: Vec<f64> =
        values.iter().map(|value| (-0.5 * ((value - 140.0) / 130.0).powi(2)).exp()).collect();
    let total: f64 = wide.iter().sum();
    let mut panel = law_panel(values.clone(), &weights, 0.25, Some(0.15));
    let probabilities = wide.iter().map(|weight| weight / total).collect();
    panel.references = vec![("risk-neutral policy".to_owned(), values, probabilities)];
    law_plot::draw(&law_figure("inventory, 5 000 returns", vec![panel]))
}

fn negative() -> Figure {
    let values: Vec<f64> = (0..60).map(|k| f64::from(k) * 37.5 - 2300.0).collect();
    let weights: Vec<f64> = (0..60).map(|k| 0.2 + f64::from((k * 17) % 23)).collect();
    let panel = |(tau, beta): (f64, f64)| law_panel(values.clone(), &weights, tau, Some(beta));
    law_plot::draw(&law_figure(
        "cliff-walking",
        [(0.05, 0.05), (0.95, 0.02)].into_iter().map(panel).collect(),
    ))
}

fn learning(methods: &[&str], panels: usize) -> Figure {
    let curve = |k: usize, panel: usize| {
        // Square roots that end close together, so that names have to move apart.
        let rise = 10.0 + (k * (panel + 1)) as f64 * 6.0;
        let point = |t: u32| {
            let mean = rise * f64::from(t).sqrt();
            let half = 0.3 * mean + 2.0 * f64::from(t % 7);
            CurvePoint {
                x: 20.0 * f64::from(t),
                mean,
                band: Some(Interval { low: mean - half, high: mean + half }),
            }
        };
        let label = methods[k].to_owned();
        Curve { label, colour: k, kind: Kind::Method, points: (0..=100).map(point).collect() }
    };
    let panel = |index: usize| CurvePanel {
        heading: format!("τ = 0.{}", 2 * index + 1),
        measure: "cumulative quantile policy gap".to_owned(),
        over: Over::Numbers("training episodes".to_owned()),
        from_zero: true,
        steps: false,
        marks: Vec::new(),
        curves: (0..methods.len()).map(|k| curve(k, index)).collect(),
    };
    curves::draw(&CurvePlot {
        title: "Learning against the optimum".to_owned(),
        problem: "asset-selling · mean of 3 seeds, band: pointwise 95 % Student-t interval".to_owned(),
        panels: (0..panels).map(panel).collect(),
        shared_scale: panels == 3,
        note: "lower is better".to_owned(),
    })
}

fn achieved() -> Figure {
    let taus: Vec<f64> = (1..20).map(|k| f64::from(k) / 20.0).collect();
    let learned = |(k, label, connected): (usize, &str, bool)| {
        let value = |tau: f64, seed: f64| tau.sqrt() - 0.04 * k as f64 - 0.02 * seed;
        let levels = if connected { taus.clone() } else { vec![0.1, 0.5, 0.9] };
        let point = |&tau: &f64| {
            let mean = value(tau, 1.0);
            CurvePoint { x: tau, mean, band: Some(Interval { low: mean - 0.05, high: mean + 0.05 }) }
        };
        let seed = |s: u32| taus.iter().map(|&tau| (tau, value(tau, f64::from(s)))).collect();
        Learned {
            label: label.to_owned(),
            colour: k,
            points: levels.iter().map(point).collect(),
            seeds: if connected { (0..3).map(seed).collect() } else { Vec::new() },
            connected,
        }
    };
    let exact = |label: &str, role, drop: f64| ExactCurve {
        label: label.to_owned(),
        role,
        points: (1..100)
            .map(|k| f64::from(k) / 100.0)
            .map(|tau| (tau, ((24.0 * tau.sqrt()).ceil() / 24.0 - drop)))
            .collect(),
    };
    quantile_curve::draw(&QuantileCurve {
        title: "Achieved quantile at every level".to_owned(),
        problem: "asset-selling · mean of 3 seeds, band or bar: pointwise 95 % Student-t interval".to_owned(),
        exact: vec![
            exact("best possible, exact", Role::Best, 0.0),
            exact("risk-neutral policy, exact", Role::RiskNeutral, 0.1),
            exact("the paper's rule, solved exactly (β = τ)", Role::Rule, 0.2),
        ],
        learned: [(0, "Target tracking", true), (1, "Deep-BQRL", false), (2, "PPO", false)]
            .into_iter()
            .map(learned)
            .collect(),
        note: "thin lines are seeds".to_owned(),
    })
}

fn predictions() -> Figure {
    let offers: Vec<f64> = (0..25).map(|offer| f64::from(offer) / 24.0).collect();
    let panel = |(tau, spread): (f64, f64)| {
        let law = law_panel(offers.clone(), &[1.0; 25], tau, Some(tau / 2.0));
        let critic = |m: u32, lift: f64| -> Vec<f64> {
            (0..8).map(|j| (f64::from(j) + 0.5) / 8.0 * 0.9 + lift + spread * f64::from(m)).collect()
        };
        let action = |(name, lift): (&str, f64)| ActionPrediction {
            action: name.to_owned(),
            levels: (0..8).map(|j| (f64::from(j) + 0.5) / 8.0).collect(),
            critics: (0..4).map(|m| critic(m, lift)).collect(),
        };
        PredictionPanel {
            heading: format!("τ = {tau}, β = {} · seed 42", tau / 2.0),
            values: law.values,
            probabilities: law.probabilities,
            tau,
            beta: tau / 2.0,
            quantile: law.quantile,
            actions: [("continue", 0.0), ("stop", -0.3)].into_iter().map(action).collect(),
        }
    };
    prediction_plot::draw(&PredictionPlot {
        title: "Predicted and attained returns of Deep-BQRL".to_owned(),
        problem: "asset-selling".to_owned(),
        panels: [(0.1, 0.01), (0.5, 0.03)].into_iter().map(panel).collect(),
        note: "exact laws, no sampling".to_owned(),
    })
}
