//! `bqrl reproduce studies`: what the paper leaves open, as tables and figures.

use std::fmt::Write as _;
use std::path::Path;

use bqrl_lab::outcome::rule_quantile;
use bqrl_lab::studies::{FLOORS, Floor, Part, SHARES, Studies, Sweep, floor, multiply_adds, plan};
use bqrl_report::curves::{self, Curve, CurvePanel, CurvePlot, Over};
use bqrl_report::figure::Figure;
use bqrl_report::heat_map::{self, HeatMap, HeatPanel};
use bqrl_report::statistics::{CurvePoint, Estimate};
use bqrl_report::study::{Measure, Trained};
use bqrl_runs::monitor;
use bqrl_runs::reader::Run;
use bqrl_runs::run_dir::RunDir;
use serde::Serialize;

use crate::failure::Failure;
use crate::progress::pool;
use crate::reproduce::{ReproduceArgs, commit, round, train, write};
use crate::text::number;

/// Something of the studies that can be asked for alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// All of the next five
    Sensitivity,
    /// The buffer width, with K = 8 and K = 32
    Beta,
    /// The number of quantiles
    #[value(name = "n_quantiles")]
    NQuantiles,
    /// The number of critics
    #[value(name = "n_critics")]
    NCritics,
    /// The Huber threshold
    Kappa,
    /// The initial bonus
    #[value(name = "lambda_0")]
    Lambda0,
    /// Buffered score, point quantile, mean, no bonus
    Variants,
    /// Horizon and number of actions, with what they cost
    Scaling,
    /// The paper's rule solved exactly, over τ and β
    Floor,
}

impl Only {
    /// Whether a sweep belongs to it.
    fn holds(self, part: Part, sweep: &str) -> bool {
        match self {
            Only::Sensitivity => part == Part::Sensitivity,
            Only::Beta => sweep == "beta" || sweep == "beta-32",
            Only::NQuantiles => sweep == "n_quantiles",
            Only::NCritics => sweep == "n_critics",
            Only::Kappa => sweep == "kappa",
            Only::Lambda0 => sweep == "lambda_0",
            Only::Variants => part == Part::Variants,
            Only::Scaling => part == Part::Scaling,
            Only::Floor => part == Part::Floor,
        }
    }
}

/// A run of a sweep, as the tables show it.
#[derive(Serialize)]
struct Cell {
    sweep: &'static str,
    setting: &'static str,
    problem: &'static str,
    tau: f64,
    value: String,
    /// Whether this is what the others are compared with.
    reference: bool,
    run: String,
    episodes: usize,
    n_seeds: usize,
    quantile_policy_gap: Number,
    /// Gap less that of the reference, seed by seed; absent for the reference itself.
    difference: Option<Number>,
    expected_return_regret: Number,
    final_quantile: Number,
    final_buffered_quantile: Number,
    final_mean: Number,
    best_quantile: f64,
    max_mean: f64,
    /// Q_τ of the paper's rule on this problem; absent outside the scaling study.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_quantile: Option<f64>,
    cost: Cost,
}

/// What training took, over all seeds.
#[derive(Serialize)]
struct Cost {
    env_steps: u64,
    updates: u64,
    /// Of the matrix products of one update.
    multiply_adds: f64,
    /// Wall time of a step with its update, the tenth percentile over episodes.
    seconds_per_step: Number,
}

/// A mean over seeds with its 95 % Student-t interval.
#[derive(Serialize)]
struct Number {
    mean: f64,
    interval: Option<[f64; 2]>,
}

#[derive(Serialize)]
struct FloorCell {
    problem: &'static str,
    tau: f64,
    beta: f64,
    best_quantile: f64,
    rule_quantile: f64,
}

#[derive(Serialize)]
struct Output<'a> {
    directory: String,
    figures: Vec<String>,
    cells: &'a [Cell],
    floor: Vec<FloorCell>,
}

impl Number {
    fn of(samples: &[f64]) -> Self {
        let estimate = Estimate::of(samples);
        let interval = estimate.interval.map(|interval| [interval.low, interval.high]);
        Self { mean: estimate.mean, interval }
    }

    /// Whether the interval leaves out zero.
    fn is_clear(&self) -> bool {
        self.interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }

    /// `mean ± half the interval`.
    fn text(&self) -> String {
        let around = self.interval.map(|[_, high]| format!(" ± {}", number(round(high - self.mean))));
        format!("{}{}", number(round(self.mean)), around.unwrap_or_default())
    }
}

/// Runs the studies, and returns what to print.
pub fn run(args: &ReproduceArgs) -> Result<String, Failure> {
    let default = if args.quick { "runs/studies-quick" } else { "runs/studies" };
    let root = args.out.clone().unwrap_or_else(|| default.into());
    let wanted = |part: Part, sweep: &str| {
        args.only.is_empty() || args.only.iter().any(|only| only.holds(part, sweep))
    };
    let studies = plan(wanted, usize::from(args.seeds), args.quick).map_err(Failure::usage)?;
    train(args, &root, &studies.runs)?;
    let cells = cells(&root, &studies)?;
    let floors: Vec<Floor> = if wanted(Part::Floor, "floor") {
        let solve = || FLOORS.into_iter().map(floor).collect::<Result<_, _>>();
        pool(args.threads)?.install(solve).map_err(Failure::runtime)?
    } else {
        Vec::new()
    };
    let figures = figures(&studies, &cells, &floors);
    let page = page(args, &studies, &cells, &floors, &figures);
    let mut written = write(&root.join("studies.md"), &page, &figures)?;
    if let Some(doc) = &args.doc {
        written.extend(write(doc, &page, &figures)?);
    }
    if args.json {
        let output = Output {
            directory: root.display().to_string(),
            figures: written.iter().map(|path| path.display().to_string()).collect(),
            cells: &cells,
            floor: floors.iter().flat_map(floor_cells).collect(),
        };
        return Ok(serde_json::to_string(&output).expect("plain numbers and text serialise") + "\n");
    }
    Ok(format!("{page}\nEverything is in {}\n", root.display()))
}

fn floor_cells(floor: &Floor) -> Vec<FloorCell> {
    let mut cells = Vec::new();
    for (rule, (_, share)) in floor.rule.iter().zip(SHARES) {
        for ((&tau, &best_quantile), &rule_quantile) in floor.taus.iter().zip(&floor.best).zip(rule) {
            let (problem, beta) = (floor.problem, tau * share);
            cells.push(FloorCell { problem, tau, beta, best_quantile, rule_quantile });
        }
    }
    cells
}

/// Every run of every sweep: levels in order, values in order.
fn cells(root: &Path, studies: &Studies) -> Result<Vec<Cell>, Failure> {
    let read = |planned: &bqrl_lab::reproduce::Planned| Run::read_finished(&root.join(&planned.name));
    let runs: Vec<Run> = studies.runs.iter().map(read).collect::<Result<_, _>>().map_err(Failure::runtime)?;
    let mut cells = Vec::new();
    for sweep in &studies.sweeps {
        for (places, &tau) in sweep.runs.iter().zip(&sweep.taus) {
            let samples = |place: usize, measure: Measure| -> Result<Vec<f64>, Failure> {
                let run = &runs[places[place]];
                let of = |record| measure.of(&Trained { run, record, index: 0 });
                let samples: Option<Vec<f64>> = run.seeds.iter().map(of).collect();
                samples.ok_or_else(|| unknown(run, measure.title()))
            };
            let reference = samples(sweep.reference, Measure::QuantilePolicyGap)?;
            for (place, value) in sweep.values.iter().enumerate() {
                let run = &runs[places[place]];
                let gaps = samples(place, Measure::QuantilePolicyGap)?;
                let paired: Vec<f64> = gaps.iter().zip(&reference).map(|(gap, other)| gap - other).collect();
                let planned = &studies.runs[places[place]];
                let problem = planned.config.problem.load().map_err(Failure::runtime)?;
                let levels = planned.config.levels().map_err(Failure::runtime)?;
                let rule = || rule_quantile(&problem, levels[0]);
                cells.push(Cell {
                    sweep: sweep.name,
                    setting: sweep.setting,
                    problem: sweep.problem,
                    tau,
                    value: value.clone(),
                    reference: place == sweep.reference,
                    run: planned.name.clone(),
                    episodes: sweep.episodes,
                    n_seeds: gaps.len(),
                    quantile_policy_gap: Number::of(&gaps),
                    difference: (place != sweep.reference && sweep.part != Part::Scaling)
                        .then(|| Number::of(&paired)),
                    expected_return_regret: Number::of(&samples(place, Measure::ExpectedReturnRegret)?),
                    final_quantile: Number::of(&samples(place, Measure::FinalQuantile)?),
                    final_buffered_quantile: Number::of(&samples(place, Measure::FinalBufferedQuantile)?),
                    final_mean: Number::of(&samples(place, Measure::FinalMean)?),
                    best_quantile: run.summary.taus[0]
                        .best_quantile
                        .ok_or_else(|| unknown(run, "best quantile"))?,
                    max_mean: run.summary.max_mean.ok_or_else(|| unknown(run, "largest mean"))?,
                    rule_quantile: if sweep.part == Part::Scaling { rule() } else { None },
                    cost: Cost {
                        env_steps: run.summary.env_steps,
                        updates: run.summary.updates,
                        multiply_adds: multiply_adds(&planned.config, &problem).unwrap_or_default(),
                        seconds_per_step: Number::of(&paces(run)?),
                    },
                });
            }
        }
    }
    Ok(cells)
}

/// The studies are about problems whose optimum is known.
fn unknown(run: &Run, what: &str) -> Failure {
    Failure::runtime(format!("{} has no {what}", run.path.display()))
}

/// Wall time of a step of each seed, in the fastest tenth of the episodes: evaluations between episodes, pauses and other
/// work on the machine do not count.
fn paces(run: &Run) -> Result<Vec<f64>, Failure> {
    let dir = RunDir::open(&run.path).map_err(Failure::runtime)?;
    let of = |&seed: &u64| {
        let path = dir.seed(seed).monitor();
        let times = monitor::times(&path)
            .map_err(|error| Failure::runtime(format!("reading {}: {error}", path.display())))?;
        let pace = |pair: &[(u64, f64)]| (pair[1].1 - pair[0].1) / pair[1].0 as f64;
        let mut paces: Vec<f64> = times.windows(2).map(pace).collect();
        paces.sort_by(f64::total_cmp);
        let fast = paces.get(paces.len() / 10).copied();
        fast.ok_or_else(|| Failure::runtime(format!("reading {}: want two episodes", path.display())))
    };
    run.summary.seeds.iter().map(of).collect()
}

fn of_sweep<'a>(cells: &'a [Cell], name: &str, tau: f64) -> Vec<&'a Cell> {
    cells.iter().filter(|cell| cell.sweep == name && cell.tau == tau).collect()
}

/// A panel of a sweep: a curve for each level.
fn panel(
    sweep: &Sweep,
    cells: &[Cell],
    measure: &str,
    marked: bool,
    value: impl Fn(&Cell) -> Number,
) -> CurvePanel {
    let curve = |(colour, &tau): (usize, &f64)| Curve {
        label: format!("τ = {tau}"),
        colour,
        dotted: false,
        points: of_sweep(cells, sweep.name, tau)
            .into_iter()
            .enumerate()
            .map(|(place, cell)| point(place as f64, &value(cell)))
            .collect(),
    };
    CurvePanel {
        heading: sweep.setting.to_owned(),
        measure: measure.to_owned(),
        over: Over::Values {
            setting: sweep.setting.to_owned(),
            values: sweep.values.clone(),
            marked: marked.then_some(sweep.reference),
        },
        from_zero: true,
        curves: sweep.taus.iter().enumerate().map(curve).collect(),
    }
}

fn point(x: f64, value: &Number) -> CurvePoint {
    let band = value.interval.map(|[low, high]| bqrl_math::Interval { low, high });
    CurvePoint { x, mean: value.mean, band }
}

fn per(value: &Number, divisor: f64) -> Number {
    let interval = value.interval.map(|ends| ends.map(|end| end / divisor));
    Number { mean: value.mean / divisor, interval }
}

fn figures(studies: &Studies, cells: &[Cell], floors: &[Floor]) -> Vec<(&'static str, Figure)> {
    let mut figures = Vec::new();
    let sweeps = |part: Part| studies.sweeps.iter().filter(move |sweep| sweep.part == part);
    let seeds = studies.runs.first().map_or(0, |run| run.config.run.seeds.len());
    let about = |sweep: &Sweep| {
        format!(
            "{} · {} episodes · mean of {seeds} seeds, band: pointwise 95 % Student-t interval",
            sweep.problem, sweep.episodes
        )
    };
    if let Some(first) = sweeps(Part::Sensitivity).next() {
        for (name, title, measure) in [
            ("studies-gap", "Quantile policy gap of Deep-BQRL over its settings", Measure::QuantilePolicyGap),
            (
                "studies-regret",
                "Expected-return regret of Deep-BQRL over its settings",
                Measure::ExpectedReturnRegret,
            ),
        ] {
            let value = |cell: &Cell| match measure {
                Measure::QuantilePolicyGap => per(&cell.quantile_policy_gap, 1.0),
                _ => per(&cell.expected_return_regret, 1.0),
            };
            let panel = |sweep| panel(sweep, cells, measure.title(), true, value);
            let plot = CurvePlot {
                title: title.to_owned(),
                problem: about(first),
                panels: sweeps(Part::Sensitivity).map(panel).collect(),
                shared_scale: true,
                note: "lower is better; one setting at a time, values are not to scale; dotted line: the preset, in \
                       the second panel the preset with K = 32"
                    .to_owned(),
            };
            figures.push((name, curves::draw(&plot)));
        }
    }
    for sweep in sweeps(Part::Scaling) {
        let name = if sweep.name == "horizon" { "studies-horizon" } else { "studies-actions" };
        let episodes = sweep.episodes as f64;
        let gap = panel(sweep, cells, "quantile policy gap an episode", false, |cell| {
            per(&cell.quantile_policy_gap, episodes)
        });
        let time =
            panel(sweep, cells, "microseconds a step", false, |cell| per(&cell.cost.seconds_per_step, 1e-6));
        let plot = CurvePlot {
            title: format!("Deep-BQRL over the {}", sweep.setting),
            problem: about(sweep),
            panels: vec![
                CurvePanel { heading: "what is lost".to_owned(), ..gap },
                CurvePanel { heading: "what it costs".to_owned(), ..time },
            ],
            shared_scale: false,
            note: "values are not to scale; wall time of a step with its update, on one machine".to_owned(),
        };
        figures.push((name, curves::draw(&plot)));
    }
    if !floors.is_empty() {
        figures.push(("studies-floor", floor_curves(floors)));
        figures.push(("studies-floor-map", floor_map(floors)));
    }
    figures
}

fn floor_curves(floors: &[Floor]) -> Figure {
    let panel = |floor: &Floor| {
        let exact = |values: &[f64]| -> Vec<CurvePoint> {
            let points = floor.taus.iter().zip(values);
            points.map(|(&x, &mean)| CurvePoint { x, mean, band: None }).collect()
        };
        let mut curves: Vec<Curve> = floor
            .rule
            .iter()
            .zip(SHARES)
            .enumerate()
            .map(|(colour, (rule, (label, _)))| Curve {
                label: format!("β = {label}"),
                colour,
                dotted: false,
                points: exact(rule),
            })
            .collect();
        // The same gray in every panel.
        let best = exact(&floor.best);
        curves.push(Curve { label: "optimum".to_owned(), colour: 5, dotted: true, points: best });
        CurvePanel {
            heading: floor.problem.to_owned(),
            measure: "quantile Q_τ of the return".to_owned(),
            over: Over::Numbers("level τ".to_owned()),
            from_zero: true,
            curves,
        }
    };
    curves::draw(&CurvePlot {
        title: "What the paper's rule attains, solved exactly".to_owned(),
        problem: "exact values at τ = 0.05, 0.1, …, 0.95; nothing is learned".to_owned(),
        panels: floors.iter().map(panel).collect(),
        shared_scale: false,
        note: "the distance to the optimum is a floor under the gap that no training removes; lines join the levels"
            .to_owned(),
    })
}

fn floor_map(floors: &[Floor]) -> Figure {
    let panel = |floor: &Floor| {
        let span = floor.range.1 - floor.range.0;
        let row = |rule: &Vec<f64>| {
            rule.iter().zip(&floor.best).map(|(rule, best)| Some(((best - rule) / span).max(0.0))).collect()
        };
        HeatPanel { heading: floor.problem.to_owned(), cells: floor.rule.iter().map(row).collect() }
    };
    let taus = floors[0].taus.iter().map(|&tau| number(tau)).collect();
    heat_map::draw(&HeatMap {
        title: "The floor under the paper's rule".to_owned(),
        measure: "Q*_τ − Q_τ of the rule, as a share of the range of returns; exact".to_owned(),
        columns: ("level τ".to_owned(), taus),
        rows: ("buffer width β".to_owned(), SHARES.iter().map(|(label, _)| (*label).to_owned()).collect()),
        panels: floors.iter().map(panel).collect(),
        note: String::new(),
    })
}

fn page(
    args: &ReproduceArgs,
    studies: &Studies,
    cells: &[Cell],
    floors: &[Floor],
    figures: &[(&'static str, Figure)],
) -> String {
    let mut flags = String::new();
    if args.quick {
        flags += " --quick";
    }
    for only in &args.only {
        let value = clap::ValueEnum::to_possible_value(only).expect("no part is hidden");
        let _ = write!(flags, " --only {}", value.get_name());
    }
    let mut page = format!(
        "# The studies that the paper leaves open\n\nWritten by `bqrl reproduce studies{flags} --seeds {}`{}; do not \
         edit. What the numbers say: [docs/agents/deep-bqrl.md](agents/deep-bqrl.md).\n",
        args.seeds,
        commit()
    );
    if !cells.is_empty() {
        page += "\nEvery run is Deep-BQRL with the settings of `crates/lab/presets/deep-bqrl.toml` and what the table names \
                 changed, on the held-out seeds; nothing was chosen from these runs. Gap and regret are cumulative, as in \
                 [results.md](results.md); final values are exact, of the greedy policy. ± is half a 95 % Student-t interval over \
                 seeds. A difference is that of the gap from the preset's, taken seed by seed; it is **bold** where its \
                 interval leaves out zero.";
        let differences: Vec<&Number> = cells.iter().filter_map(|cell| cell.difference.as_ref()).collect();
        if !differences.is_empty() {
            let clear = differences.iter().filter(|difference| difference.is_clear()).count();
            let _ = write!(
                page,
                " Of {} differences {clear} are bold; about one in twenty would be by chance alone.",
                differences.len()
            );
        }
        page.push('\n');
    }
    let figure = |page: &mut String, name: &str| {
        if figures.iter().any(|(known, _)| *known == name) {
            let _ = write!(page, "\n![{name}](figures/{name}.svg)\n");
        }
    };
    let sweeps = |part: Part| studies.sweeps.iter().filter(move |sweep| sweep.part == part);
    if sweeps(Part::Sensitivity).next().is_some() {
        page += "\n## Sensitivity to β, K, M, κ and λ_0\n";
        figure(&mut page, "studies-gap");
        figure(&mut page, "studies-regret");
        for sweep in sweeps(Part::Sensitivity) {
            page += &compared(sweep, cells);
        }
    }
    if sweeps(Part::Variants).next().is_some() {
        page += "\n## Buffered score, point quantile, mean; with and without the bonus\n\n\
                 Quantile, buffered quantile and mean of a row belong to the same final policies.\n";
        for sweep in sweeps(Part::Variants) {
            page += &compared(sweep, cells);
        }
    }
    if sweeps(Part::Scaling).next().is_some() {
        page += "\n## Horizon and number of actions\n\n\
                 Time is wall time of an environment step with its update, the tenth percentile over episodes (so that other work \
                 on the machine counts little), on the machine that made this page; other machines give other times. Steps, updates and \
                 multiply-adds of the matrix products do not depend on the machine.\n";
        for sweep in sweeps(Part::Scaling) {
            page += &scaled(sweep, cells, &fixed_parameters(studies, sweep));
            figure(&mut page, &format!("studies-{}", sweep.name));
        }
    }
    if !floors.is_empty() {
        page += "\n## The floor under the paper's rule\n\n\
                 The paper's rule (its Eq. (2)) solved exactly, ties to the larger mean, against the best quantile of any \
                 policy. Nothing is learned here. The floor is Q*_τ less what the rule attains: the gap an episode that is left \
                 after perfect training.\n";
        figure(&mut page, "studies-floor");
        figure(&mut page, "studies-floor-map");
        for floor in floors {
            page += &floor_table(floor);
        }
    }
    page
}

/// A sweep as a table, compared with its reference.
fn compared(sweep: &Sweep, cells: &[Cell]) -> String {
    let mut text = format!(
        "\n### {} on {}, {} episodes\n\n\
         | {} | τ | gap | difference | regret | final Q_τ | best Q*_τ | final Q_τ^β | final mean | best mean |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        capital(sweep.setting),
        sweep.problem,
        sweep.episodes,
        sweep.setting
    );
    for cell in sweep.taus.iter().flat_map(|&tau| of_sweep(cells, sweep.name, tau)) {
        let difference = cell.difference.as_ref().map_or("–".to_owned(), |difference| {
            let text = difference.text();
            if difference.is_clear() { format!("**{text}**") } else { text }
        });
        let _ = writeln!(
            text,
            "| {} | {} | {} | {difference} | {} | {} | {} | {} | {} | {} |",
            cell.value,
            cell.tau,
            cell.quantile_policy_gap.text(),
            cell.expected_return_regret.text(),
            cell.final_quantile.text(),
            number(round(cell.best_quantile)),
            cell.final_buffered_quantile.text(),
            cell.final_mean.text(),
            number(round(cell.max_mean)),
        );
    }
    text
}

/// A sweep as a table of what it attains and costs.
fn scaled(sweep: &Sweep, cells: &[Cell], parameters: &str) -> String {
    let mut text = format!(
        "\n### {} on {}{parameters}, {} episodes\n\n\
         | {} | τ | gap an episode | final Q_τ | the rule's Q_τ | best Q*_τ | final mean | best mean | steps an episode | \
         updates a seed | multiply-adds an update | µs a step |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        capital(sweep.setting),
        sweep.problem,
        sweep.episodes,
        sweep.setting
    );
    for cell in sweep.taus.iter().flat_map(|&tau| of_sweep(cells, sweep.name, tau)) {
        let n_seeds = cell.n_seeds as f64;
        let steps = cell.cost.env_steps as f64 / n_seeds;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell.value,
            cell.tau,
            per(&cell.quantile_policy_gap, sweep.episodes as f64).text(),
            cell.final_quantile.text(),
            cell.rule_quantile.map_or("–".to_owned(), |rule| number(round(rule))),
            number(round(cell.best_quantile)),
            cell.final_mean.text(),
            number(round(cell.max_mean)),
            number(round(steps / sweep.episodes as f64)),
            number((cell.cost.updates as f64 / n_seeds).round()),
            number(cell.cost.multiply_adds),
            per(&cell.cost.seconds_per_step, 1e-6).text(),
        );
    }
    text
}

/// The parameters of the problem that a sweep does not vary, ` (goal=64, …)`.
fn fixed_parameters(studies: &Studies, sweep: &Sweep) -> String {
    let parameters = |run: usize| &studies.runs[run].config.problem.parameters;
    let runs: Vec<usize> = sweep.runs.iter().flatten().copied().collect();
    let fixed: Vec<String> = parameters(runs[0])
        .iter()
        .filter(|(key, value)| runs.iter().all(|&run| parameters(run).get(*key) == Some(*value)))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if fixed.is_empty() { String::new() } else { format!(" ({})", fixed.join(", ")) }
}

/// A row per level: what is best, and what the rule attains at each width.
fn floor_table(floor: &Floor) -> String {
    let mut text = format!("\n### {}\n\n| τ | best Q*_τ |", capital(floor.problem));
    for (label, _) in SHARES {
        let _ = write!(text, " the rule, β = {label} |");
    }
    text += " floor, from … to |\n|---|---|";
    text += &"---|".repeat(SHARES.len() + 1);
    for (place, (tau, &best)) in floor.taus.iter().zip(&floor.best).enumerate() {
        let _ = write!(text, "\n| {} | {} |", number(*tau), number(round(best)));
        let mut floors = Vec::new();
        for rule in &floor.rule {
            let _ = write!(text, " {} |", number(round(rule[place])));
            floors.push((best - rule[place]).max(0.0));
        }
        let (low, high) = (
            floors.iter().copied().fold(f64::INFINITY, f64::min),
            floors.iter().copied().fold(0.0, f64::max),
        );
        let _ = write!(text, " {} … {} |", number(round(low)), number(round(high)));
    }
    text.push('\n');
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
