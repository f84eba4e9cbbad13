//! `bqrl bench`: the speed of the training step, or of the games, on this machine.
//!
//! ```text
//! GFLOP/s  = steps/s × operations of the matrix products of one step
//! fraction = GFLOP/s / the core's peak, measured with multiply-adds on registers alone
//! ```
//!
//! Steps, acting and the peak are measured in turns, in many short rounds. The fastest round of each counts, because other
//! work on the machine can only slow a round down. Everything runs on one core.
//!
//! A step of a game: a random action that was drawn beforehand, the rules, and the observation written as bits; new games included.

use std::time::{Duration, Instant};

use bqrl_games::list as games;
use bqrl_nn::{Kernels, Workload};
use serde::Serialize;

use crate::failure::Failure;
use crate::text::{number, table};

/// The least duration of a round of steps, so that reading the clock costs nothing.
const ROUND: Duration = Duration::from_millis(10);
/// Calls in a round of acting.
const ACTS: u32 = 200;

/// Flags of `bqrl bench`.
#[derive(clap::Args)]
pub struct BenchArgs {
    /// Reference shapes: s, m, l (width 64, 128, 256), x (more inputs and actions) of Deep-BQRL; t (table), v (vectors) of target tracking
    #[arg(long, value_name = "SHAPE,…", value_delimiter = ',', default_values = Workload::NAMES, value_parser = Workload::NAMES)]
    shape: Vec<String>,
    /// Measure the games instead, in steps a second
    #[arg(long, conflicts_with_all = ["shape", "kernels"])]
    games: bool,
    /// Time for each shape, or for each game
    #[arg(long, value_name = "SECONDS", default_value = "1", allow_negative_numbers = true)]
    seconds: f64,
    /// The vector instructions to use; auto takes the widest of this machine
    #[arg(long, default_value = "auto", value_parser = ["auto", "avx512", "avx2", "neon", "scalar"])]
    kernels: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The output of `--json`, which scripts rely on.
#[derive(Serialize)]
struct Report {
    kernels: &'static str,
    shapes: Vec<Speed>,
}

#[derive(Serialize)]
struct Speed {
    shape: String,
    steps_per_second: f64,
    gflops: f64,
    peak_gflops: f64,
    fraction_of_peak: f64,
    act_microseconds: f64,
}

/// Measures, and returns what to print.
pub fn run(args: &BenchArgs) -> Result<String, Failure> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::usage(format!("seconds must lie in (0, 3600], got {}", args.seconds)));
    }
    let time = Duration::from_secs_f64(args.seconds);
    if args.games {
        return Ok(of_games(time, args.json));
    }
    let kernels = match args.kernels.as_str() {
        "auto" => Kernels::detect(),
        name => Kernels::named(name).ok_or_else(|| {
            let names: Vec<_> = Kernels::available().into_iter().map(Kernels::name).collect();
            Failure::usage(format!("this machine has no {name}")).hint(format!("it has {}", names.join(", ")))
        })?,
    };
    let shapes = args.shape.iter().map(|name| measure(name, kernels, time)).collect();
    let report = Report { kernels: kernels.name(), shapes };
    Ok(if args.json {
        serde_json::to_string(&report).expect("plain numbers and text serialise") + "\n"
    } else {
        human(&report)
    })
}

/// The output of `--games --json`.
#[derive(Serialize)]
struct Games {
    games: Vec<GameSpeed>,
}

#[derive(Serialize)]
struct GameSpeed {
    game: &'static str,
    steps_per_second: f64,
}

fn of_games(time: Duration, json: bool) -> String {
    let speed = |name: &'static str| {
        let game = games::build(name, &[]).expect("its name is listed");
        GameSpeed { game: name, steps_per_second: game.speed(time) }
    };
    let games: Vec<GameSpeed> = games::names().map(speed).collect();
    if json {
        return serde_json::to_string(&Games { games }).expect("plain numbers and text serialise") + "\n";
    }
    let mut rows = vec![vec!["game".to_owned(), "million steps/s".to_owned()]];
    let row = |speed: &GameSpeed| vec![speed.game.to_owned(), format!("{:.1}", speed.steps_per_second / 1e6)];
    rows.extend(games.iter().map(row));
    format!("one core, random actions, observations written as bits\n\n{}", table(&rows))
}

fn measure(name: &str, kernels: Kernels, time: Duration) -> Speed {
    let mut workload = Workload::named(name, kernels).expect("clap lets through only names of workloads");
    workload.step(); // Allocates.
    let (mut step, mut act, mut peak) = (f64::INFINITY, f64::INFINITY, 0.0_f64);
    let start = Instant::now();
    while step.is_infinite() || start.elapsed() < time {
        peak = peak.max(kernels.peak_flops());
        let round = Instant::now();
        let mut steps = 0;
        while round.elapsed() < ROUND {
            workload.step();
            steps += 1;
        }
        step = step.min(round.elapsed().as_secs_f64() / f64::from(steps));
        let round = Instant::now();
        for _ in 0..ACTS {
            std::hint::black_box(workload.act());
        }
        act = act.min(round.elapsed().as_secs_f64() / f64::from(ACTS));
    }
    let flops = workload.flops() / step;
    Speed {
        shape: name.to_owned(),
        steps_per_second: 1.0 / step,
        gflops: flops / 1e9,
        peak_gflops: peak / 1e9,
        fraction_of_peak: flops / peak,
        act_microseconds: act * 1e6,
    }
}

fn human(report: &Report) -> String {
    let heading = ["shape", "steps/s", "GFLOP/s", "peak GFLOP/s", "fraction", "act µs"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for speed in &report.shapes {
        rows.push(vec![
            speed.shape.clone(),
            number(speed.steps_per_second.round()),
            format!("{:.1}", speed.gflops),
            format!("{:.1}", speed.peak_gflops),
            format!("{:.2}", speed.fraction_of_peak),
            format!("{:.1}", speed.act_microseconds),
        ]);
    }
    format!("one core, {} kernels\n\n{}", report.kernels, table(&rows))
}
