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

/// The lines of a table: its header, and the rows with their line numbers.
pub(super) struct Lines {
    text: String,
}

impl Lines {
    /// Reads a table; `None` where there is no such file.
    pub fn read(path: &Path, ending: Ending) -> Result<Option<Self>, ReadError> {
        let Some(mut bytes) = optional_bytes(path)? else { return Ok(None) };
        if ending == Ending::MayBeCut {
            let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
            bytes.truncate(whole);
        }
        let text = text(path, bytes)?;
        Ok(Some(Self { text }))
    }

    /// Whether there is no line, not even a header.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The first line.
    pub fn header(&self) -> &str {
        self.text.lines().next().unwrap_or_default().trim_end()
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
        for (index, line) in self.text.split_inclusive('\n').enumerate().skip(1) {
            let number = index + 1;
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
    header: &str,
    mut each: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<bool, ReadError> {
    let Some(lines) = Lines::read(path, Ending::Whole)? else { return Ok(false) };
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

pub(super) fn required(path: &Path) -> Result<String, ReadError> {
    let bytes = optional_bytes(path)?.ok_or_else(|| missing(path))?;
    text(path, bytes)
}

/// A table of a run that is larger is not read: a hundred million rows have less.
const LARGEST_FILE: u64 = 4 << 30;

fn optional_bytes(path: &Path) -> Result<Option<Vec<u8>>, ReadError> {
    match regular::contents(path, LARGEST_FILE) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(ReadError::File { path: path.to_path_buf(), line: None, message: error.to_string() })
        }
    }
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

pub(super) fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ReadError> {
    let Some(bytes) = optional_bytes(path)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| ReadError::File {
        path: path.to_path_buf(),
        line: Some(error.line()).filter(|&line| line > 0),
        message: error.to_string(),
    })
}
