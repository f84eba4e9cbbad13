//! `bqrl reproduce games`: scores on the five games, and agents that are asked for a level on two of them.

use std::fmt::Write as _;
use std::path::Path;

use bqrl_lab::reproduce::{Planned, RISK_GAMES, games};
use bqrl_report::curves::{self, Curve, CurvePanel, CurvePlot, Kind, Over};
use bqrl_report::figure::Figure;
use bqrl_report::statistics::{Estimate, Track, aligned};
use bqrl_report::study::colour_of;
use bqrl_runs::reader::{Run, SeedRecord};
use bqrl_runs::regular;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::schema::SummaryLevel;
use serde::Serialize;

use crate::failure::Failure;
use crate::reproduce::{ReproduceArgs, train, write};
use crate::text::number;

/// Mean scores at a million frames that were published: MinAtar's own DQN, training returns with ε = .1 (its README); and random play, measured.
const PUBLISHED: [(&str, f64, f64); 5] = [
    ("minatar/breakout", 9.0, 0.5),
    ("minatar/asterix", 7.0, 0.46),
    ("minatar/freeway", 47.0, 0.17),
    ("minatar/seaquest", 0.9, 0.09),
    ("minatar/space-invaders", 32.0, 2.9),
];

/// The largest table of calibrations.
const LARGEST: u64 = 1 << 16;

#[derive(Serialize)]
struct Output {
    directory: String,
    runs: Vec<RunOutput>,
}

#[derive(Serialize)]
struct RunOutput {
    game: String,
    algo: String,
    levels: Vec<LevelOutput>,
}

/// The results of a policy, one number per seed.
#[derive(Serialize)]
struct LevelOutput {
    tau: f64,
    quantile: Vec<f64>,
    mean: Vec<f64>,
    /// The predicted and the measured chance to reach the goal, where the agent expects anything.
    calibration: Option<Vec<[f64; 2]>>,
}

/// Trains what is missing, and returns what to print.
pub fn run(args: &ReproduceArgs) -> Result<String, Failure> {
    let default = if args.quick { "runs/games-quick" } else { "runs/games" };
    let root = args.out.clone().unwrap_or_else(|| default.into());
    let planned = games(usize::from(args.seeds), args.quick).map_err(Failure::usage)?;
    let _shared = train(args, &root, &planned)?;
    let read = |run: &Planned| Run::read_finished(&root.join(&run.name)).map_err(Failure::runtime);
    let runs: Vec<Run> = planned.iter().map(read).collect::<Result<_, _>>()?;
    let outputs: Vec<RunOutput> = runs.iter().map(output).collect::<Result<_, _>>()?;
    let figures = [("games", draw(&runs))];
    let page = page(&args.written_by("games"), &runs, &outputs);
    write(args, &root.join("games.md"), &page, &figures)?;
    if args.json {
        let output = Output { directory: root.display().to_string(), runs: outputs };
        return Ok(serde_json::to_string(&output).expect("plain numbers and text serialise") + "\n");
    }
    Ok(format!("{page}\nEverything is in {}\n", root.display()))
}

fn output(run: &Run) -> Result<RunOutput, Failure> {
    let dir = RunDir::open_to_read(&run.path).map_err(Failure::runtime)?;
    let mut calibrations = Vec::new();
    for seed in &run.summary.seeds {
        calibrations.push(calibration(&dir.seed(*seed).calibration())?);
    }
    let level = |level: &SummaryLevel| {
        let of_seed = |rows: &Vec<[f64; 3]>| {
            let row = rows.iter().find(|row| row[0] == level.tau)?;
            Some([row[1], row[2]])
        };
        LevelOutput {
            tau: level.tau,
            quantile: level.final_quantile.clone(),
            mean: level.final_mean.clone(),
            calibration: calibrations.iter().map(of_seed).collect(),
        }
    };
    Ok(RunOutput {
        game: run.summary.problem.clone(),
        algo: run.summary.algo.clone(),
        levels: run.summary.taus.iter().map(level).collect(),
    })
}

/// τ, predicted and measured chance of every row; none where the agent expects nothing.
fn calibration(path: &Path) -> Result<Vec<[f64; 3]>, Failure> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = regular::read_to_string(path, LARGEST).map_err(Failure::runtime)?;
    let row = |line: &str| {
        let cells: Option<Vec<f64>> = line.split(',').map(|cell| cell.parse().ok()).collect();
        match cells.as_deref() {
            Some(&[tau, _, predicted, measured]) => Ok([tau, predicted, measured]),
            _ => Err(Failure::runtime(format!("{}: cannot read {line:?}", path.display()))),
        }
    };
    text.lines().skip(1).map(row).collect()
}

fn two(value: f64) -> String {
    number((100.0 * value).round() / 100.0)
}

/// The mean over seeds with its interval, and every seed.
fn over_seeds(values: &[f64]) -> String {
    let estimate = Estimate::of(values);
    let each: Vec<String> = values.iter().map(|&value| two(value)).collect();
    let interval = estimate
        .interval
        .map_or(String::new(), |found| format!(" [{}, {}]", two(found.low), two(found.high)));
    format!("{}{interval} ({})", two(estimate.mean), each.join(", "))
}

fn page(written_by: &str, runs: &[Run], outputs: &[RunOutput]) -> String {
    let steps = runs.first().and_then(|run| run.summary.steps).unwrap_or(0);
    let mut out = format!(
        "# Scores on five games\n\nWritten by {written_by}.\n\n\
         {} steps (frames) a seed, sticky actions with probability .1, six actions, greedy games afterwards. Means over seeds with 95 % \
         Student-t intervals; every seed in brackets.\n\n\
         ![Scores while they learn](figures/games.svg)\n\n## QR-DQN\n\n\
         | game | mean | Q_.1 | Q_.5 | Q_.9 | published DQN | random |\n|---|---|---|---|---|---|---|\n",
        number(steps as f64)
    );
    for run in outputs.iter().filter(|run| run.algo == "qr-dqn") {
        let marks = PUBLISHED.iter().find(|(game, ..)| *game == run.game);
        let (published, random) =
            marks.map_or((String::new(), String::new()), |m| (number(m.1), number(m.2)));
        let quantiles: Vec<String> =
            run.levels.iter().map(|level| two(Estimate::of(&level.quantile).mean)).collect();
        let mean = over_seeds(&run.levels[0].mean);
        let _ =
            writeln!(out, "| {} | {mean} | {} | {published} | {random} |", run.game, quantiles.join(" | "));
    }
    out += "\n## Asked for a level\n\n\
            The attained Q_τ of the policy for τ, its mean, and the chance to reach its goal as the agent expects it and as it is \
            measured. QR-DQN has one policy for all levels.\n\n\
            | game | method | τ | Q_τ | mean | expected chance | measured |\n|---|---|---|---|---|---|---|\n";
    for game in RISK_GAMES {
        for run in outputs.iter().filter(|run| run.game == game) {
            for level in &run.levels {
                let mean = |of: fn(&[f64; 2]) -> f64| {
                    let values = level.calibration.as_ref()?.iter().map(of).collect::<Vec<f64>>();
                    Some(two(Estimate::of(&values).mean))
                };
                let _ = writeln!(
                    out,
                    "| {game} | {} | {} | {} | {} | {} | {} |",
                    run.algo,
                    level.tau,
                    over_seeds(&level.quantile),
                    two(Estimate::of(&level.mean).mean),
                    mean(|pair| pair[0]).unwrap_or_default(),
                    mean(|pair| pair[1]).unwrap_or_default()
                );
            }
        }
    }
    out
}

/// The mean score of QR-DQN's greedy policy over the steps, a panel for each game.
fn draw(runs: &[Run]) -> Figure {
    let panel = |run: &Run| {
        let track = |seed: &SeedRecord| {
            let rows = seed.evaluations[0].clone();
            Track {
                x: rows.iter().map(|row| row.step.unwrap_or(0) as f64).collect(),
                done: true,
                value: Box::new(move |k| (rows[k].mean, None)),
            }
        };
        let tracks: Vec<Track<'_>> = run.seeds.iter().map(track).collect();
        let points = aligned(&tracks, 200);
        let colour = colour_of("qr-dqn").unwrap_or(0);
        CurvePanel {
            heading: run.summary.problem.clone(),
            measure: "mean score".to_owned(),
            over: Over::Numbers("step".to_owned()),
            from_zero: true,
            steps: true,
            curves: vec![Curve { label: "QR-DQN".to_owned(), colour, kind: Kind::Method, points }],
            marks: Vec::new(),
        }
    };
    let own = runs.iter().filter(|run| run.summary.algo == "qr-dqn");
    curves::draw(&CurvePlot {
        title: "Scores while they learn".into(),
        problem: format!(
            "five games, {} seeds, greedy policies",
            runs.first().map_or(0, |run| run.seeds.len())
        ),
        panels: own.map(panel).collect(),
        shared_scale: false,
        note: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibrations_are_read_and_damaged_ones_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.csv");
        assert!(calibration(&path).unwrap().is_empty(), "an agent that expects nothing writes none");
        std::fs::write(&path, "tau,goal,predicted,measured\n0.1,5,0.9,0.85\n0.5,7,0.6,0.5\n").unwrap();
        assert_eq!(calibration(&path).unwrap(), [[0.1, 0.9, 0.85], [0.5, 0.6, 0.5]]);
        std::fs::write(&path, "tau,goal,predicted,measured\n0.1,5,0.9\n").unwrap();
        assert!(calibration(&path).is_err());
    }

    #[test]
    fn the_page_has_every_game_and_every_level() {
        let run = |game: &str, algo: &str, calibration: Option<Vec<[f64; 2]>>| RunOutput {
            game: game.to_owned(),
            algo: algo.to_owned(),
            levels: [0.1, 0.5, 0.9]
                .map(|tau| LevelOutput {
                    tau,
                    quantile: vec![1.0, 2.0],
                    mean: vec![4.0, 6.0],
                    calibration: calibration.clone(),
                })
                .into(),
        };
        let mut outputs: Vec<RunOutput> =
            PUBLISHED.iter().map(|(game, ..)| run(game, "qr-dqn", None)).collect();
        outputs.push(run(RISK_GAMES[0], "target-tracking", Some(vec![[0.9, 0.8], [0.7, 0.8]])));
        let page = page("a test", &[], &outputs);
        // 5 ± 12.7, the Student-t interval of 4 and 6.
        assert!(
            page.contains("| minatar/asterix | 5 [-7.71, 17.71] (4, 6) | 1.5 | 1.5 | 1.5 | 7 | 0.46 |"),
            "{page}"
        );
        assert!(page.contains("| minatar/breakout | target-tracking | 0.1 | 1.5 "), "{page}");
        assert!(page.contains("| 5 | 0.8 | 0.8 |"), "{page}");
    }
}
