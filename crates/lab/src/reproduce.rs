//! The paper's experiments (§4) and the games as lists of runs, and how runs of such a list are begun or resumed.

use std::io;
use std::path::{Path, PathBuf};

use bqrl_runs::run_dir::RunDir;
use thiserror::Error;

use crate::batch::{Prepared, Ready};
use crate::config::{ALGOS, AgentConfig, Config, ConfigError, Layers, Levels, paper_episodes};
use crate::tune::HELD_OUT;

/// A run of the reproduction.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its place below the directory of the reproduction.
    pub name: String,
    /// Every setting.
    pub config: Config,
}

/// The levels that the paper reports.
pub(crate) const LEVELS: [f64; 3] = [0.1, 0.5, 0.9];
/// The share of the episodes that a quick look takes, 1/this.
pub(crate) const QUICK: usize = 10;

/// Steps of a quick look at a game.
const QUICK_STEPS: usize = 100_000;

/// The first `n` seeds of the protocol: the paper's three, then 101, 102, ….
pub fn seeds(n: usize) -> Vec<u64> {
    HELD_OUT.into_iter().chain(101..).take(n).collect()
}

/// All methods on one of the paper's problems, as their presets stand.
pub fn experiment(problem: &str, n_seeds: usize, quick: bool) -> Result<Vec<Planned>, ConfigError> {
    let episodes = paper_episodes(problem);
    let episodes = if quick { episodes / QUICK } else { episodes };
    let mut runs = Vec::new();
    for algo in &ALGOS {
        let groups: Vec<Vec<f64>> = match algo.levels {
            Levels::Any => vec![LEVELS.to_vec()],
            Levels::One => LEVELS.iter().map(|&tau| vec![tau]).collect(),
        };
        for tau in groups {
            let mut layers = Layers::preset(algo.name)?;
            layers.set("problem", "name", problem);
            layers.set("run", "tau", tau.clone());
            layers.set("run", "episodes", episodes as i64);
            // As the paper does: its smallest gap, 0.79, is one episode of an untrained policy.
            layers.set("run", "evaluate_every", "1 episodes");
            layers.set(
                "run",
                "seeds",
                seeds(n_seeds).into_iter().map(|seed| seed as i64).collect::<Vec<_>>(),
            );
            let name = match tau[..] {
                [tau] => format!("{problem}/{}-{tau}", algo.name),
                _ => format!("{problem}/{}", algo.name),
            };
            runs.push(Planned { config: layers.finish(&name)?, name });
        }
    }
    Ok(runs)
}

/// The games on which agents are asked for levels.
pub const RISK_GAMES: [&str; 2] = ["minatar/breakout", "minatar/asterix"];

/// QR-DQN on the five games; Deep-BQRL, a run for each level, and target tracking, one run for all, on two of them, with a third of the
/// seeds because they take longest. As their presets stand.
pub fn games(n_seeds: usize, quick: bool) -> Result<Vec<Planned>, ConfigError> {
    let all = bqrl_games::list::names().map(|game| (game, "qr-dqn", LEVELS.to_vec(), n_seeds));
    let risky = RISK_GAMES.iter().flat_map(|&game| {
        let few = n_seeds.div_ceil(3);
        let of_level = move |tau| (game, "deep-bqrl", vec![tau], few);
        LEVELS.map(of_level).into_iter().chain([(game, "target-tracking", LEVELS.to_vec(), few)])
    });
    let plan = |(game, algo, tau, n_seeds): (&str, &str, Vec<f64>, usize)| {
        let name = match tau[..] {
            [tau] => format!("{game}/{algo}-{tau}"),
            _ => format!("{game}/{algo}"),
        };
        let mut layers = Layers::of(algo, game)?;
        layers.set("run", "tau", tau);
        layers.set("run", "seeds", seeds(n_seeds).into_iter().map(|seed| seed as i64).collect::<Vec<_>>());
        if quick {
            layers.set("run", "steps", QUICK_STEPS as i64);
            for key in ["evaluate_every", "checkpoint_every"] {
                layers.set("run", key, format!("{} steps", QUICK_STEPS / 10));
            }
            layers.set("run", "evaluation_episodes", 100);
        }
        Ok(Planned { config: layers.finish(&name)?, name })
    };
    all.chain(risky).map(plan).collect()
}

/// A run that cannot be begun or resumed.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum BeginError {
    #[error("{} was run with other settings", .path.display())]
    OtherSettings { path: PathBuf },
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl BeginError {
    /// Whether the caller can put it right.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Io(_))
    }
}

/// The runs below `root` that are not finished: new ones are begun, the others resumed. `force` replaces a run
/// that has other settings.
pub fn begin(root: &Path, runs: &[Planned], force: bool) -> Result<Vec<Ready>, BeginError> {
    let begun = runs.iter().map(|run| begin_one(&root.join(&run.name), &run.config, force));
    begun.filter_map(Result::transpose).collect()
}

/// Puts the runs that take longest first, so that no core waits for one of them at the end.
pub fn longest_first(runs: &mut [Ready]) {
    runs.sort_by(|a, b| expected(b).total_cmp(&expected(a)));
}

/// The relative time of a seed, from measured times a step on FrozenLake; good enough to order runs.
fn expected(run: &Ready) -> f64 {
    let horizon = run.task.spec().horizon as f64;
    let weight = match &run.config.agent {
        AgentConfig::TargetTracking(_) => 8.0,
        // With shared stages every step teaches all of them.
        AgentConfig::VarQ(_) => 0.03 * horizon,
        AgentConfig::DeepBqrl(_) | AgentConfig::UcbBqrl(_) => 2.0,
        AgentConfig::QrDqn(_) => 1.0,
        AgentConfig::Ppo(_) | AgentConfig::Trpo(_) | AgentConfig::Qppo(_) => 0.1,
    };
    let run = &run.config.run;
    weight * run.steps.map_or_else(|| run.episodes.unwrap_or(0) as f64 * horizon, |steps| steps as f64)
}

/// `None` when the run is finished.
fn begin_one(path: &Path, config: &Config, force: bool) -> Result<Option<Ready>, BeginError> {
    let text = config.to_toml();
    let (dir, lock) = match std::fs::read_to_string(path.join("config.toml")).ok() {
        Some(stored) if stored == text => {
            let dir = RunDir::open(path).map_err(refused)?;
            if dir.summary().exists() {
                return Ok(None);
            }
            let lock = dir.lock().map_err(refused)?;
            (dir, lock)
        }
        Some(_) if !force => return Err(BeginError::OtherSettings { path: path.to_owned() }),
        _ => {
            if let Some(parent) = path.parent() {
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("creating {}: {error}", parent.display()))
                };
                std::fs::create_dir_all(parent).map_err(named)?;
            }
            RunDir::create(path, true)?
        }
    };
    let prepared = Prepared::new(config.clone()).map_err(refused)?;
    Ok(Some(prepared.begin(dir, lock)?))
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` hands it over.
fn refused(error: impl ToString) -> BeginError {
    BeginError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_begun_then_resumed_and_other_settings_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut runs = experiment("asset-selling", 2, true).unwrap();
        runs.truncate(1);
        let path = directory.path().join(&runs[0].name);
        // The lock of a run that is being made binds.
        let ready = begin(directory.path(), &runs, false).unwrap();
        assert_eq!(ready.len(), 1);
        assert!(begin(directory.path(), &runs, false).err().unwrap().is_usage());
        drop(ready);
        assert_eq!(begin(directory.path(), &runs, false).unwrap().len(), 1);

        std::fs::write(path.join("summary.json"), "{}").unwrap();
        assert_eq!(begin(directory.path(), &runs, false).unwrap().len(), 0, "it is finished");
        runs[0].config.run.episodes = Some(201);
        let error = begin(directory.path(), &runs, false).err().unwrap();
        assert!(matches!(error, BeginError::OtherSettings { .. }) && error.is_usage(), "{error}");
        assert_eq!(begin(directory.path(), &runs, true).unwrap().len(), 1);
    }

    #[test]
    fn qr_dqn_plays_every_game_and_the_others_two_of_them() {
        let runs = games(5, false).unwrap();
        let of = |algo: &str| runs.iter().filter(|run| run.config.algo().name == algo).count();
        assert_eq!([of("qr-dqn"), of("deep-bqrl"), of("target-tracking")], [5, 6, 2]);
        for run in &runs {
            let seeds = if run.config.algo().name == "qr-dqn" { 5 } else { 2 };
            assert_eq!(
                (run.config.run.steps, run.config.run.seeds.len()),
                (Some(1_000_000), seeds),
                "{}",
                run.name
            );
        }
        let quick = games(2, true).unwrap();
        assert!(quick.iter().all(|run| run.config.run.steps == Some(100_000)));
    }

    #[test]
    fn every_method_is_run_at_every_level_on_the_held_out_seeds() {
        let runs = experiment("frozen-lake", 5, false).unwrap();
        for algo in &ALGOS {
            let mut levels: Vec<f64> = runs
                .iter()
                .filter(|run| run.config.algo().name == algo.name)
                .flat_map(|run| run.config.run.tau.clone())
                .collect();
            levels.sort_by(f64::total_cmp);
            assert_eq!(levels, LEVELS, "{}", algo.name);
        }
        let run = &runs[0].config.run;
        assert_eq!((run.episodes, &run.seeds[..]), (Some(5000), &[42, 10042, 20042, 101, 102][..]));
        assert_eq!(experiment("asset-selling", 3, true).unwrap()[0].config.run.episodes, Some(200));
    }
}
