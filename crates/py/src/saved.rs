//! `model.json`: what a model keeps beside its agent; and all files of a model in one.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use bqrl_agents::Part;
use bqrl_agents::play::SavedPlay;
use bqrl_lab::train::Progress;
use bqrl_math::schedule::Clock;
use bqrl_runs::schema::MOVING_AVERAGE;
use safetensors::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use crate::described::Described;

/// The layout of `model.json`; a later layout gets the next number.
pub const FORMAT: u32 = 2;

/// The longest training; Python's and JSON's numbers are exact up to here.
const MOST_STEPS: u64 = 1 << 53;

/// `model.json`: what a model keeps beside its agent.
#[derive(Clone, Deserialize, Serialize)]
pub struct Saved {
    pub format: u32,
    pub version: String,
    pub algo: String,
    pub config: String,
    pub environment: Described,
    pub seed: u64,
    pub progress: Progress,
    pub play: Option<SavedPlay>,
    /// Data of the Python half.
    pub extra: String,
    /// The run directory that `progress` belongs to.
    #[serde(serialize_with = "as_text")]
    pub log: Option<PathBuf>,
}

impl Saved {
    /// Reads a file, which may say anything.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        /// The fields of a `model.json` of any format.
        #[derive(Deserialize)]
        struct Header {
            format: u32,
            version: String,
        }
        let Header { format, version } = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if format != FORMAT {
            return Err(format!("the model was saved by bqrl {version} in format {format}, want {FORMAT}"));
        }
        let saved: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        Ok(Self { progress: plausible(saved.progress)?, ..saved })
    }
}

/// A path as JSON has it; one that is no text is left out.
#[expect(clippy::ref_option, reason = "serde asks for a reference")]
fn as_text<S: serde::Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().and_then(Path::to_str).serialize(serializer)
}

/// The progress of a training, if a training can have it: a file may say anything.
pub fn plausible(progress: Progress) -> Result<Progress, String> {
    let Clock { episodes, steps } = progress.clock;
    let Progress { recent, recent_lengths, .. } = &progress;
    if episodes > steps || steps > MOST_STEPS {
        return Err(format!("{episodes} episodes in {steps} steps cannot have been trained"));
    }
    let (returns, lengths) = (recent.len(), recent_lengths.len());
    if returns != lengths || returns > MOVING_AVERAGE || returns as u64 > episodes {
        return Err(format!(
            "{returns} recent returns with {lengths} lengths do not fit {episodes} episodes"
        ));
    }
    if recent_lengths.iter().any(|&length| length as u64 > steps) || recent.iter().any(|x| !x.is_finite()) {
        return Err("a recent episode is longer than the training, or its return is not finite".to_owned());
    }
    Ok(progress)
}

/// A file as an array of bytes.
struct Bytes<'a> {
    shape: [usize; 1],
    bytes: &'a [u8],
}

impl View for Bytes<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::U8
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The files of a model as one safetensors file.
pub fn pack(files: &[Part]) -> Vec<u8> {
    let arrays = files.iter().filter_map(|part| {
        let bytes = part.bytes()?;
        Some((part.name.as_str(), Bytes { shape: [bytes.len()], bytes }))
    });
    safetensors::serialize(arrays, None).expect("arrays with their own lengths make a file")
}

/// The files again.
pub struct Unpacked<'a>(SafeTensors<'a>);

impl<'a> Unpacked<'a> {
    /// Reads bytes, which may be anything.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        SafeTensors::deserialize(bytes).map(Self).map_err(|error| format!("the copy of a model: {error}"))
    }

    /// One file.
    pub fn part(&self, name: &str) -> Option<Vec<u8>> {
        self.0.tensor(name).ok().map(|array| array.data().to_vec())
    }
}
