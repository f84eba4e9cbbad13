//! The tables of a run, each row checked.

use std::path::Path;

use super::files::{Ending, Lines, Mark, Reading, below, finite, level_of, optional, table, whole};
use super::{Achieved, Atom, Choice, Prediction, ReadError, Reference};
use crate::schema::{EpisodeRow, EvaluationColumns, EvaluationRow, SummaryLevel, TaskFacts};

/// How far from 1 the probabilities of a law may sum.
const SUM_TOLERANCE: f64 = 1e-6;

/// The rows of a log, and how far it was read; no mark where it has to be read from its beginning the next time.
pub(super) type Log<T> = (T, Option<Mark>);

/// The lines of a log that are new, and the rows that are known; all lines and no rows if the log is another one.
fn appended<T: Default>(
    path: &Path,
    reading: Reading,
    past: Option<Log<T>>,
) -> Result<Option<(Lines, T, Option<Mark>)>, ReadError> {
    if let Some((rows, Some(mark))) = past
        && let Some(lines) = Lines::read_on(path, reading, &mark)?
    {
        return Ok(Some((lines, rows, Some(mark))));
    }
    Ok(Lines::read(path, reading)?.map(|lines| (lines, T::default(), None)))
}

/// `episodes.csv`, which begins with the episode `first` where that is known; `None` where there is no such file. Rows that were read
/// before are not read again.
pub(super) fn episodes(
    path: &Path,
    first: Option<usize>,
    reading: Reading,
    past: Option<Log<Vec<EpisodeRow>>>,
) -> Result<Option<Log<Vec<EpisodeRow>>>, ReadError> {
    let Some((lines, mut rows, before)) = appended(path, reading, past)? else { return Ok(None) };
    if lines.is_empty() && reading.ending == Ending::MayBeCut {
        return Ok(Some((rows, None)));
    }
    let with_step = lines.header() == EpisodeRow::header(true);
    lines.rows(path, EpisodeRow::header(with_step), |cells| {
        let row = EpisodeRow {
            episode: whole("episode", cells[0])?,
            episode_return: finite("episode_return", cells[1])?,
            length: whole("length", cells[2])?,
            step: with_step.then(|| whole("step", cells[3]).map(|step| step as u64)).transpose()?,
        };
        let next = rows.last().map(|last| last.episode + 1).or(first);
        in_order("episode", row.episode, next.unwrap_or(row.episode.max(1)))?;
        // Two lanes may end an episode at the same step.
        if rows.last().is_some_and(|last| last.step > row.step) {
            return Err(format!("want a step not before that of the row above, got {}", cells[3]));
        }
        rows.push(row);
        Ok(())
    })?;
    Ok(Some((rows, Some(lines.mark(before.as_ref())))))
}

fn in_order(what: &str, got: usize, want: usize) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("want {what} {want}, got {got}")) }
}

/// `evaluations.csv`, by level; `None` where there is no such file.
///
/// The levels take turns, in the order of the summary. Of a table that may be cut, a last round without all levels is
/// left out.
pub(super) fn evaluations(
    path: &Path,
    levels: &[SummaryLevel],
    reading: Reading,
    past: Option<Log<Vec<Vec<EvaluationRow>>>>,
) -> Result<Option<Log<Vec<Vec<EvaluationRow>>>>, ReadError> {
    let past = past.filter(|(rows, _)| rows.len() == levels.len());
    let Some((lines, mut rows, before)) = appended(path, reading, past)? else { return Ok(None) };
    rows.resize(levels.len(), Vec::new());
    if lines.is_empty() && reading.ending == Ending::MayBeCut {
        return Ok(Some((rows, None)));
    }
    let wrong = |line, message| ReadError::File { path: path.to_path_buf(), line, message };
    let columns = EvaluationColumns::of_header(lines.header()).ok_or_else(|| {
        let all = EvaluationColumns { gap: true, regret: true, ..EvaluationColumns::default() };
        wrong(Some(1), format!("want columns like {}, got {:?}", all.header(), lines.header()))
    })?;
    let mut count = rows.iter().map(Vec::len).sum::<usize>();
    lines.rows(path, &columns.header(), |cells| {
        let level = count % levels.len();
        let row = evaluation(columns, cells, &levels[level])?;
        let want = levels[level].tau;
        if row.tau != want {
            return Err(format!("want tau {want}, got {}", row.tau));
        }
        if let Some(last) = rows[level].last() {
            // In a run counted in steps, one long episode may have several evaluations.
            let later = if columns.step {
                last.step < row.step && last.episode <= row.episode
            } else {
                last.episode < row.episode
            };
            if !later {
                let unit = if columns.step { "a step" } else { "an episode" };
                return Err(format!(
                    "want {unit} later than that of the evaluation before, got {}",
                    cells.join(",")
                ));
            }
        }
        if level > 0
            && let Some(first) = rows[0].last()
        {
            in_order("episode", row.episode, first.episode)?;
            if row.step != first.step {
                return Err(format!("want the same step at every level, got {}", cells[1]));
            }
        }
        rows[level].push(row);
        count += 1;
        Ok(())
    })?;
    let rounds = count / levels.len();
    let complete = count % levels.len() == 0;
    if reading.ending == Ending::Whole && !complete {
        let message = format!("want an evaluation of each of {} levels in the last round", levels.len());
        return Err(wrong(None, message));
    }
    for level in &mut rows {
        level.truncate(rounds);
    }
    // A round without all levels was left out, so its lines have to be read again.
    let mark = complete.then(|| lines.mark(before.as_ref()));
    Ok(Some((rows, mark)))
}

fn evaluation(
    columns: EvaluationColumns,
    cells: &[&str],
    level: &SummaryLevel,
) -> Result<EvaluationRow, String> {
    let mut cells = cells.iter().copied();
    let mut next = || cells.next().expect("as many cells as the header has columns");
    let episode = whole("episode", next())?;
    let step = if columns.step { Some(whole("step", next())? as u64) } else { None };
    let tau = finite("tau", next())?;
    let quantile = finite("quantile", next())?;
    let buffered_quantile = finite("buffered_quantile", next())?;
    let mean = finite("mean", next())?;
    let mut quantile_policy_gap = None;
    if columns.gap {
        let cell = next();
        // Levels without a known optimum leave the cell empty.
        quantile_policy_gap = if level.best_quantile.is_some() {
            Some(finite("quantile_policy_gap", cell)?)
        } else {
            optional("quantile_policy_gap", cell)?
        };
    }
    let expected_return_regret =
        if columns.regret { Some(finite("expected_return_regret", next())?) } else { None };
    let mut interval = None;
    if columns.interval {
        interval = match (optional("low", next())?, optional("high", next())?) {
            (Some(low), Some(high)) if low <= high => Some([low, high]),
            (None, None) => None,
            (low, high) => return Err(format!("want low <= high, or neither, got {low:?} and {high:?}")),
        };
    }
    Ok(EvaluationRow {
        episode,
        step,
        tau,
        quantile,
        buffered_quantile,
        mean,
        quantile_policy_gap,
        expected_return_regret,
        interval,
    })
}

pub(super) fn reference(path: &Path, reading: Reading) -> Result<Option<Vec<Reference>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, reading, "policy,tau,quantile,mean", |[policy, tau, quantile, mean]| {
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

pub(super) fn policy(
    path: &Path,
    reading: Reading,
    problem: Option<&TaskFacts>,
) -> Result<Option<Vec<Choice>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, reading, "tau,stage,state,action", |[tau, stage, state, action]| {
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

pub(super) fn law(path: &Path, reading: Reading) -> Result<Option<Vec<Atom>>, ReadError> {
    let mut rows: Vec<Atom> = Vec::new();
    let found = table(path, reading, "tau,return,probability", |[tau, value, probability]| {
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

pub(super) fn predictions(
    path: &Path,
    reading: Reading,
    problem: Option<&TaskFacts>,
) -> Result<Option<Vec<Prediction>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, reading, "critic,action,level,value", |[critic, action, level, value]| {
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

pub(super) fn achieved(path: &Path, reading: Reading) -> Result<Option<Vec<Achieved>>, ReadError> {
    let mut rows = Vec::new();
    let found = table(path, reading, "tau,quantile,mean", |[tau, quantile, mean]| {
        rows.push(Achieved {
            tau: level_of("tau", tau)?,
            quantile: finite("quantile", quantile)?,
            mean: finite("mean", mean)?,
        });
        Ok(())
    })?;
    Ok(found.then_some(rows))
}
