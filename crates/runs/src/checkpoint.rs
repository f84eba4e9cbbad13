//! Checkpoints that are complete or absent, and verified when they are loaded.
//!
//! ```text
//! checkpoints/
//!   000041/ …                        the previous one, in case the latest is damaged
//!   000042/
//!     agent.safetensors, state.json  the parts: plain files under the names their writer gave them
//!     manifest.json                  name, length and crc32c of each part, and a crc32c of all that
//!   sealed/ …                        parts that never change, shared by the checkpoints that name them
//! ```
//!
//! Saving writes the parts and the manifest to a temporary directory, syncs each file and the directory, writes the sealed
//! parts that are new, and renames the directory into place. A failure before the rename, such as a full disk or a kill,
//! leaves the earlier checkpoints unchanged. Afterwards two are kept: the new one and the latest complete one before it.
//!
//! Only checkpoints are ever renamed or removed. A checkpoint is a real directory with a number for its name that holds
//! nothing but regular files, a manifest and parts, each under a name that our writers use. A user's folder `202401` is not
//! a checkpoint. Sealed files are removed when no checkpoint names them any more, see `sealed`.

mod manifest;
mod sealed;
#[cfg(test)]
mod sealed_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use self::manifest::{Envelope, MANIFEST, MOST, Manifest, Part, is_plain, read_manifest, read_part};
use self::sealed::SealedFiles;
use crate::atomic::{self, sync_directory};
use crate::{beneath, naming, regular};

/// The checkpoints in one directory, written by one process at a time.
#[derive(Debug)]
pub struct CheckpointStore {
    directory: PathBuf,
    /// The directory that reading must not leave, not even through a link; otherwise links are followed.
    below: Option<PathBuf>,
    sealed: SealedFiles,
}

/// The contents of a part.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// Bytes that are stored with the checkpoint.
    Plain(&'a [u8]),
    /// Bytes that never change under this name, stored once for all checkpoints that name them. None for a part that the
    /// store [`has`](CheckpointStore::has).
    Sealed(Option<&'a [u8]>),
}

/// A checkpoint whose every byte was verified.
#[derive(Debug)]
pub struct Loaded {
    /// The number it was saved under.
    pub number: u64,
    /// The contents of the plain parts by name.
    pub parts: BTreeMap<String, Vec<u8>>,
    /// For each later checkpoint that cannot be used, which file it is and why.
    pub warnings: Vec<String>,
    sealed: Vec<Part>,
    sealed_directory: PathBuf,
    below: Option<PathBuf>,
}

impl Loaded {
    /// The contents of a part, plain or sealed. A sealed part is read and verified only when it is requested, because all of
    /// them together may be gigabytes.
    pub fn part(&self, name: &str) -> Option<Vec<u8>> {
        let sealed = || self.sealed.iter().find(|part| part.name == name);
        let plain = self.parts.get(name).cloned();
        plain.or_else(|| read_part(&self.sealed_directory, self.below.as_deref(), sealed()?).ok())
    }
}

impl CheckpointStore {
    /// The store in `directory`, which the first [`save`](Self::save) makes.
    pub fn open(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Self { sealed: SealedFiles::of(&directory), directory, below: None }
    }

    /// The same, to read from a directory that somebody else may write to: no link below `root` is followed.
    pub fn open_below(root: impl Into<PathBuf>, directory: impl Into<PathBuf>) -> Self {
        Self { below: Some(root.into()), ..Self::open(directory) }
    }

    /// Whether a sealed part of this name does not have to be given again: the checkpoint that was loaded or saved last through
    /// this store names it, and its file is there. A file that only some other checkpoint names may have other contents.
    pub fn has(&self, name: &str) -> bool {
        self.sealed.has(name)
    }

    /// Saves a checkpoint of named plain parts; it is on disk when this returns. See [`save_parts`](Self::save_parts).
    pub fn save(&self, number: u64, parts: &[(&str, &[u8])]) -> io::Result<()> {
        let plain = |&(name, bytes): &(_, _)| (name, Contents::Plain(bytes));
        self.save_parts(number, &parts.iter().map(plain).collect::<Vec<_>>())
    }

    /// Saves a checkpoint of named parts; it is on disk when this returns.
    ///
    /// Numbers grow as a run proceeds. One saved before is replaced, and later ones are removed: they were damaged,
    /// or the run would have continued from them.
    /// A name is a plain file name, such as `state.json`. If something that is not a checkpoint has the number of
    /// this checkpoint as its name, nothing is saved: [`io::ErrorKind::AlreadyExists`].
    pub fn save_parts(&self, number: u64, parts: &[(&str, Contents)]) -> io::Result<()> {
        let manifest = self.manifest(number, parts)?;
        let place = self.place(number);
        if fs::symlink_metadata(&place).is_ok() && !is_checkpoint(&place, parts) {
            let message = format!("{} is in the way: it is not a checkpoint", place.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        self.sealed.check(&manifest)?;
        atomic::create_dir(&self.directory)?;
        self.sweep()?;

        let temporary = atomic::temporary(&self.directory, &directory_name(number));
        // The manifest is written before its sealed parts, so that files left by a kill can be distinguished from a user's files.
        let saved = write(&temporary, &manifest, parts)
            .and_then(|()| self.sealed.write(parts, &manifest))
            .and_then(|()| self.put_in_place(&temporary, number));
        if saved.is_err() {
            // If this fails, the next save removes it.
            let _ = self.discard(&temporary);
        }
        saved?;
        self.sealed.know(&manifest);
        self.prune(number, parts)
    }

    /// Names, lengths and checksums.
    fn manifest(&self, number: u64, parts: &[(&str, Contents)]) -> io::Result<Manifest> {
        let mut manifest = Manifest { number, parts: Vec::new() };
        for &(name, contents) in parts {
            assert!(is_plain(name), "a part needs a plain file name, got {name:?}");
            manifest.parts.push(match contents {
                Contents::Plain(bytes) => Part::of(name, bytes, false),
                Contents::Sealed(Some(bytes)) => Part::of(name, bytes, true),
                Contents::Sealed(None) if self.has(name) => self.sealed.known(name).expect("it has it"),
                Contents::Sealed(None) => {
                    let message = format!("saving checkpoint {number}: the sealed part {name} is not there");
                    return Err(io::Error::new(io::ErrorKind::NotFound, message));
                }
            });
        }
        Ok(manifest)
    }

    /// Loads the latest complete checkpoint, with a warning for each damaged one that was skipped.
    ///
    /// `None` if none was ever saved; an error if there are some and all are damaged.
    pub fn latest(&self) -> io::Result<Option<Loaded>> {
        let mut warnings = Vec::new();
        for number in self.numbers()? {
            match self.load(number) {
                Ok((parts, manifest)) => {
                    self.sealed.know(&manifest);
                    let sealed = manifest.sealed().cloned().collect();
                    let sealed_directory = self.sealed.directory().to_owned();
                    let below = self.below.clone();
                    return Ok(Some(Loaded { number, parts, warnings, sealed, sealed_directory, below }));
                }
                Err(error) => warnings.push(format!("checkpoint {number} cannot be used: {error}")),
            }
        }
        if warnings.is_empty() {
            return Ok(None);
        }
        let message =
            format!("no complete checkpoint in {}: {}", self.directory.display(), warnings.join("; "));
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    /// Removes what a kill left: temporary files, and checkpoints before the latest two complete ones. A run that was killed
    /// while it removed them after its last save does not save again.
    ///
    /// Only the one process that writes here may call this, after [`latest`](Self::latest).
    pub fn tidy(&self) -> io::Result<()> {
        if !self.directory.is_dir() {
            return Ok(());
        }
        self.sweep()?;
        let numbers = self.numbers()?;
        if numbers.len() > 2 {
            let complete = numbers.iter().filter(|&&number| self.is_whole(number));
            if let Some(before) = complete.copied().nth(1) {
                for other in numbers.into_iter().filter(|&other| other < before) {
                    if is_checkpoint(&self.place(other), &[]) {
                        self.set_aside(other)?;
                    }
                }
            }
        }
        self.sweep()
    }

    fn place(&self, number: u64) -> PathBuf {
        self.directory.join(directory_name(number))
    }

    /// All checkpoints, complete or not, the latest first.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let names = match self.names() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.map_err(naming("reading", &self.directory))?,
        };
        let mut numbers: Vec<u64> =
            names.iter().filter_map(|name| name.to_str().and_then(number_of)).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        Ok(numbers)
    }

    fn names(&self) -> io::Result<Vec<OsString>> {
        match &self.below {
            Some(root) => {
                let rest = self.directory.strip_prefix(root).map_err(|_| io::ErrorKind::NotFound)?;
                beneath::names(root, rest)
            }
            None => fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name())).collect(),
        }
    }

    /// The plain parts, and the manifest; the sealed parts are verified one by one.
    fn load(&self, number: u64) -> io::Result<(BTreeMap<String, Vec<u8>>, Manifest)> {
        let place = self.place(number);
        let below = self.below.as_deref();
        let manifest = read_manifest(&place, below, Some(number))?;
        let mut parts = BTreeMap::new();
        for part in &manifest.parts {
            if part.sealed {
                read_part(self.sealed.directory(), below, part)?;
            } else {
                parts.insert(part.name.clone(), read_part(&place, below, part)?);
            }
        }
        Ok((parts, manifest))
    }

    fn is_whole(&self, number: u64) -> bool {
        let place = self.place(number);
        // One part at a time in memory, unlike `load`.
        let is_whole = |part: &Part| {
            if part.sealed { self.sealed.is_whole(part) } else { read_part(&place, None, part).is_ok() }
        };
        read_manifest(&place, None, Some(number)).is_ok_and(|manifest| manifest.parts.iter().all(is_whole))
    }

    fn put_in_place(&self, temporary: &Path, number: u64) -> io::Result<()> {
        let place = self.place(number);
        // A rename cannot replace a directory that has files. A kill between these two renames loses the checkpoint that was
        // to be replaced, and the run continues from the one before it.
        let replaced = self.set_aside(number)?;
        if let Err(error) = fs::rename(temporary, &place) {
            if let Some(replaced) = replaced {
                fs::rename(&replaced, &place).map_err(naming("restoring", &place))?;
            }
            return Err(naming("writing", &place)(error));
        }
        sync_directory(&self.directory).map_err(naming("writing", &place))
    }

    /// Renames a checkpoint, if there is one, to a temporary name, so that a partly removed checkpoint is never visible.
    fn set_aside(&self, number: u64) -> io::Result<Option<PathBuf>> {
        let place = self.place(number);
        let aside = atomic::temporary(&self.directory, &format!("{}-old", directory_name(number)));
        match fs::rename(&place, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(naming("replacing", &place)(error)),
        }
    }

    /// Removes all checkpoints except `number` and the latest complete one before it.
    fn prune(&self, number: u64, parts: &[(&str, Contents)]) -> io::Result<()> {
        let numbers = self.numbers()?;
        // Verified, not only counted: if one of two kept checkpoints is damaged, only one is left.
        let before = numbers.iter().copied().find(|&other| other < number && self.is_whole(other));
        for other in numbers {
            if other != number && Some(other) != before && is_checkpoint(&self.place(other), parts) {
                self.set_aside(other)?;
            }
        }
        self.sweep()
    }

    /// Removes temporary files that a kill left, and checkpoints that were renamed for removal.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory).map_err(naming("reading", &self.directory))? {
            let path = entry.map_err(naming("reading", &self.directory))?.path();
            if atomic::is_temporary(&path) {
                self.discard(&path)?;
            }
        }
        self.sealed.sweep()
    }

    /// Removes a temporary directory, and first the sealed parts that no other manifest names.
    fn discard(&self, temporary: &Path) -> io::Result<()> {
        if let Ok(manifest) = read_manifest(temporary, None, None) {
            let others = self.numbers()?;
            let others = others
                .iter()
                .filter_map(|&number| read_manifest(&self.place(number), None, Some(number)).ok());
            let kept: BTreeSet<String> =
                others.flat_map(|other| other.sealed().map(Part::file_name).collect::<Vec<_>>()).collect();
            self.sealed.remove(&manifest, &kept)?;
        }
        atomic::remove(temporary)
    }
}

fn directory_name(number: u64) -> String {
    format!("{number:06}")
}

fn number_of(name: &str) -> Option<u64> {
    name.parse().ok().filter(|&number| directory_name(number) == name)
}

/// Whether a directory holds a checkpoint, perhaps a damaged one: regular files only, a manifest of ours or else all parts
/// among them, and every one of them named by that manifest or like a part of the checkpoint that is being saved.
fn is_checkpoint(directory: &Path, parts: &[(&str, Contents)]) -> bool {
    if !fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.is_dir()) {
        return false;
    }
    let manifest = regular::read(&directory.join(MANIFEST), MOST).ok();
    let envelope = manifest.and_then(|text| serde_json::from_slice::<Envelope>(&text).ok());
    let is_there = |name: &str| directory.join(name).exists();
    let mut plain = parts.iter().filter(|(_, contents)| matches!(contents, Contents::Plain(_)));
    if envelope.is_none() && !plain.all(|(name, _)| is_there(name)) {
        // A user's `202401/model.json`, or a manifest of something else.
        return false;
    }
    let own = envelope.map_or(Vec::new(), |envelope| envelope.manifest.parts);
    let is_ours = |entry: io::Result<fs::DirEntry>| {
        let Ok(entry) = entry else { return false };
        let (name, kind) = (entry.file_name(), entry.file_type());
        let known = name == MANIFEST
            || parts.iter().any(|(part, _)| name == *part)
            || own.iter().any(|part| !part.sealed && name == *part.name);
        known && kind.is_ok_and(|kind| kind.is_file())
    };
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let judged: Vec<bool> = entries.map(is_ours).collect();
    !judged.is_empty() && judged.iter().all(|&ours| ours)
}

fn write(directory: &Path, manifest: &Manifest, parts: &[(&str, Contents)]) -> io::Result<()> {
    fs::create_dir(directory).map_err(naming("writing", directory))?;
    for (name, contents) in parts {
        if let Contents::Plain(bytes) = contents {
            write_file(&directory.join(name), bytes)?;
        }
    }
    write_file(&directory.join(MANIFEST), manifest.to_json().as_bytes())?;
    sync_directory(directory).map_err(naming("writing", directory))
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::create_new(path)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .map_err(naming("writing", path))
}
