//! `bqrl play`: watch a game that is played at random, or by a trained run.
//!
//! On a terminal each position replaces the one before it. In a pipe positions follow one another, without a pause. With `--out` they
//! go to a file instead.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bqrl_games::list::{Game, PREFIX};
use bqrl_games::picture::text;
use bqrl_lab::config::Config;
use bqrl_lab::run::{Hooks, restore_seed};
use bqrl_lab::task::{References, Simulator, Task};
use bqrl_lab::watch::{Sight, Watched, watch};
use bqrl_math::buffer::{Buffer, check_tau};
use bqrl_mdp::trajectory::Observation;
use bqrl_runs::run_dir::RunDir;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::interrupt::Writes;
use crate::picture;
use crate::problem::{self, ProblemFlags};
use crate::terminal::{say, show};
use crate::text::number;

/// The most positions in a file.
const MOST_POSITIONS: usize = 20_000;
/// The longest sleep without a look at signals.
const NAP: Duration = Duration::from_millis(50);

/// Flags of `bqrl play`.
#[derive(clap::Args)]
pub struct PlayArgs {
    /// A game (`bqrl envs` lists them), played at random, or the directory of a run on a game
    game: String,
    #[command(flatten)]
    flags: ProblemFlags,
    /// Seed of the game; for a run also which of its seeds plays [default: 42, or the first of the run]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Risk level in (0, 1) of a run that serves several [default: the run's first]
    #[arg(long, allow_negative_numbers = true, value_name = "TAU")]
    tau: Option<f64>,
    /// Steps to play, over several games if need be [default: one game]
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Steps a second, on a terminal and in a GIF
    #[arg(long, value_name = "N", default_value = "10", allow_negative_numbers = true)]
    fps: f64,
    /// Write an animated GIF, or a PNG with eight positions
    #[arg(long, value_name = "FILE.gif|FILE.png")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Gif,
    Png,
}

/// Plays, and returns what to print.
pub fn run(args: &PlayArgs) -> Result<String, Failure> {
    if !(args.fps > 0.0 && args.fps <= 1000.0) {
        return Err(Failure::usage(format!("fps must lie in (0, 1000], got {}", args.fps)));
    }
    let format = args.out.as_deref().map(format_of).transpose()?;
    if let Some(steps) = args.steps.filter(|&steps| format.is_some() && steps >= MOST_POSITIONS as u64) {
        return Err(Failure::usage(format!(
            "a file has at most {MOST_POSITIONS} positions, got --steps {steps}"
        )));
    }
    let named = args.game.starts_with(PREFIX) && !Path::new(&args.game).exists();
    if named || !Path::new(&args.game).is_dir() {
        if args.tau.is_some() {
            return Err(Failure::usage("--tau goes with the directory of a run"));
        }
        let game = game(&args.flags.config(&args.game)?)?;
        let task = Simulator::new(game.actions(), move || game.env());
        return performance(args, format, &game, &task, &Watched::Random, args.seed.unwrap_or(42));
    }
    if args.flags.is_given() {
        return Err(Failure::usage(
            "--env, --horizon, --start, --discount and --normalise go with a game's name",
        ));
    }
    let dir = RunDir::open(Path::new(&args.game)).map_err(Failure::usage)?;
    let config = Config::of_run(&dir).map_err(Failure::usage)?;
    let game = game(&config.problem)?;
    let levels = config.levels().map_err(Failure::usage)?;
    let level = match args.tau {
        Some(tau) => check_tau(tau).and_then(|tau| Buffer::new(tau, tau)).map_err(Failure::usage)?,
        None => levels[0],
    };
    let seed = args.seed.unwrap_or(config.run.seeds[0]);
    if !config.run.seeds.contains(&seed) {
        return Err(Failure::usage(format!("the run has no seed {seed}, it has {:?}", config.run.seeds)));
    }
    let hooks = Hooks {
        stop: &AtomicBool::new(false),
        watch: &|_| {},
        warn: &|message| say(&format!("warning: {message}")),
        clock: &|| 0.0,
    };
    let task = problem::task(&config)?;
    let references = Arc::new(References::none(levels));
    let training = restore_seed(&config, task.clone(), references, seed, &dir.seed(seed), &hooks)
        .map_err(|error| Failure::usage(format!("{}: {error}", dir.path().display())))?;
    performance(args, format, &game, &*task, &Watched::Trained(&training, level), seed)
}

/// The game of a configuration; a table is refused.
fn game(config: &bqrl_lab::config::ProblemConfig) -> Result<Game, Failure> {
    let list = "`bqrl envs` lists the games";
    match config.game().map_err(|error| Failure::usage(error).hint(list))? {
        Some(game) => Ok(game),
        None => Err(Failure::usage(format!("{} is no game and no run on a game", config.name)).hint(list)),
    }
}

fn format_of(path: &Path) -> Result<Format, Failure> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gif") => Ok(Format::Gif),
        Some("png") => Ok(Format::Png),
        _ => Err(Failure::usage(format!("want FILE.gif or FILE.png, got {}", path.display()))),
    }
}

fn performance(
    args: &PlayArgs,
    format: Option<Format>,
    game: &Game,
    task: &dyn Task,
    watched: &Watched,
    seed: u64,
) -> Result<String, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(|error| Failure::runtime(format!("listening for signals: {error}")))?;
    }
    let looks = game.info().looks;
    let actions = task.actions();
    let pause =
        if io::stdout().is_terminal() { Duration::from_secs_f64(1.0 / args.fps) } else { Duration::ZERO };
    let mut positions: Vec<Vec<u64>> = Vec::new();
    let (mut steps, mut scores, mut above) = (0_u64, Vec::new(), 0);
    let mut look = |sight: &Sight| {
        let Observation::Bits(words) = sight.observation else { return false };
        steps += u64::from(sight.action.is_some());
        if sight.end.is_over() {
            scores.push(sight.total);
        }
        if format.is_some() {
            positions.push(words.clone());
            return positions.len() < MOST_POSITIONS && !interrupted.load(Ordering::Relaxed);
        }
        let action = sight.action.map_or("", |action| actions[action].as_str());
        let over = if sight.end.is_over() { "over" } else { "" };
        let line = format!("step {:<6} score {:<6} {action:<6}{over}", sight.stage, number(sight.total));
        let picture = format!("{}{}\n", text(looks, words), line.trim_end());
        let seen = show(&picture, std::mem::replace(&mut above, picture.lines().count()));
        sleep(pause, &interrupted);
        seen && !interrupted.load(Ordering::Relaxed)
    };
    watch(task, watched, seed, args.steps, &mut look).map_err(Failure::runtime)?;
    let summary = summary(game, steps, &scores);
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::interrupted(format!("interrupted: {summary}")));
    }
    if let (Some(path), Some(format)) = (&args.out, format) {
        let file = match format {
            Format::Gif => picture::gif(looks, &positions, args.fps),
            Format::Png => picture::png(looks, &positions),
        };
        Writes::begin()?.write(path, &file.map_err(Failure::runtime)?)?;
    }
    say(&summary);
    Ok(String::new())
}

fn summary(game: &Game, steps: u64, scores: &[f64]) -> String {
    let mut summary = format!(
        "{}: {steps} steps, {} finished {}",
        game.info().name,
        scores.len(),
        if scores.len() == 1 { "game" } else { "games" }
    );
    if !scores.is_empty() {
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        let _ = write!(summary, ", mean score {}", number((mean * 100.0).round() / 100.0));
    }
    summary
}

/// Sleeps, and wakes up early at a signal.
fn sleep(time: Duration, interrupted: &AtomicBool) {
    let start = Instant::now();
    while start.elapsed() < time && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(NAP.min(time.saturating_sub(start.elapsed())));
    }
}
