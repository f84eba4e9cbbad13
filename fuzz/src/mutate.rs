//! Changes to an input: blind ones, and ones that know the format and so pass its parser.

mod bytes;
mod json;
mod tensors;
mod text;

use bqrl_math::rng::Rng;

use crate::Input;

/// Files of an input that choose what is tried; only another seed's replaces them.
const SETTING: &str = "setting";

/// The format of a file, by its name.
enum Format {
    Json,
    Tensors,
    Text,
    Unknown,
}

impl Format {
    fn of(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("json") => Self::Json,
            Some("safetensors") => Self::Tensors,
            Some("csv" | "toml" | "txt") => Self::Text,
            _ => Self::Unknown,
        }
    }
}

/// Changes an input in a few places.
pub fn mutate(input: &mut Input, seeds: &[Input], rng: &mut Rng) {
    let times = [1, 1, 1, 2, 2, 3, 5][rng.below(7)];
    for _ in 0..times {
        if input.files.is_empty() {
            return;
        }
        if input.files.len() > 1 && rng.below(24) == 0 {
            mutate_files(input, seeds, rng);
        } else {
            let open: Vec<usize> = (0..input.files.len()).filter(|&k| input.files[k].0 != SETTING).collect();
            let Some(&k) = open.get(rng.below(open.len().max(1))) else { return };
            let other = seeds[rng.below(seeds.len())].get(&input.files[k].0).map(<[u8]>::to_vec);
            let (name, bytes) = &mut input.files[k];
            mutate_file(name, bytes, other.as_deref().unwrap_or_default(), rng);
        }
    }
}

/// Whole files: one is missing, or is that of another seed, or of another name.
fn mutate_files(input: &mut Input, seeds: &[Input], rng: &mut Rng) {
    let k = rng.below(input.files.len());
    match rng.below(3) {
        0 if input.files[k].0 != SETTING => {
            input.files.remove(k);
        }
        1 => {
            let from = &seeds[rng.below(seeds.len())];
            if let Some(bytes) = from.get(&input.files[k].0) {
                input.files[k].1 = bytes.to_vec();
            }
        }
        _ => {
            let from = input.files[rng.below(input.files.len())].1.clone();
            if input.files[k].0 != SETTING {
                input.files[k].1 = from;
            }
        }
    }
}

/// One file; `other` is the file of this name of another seed.
pub fn mutate_file(name: &str, file: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    // Blind changes test the parser; most are better spent behind it.
    let structured = rng.below(8) > 0;
    let changed = match Format::of(name) {
        Format::Json if structured => json::mutate(file, rng),
        Format::Tensors if structured => tensors::mutate(file, rng),
        Format::Text if structured => Some(text::mutate(file, other, rng)),
        _ => None,
    };
    match changed {
        Some(changed) => *file = changed,
        None => bytes::mutate(file, other, rng),
    }
}

/// Numbers at the edges of types and ranges, as they are written.
const NUMBERS: [&str; 36] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "0.5",
    "-0.5",
    "0.1",
    "1.0",
    "255",
    "256",
    "1000",
    "65536",
    "1e6",
    "1e17",
    "-1e17",
    "1e300",
    "1e308",
    "-1e308",
    "1e-300",
    "5e-324",
    "1e400",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0.30000000000000004",
];

/// A number at the edge.
fn number(rng: &mut Rng) -> &'static str {
    NUMBERS[rng.below(NUMBERS.len())]
}

/// Two places in order, both at most `len`.
fn range(len: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let (a, b) = (rng.below(len + 1), rng.below(len + 1));
    a.min(b)..a.max(b)
}
