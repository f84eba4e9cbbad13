//! Whether two finished directories hold the same: every byte of every file, but not the wall-clock fields.
//!
//! | file | not compared |
//! |---|---|
//! | `summary.json`, standard output | `seconds`, `frames_per_second` |
//! | `progress.json` | `time` |
//! | `monitor.csv` | `t_start`, the column `t` |
//! | `events.out.tfevents.SECONDS.bqrl` | SECONDS, the time of every event, the value of `time/fps`, and the checksums of both |
//! | `state.json` of a checkpoint | times, and the ends of the two files above; what follows from them in `manifest.json` |
//! | `results.md` of a reproduction | seconds, shares, and the order of its table of times |
//! | `.bqrl-lock` | the process id that a kill left |
//!
//! Fields that are not compared are masked, not skipped: the text around them must be the same, and a checksum over them
//! must be right. Of a store of checkpoints, see [`stores`], the last one must be the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::stores;

const SUMMARY_CLOCK: [&str; 2] = ["seconds", "frames_per_second"];
const EVENTS: &str = "events.out.tfevents.";
/// A difference is shown with so many bytes around it.
const AROUND: usize = 40;

/// The differences between a reference and another directory, a line each.
pub fn directories(reference: &Path, other: &Path) -> Result<Vec<String>, String> {
    let (mut expected, mut found) = (files(reference)?, files(other)?);
    let mut differences = Vec::new();
    for store in stores::take(&mut expected).union(&stores::take(&mut found)) {
        differences.extend(stores::compare(reference, other, store)?);
    }
    let (expected, found) = (named(expected, &mut differences), named(found, &mut differences));
    for (name, path) in &found {
        if is_temporary(path) {
            differences.push(format!("{}: a temporary file is left", path.display()));
        } else if !expected.contains_key(name) {
            differences.push(format!("{}: only in the interrupted one", path.display()));
        }
    }
    for (name, path) in &expected {
        match found.get(name) {
            None => differences.push(format!("{}: only in the reference", path.display())),
            Some(theirs) => differences.extend(file(&reference.join(path), &other.join(theirs), name)?),
        }
    }
    Ok(differences)
}

/// The first difference of two files, if there is one; `name` says what they are.
pub fn file(reference: &Path, other: &Path, name: &str) -> Result<Option<String>, String> {
    let read = |path: &Path| {
        let bytes = fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
        masked(name, bytes).map_err(|error| format!("{}: {error}", path.display()))
    };
    // A file that cannot be read is a difference too, of the interrupted one at least.
    let expected = read(reference)?;
    let found = match read(other) {
        Ok(found) => found,
        Err(error) => return Ok(Some(error)),
    };
    Ok(first_difference(&expected, &found).map(|difference| format!("{name}: {difference}")))
}

/// The first difference of two standard outputs.
pub fn outputs(reference: &[u8], other: &[u8]) -> Option<String> {
    let masked = |bytes: &[u8]| mask_numbers(&String::from_utf8_lossy(bytes), &SUMMARY_CLOCK);
    let difference = first_difference(masked(reference).as_bytes(), masked(other).as_bytes());
    difference.map(|difference| format!("standard output: {difference}"))
}

/// Every file below a directory, by its path in it; an empty directory counts as a file.
pub fn files(directory: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        let failed = |error| format!("reading {}: {error}", path.display());
        let mut entries = fs::read_dir(&path).map_err(failed)?.peekable();
        if entries.peek().is_none() && path != directory {
            found.insert(path.strip_prefix(directory).expect("below it").to_path_buf());
        }
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                open.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(directory).expect("below it").to_path_buf());
            }
        }
    }
    Ok(found)
}

pub fn is_temporary(path: &Path) -> bool {
    path.iter().any(|part| {
        let part = part.to_string_lossy();
        part.starts_with(".bqrl-") && part.ends_with(".tmp")
    })
}

/// The files by name, without the time in the name of an event file.
fn named(paths: BTreeSet<PathBuf>, differences: &mut Vec<String>) -> BTreeMap<String, PathBuf> {
    let mut named = BTreeMap::new();
    for path in paths {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let time = file.strip_prefix(EVENTS).and_then(|rest| rest.strip_suffix(".bqrl"));
        let key = time.map_or(path.clone(), |_| path.with_file_name(format!("{EVENTS}*.bqrl")));
        if let Some(first) = named.insert(key.display().to_string(), path.clone()) {
            differences.push(format!("{}: beside {}", path.display(), first.display()));
        }
    }
    named
}

/// The contents without wall time.
fn masked(name: &str, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let file = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
    if file.starts_with(EVENTS) {
        return masked_events(bytes);
    }
    let mask = |bytes: Vec<u8>, how: &dyn Fn(&str) -> Result<String, String>| {
        let text = String::from_utf8(bytes).map_err(|_| "not a text".to_owned())?;
        how(&text).map(String::into_bytes)
    };
    match &*file {
        "summary.json" => mask(bytes, &|text| Ok(mask_numbers(text, &SUMMARY_CLOCK))),
        "progress.json" => mask(bytes, &|text| Ok(mask_numbers(text, &["time"]))),
        "state.json" => mask(bytes, &stores::masked_state),
        "manifest.json" => mask(bytes, &|text| Ok(stores::masked_manifest(text))),
        "monitor.csv" => mask(bytes, &masked_monitor),
        "results.md" => mask(bytes, &|text| Ok(masked_results(text))),
        ".bqrl-lock" => mask(bytes, &|text| match text.trim().parse::<u32>() {
            Err(_) if !text.is_empty() => Err(format!("want a process id or nothing, got {text:?}")),
            _ => Ok(String::new()),
        }),
        _ => Ok(bytes),
    }
}

/// `"key":12.5` becomes `"key":*`, for each of the keys.
pub fn mask_numbers(text: &str, keys: &[&str]) -> String {
    let mut text = text.to_owned();
    for key in keys {
        let mut masked = String::with_capacity(text.len());
        let mut rest = &text[..];
        let quoted = format!("\"{key}\":");
        while let Some((before, after)) = rest.split_once(&quoted) {
            masked += before;
            masked += &quoted;
            let number = after.trim_start_matches(' ');
            let end = number.find(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
            let (number, after) = number.split_at(end.unwrap_or(number.len()));
            masked += if number.parse::<f64>().is_ok_and(f64::is_finite) { "*" } else { number };
            rest = after;
        }
        text = masked + rest;
    }
    text
}

/// Without t_start and the column t, each of which must be a time.
fn masked_monitor(text: &str) -> Result<String, String> {
    let mut masked = String::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match number {
            0 => masked += &mask_numbers(line, &["t_start"]),
            1 => masked += line,
            _ => {
                let row = line.strip_suffix('\n').and_then(|line| line.rsplit_once(','));
                let (row, time) = row.ok_or_else(|| format!("line {}: {line:?}", number + 1))?;
                if !time.parse::<f64>().is_ok_and(|time| time.is_finite() && time >= 0.0) {
                    return Err(format!("line {}: t is {time:?}", number + 1));
                }
                masked += row;
                masked += ",*\n";
            }
        }
    }
    Ok(masked)
}

/// The section on times: without seconds and shares, its first table in the order of the alphabet.
fn masked_results(text: &str) -> String {
    let Some((before, times)) = text.split_once("## Where the time went") else { return text.to_owned() };
    let mut lines: Vec<String> = Vec::new();
    for line in times.lines() {
        let mut cells: Vec<&str> = line.split('|').collect();
        // | method | problem | seconds | share |   and   | run | seconds | steps | updates |
        let by_method = cells.get(4).is_some_and(|cell| cell.ends_with("% "));
        if by_method {
            (cells[3], cells[4]) = (" * ", " * ");
        } else if cells.len() == 6 && cells[2].trim().parse::<f64>().is_ok() {
            cells[2] = " * ";
        }
        lines.push(cells.join("|"));
    }
    lines.sort();
    format!("{before}## Where the time went\n{}\n", lines.join("\n"))
}

/// Without the times of events and the values of `time/fps`; their checksums are tested, then masked as well.
fn masked_events(mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    const FPS: &[u8] = b"\x0a\x08time/fps\x15";
    let (mut at, mut number) = (0, 0);
    while at < bytes.len() {
        number += 1;
        let torn = || format!("record {number} is torn");
        let head: [u8; 8] = bytes.get(at..at + 8).ok_or_else(torn)?.try_into().expect("eight bytes");
        let length = usize::try_from(u64::from_le_bytes(head)).map_err(|_| torn())?;
        let data = at + 12..(at + 12).checked_add(length).ok_or_else(torn)?;
        let end = data.end.checked_add(4).filter(|&end| end <= bytes.len()).ok_or_else(torn)?;
        let is_right = |of: &[u8], sum: &[u8]| masked_crc(of).to_le_bytes() == *sum;
        if !is_right(&head, &bytes[at + 8..at + 12]) || !is_right(&bytes[data.clone()], &bytes[data.end..end])
        {
            return Err(format!("record {number} has a wrong checksum"));
        }
        bytes[data.end..end].fill(0);
        let event = &mut bytes[data];
        // Field 1 of an event is its time, as eight bytes.
        if event.first() != Some(&9) || event.len() < 9 {
            return Err(format!("record {number} has no time"));
        }
        event[1..9].fill(0);
        if let Some(tag) = event.windows(FPS.len()).position(|window| window == FPS) {
            let value = tag + FPS.len();
            event.get_mut(value..value + 4).ok_or_else(torn)?.fill(0);
        }
        at = end;
    }
    Ok(bytes)
}

/// As TensorBoard masks it.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// From the definition (reflected polynomial 0x82f63b78), independent of the code that is tested.
pub fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(u32::MAX, |crc, byte| (crc >> 8) ^ TABLE[(crc as u8 ^ byte) as usize])
}

/// Where two contents differ first, and both sides there.
fn first_difference(expected: &[u8], found: &[u8]) -> Option<String> {
    let at = expected.iter().zip(found).position(|(a, b)| a != b);
    let at = at.or((expected.len() != found.len()).then(|| expected.len().min(found.len())))?;
    let line = expected[..at].split(|&byte| byte == b'\n').count();
    let around = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(AROUND)..bytes.len().min(at + AROUND)];
        match str::from_utf8(part) {
            Ok(text) => format!("{text:?}"),
            Err(_) => part.escape_ascii().to_string(),
        }
    };
    let lengths = format!("{} and {} bytes, wall time masked", expected.len(), found.len());
    Some(format!(
        "byte {at}, line {line}: want … {} …, got … {} … ({lengths})",
        around(expected),
        around(found)
    ))
}

#[cfg(test)]
mod tests;
