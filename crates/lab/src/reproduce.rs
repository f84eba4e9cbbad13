//! The paper's experiments (§4) as a list of runs.

use crate::config::{ALGOS, Config, ConfigError, Layers, Levels, paper_episodes};
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

#[cfg(test)]
mod tests {
    use super::*;

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
