//! A directory of checkpoints. Checksums keep out almost every change, so the manifest is also tried with its own checksum
//! set right, as a forger would.

use bqrl_runs::checkpoint::CheckpointStore;
use bqrl_runs::model_dir::ModelDir;
use serde::{Deserialize, Serialize};

use super::scratch::with_files;
use crate::Input;

/// The layout of `manifest.json`, in the order in which it is sealed.
#[derive(Deserialize, Serialize)]
struct Envelope {
    format: u32,
    crc32c: u32,
    manifest: Manifest,
}

#[derive(Deserialize, Serialize)]
struct Manifest {
    number: u64,
    parts: Vec<Part>,
}

#[derive(Deserialize, Serialize)]
struct Part {
    name: String,
    length: u64,
    crc32c: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sealed: bool,
}

pub(super) fn run(input: &Input) -> bool {
    let as_it_is = load(input);
    let mut sealed = input.clone();
    for (name, bytes) in &mut sealed.files {
        if name.ends_with("manifest.json")
            && let Ok(mut envelope) = serde_json::from_slice::<Envelope>(bytes)
        {
            let manifest = serde_json::to_vec(&envelope.manifest).expect("it was JSON");
            envelope.crc32c = crc32c::crc32c(&manifest);
            *bytes = serde_json::to_vec(&envelope).expect("it was JSON");
        }
    }
    load(&sealed) || as_it_is
}

fn load(input: &Input) -> bool {
    with_files(input, |directory| {
        let store = CheckpointStore::open(directory);
        let model = ModelDir::at(directory).load();
        let Ok(Some(loaded)) = store.latest() else { return false };
        let model = model.expect("a model is a checkpoint").expect("a model is a checkpoint");
        assert_eq!(model.number, loaded.number, "the checkpoint of a model");
        for (name, bytes) in &loaded.parts {
            assert_eq!(loaded.part(name).as_ref(), Some(bytes), "{name}");
        }
        let _ = (loaded.part("replay-000000.safetensors"), store.has("replay-000000.safetensors"));
        true
    })
}
