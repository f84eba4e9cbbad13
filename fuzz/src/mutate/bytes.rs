//! Changes that know nothing of the format.

use bqrl_math::rng::Rng;

use super::{NUMBERS, number, range};

pub(super) fn mutate(file: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let len = file.len();
    match rng.below(10) {
        _ if len == 0 => file.extend_from_slice(number(rng).as_bytes()),
        0 | 1 => file[rng.below(len)] ^= 1 << rng.below(8),
        2 => file[rng.below(len)] = [0, 1, 127, 128, 255, b'\n', b'"', b','][rng.below(8)],
        3 => file.truncate(rng.below(len)),
        4 => {
            let cut = range(len, rng);
            file.drain(cut.start..cut.end.min(cut.start + 16));
        }
        5 => {
            let piece = file[range(len, rng)].to_vec();
            let at = rng.below(len + 1);
            file.splice(at..at, piece.into_iter().take(64));
        }
        6 => {
            // The first part of this and the last of another.
            file.truncate(rng.below(len + 1));
            file.extend_from_slice(&other[rng.below(other.len() + 1)..]);
        }
        7 => {
            let at = rng.below(len + 1);
            file.splice(at..at, number(rng).bytes());
        }
        8 => overwrite(file, rng),
        _ => replace_number(file, rng),
    }
}

/// Eight or four bytes that are a number at the edge.
fn overwrite(file: &mut [u8], rng: &mut Rng) {
    let text = NUMBERS[rng.below(NUMBERS.len())];
    let float: f64 = text.parse().expect("a number");
    let bytes = match rng.below(4) {
        0 => float.to_le_bytes().to_vec(),
        1 => (float as f32).to_le_bytes().to_vec(),
        2 => (float as i64).to_le_bytes().to_vec(),
        _ => (float as i64 as u32).to_le_bytes().to_vec(),
    };
    let at = rng.below(file.len());
    file[at..].iter_mut().zip(bytes).for_each(|(old, new)| *old = new);
}

/// A number in the text, if there is one, becomes another.
pub(super) fn replace_number(file: &mut Vec<u8>, rng: &mut Rng) {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let from = rng.below(file.len().max(1));
    let Some(first) = (from..file.len()).find(|&k| file[k].is_ascii_digit()) else { return };
    let begin = file[..first].iter().rposition(|byte| !is_part(byte)).map_or(0, |last| last + 1);
    let end =
        file[first..].iter().position(|byte| !is_part(byte)).map_or(file.len(), |length| first + length);
    file.splice(begin..end, number(rng).bytes());
}
