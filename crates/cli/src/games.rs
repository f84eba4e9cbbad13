//! `bqrl reproduce games`: scores on the five games, and agents that are asked for a level on two of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bqrl_lab::reproduce::{Planned, RISK_GAMES, games};
use bqrl_report::curves::{self, Curve, CurvePanel, CurvePlot, Kind, Over};
use bqrl_report::figure::Figure;
use bqrl_report::statistics::{Estimate, Track, aligned};
use bqrl_report::study::colour_of;
use bqrl_runs::atomic;
use bqrl_runs::shared_dir::SharedDir;
use serde::Serialize;

use crate::failure::Failure;
use crate::reproduce::{ReproduceArgs, train, write};
use crate::scores::{self, Score, settings, to_csv};
use crate::terminal::say;
use crate::text::number;

/// Mean scores at a million frames that were published: MinAtar's own DQN, training returns with ε = .1 (its README); and random play, measured.
const PUBLISHED: [(&str, f64, f64); 5] = [
    ("minatar/breakout", 9.0, 0.5),
    ("minatar/asterix", 7.0, 0.46),
    ("minatar/freeway", 47.0, 0.17),
    ("minatar/seaquest", 0.9, 0.09),
    ("minatar/space-invaders", 32.0, 2.9),
];

#[derive(Serialize)]
struct Output {
    directory: String,
    runs: Vec<RunOutput>,
}

/// The results of an agent on a game, for the policy of one level or for one that serves all.
#[derive(Serialize)]
struct RunOutput {
    game: String,
    algo: String,
    seeds: Vec<u64>,
    levels: Vec<LevelOutput>,
}

/// The final results of a policy, one number per seed.
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
    let mut planned = games(usize::from(args.seeds), args.quick).map_err(Failure::usage)?;
    let elsewhere = args.with.as_deref().map(scores::read).transpose()?.unwrap_or_default();
    let (mut all, others) = matching(elsewhere, &planned);
    if others > 0 {
        say(&format!("{others} rows of other settings, or of seeds that are not asked for, are left out"));
    }
    for run in &mut planned {
        let settings = settings(&run.config);
        let known = |&seed: &u64| all.iter().any(|score| score.settings == settings && score.seed == seed);
        run.config.run.seeds.retain(|seed| !known(seed));
    }
    planned.retain(|run| !run.config.run.seeds.is_empty());
    let trained = if args.so_far { None } else { Some(train(args, &root, &planned)?) };
    for run in &planned {
        all.extend(scores::collect(&root, run)?);
    }
    if all.is_empty() {
        return Err(Failure::usage(format!("no seed is finished in {}", root.display()))
            .hint("the same command without --so-far trains"));
    }
    let _shared = match trained {
        Some(shared) => shared,
        None => SharedDir::open(&root, &["figures"]).map_err(Failure::runtime)?,
    };
    let outputs = outputs(&all);
    let figures = [("games", draw(&all))];
    let page = page(&args.written_by("games"), &all, &outputs);
    write(args, &root.join("games.md"), &page, &figures)?;
    let table = to_csv(&all);
    let beside = args.doc.iter().map(|doc| doc.with_extension("csv"));
    for path in beside.chain([root.join("games.csv")]) {
        atomic::write(&path, &table)
            .map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))?;
    }
    if args.json {
        let output = Output { directory: root.display().to_string(), runs: outputs };
        return Ok(serde_json::to_string(&output).expect("plain numbers and text serialise") + "\n");
    }
    Ok(format!("{page}\nEverything is in {}\n", root.display()))
}

/// The scores that belong to a planned seed, and how many do not.
fn matching(scores: Vec<Score>, planned: &[Planned]) -> (Vec<Score>, usize) {
    let n = scores.len();
    let settings: Vec<_> = planned.iter().map(|run| (settings(&run.config), &run.config.run.seeds)).collect();
    let is_planned = |score: &Score| {
        settings.iter().any(|(settings, seeds)| *settings == score.settings && seeds.contains(&score.seed))
    };
    let kept: Vec<Score> = scores.into_iter().filter(is_planned).collect();
    let others = n - kept.len();
    (kept, others)
}

/// The final scores by run and level, in the order of the list of runs.
fn outputs(all: &[Score]) -> Vec<RunOutput> {
    let mut outputs: Vec<RunOutput> = Vec::new();
    let of = |score: &Score| (score.settings.clone(), score.seed);
    let mut ends: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for score in all {
        let end = ends.entry(of(score)).or_default();
        *end = score.step.max(*end);
    }
    for score in all.iter().filter(|score| ends[&of(score)] == score.step) {
        let of_run = |run: &RunOutput| run.game == score.game && run.algo == score.algo;
        let place = outputs.iter().position(of_run).unwrap_or_else(|| {
            let (game, algo) = (score.game.clone(), score.algo.clone());
            outputs.push(RunOutput { game, algo, seeds: Vec::new(), levels: Vec::new() });
            outputs.len() - 1
        });
        let run = &mut outputs[place];
        if !run.seeds.contains(&score.seed) {
            run.seeds.push(score.seed);
        }
        let place = run.levels.iter().position(|level| level.tau == score.tau).unwrap_or_else(|| {
            run.levels.push(LevelOutput {
                tau: score.tau,
                quantile: Vec::new(),
                mean: Vec::new(),
                calibration: None,
            });
            run.levels.len() - 1
        });
        let level = &mut run.levels[place];
        level.quantile.push(score.quantile);
        level.mean.push(score.mean);
        if let (Some(predicted), Some(measured)) = (score.predicted, score.measured) {
            level.calibration.get_or_insert_default().push([predicted, measured]);
        }
    }
    let rank = |run: &RunOutput| PUBLISHED.iter().position(|(game, ..)| *game == run.game);
    outputs.sort_by_key(rank);
    outputs
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

fn page(written_by: &str, all: &[Score], outputs: &[RunOutput]) -> String {
    let steps = all.iter().map(|score| score.step).max().unwrap_or(0);
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
fn draw(all: &[Score]) -> Figure {
    let colour = colour_of("qr-dqn").unwrap_or(0);
    let mut most = 0;
    let mut panel = |game: &str| {
        let own: Vec<&Score> =
            all.iter().filter(|score| score.game == game && score.algo == "qr-dqn").collect();
        // One policy serves all levels, so the rows of one of them hold every mean.
        let tau = own.first()?.tau;
        let mut seeds: Vec<u64> = own.iter().map(|score| score.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        most = most.max(seeds.len());
        let track = |&seed: &u64| {
            let rows: Vec<(f64, f64)> = own
                .iter()
                .filter(|score| score.seed == seed && score.tau == tau)
                .map(|score| (score.step as f64, score.mean))
                .collect();
            let x = rows.iter().map(|row| row.0).collect();
            Track { x, done: true, value: Box::new(move |k| (rows[k].1, None)) }
        };
        let tracks: Vec<Track<'_>> = seeds.iter().map(track).collect();
        let points = aligned(&tracks, 200);
        Some(CurvePanel {
            heading: game.to_owned(),
            measure: "mean score".to_owned(),
            over: Over::Numbers("step".to_owned()),
            from_zero: true,
            steps: true,
            curves: vec![Curve { label: "QR-DQN".to_owned(), colour, kind: Kind::Method, points }],
            marks: Vec::new(),
        })
    };
    let panels = PUBLISHED.iter().filter_map(|(game, ..)| panel(game)).collect();
    curves::draw(&CurvePlot {
        title: "Scores while they learn".into(),
        problem: format!("five games, up to {most} seeds each, greedy policies"),
        panels,
        shared_scale: false,
        note: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_other_settings_or_seeds_are_left_out_and_the_last_step_counts() {
        let planned = games(2, false).unwrap();
        let score = |seed: u64, step: u64, mean: f64| Score {
            game: "minatar/breakout".to_owned(),
            algo: "qr-dqn".to_owned(),
            settings: settings(&planned[0].config),
            seed,
            step,
            tau: 0.1,
            quantile: mean / 2.0,
            low: None,
            high: None,
            mean,
            predicted: None,
            measured: None,
        };
        let elsewhere = vec![
            score(42, 100, 1.0),
            score(42, 200, 4.0),
            score(10042, 200, 6.0),
            score(7, 200, 9.0),
            Score { settings: "0123abcd".to_owned(), ..score(42, 200, 8.0) },
        ];
        let (kept, others) = matching(elsewhere, &planned);
        assert_eq!((kept.len(), others), (3, 2));
        let outputs = outputs(&kept);
        assert_eq!((outputs.len(), &outputs[0].seeds[..]), (1, &[42, 10042][..]));
        assert_eq!((&outputs[0].levels[0].mean[..], outputs[0].levels.len()), (&[4.0, 6.0][..], 1));
    }

    #[test]
    fn the_page_has_every_game_and_every_level() {
        let run = |game: &str, algo: &str, calibration: Option<Vec<[f64; 2]>>| RunOutput {
            game: game.to_owned(),
            algo: algo.to_owned(),
            seeds: vec![42, 7],
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
