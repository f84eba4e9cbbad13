//! The saved parts of an agent, and how to read them; every error names the part.

use bqrl_math::rng::{Rng, RngState};
use bqrl_nn::Ensemble;
use serde::{Deserialize, Serialize};

use super::arrays::RestoreError;

/// A named file of a saved agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// A plain file name.
    pub name: String,
    /// Its contents.
    pub body: Body,
}

/// The contents of a [`Part`].
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Other bytes in every checkpoint.
    Bytes(Vec<u8>),
    /// The same bytes for as long as a checkpoint names them; none where the store has them already.
    Sealed(Option<Vec<u8>>),
}

impl Part {
    /// A part that changes.
    pub fn new(name: &str, bytes: Vec<u8>) -> Self {
        Self { name: name.to_owned(), body: Body::Bytes(bytes) }
    }

    /// The contents, unless the store has them already.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Bytes(bytes) => Some(bytes),
            Body::Sealed(bytes) => bytes.as_deref(),
        }
    }
}

/// Looks up a part by its name.
pub type Parts<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// A complaint about a part.
pub fn wrong(name: &str, error: &dyn std::fmt::Display) -> RestoreError {
    RestoreError(format!("{name}: {error}"))
}

/// The bytes of a part.
pub fn part(name: &str, parts: Parts) -> Result<Vec<u8>, RestoreError> {
    parts(name).ok_or_else(|| wrong(name, &"missing"))
}

/// A part in JSON.
pub fn json<T: for<'de> Deserialize<'de>>(name: &str, parts: Parts) -> Result<T, RestoreError> {
    serde_json::from_slice(&part(name, parts)?).map_err(|error| wrong(name, &error))
}

/// A part as JSON.
pub fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain numbers serialise")
}

/// The largest count that a run can have reached: at a thousand million a second it takes a hundred days.
const MOST: u64 = 1 << 53;

/// Refuses a count that no run can have reached: adding to it might overflow.
pub fn count(name: &str, value: u64) -> Result<u64, RestoreError> {
    if value <= MOST { Ok(value) } else { Err(RestoreError(format!("{name} is {value}, want at most 2^53"))) }
}

/// Refuses counts like [`count`], and a sum of them that is too large.
pub fn counts(name: &str, values: &[u64]) -> Result<u64, RestoreError> {
    let add = |sum: u64, &value: &u64| count(name, value).and_then(|_| count(name, sum + value));
    values.iter().try_fold(0, add)
}

/// Refuses numbers that are not finite.
pub fn finite(name: &str, values: &[f64]) -> Result<(), RestoreError> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(k) => Err(RestoreError(format!("{name} holds {:?} at {k}, want finite numbers", values[k]))),
    }
}

/// Refuses probabilities of actions that were taken outside (0, 1]: learning divides by them.
pub fn taken(name: &str, probabilities: &[f64]) -> Result<(), RestoreError> {
    match probabilities.iter().position(|p| !(0.0 < *p && *p <= 1.0)) {
        None => Ok(()),
        Some(k) => {
            Err(RestoreError(format!("{name} holds {:?} at {k}, want numbers in (0, 1]", probabilities[k])))
        }
    }
}

/// Whole numbers that must lie below a limit, because they are indices.
pub fn below(name: &str, values: Vec<u64>, limit: usize) -> Result<Vec<usize>, RestoreError> {
    match values.iter().find(|&&value| value >= limit as u64) {
        Some(value) => Err(RestoreError(format!("{name} holds {value}, want values below {limit}"))),
        None => Ok(values.into_iter().map(|value| value as usize).collect()),
    }
}

/// Networks of the same sizes as `like`, computing with the same kernels.
pub fn networks(name: &str, like: &Ensemble, parts: Parts) -> Result<Ensemble, RestoreError> {
    let networks = Ensemble::from_bytes(&part(name, parts)?).map_err(|error| wrong(name, &error))?;
    if networks.shape() != like.shape() {
        return Err(wrong(name, &"the networks have other sizes"));
    }
    Ok(networks.with_kernels(like.kernels()))
}

/// Seed, stream and position of a random stream.
pub fn position(rng: &Rng) -> [u64; 3] {
    let RngState { seed, stream, word_pos } = rng.state();
    [seed, stream, word_pos]
}

/// A random stream that continues from its [`position`].
pub fn at([seed, stream, word_pos]: [u64; 3]) -> Rng {
    Rng::from_state(RngState { seed, stream, word_pos })
}
