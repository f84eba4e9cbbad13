//! Files of a run as text, tables and JSON; every error names file and line.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::ReadError;
use crate::regular;

/// How a table may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With a line break.
    Whole,
    /// In the middle of a line, because its writer is still appending or was killed; that line is left out.
    MayBeCut,
}

/// How the files of a run are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    /// How the logs may end.
    pub ending: Ending,
    /// The directory that must not be left, not even through a link; otherwise links are followed.
    pub below: Option<&'a Path>,
}

/// How far a log was read: the next reading begins here.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    bytes: u64,
    lines: usize,
    header: String,
    /// The bytes just before. If they have changed, the log was replaced by another one.
    last: Vec<u8>,
}

/// Bytes that are compared to recognise a log.
const RECOGNISED: usize = 256;

/// The lines of a table: its header, and the rows with their line numbers.
pub(super) struct Lines {
    header: String,
    /// The rows, and the number of lines before them.
    text: String,
    before: usize,
    /// Where they end.
    bytes: u64,
}

impl Lines {
    /// Reads a table; `None` where there is no such file.
    pub fn read(path: &Path, reading: Reading) -> Result<Option<Self>, ReadError> {
        let Some(mut bytes) = optional_bytes(path, reading, 0)? else { return Ok(None) };
        if reading.ending == Ending::MayBeCut {
            bytes.truncate(whole_lines(&bytes));
        }
        let size = bytes.len() as u64;
        let mut text = text(path, bytes)?;
        let first = text.find('\n').map_or(text.len(), |end| end + 1);
        let header = text.drain(..first).collect::<String>().trim_end().to_owned();
        Ok(Some(Self { header, text, before: usize::from(first > 0), bytes: size }))
    }

    /// Reads what was appended to a table since; `None` if it is another table, or there is none.
    pub fn read_on(path: &Path, reading: Reading, mark: &Mark) -> Result<Option<Self>, ReadError> {
        let from = mark.bytes - mark.last.len() as u64;
        let Some(mut bytes) = optional_bytes(path, reading, from)? else { return Ok(None) };
        if !bytes.starts_with(&mark.last) {
            return Ok(None);
        }
        bytes.truncate(whole_lines(&bytes));
        bytes.drain(..mark.last.len());
        let size = mark.bytes + bytes.len() as u64;
        let text = text(path, bytes)?;
        let header = mark.header.clone();
        Ok(Some(Self { header, text, before: mark.lines, bytes: size }))
    }

    /// Where the next reading begins; `before` is the mark of the reading that this one followed.
    pub fn mark(&self, before: Option<&Mark>) -> Mark {
        let mut last = before.map_or(Vec::new(), |mark| mark.last.clone());
        last.extend_from_slice(self.text.as_bytes());
        last.drain(..last.len().saturating_sub(RECOGNISED));
        Mark {
            bytes: self.bytes,
            lines: self.before + self.text.matches('\n').count(),
            header: self.header.clone(),
            last,
        }
    }

    /// Whether there is no line, not even a header.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The first line.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Hands the cells of every row to `each`.
    ///
    /// Our own tables hold numbers and plain words, so a comma always separates.
    pub fn rows(
        &self,
        path: &Path,
        header: &str,
        mut each: impl FnMut(&[&str]) -> Result<(), String>,
    ) -> Result<(), ReadError> {
        let wrong = |line, message| ReadError::File { path: path.to_path_buf(), line: Some(line), message };
        if self.header() != header {
            return Err(wrong(1, format!("want the columns {header}, got {:?}", self.header())));
        }
        let columns = header.split(',').count();
        let mut cells: Vec<&str> = Vec::with_capacity(columns);
        for (index, line) in self.text.split_inclusive('\n').enumerate() {
            let number = self.before + index + 1;
            let Some(line) = line.strip_suffix('\n') else {
                return Err(wrong(number, format!("the line is cut off, got {line:?}")));
            };
            cells.clear();
            cells.extend(line.trim_end_matches('\r').split(','));
            if cells.len() != columns {
                return Err(wrong(number, format!("want {columns} columns ({header}), got {}", cells.len())));
            }
            each(&cells).map_err(|message| wrong(number, message))?;
        }
        Ok(())
    }
}

/// Hands the cells of every row of a whole table to `each`; `false` where there is no such file.
pub(super) fn table<const N: usize>(
    path: &Path,
    reading: Reading,
    header: &str,
    mut each: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<bool, ReadError> {
    let whole = Reading { ending: Ending::Whole, ..reading };
    let Some(lines) = Lines::read(path, whole)? else { return Ok(false) };
    lines.rows(path, header, |cells| {
        each(cells.try_into().expect("as many cells as the header has columns"))
    })?;
    Ok(true)
}

pub(super) fn finite(column: &str, cell: &str) -> Result<f64, String> {
    let number = cell.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("{column} must be a finite number, got {cell:?}"))
}

pub(super) fn level_of(column: &str, cell: &str) -> Result<f64, String> {
    let level = finite(column, cell)?;
    if 0.0 < level && level < 1.0 {
        Ok(level)
    } else {
        Err(format!("{column} must lie in (0, 1), got {cell}"))
    }
}

pub(super) fn optional(column: &str, cell: &str) -> Result<Option<f64>, String> {
    if cell.is_empty() { Ok(None) } else { finite(column, cell).map(Some) }
}

/// The largest number in a cell: no run counts further, and adding to it cannot overflow.
const LARGEST: usize = 1 << 53;

pub(super) fn whole(column: &str, cell: &str) -> Result<usize, String> {
    let number = cell.parse().ok().filter(|&number: &usize| number <= LARGEST);
    number.ok_or_else(|| format!("{column} must be a whole number up to 2^53, got {cell:?}"))
}

pub(super) fn below(column: &str, got: usize, limit: usize) -> Result<(), String> {
    if got < limit { Ok(()) } else { Err(format!("{column} must be below {limit}, got {got}")) }
}

pub(super) fn missing(path: &Path) -> ReadError {
    ReadError::File { path: path.to_path_buf(), line: None, message: "the file is missing".to_owned() }
}

pub(super) fn required(path: &Path, reading: Reading) -> Result<String, ReadError> {
    let bytes = optional_bytes(path, reading, 0)?.ok_or_else(|| missing(path))?;
    text(path, bytes)
}

/// A table of a run that is larger is not read: a hundred million rows have less.
const LARGEST_FILE: u64 = 4 << 30;

/// The bytes of a file from a place on; `None` where there is no such file.
fn optional_bytes(path: &Path, reading: Reading, from: u64) -> Result<Option<Vec<u8>>, ReadError> {
    let file = regular::open_below(path, reading.below);
    match file.and_then(|file| regular::contents_from(file, from, LARGEST_FILE)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(ReadError::File { path: path.to_path_buf(), line: None, message: error.to_string() })
        }
    }
}

/// The length of the lines that have an end.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, ReadError> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        ReadError::File {
            path: path.to_path_buf(),
            line: Some(1 + valid.matches('\n').count()),
            message: "the file is not text".to_owned(),
        }
    })
}

pub(super) fn json<T: DeserializeOwned>(path: &Path, reading: Reading) -> Result<Option<T>, ReadError> {
    let Some(bytes) = optional_bytes(path, reading, 0)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| ReadError::File {
        path: path.to_path_buf(),
        line: Some(error.line()).filter(|&line| line > 0),
        message: error.to_string(),
    })
}
