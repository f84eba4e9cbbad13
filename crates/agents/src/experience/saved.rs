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
