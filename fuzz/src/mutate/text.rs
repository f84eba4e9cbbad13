//! Changes to lines and fields: tables and TOML.

use bqrl_math::rng::Rng;

use super::{bytes, number};

/// Fields that readers of text stumble over.
const WORDS: [&str; 22] = [
    "",
    " ",
    "NaN",
    "inf",
    "-inf",
    "true",
    "\"\"",
    "[]",
    "[0.1, 0.1]",
    "[1e308, -1e308]",
    "{}",
    "\"",
    "\u{feff}",
    "\u{1b}[31m",
    "é",
    "../../x",
    "\"a\\nb\"",
    "0x10",
    "1_000",
    "\"500 episodes\"",
    "\"1e308 steps\"",
    "1979-05-27T07:32:00Z",
];

pub(super) fn mutate(file: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = file.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let k = rng.below(lines.len());
    match rng.below(12) {
        0 => lines.insert(k, lines[k].clone()),
        1 => {
            lines.remove(k);
        }
        2 => {
            let with = rng.below(lines.len());
            lines.swap(k, with);
        }
        3 => lines.truncate(k + 1),
        4 => {
            let theirs: Vec<&[u8]> = other.split(|&byte| byte == b'\n').collect();
            lines.insert(k, theirs[rng.below(theirs.len())].to_vec());
        }
        5 => {
            // A digit more: repeated often enough, the numbers get very long.
            let at = rng.below(lines[k].len() + 1);
            let digits = vec![b'9'; [1, 1, 20, 400][rng.below(4)]];
            lines[k].splice(at..at, digits);
        }
        6 | 7 => bytes::replace_number(&mut lines[k], rng),
        _ => field(&mut lines[k], rng),
    }
    lines.join(&b'\n')
}

/// One field of a line: replaced, removed, repeated or swapped with another. Cells lie between commas; a key and its value
/// around `=`.
fn field(line: &mut Vec<u8>, rng: &mut Rng) {
    let by = if line.contains(&b',') { b',' } else { b'=' };
    let mut fields: Vec<Vec<u8>> = line.split(|&byte| byte == by).map(<[u8]>::to_vec).collect();
    let k = rng.below(fields.len());
    match rng.below(8) {
        0 => {
            fields.remove(k);
        }
        1 => fields.insert(k, fields[k].clone()),
        2 => {
            let with = rng.below(fields.len());
            fields.swap(k, with);
        }
        3 | 4 => fields[k] = WORDS[rng.below(WORDS.len())].into(),
        _ => fields[k] = number(rng).into(),
    }
    *line = fields.join(&by);
}
