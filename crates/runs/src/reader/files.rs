//! Files of a run as text, tables and JSON; every error names file and line.

use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::ReadError;

/// Hands the cells of every row to `each`; `false` when there is no such file.
///
/// Our own tables hold numbers and plain words, so a comma always separates.
pub(super) fn table<const N: usize>(
    path: &Path,
    header: &str,
    mut each: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<bool, ReadError> {
    let Some(text) = optional_text(path)? else { return Ok(false) };
    let wrong = |line, message| ReadError::File { path: path.to_path_buf(), line: Some(line), message };
    let mut lines = text.split_inclusive('\n').enumerate().map(|(index, line)| (index + 1, line));
    let first = lines.next().map_or("", |(_, line)| line.trim_end());
    if first != header {
        return Err(wrong(1, format!("want the columns {header}, got {first:?}")));
    }
    for (number, line) in lines {
        let Some(line) = line.strip_suffix('\n') else {
            return Err(wrong(number, format!("the line is cut off, got {line:?}")));
        };
        let mut cells = [""; N];
        let mut found = 0;
        for cell in line.trim_end_matches('\r').split(',') {
            if let Some(place) = cells.get_mut(found) {
                *place = cell;
            }
            found += 1;
        }
        if found != N {
            return Err(wrong(number, format!("want {N} columns ({header}), got {found}")));
        }
        each(cells).map_err(|message| wrong(number, message))?;
    }
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

pub(super) fn whole(column: &str, cell: &str) -> Result<usize, String> {
    cell.parse().map_err(|_| format!("{column} must be a whole number, got {cell:?}"))
}

pub(super) fn below(column: &str, got: usize, limit: usize) -> Result<(), String> {
    if got < limit { Ok(()) } else { Err(format!("{column} must be below {limit}, got {got}")) }
}

pub(super) fn missing(path: &Path) -> ReadError {
    ReadError::File { path: path.to_path_buf(), line: None, message: "the file is missing".to_owned() }
}

pub(super) fn required(path: &Path) -> Result<String, ReadError> {
    optional_text(path)?.ok_or_else(|| missing(path))
}

fn optional_text(path: &Path) -> Result<Option<String>, ReadError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(ReadError::File { path: path.to_path_buf(), line: None, message: error.to_string() })
        }
    }
}

pub(super) fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ReadError> {
    let Some(text) = optional_text(path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| ReadError::File {
        path: path.to_path_buf(),
        line: Some(error.line()).filter(|&line| line > 0),
        message: error.to_string(),
    })
}
