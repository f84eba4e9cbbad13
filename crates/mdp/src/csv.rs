//! Problems as CSV files, one outcome a row.
//!
//! ```text
//! idstatefrom,idaction,idstateto,probability,reward
//! 0,0,1,0.9,2
//! 0,0,0,0.1,-1
//! ```
//!
//! The columns may be in any order, and other columns are ignored. Fields may be quoted and padded; blank lines are
//! ignored. Ids are non-negative integers (`3` or `3.0`) with or without gaps: states and actions are numbered by
//! increasing id and keep it as their label. A state that is never left is terminal. Rows with equal (s, a, s') and
//! different rewards are separate outcomes, identical rows add up, and the probabilities of (s, a) may miss 1 by 1e-6.
//! The file has no horizon, start and discount, and no states and actions without outcomes.
//!
//! The file may not be a CSV file at all. A record is read only up to [`MAX_RECORD_BYTES`], so a missing line end or a
//! missing quote does not make memory grow, and the size of the table is bounded.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use ::csv::{ByteRecord, ErrorKind, ReaderBuilder};
use thiserror::Error;

use crate::model::{Kernel, Model, ModelError, Outcome, Problem, SUM_TOLERANCE};

/// The columns, in the order that [`write()`] gives them.
pub const COLUMNS: [&str; 5] = ["idstatefrom", "idaction", "idstateto", "probability", "reward"];

/// The longest record, including the header, that is accepted.
pub const MAX_RECORD_BYTES: usize = 64 << 10;

/// The most rows that a file may have.
const MAX_ROWS: usize = u32::MAX as usize;

/// The most pairs (s, a) that a table may have; ids that hardly repeat would otherwise square the file's size.
const MAX_PAIRS: usize = 1 << 27;

/// An error in a file, or in a problem that cannot be written as a file. Lines count from 1, including the header.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum CsvError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("missing column {}, the header reads {header}", .missing.join(", "))]
    MissingColumns { missing: Vec<&'static str>, header: String },
    #[error("column {column} appears twice in the header")]
    DuplicateColumn { column: &'static str },
    #[error("there are no rows after the header")]
    NoRows,
    #[error("there are more than {MAX_ROWS} rows")]
    TooManyRows,
    #[error(
        "line {line}: no record ends within {MAX_RECORD_BYTES} bytes, this is not an MDP file in CSV format"
    )]
    LongRecord { line: u64 },
    #[error("line {line}: {fields} fields, the header has {expected}")]
    Fields { line: u64, fields: usize, expected: usize },
    #[error("line {line}, column {column}: want {want}, got {value}")]
    Value { line: u64, column: &'static str, want: &'static str, value: String },
    #[error("state {state}, action {action}: probabilities must sum to 1 within 1e-6, got {sum}")]
    Sum { state: u64, action: u64, sum: f64 },
    #[error("{states} states and {actions} actions make more than {MAX_PAIRS} pairs")]
    TooManyPairs { states: usize, actions: usize },
    #[error("unknown start state {start}: the file has {n} states with ids from {smallest} to {largest}")]
    UnknownStart { start: u64, n: usize, smallest: u64, largest: u64 },
    #[error("start state {start} is terminal (it has no outcomes): there is nothing to decide")]
    TerminalStart { start: u64 },
    #[error("{0}")]
    Model(ModelError),
    #[error("{name} differs from stage to stage, the file format holds one table for all stages")]
    NotStationary { name: String },
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
    let rows = read_rows(reader)?;
    let states = sorted_ids(rows.iter().flat_map(|row| [row.from, row.to]));
    let actions = sorted_ids(rows.iter().map(|row| row.action));
    if states.len().checked_mul(actions.len()).is_none_or(|pairs| pairs > MAX_PAIRS) {
        return Err(CsvError::TooManyPairs { states: states.len(), actions: actions.len() });
    }
    let index = |ids: &[u64], id| ids.binary_search(&id).expect("every id was collected");
    let Ok(start) = states.binary_search(&start_id) else {
        let (smallest, largest) = (states[0], states[states.len() - 1]);
        return Err(CsvError::UnknownStart { start: start_id, n: states.len(), smallest, largest });
    };
    let outcomes = rows.into_iter().map(|row| {
        let outcome =
            Outcome { probability: row.probability, next: index(&states, row.to), reward: row.reward };
        (index(&states, row.from), index(&actions, row.action), outcome)
    });
    let in_ids = |error| match error {
        // The sum of nothing is -0.0 in Rust; adding 0.0 prints it as 0.
        ModelError::Sum { state, action, sum } => {
            CsvError::Sum { state: states[state], action: actions[action], sum: sum + 0.0 }
        }
        ModelError::StartTerminal { .. } => CsvError::TerminalStart { start: start_id },
        other => CsvError::Model(other),
    };
    let model = Kernel::new(states.len(), actions.len(), outcomes)
        .and_then(|kernel| Model::new(vec![kernel], horizon, discount, vec![(start, 1.0)]))
        .map_err(in_ids)?;
    let labels = |ids: &[u64]| ids.iter().map(u64::to_string).collect();
    Ok(Problem {
        name: name.to_owned(),
        model,
        states: labels(&states),
        actions: labels(&actions),
        ordered: false,
    })
}

/// Writes the table of a stationary problem. States and actions that are all labelled by distinct ids keep them, others
/// are numbered by index. Numbers are written so that they read back bit for bit.
pub fn write(problem: &Problem, writer: impl Write) -> Result<(), CsvError> {
    let model = &problem.model;
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
    from: u64,
    action: u64,
    to: u64,
    probability: f64,
    reward: f64,
}

fn read_rows(reader: impl Read) -> Result<Vec<Row>, CsvError> {
    // With a line end after the last record too, a record that was just read ends on the line before the reader's.
    let metered = Metered { inner: reader.chain(&b"\n"[..]), since_record: 0 };
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(metered);
    let mut record = ByteRecord::new();
    let mut next = |record: &mut ByteRecord| -> Result<Option<u64>, CsvError> {
        loop {
            let line = reader.position().line();
            if !reader.read_byte_record(record).map_err(|error| read_error(error, line))? {
                return Ok(None);
            }
            if record.iter().any(|field| !bare(field).is_empty()) {
                reader.get_mut().since_record = 0;
                return Ok(Some(reader.position().line() - 1));
            }
        }
    };

    next(&mut record)?.ok_or(CsvError::Empty)?;
    let columns = find_columns(&record)?;
    let expected = record.len();
    let mut rows = Vec::new();
    while let Some(line) = next(&mut record)? {
        if record.len() != expected {
            return Err(CsvError::Fields { line, fields: record.len(), expected });
        }
        if rows.len() == MAX_ROWS {
            return Err(CsvError::TooManyRows);
        }
        let field =
            |column: usize| Field { line, column: COLUMNS[column], text: bare(&record[columns[column]]) };
        rows.push(Row {
            from: field(0).id()?,
            action: field(1).id()?,
            to: field(2).id()?,
            probability: field(3).probability()?,
            reward: field(4).number()?,
        });
    }
    if rows.is_empty() { Err(CsvError::NoRows) } else { Ok(rows) }
}

/// The position of each of [`COLUMNS`] in the header.
fn find_columns(header: &ByteRecord) -> Result<[usize; 5], CsvError> {
    let places = |column: &str| -> Vec<usize> {
        let named = |field: &[u8]| bare(field).eq_ignore_ascii_case(column.as_bytes());
        (0..header.len()).filter(|&i| named(&header[i])).collect()
    };
    let missing: Vec<_> = COLUMNS.into_iter().filter(|column| places(column).is_empty()).collect();
    if !missing.is_empty() {
        let header = shown(&header.iter().collect::<Vec<_>>().join(&b','));
        return Err(CsvError::MissingColumns { missing, header });
    }
    match COLUMNS.into_iter().find(|column| places(column).len() > 1) {
        Some(column) => Err(CsvError::DuplicateColumn { column }),
        None => Ok(COLUMNS.map(|column| places(column)[0])),
    }
}

/// A field without padding and without quotes that padding hid from the CSV reader.
fn bare(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    match field {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => field,
    }
}

/// The start of some bytes as one line of text for a message.
fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 80;
    let dots = if bytes.len() > LONGEST { "…" } else { "" };
    format!("{:?}{dots}", String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]))
}

struct Field<'a> {
    line: u64,
    column: &'static str,
    text: &'a [u8],
}

impl Field<'_> {
    fn parse<T: std::str::FromStr>(&self) -> Option<T> {
        std::str::from_utf8(self.text).ok()?.parse().ok()
    }

    fn refuse(&self, want: &'static str) -> CsvError {
        CsvError::Value { line: self.line, column: self.column, want, value: shown(self.text) }
    }

    fn id(&self) -> Result<u64, CsvError> {
        // Beyond 2^53 a floating-point id may not be exact.
        let whole = |x: &f64| x.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(x);
        self.parse::<u64>()
            .or_else(|| self.parse::<f64>().filter(whole).map(|x| x as u64))
            .ok_or_else(|| self.refuse("a non-negative integer"))
    }

    fn number(&self) -> Result<f64, CsvError> {
        self.parse::<f64>().filter(|x| x.is_finite()).ok_or_else(|| self.refuse("a finite number"))
    }

    fn probability(&self) -> Result<f64, CsvError> {
        self.parse::<f64>()
            .filter(|x| (0.0..=1.0 + SUM_TOLERANCE).contains(x))
            .ok_or_else(|| self.refuse("a probability from 0 to 1"))
    }
}

/// Passes bytes on, until too many have come without a complete record. Carriage returns become padding, because the CSV
/// reader counts lines by line feeds and would stop in the middle of a CRLF.
struct Metered<R> {
    inner: R,
    since_record: usize,
}

/// Reports through the CSV reader that the limit was reached.
#[derive(Debug, Error)]
#[error("no record ends in sight")]
struct NoRecordInSight;

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since_record >= MAX_RECORD_BYTES {
            return Err(io::Error::other(NoRecordInSight));
        }
        let n = self.inner.read(buffer)?;
        buffer[..n].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b' ');
        self.since_record += n;
        Ok(n)
    }
}

fn read_error(error: ::csv::Error, line: u64) -> CsvError {
    if let ErrorKind::Io(error) = error.kind()
        && let Some(cause) = error.get_ref()
        && cause.is::<NoRecordInSight>()
    {
        return CsvError::LongRecord { line };
    }
    CsvError::Io(error.into())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::problems;

    const HEADER: &str = "idstatefrom,idaction,idstateto,probability,reward\n";

    fn try_parse(text: impl AsRef<[u8]>) -> Result<Problem, CsvError> {
        read(text.as_ref(), "test", 3, 0, 1.0)
    }

    fn parse(text: impl AsRef<[u8]>) -> Problem {
        try_parse(text).unwrap()
    }

    fn message(text: impl AsRef<[u8]>) -> String {
        let message = try_parse(text).unwrap_err().to_string();
        assert!(!message.contains('\n') && message.len() < 400, "{message}");
        message
    }

    fn with_header(rows: &str) -> String {
        format!("{HEADER}{rows}")
    }

    fn written(problem: &Problem) -> String {
        let mut bytes = Vec::new();
        write(problem, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// The problem that all the untidy files below describe.
    fn tidy() -> Problem {
        parse(with_header("0,0,1,0.9,2\n0,0,0,0.1,-1\n"))
    }

    #[test]
    fn a_file_becomes_a_table() {
        let problem = read(
            with_header("7,2,9,0.25,1.5\n7,2,7,0.75,0\n7,5,100,1,-2\n").as_bytes(),
            "some.csv",
            4,
            7,
            0.5,
        )
        .unwrap();
        let model = &problem.model;
        assert_eq!((model.horizon(), model.discount(), model.start()), (4, 0.5, &[(0, 1.0)][..]));
        assert_eq!(problem.name, "some.csv");
        assert_eq!(problem.states, ["7", "9", "100"]);
        assert_eq!(problem.actions, ["2", "5"]);
        let outcome = |probability, next, reward| Outcome { probability, next, reward };
        assert_eq!(model.outcomes(0, 0, 0), [outcome(0.75, 0, 0.0), outcome(0.25, 1, 1.5)]);
        assert_eq!(model.outcomes(0, 0, 1), [outcome(1.0, 2, -2.0)]);
        assert!(!model.is_terminal(0, 0) && model.is_terminal(0, 1) && model.is_terminal(0, 2));
    }

    #[test]
    fn columns_may_stand_in_any_order_among_others() {
        let text =
            "note,reward,idstateto,probability,idaction,idstatefrom\n\"a, b\",2,1,0.9,0,0\n,-1,0,0.1,0,0\n";
        assert_eq!(parse(text), tidy());
    }

    #[test]
    fn fields_may_be_quoted() {
        let text = "\"idstatefrom\",\"idaction\",\"idstateto\",\"probability\",\"reward\"\n\
                    \"0\",\"0\",\"1\",\"0.9\",\"2\"\n0,\"0\",0,0.1,-1\n";
        assert_eq!(parse(text), tidy());
    }

    #[test]
    fn fields_may_be_padded_also_around_quotes() {
        let text = " idstatefrom , idaction,\"idstateto\" ,\t\"probability\", reward \n\
                    0 , 0, \"1\" ,0.9 , 2\n 0,0 ,0, 0.1,-1 \n";
        assert_eq!(parse(text), tidy());
    }

    #[test]
    fn a_byte_order_mark_does_not_count() {
        assert_eq!(parse(format!("\u{feff}{}", with_header("0,0,1,0.9,2\n0,0,0,0.1,-1\n"))), tidy());
        let quoted = HEADER.replace("idstatefrom", "\"idstatefrom\"");
        assert_eq!(parse(format!("\u{feff}{quoted}0,0,1,0.9,2\n0,0,0,0.1,-1\n")), tidy());
    }

    #[test]
    fn lines_may_end_in_crlf_and_the_last_one_in_nothing() {
        assert_eq!(
            parse(with_header("0,0,1,0.9,2\r\n0,0,0,0.1,-1").replace("reward\n", "reward\r\n")),
            tidy()
        );
    }

    #[test]
    fn blank_lines_do_not_count() {
        assert_eq!(parse(format!("\n\n{HEADER}\n  \n0,0,1,0.9,2\n\r\n,,,,\n0,0,0,0.1,-1\n\n")), tidy());
    }

    #[test]
    fn header_names_may_be_written_in_capitals() {
        assert_eq!(parse(with_header("0,0,1,0.9,2\n0,0,0,0.1,-1\n").replace("id", "ID")), tidy());
    }

    #[test]
    fn ids_may_be_written_as_decimals_and_probabilities_with_exponents() {
        assert_eq!(parse(with_header("0.0,0,1.0,9e-1,2.0\n0,0.0,0,1E-1,-1\n")), tidy());
    }

    #[test]
    fn identical_rows_add_up_and_different_rewards_stay_apart() {
        let problem = parse(with_header("0,0,1,0.25,2\n0,0,1,0.5,3\n0,0,1,0.25,2\n"));
        let outcomes = [2.0, 3.0].map(|reward| Outcome { probability: 0.5, next: 1, reward });
        assert_eq!(problem.model.outcomes(0, 0, 0), outcomes);
    }

    #[test]
    fn probabilities_are_normalised_within_the_tolerance() {
        let problem = parse(with_header("0,0,1,0.3333333,0\n0,0,2,0.3333333,0\n0,0,3,0.3333333,0\n"));
        for outcome in problem.model.outcomes(0, 0, 0) {
            assert!((outcome.probability - 1.0 / 3.0).abs() < 1e-15);
        }
        assert_eq!(parse(with_header("0,0,1,1.0000005,0\n")).model.outcomes(0, 0, 0)[0].probability, 1.0);
    }

    #[test]
    fn an_empty_file_is_refused() {
        for text in ["", "\n\n", "\u{feff}", "  \n"] {
            assert_eq!(message(text), "the file is empty");
        }
    }

    #[test]
    fn a_header_alone_is_refused() {
        assert_eq!(message(HEADER), "there are no rows after the header");
        assert_eq!(message(HEADER.trim_end()), "there are no rows after the header");
    }

    #[test]
    fn missing_columns_are_named_beside_the_header() {
        assert_eq!(
            message("idstatefrom,idaction,idstateto,p,r\n0,0,0,1,0\n"),
            "missing column probability, reward, the header reads \"idstatefrom,idaction,idstateto,p,r\""
        );
        assert_eq!(
            message("0,0,1,1,0\n"),
            "missing column idstatefrom, idaction, idstateto, probability, reward, the header reads \"0,0,1,1,0\""
        );
    }

    #[test]
    fn a_column_that_appears_twice_is_refused() {
        assert_eq!(
            message("idstatefrom,idaction,idstateto,probability,reward,Reward\n0,0,1,1,0,0\n"),
            "column reward appears twice in the header"
        );
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line_and_column() {
        let refused = |row: &str| message(with_header(&format!("\n0,0,0,1,0\n\n{row}\n")));
        assert_eq!(
            refused("-1,0,0,1,0"),
            "line 5, column idstatefrom: want a non-negative integer, got \"-1\""
        );
        let crlf = message(with_header("0,0,0,1,0\n\nx,0,0,1,0").replace('\n', "\r\n"));
        assert_eq!(crlf, "line 4, column idstatefrom: want a non-negative integer, got \"x\"");
        assert_eq!(refused("1,x,0,1,0"), "line 5, column idaction: want a non-negative integer, got \"x\"");
        assert_eq!(
            refused("1,0,0.5,1,0"),
            "line 5, column idstateto: want a non-negative integer, got \"0.5\""
        );
        assert_eq!(
            refused("1,0,0,-0.5,0"),
            "line 5, column probability: want a probability from 0 to 1, got \"-0.5\""
        );
        assert_eq!(
            refused("1,0,0,1.5,0"),
            "line 5, column probability: want a probability from 0 to 1, got \"1.5\""
        );
        assert_eq!(
            refused("1,0,0,NaN,0"),
            "line 5, column probability: want a probability from 0 to 1, got \"NaN\""
        );
        assert_eq!(refused("1,0,0,1,inf"), "line 5, column reward: want a finite number, got \"inf\"");
        assert_eq!(refused("1,0,0,1,1e999"), "line 5, column reward: want a finite number, got \"1e999\"");
        assert_eq!(refused("1,0,0,1,"), "line 5, column reward: want a finite number, got \"\"");
        assert_eq!(
            refused("99999999999999999999,0,0,1,0"),
            "line 5, column idstatefrom: want a non-negative integer, got \"99999999999999999999\""
        );
    }

    #[test]
    fn a_value_that_is_no_text_is_shown_escaped_and_short() {
        let mut text = with_header("0,0,0,1,").into_bytes();
        text.extend([0xff, 0x00, 0x1b]);
        text.extend([b'z'; 1000]);
        let expected = format!(
            "line 2, column reward: want a finite number, got \"\u{fffd}\\0\\u{{1b}}{}\"…",
            "z".repeat(77)
        );
        assert_eq!(message(text), expected);
    }

    #[test]
    fn a_decimal_comma_is_not_taken_for_two_fields() {
        assert_eq!(message(with_header("0,0,1,0,5,2\n")), "line 2: 6 fields, the header has 5");
        assert_eq!(message(with_header("0,0,1,1\n")), "line 2: 4 fields, the header has 5");
    }

    #[test]
    fn a_sum_that_is_off_is_named_by_the_ids_of_the_file() {
        assert_eq!(
            message(with_header("0,3,0,1,0\n70,3,0,0.5,0\n70,3,70,0.25,0\n")),
            "state 70, action 3: probabilities must sum to 1 within 1e-6, got 0.75"
        );
        assert_eq!(
            message(with_header("0,3,0,0,0\n")),
            "state 0, action 3: probabilities must sum to 1 within 1e-6, got 0"
        );
    }

    #[test]
    fn an_unknown_start_state_is_answered_with_the_range_of_ids() {
        assert_eq!(
            message(with_header("4,0,17,1,0\n")),
            "unknown start state 0: the file has 2 states with ids from 4 to 17"
        );
    }

    #[test]
    fn a_terminal_start_state_is_refused() {
        assert_eq!(
            message(with_header("1,0,0,1,0\n")),
            "start state 0 is terminal (it has no outcomes): there is nothing to decide"
        );
    }

    #[test]
    fn a_wrong_horizon_or_discount_is_refused() {
        let text = with_header("0,0,0,1,0\n");
        let refused =
            |horizon, discount| read(text.as_bytes(), "", horizon, 0, discount).unwrap_err().to_string();
        assert_eq!(refused(0, 1.0), "the horizon must be at least 1, got 0");
        assert_eq!(refused(1, 1.5), "the discount must lie in (0, 1], got 1.5");
    }

    #[test]
    fn ids_that_hardly_repeat_do_not_square_the_memory() {
        let mut text = HEADER.to_owned();
        for id in 0..20_000 {
            writeln!(text, "{id},{id},{id},1,0").unwrap();
        }
        assert_eq!(message(text), "20000 states and 20000 actions make more than 134217728 pairs");
    }

    /// Endless bytes that count how many were taken.
    struct Endless<'a> {
        pattern: &'a [u8],
        taken: usize,
    }

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            for (i, byte) in buffer.iter_mut().enumerate() {
                *byte = self.pattern[(self.taken + i) % self.pattern.len()];
            }
            self.taken += buffer.len();
            Ok(buffer.len())
        }
    }

    fn endless(start: &str, pattern: &[u8]) -> (String, usize) {
        let mut endless = Endless { pattern, taken: 0 };
        let error = read(start.as_bytes().chain(&mut endless), "", 1, 0, 1.0).unwrap_err();
        (error.to_string(), endless.taken)
    }

    #[test]
    fn endless_garbage_is_given_up_within_one_record() {
        let end = ": no record ends within 65536 bytes, this is not an MDP file in CSV format";
        // Zeros without a line end, nothing but line ends, blank fields: before and after the header.
        for pattern in [&b"\0"[..], b"\n", b" ,\n", b"\"\n"] {
            for start in ["", HEADER] {
                let (message, taken) = endless(start, pattern);
                assert!(message.ends_with(end), "{message}");
                assert!(taken < 4 * MAX_RECORD_BYTES, "{taken}");
            }
        }
        // A quote that is never closed.
        let (message, _) = endless(&with_header("0,0,0,1,0\n\"1"), b",\n");
        assert_eq!(message, format!("line 3{end}"));
    }

    #[test]
    fn a_failing_disk_is_reported_as_such() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is on fire"))
            }
        }
        let error = read(HEADER.as_bytes().chain(Broken), "", 1, 0, 1.0).unwrap_err();
        assert_eq!(error.to_string(), "the disk is on fire");
    }

    #[test]
    fn a_path_names_the_problem() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chain.csv");
        write(&tidy(), File::create(&path).unwrap()).unwrap();
        let problem = read_path(&path, 3, 0, 1.0).unwrap();
        assert_eq!(problem.model, tidy().model);
        assert_eq!(problem.name, path.display().to_string());
        assert!(matches!(read_path(&directory.path().join("none.csv"), 3, 0, 1.0), Err(CsvError::Io(_))));
        assert!(matches!(read_path(directory.path(), 3, 0, 1.0), Err(CsvError::Io(_))));
    }

    #[test]
    fn ids_survive_writing_and_labels_become_numbers() {
        let text = with_header("7,2,7,0.75,0\n7,2,9,0.25,1.5\n7,5,100,1,-2\n");
        assert_eq!(written(&read(text.as_bytes(), "", 1, 7, 1.0).unwrap()), text);

        let put = [("offers", "2"), ("start", "0")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let selling = problems::build("asset-selling", &put).unwrap();
        let rows = "0,0,2,1,0\n0,1,0,0.5,0\n0,1,1,0.5,0\n1,0,2,1,1\n1,1,0,0.5,0\n1,1,1,0.5,0\n";
        assert_eq!(written(&selling), with_header(rows));
    }

    #[test]
    fn a_problem_that_changes_from_stage_to_stage_is_not_written() {
        let kernels = vec![tidy().model.kernel(0).clone(); 2];
        let model = Model::new(kernels, 2, 1.0, vec![(0, 1.0)]).unwrap();
        let error = write(&Problem { model, ..tidy() }, Vec::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test differs from stage to stage, the file format holds one table for all stages"
        );
    }

    #[test]
    fn every_built_in_problem_survives_the_round_trip() {
        for name in problems::names() {
            let Problem { model, .. } = &problems::build(name, &[]).unwrap();
            let text = written(&problems::build(name, &[]).unwrap());
            let start = model.start()[0].0 as u64;
            let again = read(text.as_bytes(), name, model.horizon(), start, model.discount()).unwrap();
            assert_eq!(&again.model, model, "{name}");
            assert_eq!(written(&again), text, "{name}");
        }
    }

    proptest! {
        #[test]
        fn writing_and_reading_changes_no_bit(
            rows in prop::collection::vec(
                (0..6_u64, 0..4_u64, 0..9_u64, 1e-3..1.0_f64, -1e100..1e100_f64),
                1..60,
            ),
            spread in 1..1_000_000_u64,
        ) {
            let mut text = HEADER.to_owned();
            for (from, action, to, weight, reward) in &rows {
                let same = rows.iter().filter(|row| (row.0, row.1) == (*from, *action));
                let probability = weight / same.map(|row| row.3).sum::<f64>();
                writeln!(text, "{},{action},{},{probability},{reward}", from * spread, to * spread).unwrap();
            }
            let start = rows[0].0 * spread;
            let once = read(text.as_bytes(), "", 3, start, 0.9).unwrap();
            let twice = read(written(&once).as_bytes(), "", 3, start, 0.9).unwrap();
            prop_assert_eq!(&once, &twice);
            prop_assert_eq!(written(&once), written(&twice));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), headed: bool) {
            let start = if headed { HEADER } else { "" };
            let _ = try_parse([start.as_bytes(), &bytes].concat());
        }
    }
}
