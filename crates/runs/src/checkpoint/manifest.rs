//! `manifest.json`: name, length and crc32c of each part of a checkpoint, and a crc32c of all that.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{naming, regular};

/// The layout with sealed parts; a later layout gets the next number. Without sealed parts, format 1 says the same.
pub(super) const FORMAT: u32 = 2;
pub(super) const MANIFEST: &str = "manifest.json";
/// Bytes of a manifest; a part takes about a hundred.
pub(super) const MOST: u64 = 64 << 20;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Manifest {
    pub number: u64,
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Part {
    pub name: String,
    pub length: u64,
    pub crc32c: u32,
    /// Whether it is shared with other checkpoints. Omitted if not, as in format 1.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sealed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The contents of `manifest.json`.
#[derive(Deserialize, Serialize)]
pub(super) struct Envelope {
    pub format: u32,
    /// Of the manifest as compact JSON.
    pub crc32c: u32,
    pub manifest: Manifest,
}

impl Part {
    pub fn of(name: &str, bytes: &[u8], sealed: bool) -> Self {
        Self { name: name.to_string(), length: bytes.len() as u64, crc32c: crc32c::crc32c(bytes), sealed }
    }

    /// The name of its file. The name of a sealed part contains its checksum, so that a file is never replaced by another.
    pub fn file_name(&self) -> String {
        if self.sealed { format!("{:08x}-{}", self.crc32c, self.name) } else { self.name.clone() }
    }
}

impl Manifest {
    pub fn sealed(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.sealed)
    }

    pub fn to_json(&self) -> String {
        let format = if self.sealed().next().is_some() { FORMAT } else { 1 };
        let envelope = Envelope { format, crc32c: seal(self), manifest: self.clone() };
        serde_json::to_string_pretty(&envelope).expect("numbers and strings are JSON")
    }
}

pub(super) fn seal(manifest: &Manifest) -> u32 {
    crc32c::crc32c(&serde_json::to_vec(manifest).expect("numbers and strings are JSON"))
}

/// A name that stays inside its directory, is visible there, and is not the manifest's.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0']) && name != MANIFEST
}

/// The manifest in a directory, whose number may be known. With `below`, see [`regular::open_below`].
pub(super) fn read_manifest(
    directory: &Path,
    below: Option<&Path>,
    number: Option<u64>,
) -> io::Result<Manifest> {
    /// The fields that the manifest of every format has.
    #[derive(Deserialize)]
    struct Header {
        format: u32,
    }

    let path = directory.join(MANIFEST);
    let damaged =
        |reason: String| naming("reading", &path)(io::Error::new(io::ErrorKind::InvalidData, reason));
    let text = regular::read_below(&path, below, MOST)?;
    let Header { format } = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if !(1..=FORMAT).contains(&format) {
        return Err(damaged(format!("format {format}, this program reads formats up to {FORMAT}")));
    }
    let Envelope { crc32c, manifest, .. } =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let found = seal(&manifest);
    if found != crc32c {
        return Err(damaged(format!("crc32c is {found}, it was {crc32c} when saved")));
    }
    if number.is_some_and(|number| manifest.number != number) {
        return Err(damaged(format!("it belongs to checkpoint {}", manifest.number)));
    }
    if let Some(part) = manifest.parts.iter().find(|part| !is_plain(&part.name)) {
        return Err(damaged(format!("a part needs a plain file name, got {:?}", part.name)));
    }
    Ok(manifest)
}

/// The bytes of a part, if they are the bytes that were saved.
pub(super) fn read_part(directory: &Path, below: Option<&Path>, part: &Part) -> io::Result<Vec<u8>> {
    let path = directory.join(part.file_name());
    let bytes = regular::read_below(&path, below, part.length)?;
    let (length, crc32c) = (bytes.len() as u64, crc32c::crc32c(&bytes));
    let reason = if length != part.length {
        format!("it has {length} bytes, it had {} when saved", part.length)
    } else if crc32c != part.crc32c {
        format!("crc32c is {crc32c}, it was {} when saved", part.crc32c)
    } else {
        return Ok(bytes);
    };
    Err(naming("reading", &path)(io::Error::new(io::ErrorKind::InvalidData, reason)))
}
