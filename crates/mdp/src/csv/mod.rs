//! Problems as CSV files, one outcome a row.
//!
//! ```text
//! idstatefrom,idaction,idstateto,probability,reward
//! 0,0,1,0.9,2
//! 0,0,0,0.1,-1
//! ```
//!
//! The columns may be in any order, and other columns are ignored; [`crate::records`] says which spellings of rows, numbers and
//! column names are understood. The columns `idstatefrom`, `idaction` and `idstateto` hold ids: non-negative integers (`3` or
//! `3.0`) with or without gaps. Under the names `state`, `action` and `next state` they may hold any names. States and actions are
//! numbered in natural order and keep their names. A state that is never left is terminal. Rows with equal (s, a, s') and
//! different rewards are separate outcomes, identical rows add up, and the probabilities of (s, a) may miss 1 by 1e-6, or by
//! [`ROUNDING`] if the caller asks for them to be normalised.
//!
//! More columns make a file complete; `bqrl fit` writes them:
//!
//! | column | meaning |
//! |---|---|
//! | `stage` | one table per stage; without it one table serves all stages |
//! | `count` | how often the outcome was seen; may replace `probability` |
//! | `check` | how many of them are kept apart to check a plan; without it a coin is tossed for each, always in the same way |
//! | `end` | whether the episode is known to end there (see [`Seen::ends`]) |
//! | `starts`, `starts_check` | how many episodes start in the row's state, and how many of them are kept apart |
//! | `horizon` | the number of stages |

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

use crate::counts::{Counted, Counts, Seen, Start, coins, draws};
use crate::model::{Data, Kernel, Model, ModelError, Outcome, Problem, SUM_TOLERANCE};
pub use crate::records::MAX_RECORD_BYTES;
use crate::records::{Column, Names, RecordError, Records};

/// The columns that every file has, in the order that [`write()`] gives them.
pub const COLUMNS: [&str; 5] = ["idstatefrom", "idaction", "idstateto", "probability", "reward"];

/// The most by which probabilities may miss 1 if they are to be normalised: rounding, not a missing row.
pub const ROUNDING: f64 = 0.05;

/// The most rows that a file may have.
const MAX_ROWS: usize = u32::MAX as usize;

/// The largest count of a row.
const MAX_COUNT: u64 = 1 << 31;

/// The most pairs (s, a) that a table may have; ids that hardly repeat would otherwise square the file's size.
const MAX_PAIRS: usize = 1 << 27;

const KNOWN: &[Column] = &[
    Column::required(COLUMNS[0], &["state", "statefrom", "fromstate", "from", "currentstate", "s"]),
    Column::required(COLUMNS[1], &["action", "decision", "a"]),
    Column::required(COLUMNS[2], &["nextstate", "next", "stateto", "tostate", "to", "newstate", "s'"]),
    Column { unless: Some("count"), ..Column::required(COLUMNS[3], &["prob", "transitionprobability"]) },
    Column::required(COLUMNS[4], &["rewards", "payoff"]),
    Column::optional("stage", &["period", "step", "t"]),
    Column::optional("count", &[]),
    Column::optional("check", &[]),
    Column::optional("end", &[]),
    Column::optional("starts", &[]),
    Column::optional("starts_check", &[]),
    Column::optional("horizon", &[]),
];
const FROM: usize = 0;
const ACTION: usize = 1;
const TO: usize = 2;
const PROBABILITY: usize = 3;
const REWARD: usize = 4;
const STAGE: usize = 5;
const COUNT: usize = 6;
const CHECK: usize = 7;
const END: usize = 8;
const STARTS: usize = 9;
const STARTS_CHECK: usize = 10;
const HORIZON: usize = 11;

/// An error in a file, or in a problem that cannot be written as a file. Lines count from 1, including the header.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum CsvError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Records(RecordError),
    #[error("state {state}, action {action}: probabilities must sum to 1 within 1e-6, got {sum}")]
    Sum { state: String, action: String, sum: f64 },
    #[error("{states} states and {actions} actions make more than {MAX_PAIRS} pairs")]
    TooManyPairs { states: usize, actions: usize },
    #[error("unknown start state {start}: the file has {n} states {known}")]
    UnknownStart { start: String, n: usize, known: String, first: String },
    #[error("start state {start} is terminal (it has no outcomes): there is nothing to decide")]
    TerminalStart { start: String },
    #[error("the file has no horizon and start state of its own")]
    Incomplete,
    #[error("the file has {stages} stages, the horizon must be the same, got {horizon}")]
    Stages { stages: usize, horizon: usize },
    #[error("the file has no rows of stage {stage}, its stages are {first} to {last}")]
    MissingStage { stage: u64, first: u64, last: u64 },
    #[error("line {line}: {message}")]
    Row { line: u64, message: String },
    #[error("{0}")]
    Model(ModelError),
    #[error("{name} differs from stage to stage, the file format holds one table for all stages")]
    NotStationary { name: String },
}

impl From<RecordError> for CsvError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Io(error) => CsvError::Io(error),
            error => CsvError::Records(error),
        }
    }
}

/// The parts of a problem that its file may leave open.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// H; needed unless the file has it.
    pub horizon: Option<usize>,
    /// The name of the start state; needed unless the file says where episodes start.
    pub start: Option<&'a str>,
    /// γ.
    pub discount: f64,
    /// Whether to scale probabilities that miss 1 by at most [`ROUNDING`].
    pub normalise: bool,
}

/// Whether a file begins as an MDP file does.
pub fn has_header(reader: impl Read) -> bool {
    Records::new(reader, KNOWN, "an MDP file").is_ok()
}

/// Reads the file at `path`; the problem is named after it.
pub fn read_path(path: &Path, horizon: usize, start_id: u64, discount: f64) -> Result<Problem, CsvError> {
    read(File::open(path)?, &path.display().to_string(), horizon, start_id, discount)
}

/// Reads a problem. `start_id` is the id that the file gives the start state.
pub fn read(
    reader: impl Read,
    name: &str,
    horizon: usize,
    start_id: u64,
    discount: f64,
) -> Result<Problem, CsvError> {
    let start = start_id.to_string();
    let given = Given { horizon: Some(horizon), start: Some(&start), discount, normalise: false };
    read_with(reader, name, &given)
}

/// Reads a problem whose file may have its own horizon and start.
pub fn read_with(reader: impl Read, name: &str, given: &Given) -> Result<Problem, CsvError> {
    let mut table = read_rows(reader)?;
    let ids = table.ids;
    let (states, state_places) = std::mem::take(&mut table.states).sorted();
    let (actions, action_places) = std::mem::take(&mut table.actions).sorted();
    let pairs = states.len().checked_mul(actions.len()).and_then(|pairs| pairs.checked_mul(table.stages));
    if pairs.is_none_or(|pairs| pairs > MAX_PAIRS) {
        return Err(CsvError::TooManyPairs { states: states.len(), actions: actions.len() });
    }
    for row in &mut table.rows {
        row.from = state_places[row.from as usize];
        row.to = state_places[row.to as usize];
        row.action = action_places[row.action as usize];
    }
    let horizon = match (given.horizon, table.horizon) {
        (Some(horizon), _) if table.staged && horizon != table.stages => {
            return Err(CsvError::Stages { stages: table.stages, horizon });
        }
        (Some(horizon), _) => horizon,
        (None, Some(own)) => own,
        (None, None) if table.staged => table.stages,
        (None, None) => return Err(CsvError::Incomplete),
    };
    let start = match given.start {
        Some(start) => {
            let found = states.iter().position(|state| state == start);
            let unknown = || unknown_start(start, &states);
            vec![(found.ok_or_else(unknown)?, 1.0)]
        }
        None => table.start_law().ok_or(CsvError::Incomplete)?,
    };
    let mut notes = Vec::new();
    if table.counted && !table.with_probability {
        table.probabilities_from_counts(states.len(), actions.len());
    } else if given.normalise {
        notes.extend(table.normalise(states.len(), actions.len()));
    }
    let in_names = |error| match error {
        // The sum of nothing is -0.0 in Rust; adding 0.0 prints it as 0.
        ModelError::Sum { state, action, sum } => {
            CsvError::Sum { state: states[state].clone(), action: actions[action].clone(), sum: sum + 0.0 }
        }
        ModelError::StartTerminal { state } => CsvError::TerminalStart { start: states[state].clone() },
        other => CsvError::Model(other),
    };
    let kernel = |stage: usize| {
        let rows = table.rows.iter().filter(|row| row.stage as usize == stage);
        let outcomes = rows.map(|row| {
            let outcome = Outcome { probability: row.probability, next: row.to as usize, reward: row.reward };
            (row.from as usize, row.action as usize, outcome)
        });
        Kernel::new(states.len(), actions.len(), outcomes)
    };
    let kernels: Result<Vec<_>, _> = (0..table.stages).map(kernel).collect();
    let model =
        kernels.and_then(|kernels| Model::new(kernels, horizon, given.discount, start)).map_err(in_names)?;
    let counts = table.counted.then(|| {
        let rows = table.rows.iter().map(|row| Counted {
            stage: row.stage,
            state: row.from,
            action: row.action,
            seen: Seen {
                next: row.to,
                reward: row.reward,
                count: row.count,
                check: row.check,
                ends: row.ends,
            },
        });
        // A start that the caller gives is certain.
        let starts = if given.start.is_some() { Vec::new() } else { table.starts() };
        Arc::new(Counts::new(states.len(), actions.len(), table.stages, rows, starts))
    });
    let data = Data { counts, notes, named: !ids, ..Data::default() };
    Ok(Problem { name: name.to_owned(), model, states, actions, ordered: false, data })
}

fn unknown_start(start: &str, states: &[String]) -> CsvError {
    const SHOWN: usize = 8;
    let ids = states.iter().all(|state| state.parse::<u64>().is_ok());
    let known = if ids {
        format!("with ids from {} to {}", states[0], states[states.len() - 1])
    } else {
        let dots = if states.len() > SHOWN { ", …" } else { "" };
        format!("({}{dots})", states[..states.len().min(SHOWN)].join(", "))
    };
    CsvError::UnknownStart { start: start.to_owned(), n: states.len(), known, first: states[0].clone() }
}

/// Writes the table of a problem. States and actions that are all labelled by distinct ids keep them. Others are numbered by
/// index, unless the problem was read from a file with names or was counted: then they keep their names. Numbers are written so that they read back bit for bit.
pub fn write(problem: &Problem, writer: impl Write) -> Result<(), CsvError> {
    let model = &problem.model;
    if let Some(counts) = &problem.data.counts {
        return write_counted(problem, counts, writer);
    }
    if problem.data.named {
        return write_named(problem, writer);
    }
    if !model.is_stationary() {
        return Err(CsvError::NotStationary { name: problem.name.clone() });
    }
    let (states, actions) = (ids_of(&problem.states), ids_of(&problem.actions));
    let mut writer = BufWriter::new(writer);
    writeln!(writer, "{}", COLUMNS.join(","))?;
    for (state, from) in states.iter().enumerate() {
        for (action, id) in actions.iter().enumerate() {
            for Outcome { probability, next, reward } in model.outcomes(0, state, action) {
                writeln!(writer, "{from},{id},{},{probability},{reward}", states[*next])?;
            }
        }
    }
    writer.flush()?;
    Ok(())
}

/// The columns of states and actions: ids if all are, otherwise names.
fn key_columns(problem: &Problem) -> [&'static str; 3] {
    let ids = |labels: &[String]| labels.iter().all(|label| label.parse::<u64>().is_ok());
    let [from, to] = if ids(&problem.states) { [COLUMNS[0], COLUMNS[2]] } else { ["state", "next_state"] };
    [from, if ids(&problem.actions) { COLUMNS[1] } else { "action" }, to]
}

fn write_named(problem: &Problem, writer: impl Write) -> Result<(), CsvError> {
    let model = &problem.model;
    let staged = !model.is_stationary();
    let mut writer = ::csv::Writer::from_writer(writer);
    let mut header = key_columns(problem).to_vec();
    header.extend([COLUMNS[3], COLUMNS[4]]);
    header.extend(staged.then_some("stage"));
    writer.write_record(&header).map_err(disk)?;
    for (stage, kernel) in model.kernels().iter().enumerate() {
        for (state, from) in problem.states.iter().enumerate() {
            for (action, name) in problem.actions.iter().enumerate() {
                for Outcome { probability, next, reward } in kernel.outcomes(state, action) {
                    let (probability, reward) = (probability.to_string(), reward.to_string());
                    let mut row = vec![from, name, &problem.states[*next], &probability, &reward];
                    let stage = stage.to_string();
                    row.extend(staged.then_some(&stage));
                    writer.write_record(row).map_err(disk)?;
                }
            }
        }
    }
    writer.flush()?;
    Ok(())
}

/// Whether a line is the header of a table with counts, as [`write()`] writes it.
pub fn is_counted_header(line: &str) -> bool {
    let columns: Vec<&str> = line.split(',').collect();
    columns.len() >= 11 && columns[3..5] == COLUMNS[3..5] && columns[5..11] == COUNTED
}

/// The columns of a table with counts beside those of every table.
const COUNTED: [&str; 6] = ["count", "check", "end", "starts", "starts_check", "horizon"];

fn write_counted(problem: &Problem, counts: &Counts, writer: impl Write) -> Result<(), CsvError> {
    let staged = counts.n_kernels() > 1 || !problem.model.is_stationary();
    let mut writer = ::csv::Writer::from_writer(writer);
    let mut header = key_columns(problem).to_vec();
    header.extend([COLUMNS[3], COLUMNS[4]]);
    header.extend(COUNTED);
    header.extend(staged.then_some("stage"));
    writer.write_record(&header).map_err(disk)?;
    let starts = counts.starts_of_all_states();
    let horizon = problem.model.horizon().to_string();
    for kernel in 0..counts.n_kernels() {
        let stage = kernel.to_string();
        for (state, from) in problem.states.iter().enumerate() {
            // A start belongs to the first stage; without stages it stands in every row of its state.
            let start = if staged && kernel > 0 { (0, 0) } else { starts[state] };
            let start = [start.0.to_string(), start.1.to_string()];
            for (action, name) in problem.actions.iter().enumerate() {
                let seen = counts.seen(kernel, state, action);
                let total: u64 = seen.iter().map(|seen| seen.count).sum();
                for outcome in seen {
                    let numbers = [
                        (outcome.count as f64 / total as f64).to_string(),
                        outcome.reward.to_string(),
                        outcome.count.to_string(),
                        outcome.check.to_string(),
                        u8::from(outcome.ends).to_string(),
                    ];
                    let mut row = vec![from, name, &problem.states[outcome.next as usize]];
                    row.extend(&numbers);
                    row.extend(&start);
                    row.push(&horizon);
                    row.extend(staged.then_some(&stage));
                    writer.write_record(row).map_err(disk)?;
                }
            }
        }
    }
    writer.flush()?;
    Ok(())
}

fn disk(error: ::csv::Error) -> CsvError {
    CsvError::Io(error.into())
}

/// The labels as ids; or 0..n if some label is not an id or two are the same.
fn ids_of(labels: &[String]) -> Vec<u64> {
    let ids: Option<Vec<u64>> = labels.iter().map(|label| label.parse().ok()).collect();
    match ids {
        Some(ids) if sorted_ids(ids.iter().copied()).len() == labels.len() => ids,
        _ => (0..labels.len() as u64).collect(),
    }
}

fn sorted_ids(ids: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

struct Row {
    stage: u32,
    from: u32,
    action: u32,
    to: u32,
    probability: f64,
    reward: f64,
    count: u64,
    check: u64,
    starts: (u64, Option<u64>),
    ends: bool,
}

/// The rows of a file, states and actions numbered as they appear.
#[allow(clippy::struct_excessive_bools)] // Which columns the header has.
struct Table {
    rows: Vec<Row>,
    states: Names,
    actions: Names,
    /// Whether states and actions are ids, by their columns.
    ids: bool,
    staged: bool,
    stages: usize,
    counted: bool,
    with_probability: bool,
    with_starts: bool,
    horizon: Option<usize>,
}

fn read_rows(reader: impl Read) -> Result<Table, CsvError> {
    let mut records = Records::new(reader, KNOWN, "an MDP file")?;
    let is_id = [FROM, ACTION, TO].map(|column| records.header(column).starts_with("id"));
    let mut table = Table {
        rows: Vec::new(),
        states: Names::default(),
        actions: Names::default(),
        ids: is_id == [true; 3],
        staged: records.has(STAGE),
        stages: 1,
        counted: records.has(COUNT),
        with_probability: records.has(PROBABILITY),
        with_starts: records.has(STARTS),
        horizon: None,
    };
    let (with_check, with_end) = (records.has(CHECK), records.has(END));
    // Half of every count would make the two halves alike: what looks good by chance in one would look as good in the other.
    let mut tossed = draws();
    while let Some(line) = records.next_line()? {
        if table.rows.len() == MAX_ROWS {
            return Err(RecordError::TooManyRows { most: MAX_ROWS }.into());
        }
        let field = |column: usize| records.field(line, column);
        let id = |place: usize, column: usize| {
            if is_id[place] {
                field(column).id().map(|id| id.to_string().into())
            } else {
                field(column).label()
            }
        };
        let whole = |column: usize| {
            let count = field(column).id()?;
            // Sums of counts must not overflow.
            if count <= MAX_COUNT { Ok(count) } else { Err(field(column).refuse("a count of at most 2^31")) }
        };
        let count = if table.counted { whole(COUNT)? } else { 0 };
        let check = if with_check { field(CHECK).id()? } else { coins(count, &mut tossed) };
        if check > count {
            let message = format!("check must be at most count = {count}, got {check}");
            return Err(CsvError::Row { line, message });
        }
        let starts = if table.with_starts { whole(STARTS)? } else { 0 };
        let starts_check = records.has(STARTS_CHECK).then(|| field(STARTS_CHECK).id()).transpose()?;
        if let Some(starts_check) = starts_check.filter(|&check| check > starts) {
            let message = format!("starts_check must be at most starts = {starts}, got {starts_check}");
            return Err(CsvError::Row { line, message });
        }
        if records.has(HORIZON) {
            let horizon = field(HORIZON).id()? as usize;
            if table.horizon.is_some_and(|other| other != horizon) {
                let message = format!("the horizon is {horizon} here and another number above");
                return Err(CsvError::Row { line, message });
            }
            table.horizon = Some(horizon);
        }
        let stage = if table.staged { field(STAGE).id()? } else { 0 };
        let stage = u32::try_from(stage).map_err(|_| field(STAGE).refuse("a stage below 2^32"))?;
        let probability =
            if table.with_probability { field(PROBABILITY).probability(1.0 + SUM_TOLERANCE)? } else { 0.0 };
        if table.counted && count == 0 && probability > 0.0 {
            let message =
                "an outcome with a positive probability must have been seen, got count 0".to_owned();
            return Err(CsvError::Row { line, message });
        }
        let row = Row {
            stage,
            from: table.states.number(&id(0, FROM)?),
            action: table.actions.number(&id(1, ACTION)?),
            to: table.states.number(&id(2, TO)?),
            probability,
            reward: field(REWARD).number()?,
            count,
            check,
            starts: (starts, starts_check),
            ends: !with_end || field(END).flag()?,
        };
        table.rows.push(row);
    }
    if table.rows.is_empty() {
        return Err(RecordError::NoRows.into());
    }
    table.number_stages()?;
    Ok(table)
}

impl Table {
    /// Stages count from the smallest one, and none may be missing.
    fn number_stages(&mut self) -> Result<(), CsvError> {
        if !self.staged {
            return Ok(());
        }
        let stages = sorted_ids(self.rows.iter().map(|row| u64::from(row.stage)));
        let (first, last) = (stages[0], stages[stages.len() - 1]);
        if let Some(stage) = (first..).zip(&stages).find_map(|(want, &got)| (want != got).then_some(want)) {
            return Err(CsvError::MissingStage { stage, first, last });
        }
        self.stages = stages.len();
        for row in &mut self.rows {
            row.stage -= first as u32;
        }
        Ok(())
    }

    /// How many episodes start in each state: (state, all, kept apart). A state's rows all say the same.
    fn starts(&self) -> Vec<Start> {
        let mut starts: Vec<Start> = Vec::new();
        if !self.with_starts {
            return starts;
        }
        let rows = self.rows.iter().filter(|row| row.stage == 0 && row.starts.0 > 0);
        let mut found: Vec<_> = rows.map(|row| (row.from, row.starts)).collect();
        found.sort_unstable();
        found.dedup_by_key(|(state, _)| *state);
        let mut tossed = draws();
        starts.extend(found.into_iter().map(|(state, (count, check))| {
            let check = check.unwrap_or_else(|| coins(count, &mut tossed));
            Start { state, count, check }
        }));
        starts
    }

    fn start_law(&self) -> Option<Vec<(usize, f64)>> {
        let starts = self.starts();
        let total: u64 = starts.iter().map(|start| start.count).sum();
        let share = |start: &Start| (start.state as usize, start.count as f64 / total as f64);
        (total > 0).then(|| starts.iter().map(share).collect())
    }

    fn sums(&self, n_states: usize, n_actions: usize, of: impl Fn(&Row) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.stages * n_states * n_actions];
        for row in &self.rows {
            sums[row.place(n_states, n_actions)] += of(row);
        }
        sums
    }

    fn probabilities_from_counts(&mut self, n_states: usize, n_actions: usize) {
        let totals = self.sums(n_states, n_actions, |row| row.count as f64);
        for row in &mut self.rows {
            let total = totals[row.place(n_states, n_actions)];
            row.probability = if total > 0.0 { row.count as f64 / total } else { 0.0 };
        }
    }

    /// Scales probabilities that miss 1 by rounding, and says so.
    fn normalise(&mut self, n_states: usize, n_actions: usize) -> Option<String> {
        let sums = self.sums(n_states, n_actions, |row| row.probability);
        let off = |sum: f64| {
            let miss = (sum - 1.0).abs();
            miss > SUM_TOLERANCE && miss <= ROUNDING
        };
        for row in &mut self.rows {
            let sum = sums[row.place(n_states, n_actions)];
            if off(sum) {
                row.probability /= sum;
            }
        }
        let scaled: Vec<f64> = sums.into_iter().filter(|&sum| off(sum)).collect();
        let farthest = scaled.iter().copied().max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()))?;
        let n = scaled.len();
        Some(format!(
            "the probabilities of {n} (state, action) pairs were scaled to sum to 1; the farthest sum was {farthest:.6}"
        ))
    }
}

impl Row {
    fn place(&self, n_states: usize, n_actions: usize) -> usize {
        (self.stage as usize * n_states + self.from as usize) * n_actions + self.action as usize
    }
}

#[cfg(test)]
mod tests;
