//! A finished run, read back whole and checked.
//!
//! | file | columns | |
//! |---|---|---|
//! | `config.toml`, `summary.json` | every setting, the results | must be there |
//! | `problem.json`, `reference.csv` | the problem; `policy,tau,quantile,mean` of exact policies | may be missing |
//! | `seed-N/episodes.csv` | `episode,episode_return,length` | must be there |
//! | `seed-N/evaluations.csv` | `episode,tau,quantile,buffered_quantile,mean,quantile_policy_gap,expected_return_regret` | must be there |
//! | `seed-N/evaluations-distribution.csv` | the same, of a stochastic policy itself | may be missing |
//! | `seed-N/policy.csv` | `tau,stage,state,action`; tau is empty where one policy serves all levels | may be missing |
//! | `seed-N/law.csv` | `tau,return,probability`; tau likewise | may be missing |
//! | `seed-N/predictions.csv` | `critic,action,level,value` | may be missing |
//! | `seed-N/achieved.csv` | `tau,quantile,mean` | may be missing |
//!
//! A file that is there is read to its end: a line that is cut off, a row too few or a number that is none is an error
//! with the file and the line. So whoever holds a [`Run`] holds numbers that can be used without further checks.

mod files;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use self::files::{below, finite, json, level_of, missing, optional, required, table, whole};
use crate::run_dir::{EPISODES_HEADER, EVALUATIONS_HEADER, RunDir, SeedDir};

/// How far from 1 the probabilities of a law may sum.
const SUM_TOLERANCE: f64 = 1e-6;

/// A finished run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Where it was found.
    pub path: PathBuf,
    /// `config.toml`, as it stands there.
    pub config: String,
    /// `summary.json`.
    pub summary: Summary,
    /// `problem.json`.
    pub problem: Option<ProblemFacts>,
    /// `reference.csv`.
    pub reference: Option<Vec<Reference>>,
    /// One record per seed, in the order of the summary.
    pub seeds: Vec<SeedRecord>,
}

/// What is read of `summary.json`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Summary {
    /// Name of the problem, or the path of its file.
    pub problem: String,
    /// Name of the algorithm.
    pub algo: String,
    /// Training episodes of each seed.
    pub episodes: usize,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Whether policies were evaluated exactly; otherwise they were played, and the best quantiles are lower bounds.
    #[serde(default = "yes")]
    pub exact: bool,
    /// The largest mean return of any policy.
    pub max_mean: f64,
    /// The levels.
    pub taus: Vec<LevelFacts>,
    /// Steps of all seeds.
    #[serde(default)]
    pub env_steps: u64,
    /// Updates of all seeds.
    #[serde(default)]
    pub updates: u64,
    /// Wall time.
    #[serde(default)]
    pub seconds: f64,
}

fn yes() -> bool {
    true
}

/// A level and what is best there.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct LevelFacts {
    /// τ.
    pub tau: f64,
    /// β.
    pub beta: f64,
    /// Q*_τ.
    pub best_quantile: f64,
}

/// `problem.json`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ProblemFacts {
    /// Its name.
    pub name: String,
    /// H.
    pub horizon: usize,
    /// γ.
    pub discount: f64,
    /// Labels of the states.
    pub states: Vec<String>,
    /// Names of the actions.
    pub actions: Vec<String>,
    /// Whether the states stand in a meaningful order.
    pub ordered: bool,
    /// Whether its exact quantiles are known.
    pub exact: bool,
    /// The largest mean return of any policy.
    pub max_mean: f64,
    /// The levels of the run.
    pub levels: Vec<LevelFacts>,
}

/// A row of `reference.csv`.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// `optimal`, `risk-neutral`, `conditional-rule`.
    pub policy: String,
    /// τ.
    pub tau: f64,
    /// Q_τ of that policy.
    pub quantile: f64,
    /// Its mean, where it is known.
    pub mean: Option<f64>,
}

/// The files of one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedRecord {
    /// The seed.
    pub seed: u64,
    /// The return of every training episode.
    pub returns: Vec<f64>,
    /// Evaluations of the greedy policy, by level in the order of the summary.
    pub evaluations: Vec<Vec<Evaluation>>,
    /// Evaluations of a stochastic policy itself, likewise.
    pub distribution: Option<Vec<Vec<Evaluation>>>,
    /// The final policy.
    pub policy: Option<Vec<Choice>>,
    /// The law of its return.
    pub law: Option<Vec<Atom>>,
    /// What the critics predict at the start.
    pub predictions: Option<Vec<Prediction>>,
    /// Quantiles over many levels, of an agent that serves them all.
    pub achieved: Option<Vec<Achieved>>,
}

/// A row of `evaluations.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Training episodes before it.
    pub episode: usize,
    /// Q_τ of the policy.
    pub quantile: f64,
    /// Q_τ^β.
    pub buffered_quantile: f64,
    /// Its mean return.
    pub mean: f64,
    /// Cumulative, up to this episode.
    pub quantile_policy_gap: f64,
    /// Cumulative, up to this episode.
    pub expected_return_regret: f64,
}

/// A row of `policy.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The level, or none where one policy serves all.
    pub tau: Option<f64>,
    /// h, from 0.
    pub stage: usize,
    /// s.
    pub state: usize,
    /// The action taken there with nothing collected.
    pub action: usize,
}

/// A row of `law.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Atom {
    /// The level, or none where one policy serves all.
    pub tau: Option<f64>,
    /// A possible return.
    pub value: f64,
    /// Its probability.
    pub probability: f64,
}

/// A row of `predictions.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Which critic of the ensemble.
    pub critic: usize,
    /// Of which action.
    pub action: usize,
    /// η.
    pub level: f64,
    /// The predicted quantile of the return.
    pub value: f64,
}

/// A row of `achieved.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Achieved {
    /// τ.
    pub tau: f64,
    /// Q_τ of the policy for this level.
    pub quantile: f64,
    /// Its mean.
    pub mean: f64,
}

/// Why a run could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// The directory is no run, or one of another format; the message names it.
    NotARun(String),
    /// Training has not ended, or was interrupted.
    Unfinished(PathBuf),
    /// A file is missing, cut off or damaged.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1, where one can be named.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARun(message) => f.write_str(message),
            Self::Unfinished(path) => {
                write!(f, "{} is not a finished run: it has no summary.json", path.display())
            }
            Self::File { path, line: Some(line), message } => {
                write!(f, "reading {}: line {line}: {message}", path.display())
            }
            Self::File { path, line: None, message } => write!(f, "reading {}: {message}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

impl Run {
    /// Reads the run in a directory.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let dir = RunDir::open(path).map_err(|error| ReadError::NotARun(error.to_string()))?;
        let config = required(&dir.config())?;
        let Some(summary) = json::<Summary>(&dir.summary())? else {
            return Err(ReadError::Unfinished(path.to_path_buf()));
        };
        if summary.seeds.is_empty() || summary.taus.is_empty() || summary.episodes == 0 {
            let message = "want at least one seed, one level and one episode".to_owned();
            return Err(ReadError::File { path: dir.summary(), line: None, message });
        }
        for level in &summary.taus {
            let LevelFacts { tau, beta, .. } = level;
            if !(0.0 < *tau && *tau < 1.0 && 0.0 < *beta && beta <= tau) {
                let message = format!("want 0 < beta <= tau < 1, got tau {tau} and beta {beta}");
                return Err(ReadError::File { path: dir.summary(), line: None, message });
            }
        }
        let problem = json::<ProblemFacts>(&dir.problem())?;
        let reference = reference(&dir.reference())?;
        let seeds: Vec<SeedRecord> = summary
            .seeds
            .iter()
            .map(|&seed| record(seed, &dir.seed(seed), &summary, problem.as_ref()))
            .collect::<Result<_, _>>()?;
        let episodes =
            |seed: &SeedRecord| -> Vec<usize> { seed.evaluations[0].iter().map(|row| row.episode).collect() };
        if let Some(other) = seeds.iter().find(|seed| episodes(seed) != episodes(&seeds[0])) {
            let message = format!("want evaluations after the same episodes as seed {}", seeds[0].seed);
            let path = dir.seed(other.seed).evaluations();
            return Err(ReadError::File { path, line: None, message });
        }
        Ok(Self { path: path.to_path_buf(), config, summary, problem, reference, seeds })
    }
}

fn record(
    seed: u64,
    dir: &SeedDir,
    summary: &Summary,
    problem: Option<&ProblemFacts>,
) -> Result<SeedRecord, ReadError> {
    let returns = returns(&dir.episodes(), summary.episodes)?;
    let evaluations = evaluations(&dir.evaluations(), summary)?.ok_or_else(|| missing(&dir.evaluations()))?;
    Ok(SeedRecord {
        seed,
        returns,
        evaluations,
        distribution: self::evaluations(&dir.distribution(), summary)?,
        policy: policy(&dir.policy(), problem)?,
        law: law(&dir.law())?,
        predictions: predictions(&dir.predictions(), problem)?,
        achieved: achieved(&dir.achieved())?,
    })
}

fn returns(path: &Path, episodes: usize) -> Result<Vec<f64>, ReadError> {
    let mut returns = Vec::with_capacity(episodes.min(1 << 20));
    let found = table(path, EPISODES_HEADER, |[episode, value, length]| {
        in_order("episode", whole("episode", episode)?, returns.len() + 1)?;
        whole("length", length)?;
        returns.push(finite("episode_return", value)?);
        Ok(())
    })?;
    match found {
        false => Err(missing(path)),
        true if returns.len() != episodes => {
            let message = format!("want {episodes} episodes, as summary.json says, got {}", returns.len());
            Err(ReadError::File { path: path.to_path_buf(), line: None, message })
        }
        true => Ok(returns),
    }
}

fn in_order(what: &str, got: usize, want: usize) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("want {what} {want}, got {got}")) }
}

fn evaluations(path: &Path, summary: &Summary) -> Result<Option<Vec<Vec<Evaluation>>>, ReadError> {
    let mut levels: Vec<Vec<Evaluation>> = vec![Vec::new(); summary.taus.len()];
    let mut rows = 0;
    let found = table(path, EVALUATIONS_HEADER, |[episode, tau, quantile, buffered, mean, gap, regret]| {
        let evaluation = Evaluation {
            episode: whole("episode", episode)?,
            quantile: finite("quantile", quantile)?,
            buffered_quantile: finite("buffered_quantile", buffered)?,
            mean: finite("mean", mean)?,
            quantile_policy_gap: finite("quantile_policy_gap", gap)?,
            expected_return_regret: finite("expected_return_regret", regret)?,
        };
        // Levels take turns, in the order of the summary.
        let level = rows % summary.taus.len();
        let want = summary.taus[level].tau;
        if finite("tau", tau)? != want {
            return Err(format!("want tau {want}, got {tau}"));
        }
        let previous = levels[level].last();
        if previous.is_some_and(|last| last.episode >= evaluation.episode) {
            return Err(format!("want an episode later than the one before, got {episode}"));
        }
        if level > 0 {
            let first = levels[0].last().map_or(0, |row| row.episode);
            in_order("episode", evaluation.episode, first)?;
        }
        levels[level].push(evaluation);
        rows += 1;
        Ok(())
    })?;
    if !found {
        return Ok(None);
    }
    let last = levels.iter().map(|rows| rows.last().map_or(0, |row| row.episode)).min();
    if last != Some(summary.episodes) || levels.iter().any(Vec::is_empty) {
        let message =
            format!("want the last evaluation after episode {}, as summary.json says", summary.episodes);
        return Err(ReadError::File { path: path.to_path_buf(), line: None, message });
    }
    Ok(Some(levels))
}

fn reference(path: &Path) -> Result<Option<Vec<Reference>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, "policy,tau,quantile,mean", |[policy, tau, quantile, mean]| {
        rows.push(Reference {
            policy: policy.to_owned(),
            tau: level_of("tau", tau)?,
            quantile: finite("quantile", quantile)?,
            mean: optional("mean", mean)?,
        });
        Ok(())
    })?;
    Ok(found.then_some(rows))
}

fn policy(path: &Path, problem: Option<&ProblemFacts>) -> Result<Option<Vec<Choice>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, "tau,stage,state,action", |[tau, stage, state, action]| {
        let choice = Choice {
            tau: optional("tau", tau)?,
            stage: whole("stage", stage)?,
            state: whole("state", state)?,
            action: whole("action", action)?,
        };
        if let Some(problem) = problem {
            below("stage", choice.stage, problem.horizon)?;
            below("state", choice.state, problem.states.len())?;
            below("action", choice.action, problem.actions.len())?;
        }
        rows.push(choice);
        Ok(())
    })?;
    Ok(found.then_some(rows))
}

fn law(path: &Path) -> Result<Option<Vec<Atom>>, ReadError> {
    let mut rows: Vec<Atom> = Vec::new();
    let found = table(path, "tau,return,probability", |[tau, value, probability]| {
        let atom = Atom {
            tau: optional("tau", tau)?,
            value: finite("return", value)?,
            probability: finite("probability", probability)?,
        };
        if !(0.0..=1.0 + SUM_TOLERANCE).contains(&atom.probability) {
            return Err(format!("want a probability in [0, 1], got {probability}"));
        }
        rows.push(atom);
        Ok(())
    })?;
    if !found {
        return Ok(None);
    }
    for level in rows.chunk_by(|a, b| a.tau == b.tau) {
        let sum: f64 = level.iter().map(|atom| atom.probability).sum();
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            let of = level[0].tau.map_or(String::new(), |tau| format!(" of tau {tau}"));
            let message = format!("want probabilities{of} that sum to 1, got {sum}");
            return Err(ReadError::File { path: path.to_path_buf(), line: None, message });
        }
    }
    Ok(Some(rows))
}

fn predictions(path: &Path, problem: Option<&ProblemFacts>) -> Result<Option<Vec<Prediction>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, "critic,action,level,value", |[critic, action, level, value]| {
        let action = whole("action", action)?;
        if let Some(problem) = problem {
            below("action", action, problem.actions.len())?;
        }
        let (level, value) = (level_of("level", level)?, finite("value", value)?);
        rows.push(Prediction { critic: whole("critic", critic)?, action, level, value });
        Ok(())
    })?;
    Ok(found.then_some(rows))
}

fn achieved(path: &Path) -> Result<Option<Vec<Achieved>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, "tau,quantile,mean", |[tau, quantile, mean]| {
        rows.push(Achieved {
            tau: level_of("tau", tau)?,
            quantile: finite("quantile", quantile)?,
            mean: finite("mean", mean)?,
        });
        Ok(())
    })?;
    Ok(found.then_some(rows))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::atomic;

    const SUMMARY: &str = r#"{"run":"r","problem":"coin","algo":"deep-bqrl","episodes":2,"seeds":[7],"exact":true,
        "max_mean":0.5,"taus":[{"tau":0.1,"beta":0.1,"best_quantile":0.25},{"tau":0.5,"beta":0.2,"best_quantile":1}],
        "env_steps":3,"updates":0,"seconds":0.1}"#;
    const PROBLEM: &str = r#"{"name":"coin","horizon":2,"discount":1.0,"states":["a","b"],"actions":["stop","go"],
        "ordered":false,"exact":true,"max_mean":0.5,"levels":[]}"#;

    /// A whole run of two episodes and two levels, but for what `change` says: a file and its text, or none.
    fn read_with(change: Option<(&str, Option<&str>)>) -> Result<Run, String> {
        let directory = tempfile::tempdir().unwrap();
        let (dir, _lock) = RunDir::create(&directory.path().join("run"), false).unwrap();
        dir.seed(7).create().unwrap();
        let evaluations = format!(
            "{EVALUATIONS_HEADER}\n0,0.1,0,0,0.5,0,0\n0,0.5,0,0,0.5,0,0\n2,0.1,0.25,0.2,0.5,0.5,-0.25\n2,0.5,1,0.9,0.5,2,-0.25\n"
        );
        let files = [
            ("config.toml", "[problem]\nname = \"coin\"\n"),
            ("summary.json", SUMMARY),
            ("problem.json", PROBLEM),
            ("reference.csv", "policy,tau,quantile,mean\noptimal,0.5,1,\nrisk-neutral,0.5,0.25,0.5\n"),
            ("seed-7/episodes.csv", "episode,episode_return,length\n1,0.25,1\n2,1,2\n"),
            ("seed-7/evaluations.csv", &evaluations),
            ("seed-7/policy.csv", "tau,stage,state,action\n,0,0,1\n,1,1,0\n"),
            ("seed-7/law.csv", "tau,return,probability\n,0,0.5\n,1,0.5\n"),
            ("seed-7/predictions.csv", "critic,action,level,value\n0,0,0.25,0.1\n"),
            ("seed-7/achieved.csv", "tau,quantile,mean\n0.05,0.25,0.5\n"),
        ];
        for (name, text) in files {
            let text = match change {
                Some((changed, text)) if changed == name => text,
                _ => Some(text),
            };
            if let Some(text) = text {
                atomic::write(&dir.path().join(name), text.as_bytes()).unwrap();
            }
        }
        let path = dir.path().display().to_string();
        Run::read(dir.path()).map_err(|error| error.to_string().replace(&path, "RUN"))
    }

    #[test]
    fn a_run_is_read_whole() {
        let run = read_with(None).unwrap();
        assert_eq!((run.summary.algo.as_str(), run.summary.episodes), ("deep-bqrl", 2));
        assert_eq!(run.problem.unwrap().actions, ["stop", "go"]);
        assert_eq!(run.reference.unwrap()[0].mean, None);
        let seed = &run.seeds[0];
        assert_eq!((seed.seed, seed.returns.as_slice()), (7, &[0.25, 1.0][..]));
        assert_eq!(seed.evaluations[1][1].quantile_policy_gap, 2.0);
        assert_eq!(seed.evaluations[0][1].expected_return_regret, -0.25);
        assert_eq!(seed.distribution, None);
        assert_eq!(seed.policy.as_ref().unwrap()[1], Choice { tau: None, stage: 1, state: 1, action: 0 });
        assert_eq!(seed.law.as_ref().unwrap()[1].value, 1.0);
        assert_eq!(seed.predictions.as_ref().unwrap()[0].level, 0.25);
        assert_eq!(seed.achieved.as_ref().unwrap()[0].quantile, 0.25);
    }

    #[test]
    fn what_older_runs_lack_may_be_missing() {
        for name in
            ["problem.json", "reference.csv", "seed-7/policy.csv", "seed-7/law.csv", "seed-7/achieved.csv"]
        {
            assert!(read_with(Some((name, None))).is_ok(), "{name}");
        }
        assert_eq!(read_with(Some(("seed-7/law.csv", None))).unwrap().seeds[0].law, None);
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        let header = EVALUATIONS_HEADER;
        let cases = [
            ("config.toml", None, "RUN is a run without its config.toml"),
            ("summary.json", None, "RUN is not a finished run: it has no summary.json"),
            ("summary.json", Some("{\"problem\":"), "reading RUN/summary.json: line 1: EOF"),
            ("seed-7/episodes.csv", None, "reading RUN/seed-7/episodes.csv: the file is missing"),
            ("seed-7/evaluations.csv", None, "reading RUN/seed-7/evaluations.csv: the file is missing"),
            (
                "seed-7/episodes.csv",
                Some(""),
                "line 1: want the columns episode,episode_return,length, got \"\"",
            ),
            (
                "seed-7/episodes.csv",
                Some("episode,episode_return,length\n1,0.25,1\n2,1"),
                "line 3: the line is cut off",
            ),
            (
                "seed-7/episodes.csv",
                Some("episode,episode_return,length\n1,0.25,1\n2,1\n"),
                "line 3: want 3 columns",
            ),
            ("seed-7/episodes.csv", Some("episode,episode_return,length\n1,0.25,1\n"), "want 2 episodes"),
            (
                "seed-7/episodes.csv",
                Some("episode,episode_return,length\n2,0.25,1\n"),
                "line 2: want episode 1, got 2",
            ),
            (
                "seed-7/episodes.csv",
                Some("episode,episode_return,length\n1,NaN,1\n"),
                "line 2: episode_return must be a finite",
            ),
            (
                "seed-7/evaluations.csv",
                Some(&format!("{header}\n0,0.1,0,0,0,0,0\n0,0.5,0,0,0,0,0\n")),
                "after episode 2",
            ),
            ("seed-7/evaluations.csv", Some(&format!("{header}\n2,0.1,0,0,0,0,0\n")), "after episode 2"),
            (
                "seed-7/evaluations.csv",
                Some(&format!("{header}\n0,0.2,0,0,0,0,0\n")),
                "line 2: want tau 0.1, got 0.2",
            ),
            (
                "seed-7/policy.csv",
                Some("tau,stage,state,action\n,0,0,2\n"),
                "line 2: action must be below 2, got 2",
            ),
            (
                "seed-7/policy.csv",
                Some("tau,stage,state,action\n,0,-1,0\n"),
                "state must be a whole number, got \"-1\"",
            ),
            ("seed-7/law.csv", Some("tau,return,probability\n,0,0.5\n"), "sum to 1, got 0.5"),
            (
                "seed-7/law.csv",
                Some("tau,return,probability\n,0,1.5\n"),
                "line 2: want a probability in [0, 1]",
            ),
            (
                "seed-7/predictions.csv",
                Some("critic,action,level,value\n0,0,1.5,0\n"),
                "line 2: level must lie in (0, 1), got 1.5",
            ),
            (
                "summary.json",
                Some(&SUMMARY.replace("\"beta\":0.2", "\"beta\":0.7")),
                "want 0 < beta <= tau < 1",
            ),
            ("reference.csv", Some("policy,tau\n"), "reading RUN/reference.csv: line 1: want the columns"),
        ];
        for (name, text, said) in cases {
            let message = read_with(Some((name, text))).unwrap_err();
            assert!(message.contains(said), "{name} {text:?}: {message}");
        }
    }

    #[test]
    fn other_directories_are_not_runs() {
        let directory = tempfile::tempdir().unwrap();
        let said = |path: &Path| Run::read(path).unwrap_err().to_string();
        assert!(said(directory.path()).contains("is not a run: it has no .bqrl-run"));
        assert!(said(&directory.path().join("nowhere")).contains("nowhere"));
        fs::write(directory.path().join(".bqrl-run"), "bqrl run, format 99\n").unwrap();
        assert!(said(directory.path()).contains("format 99, this program reads format 1"));
    }
}
