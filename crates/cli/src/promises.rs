//! `bqrl reproduce promises`: do promises of `bqrl plan --confidence` hold, and how tight are they?

use std::fmt::Write as _;
use std::path::Path;

use bqrl_lab::coverage::{CASES, CONFIDENCE, Case, SIZES, TAU, Trial, optimum, problem, trial};
use bqrl_report::curves::{self, Curve, CurvePanel, CurvePlot, Kind, Over};
use bqrl_report::figure::Figure;
use bqrl_report::statistics::CurvePoint;
use bqrl_runs::shared_dir::SharedDir;
use bqrl_runs::{atomic, regular};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::progress::pool;
use crate::reproduce::{ReproduceArgs, write};
use crate::text::number;

/// The largest file of results.
const LARGEST: u64 = 1 << 24;

/// The logs of one problem and size.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Cell {
    problem: String,
    best: f64,
    /// The least P(R < best).
    below: f64,
    trials: Vec<Trial>,
}

/// How many logs of a size: thousands of short ones, few of the long ones, which take longest and vary least.
fn logs(episodes: usize, quick: bool) -> u64 {
    let full = match episodes {
        0..=5_000 => 1_000,
        _ => 100,
    };
    if quick { full / 20 } else { full }
}

/// Runs the study, and returns what to print.
pub fn run(args: &ReproduceArgs) -> Result<String, Failure> {
    let default = if args.quick { "runs/promises-quick" } else { "runs/promises" };
    let root = args.out.clone().unwrap_or_else(|| default.into());
    std::fs::create_dir_all(&root)
        .map_err(|error| Failure::runtime(format!("{}: {error}", root.display())))?;
    let _shared = SharedDir::open(&root, &["figures"]).map_err(Failure::runtime)?;
    let sizes = if args.quick { &SIZES[..4] } else { &SIZES[..] };
    let mut cells = Vec::new();
    for case in &CASES {
        for &episodes in sizes {
            let all = || cell(&root, case, episodes, logs(episodes, args.quick));
            cells.push(pool(args.threads)?.install(all)?);
        }
    }
    let figures = [("promises", draw(&cells, sizes))];
    let page = page(&args.written_by("promises"), &cells);
    write(args, &root.join("promises.md"), &page, &figures)?;
    if args.json {
        return Ok(serde_json::to_string(&cells).expect("plain numbers and text serialise") + "\n");
    }
    Ok(format!("{page}\nEverything is in {}\n", root.display()))
}

/// One cell of the study. It is read if it is there, so that an interrupted study goes on where it stopped.
fn cell(root: &Path, case: &Case, episodes: usize, logs: u64) -> Result<Cell, Failure> {
    let path = root.join(format!("{}-{episodes}-{logs}.json", case.0));
    let stored = regular::read(&path, LARGEST).ok();
    if let Some(cell) = stored.and_then(|bytes| serde_json::from_slice::<Cell>(&bytes).ok())
        && cell.trials.len() as u64 == logs
    {
        return Ok(cell);
    }
    let truth = problem(case);
    let best = optimum(&truth);
    let trials = (0..logs).into_par_iter().map(|seed| trial(&truth, &best, episodes, seed)).collect();
    let cell = Cell { problem: case.0.to_owned(), best: best.value, below: best.below, trials };
    let bytes = serde_json::to_vec(&cell).expect("plain numbers and text serialise");
    atomic::write(&path, &bytes).map_err(Failure::runtime)?;
    Ok(cell)
}

impl Cell {
    fn episodes(&self) -> usize {
        self.trials.first().map_or(0, |trial| trial.episodes)
    }

    fn mean(&self, of: impl Fn(&Trial) -> f64) -> f64 {
        self.trials.iter().map(of).sum::<f64>() / self.trials.len().max(1) as f64
    }

    fn share(&self, of: impl Fn(&Trial) -> bool) -> f64 {
        self.mean(|trial| f64::from(u8::from(of(trial))))
    }
}

fn page(written_by: &str, cells: &[Cell]) -> String {
    let mut out = format!(
        "# Do promises hold?\n\nWritten by {written_by}.\n\n\
         Logs are simulated with random actions, fitted with `bqrl fit`, and planned at τ = {TAU} with {} % confidence. A promise holds \
         if the returned policy's true Q_τ is at least the promised one. All columns but the shares are means over the logs.\n\n\
         ![Promise, truth and estimate as the log grows](figures/promises.svg)\n\n",
        100.0 * CONFIDENCE
    );
    out += "| problem | episodes | logs | promise holds | data support one | promised Q_τ | its true Q_τ | estimate | its true Q_τ | estimate too high | promised by the L1 ball | optimum |\n";
    out += "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for cell in cells {
        let percent = |share: f64| format!("{} %", number((1000.0 * share).round() / 10.0));
        let two = |value: f64| number((100.0 * value).round() / 100.0);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell.problem,
            cell.episodes(),
            cell.trials.len(),
            percent(cell.share(Trial::holds)),
            percent(cell.share(|trial| trial.supported)),
            two(cell.mean(|trial| trial.promised)),
            two(cell.mean(|trial| trial.truth)),
            two(cell.mean(|trial| trial.estimate)),
            two(cell.mean(|trial| trial.estimate_truth)),
            percent(cell.share(|trial| trial.estimate_truth < trial.estimate - 1e-9)),
            two(cell.mean(|trial| trial.l1)),
            two(cell.best)
        );
    }
    out + &limits(cells)
}

/// Could anyone promise the optimum itself?
fn limits(cells: &[Cell]) -> String {
    let largest = cells.iter().map(Cell::episodes).max().unwrap_or(0);
    let mut out = format!(
        "\n## Could anyone promise the optimum?\n\n\
         A promise of the optimum must show P(R < optimum) < τ. Suppose that the best policy were known beforehand and had not to be found in the \
         log: then all {largest} episodes could check it. The sd is that of its estimated P(R < optimum) over the logs. A test that errs in {} % of the logs, \
         and relies on the normal law, needs a margin of {Z} sd, and finds it in the last column's share of the logs. No promise can be expected to do better.\n\n\
         | problem | optimum | its P(R < optimum) | margin to τ | sd of the estimate | margin / sd | could be promised |\n|---|---|---|---|---|---|---|\n",
        number((100.0 * (1.0 - CONFIDENCE)).round())
    );
    for cell in cells.iter().filter(|cell| cell.episodes() == largest) {
        let mean = cell.mean(|trial| trial.best_below);
        let n = cell.trials.len() as f64;
        let sd = (cell.mean(|trial| (trial.best_below - mean).powi(2)) * n / (n - 1.0).max(1.0)).sqrt();
        let margin = TAU - cell.below;
        let (ratio, share) = match sd {
            0.0 => ("–".to_owned(), 1.0),
            _ => (format!("{:.1}", margin / sd), normal_below(margin / sd - Z)),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {:.4} | {margin:.4} | {sd:.4} | {ratio} | {:.0} % |",
            cell.problem,
            number(cell.best),
            cell.below,
            100.0 * share
        );
    }
    out
}

/// The 95th percentile of the normal law.
const Z: f64 = 1.645;

/// Φ, to three digits: the logistic approximation of Bowling et al. (2009).
fn normal_below(z: f64) -> f64 {
    1.0 / (1.0 + (-1.5976 * z - 0.07056 * z.powi(3)).exp())
}

fn draw(cells: &[Cell], sizes: &[usize]) -> Figure {
    let panel = |case: &Case| {
        let own: Vec<&Cell> = cells.iter().filter(|cell| cell.problem == case.0).collect();
        let curve = |label: &str, colour: usize, dotted: bool, of: &dyn Fn(&Cell) -> f64| Curve {
            label: label.to_owned(),
            colour,
            kind: match (label, dotted) {
                ("optimum", _) => Kind::Reference,
                (_, true) => Kind::Second,
                (_, false) => Kind::Method,
            },
            points: own
                .iter()
                .enumerate()
                .map(|(place, cell)| CurvePoint { x: place as f64, mean: of(cell), band: None })
                .collect(),
        };
        CurvePanel {
            heading: case.0.to_owned(),
            measure: format!("Q_τ at τ = {TAU}"),
            over: Over::Values {
                setting: "episodes in the log".to_owned(),
                values: sizes.iter().map(usize::to_string).collect(),
                marked: None,
            },
            from_zero: false,
            steps: false,
            marks: Vec::new(),
            curves: vec![
                curve("optimum", 3, true, &|cell| cell.best),
                curve("plain estimate", 1, true, &|cell| cell.mean(|trial| trial.estimate)),
                curve("its true value", 1, false, &|cell| cell.mean(|trial| trial.estimate_truth)),
                curve("promise", 0, true, &|cell| cell.mean(|trial| trial.promised)),
                curve("its true value", 0, false, &|cell| cell.mean(|trial| trial.truth)),
                curve("promise of the L1 ball", 2, true, &|cell| cell.mean(|trial| trial.l1)),
            ],
        }
    };
    curves::draw(&CurvePlot {
        title: "Promise, truth and estimate as the log grows".into(),
        problem: format!("five problems, means over simulated logs, {} % confidence", 100.0 * CONFIDENCE),
        panels: CASES.iter().map(panel).collect(),
        shared_scale: false,
        note: "thin, hollow marks: what is said; thick: what the policy is truly worth; dots: the optimum"
            .into(),
    })
}
