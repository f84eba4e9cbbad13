//! Sealed parts: files that several checkpoints share, each written once.
//!
//! ```text
//! checkpoints/sealed/9a0b1c2d-replay-000012.safetensors      crc32c of the contents, and the name of the part
//! ```
//!
//! A file is never replaced by a file with other contents, because that file would have another name. So a run that was
//! resumed from an older checkpoint, or another model saved to the same place, cannot damage an existing checkpoint.
//!
//! A file is removed when the last checkpoint that names it is removed. The manifest that names a new file is on disk, in
//! the temporary directory of its checkpoint, before the file is. So after a kill every file is named by some manifest, and
//! the next save removes the leftovers. A file that no manifest of ours ever named is never touched.
//!
//! The drawback: damage to a shared file damages every checkpoint that names it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Contents;
use super::manifest::{Manifest, Part, read_part};
use crate::atomic;

const DIRECTORY: &str = "sealed";

/// The sealed files of a store.
#[derive(Debug)]
pub(super) struct SealedFiles {
    directory: PathBuf,
    /// Those of the checkpoint that was loaded or saved last, verified when they were read or written.
    known: Mutex<BTreeMap<String, Part>>,
}

impl SealedFiles {
    /// In the directory of a store.
    pub fn of(store: &Path) -> Self {
        Self { directory: store.join(DIRECTORY), known: Mutex::default() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a file does not have to be written again: the last checkpoint names it, and it exists.
    pub fn has(&self, name: &str) -> bool {
        self.known(name).is_some_and(|part| self.is_there(&part))
    }

    pub fn known(&self, name: &str) -> Option<Part> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Makes this the last checkpoint.
    pub fn know(&self, manifest: &Manifest) {
        let parts = manifest.sealed().map(|part| (part.name.clone(), part.clone())).collect();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// A regular file of the right length.
    fn is_there(&self, part: &Part) -> bool {
        fs::symlink_metadata(self.directory.join(part.file_name()))
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() == part.length)
    }

    /// Whether a part is undamaged. Parts of the last checkpoint are not read again, because they may be gigabytes.
    pub fn is_whole(&self, part: &Part) -> bool {
        let verified = self.known(&part.name).is_some_and(|known| known == *part) && self.is_there(part);
        verified || read_part(&self.directory, None, part).is_ok()
    }

    /// Refuses a path at which something else already exists.
    pub fn check(&self, manifest: &Manifest) -> io::Result<()> {
        let in_the_way = |path: &Path, what: &str| {
            let message = format!("{} is in the way: it is not a {what}", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
        };
        if manifest.sealed().next().is_none() {
            return Ok(());
        }
        match fs::symlink_metadata(&self.directory) {
            Ok(metadata) if !metadata.is_dir() => return in_the_way(&self.directory, "directory"),
            _ => {}
        }
        for part in manifest.sealed() {
            let path = self.directory.join(part.file_name());
            match fs::symlink_metadata(&path) {
                Ok(metadata) if !metadata.is_file() => return in_the_way(&path, "regular file"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the new files.
    pub fn write(&self, parts: &[(&str, Contents)], manifest: &Manifest) -> io::Result<()> {
        for ((_, contents), part) in parts.iter().zip(&manifest.parts) {
            let Contents::Sealed(Some(bytes)) = contents else { continue };
            atomic::create_dir(&self.directory)?;
            // A kill may have left a complete file, or the disk may have damaged it.
            if read_part(&self.directory, None, part).is_err() {
                atomic::write(&self.directory.join(part.file_name()), bytes)?;
            }
        }
        Ok(())
    }

    /// Removes the files of a discarded checkpoint, except those that other checkpoints name.
    pub fn remove(&self, manifest: &Manifest, kept: &BTreeSet<String>) -> io::Result<()> {
        for name in manifest.sealed().map(Part::file_name).filter(|name| !kept.contains(name)) {
            let path = self.directory.join(name);
            if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
                atomic::remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes files that a kill left incomplete.
    pub fn sweep(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.directory) {
            Ok(metadata) if metadata.is_dir() => atomic::sweep(&self.directory),
            _ => Ok(()),
        }
    }
}
