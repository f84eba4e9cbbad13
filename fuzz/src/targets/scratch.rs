//! A temporary directory with the files of the present input.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::Input;

struct Scratch {
    directory: TempDir,
    files: BTreeMap<String, Vec<u8>>,
}

thread_local! {
    /// One per thread. Inputs have most files in common, so that only a few are written each time.
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// A relative path that stays inside: an input may not write anywhere else.
fn is_inside(name: &str) -> bool {
    let plain = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty()
            && part.len() < 100
            && !part.starts_with("..")
            && part != "."
            && part.chars().all(known)
    };
    name.split('/').count() <= 3 && name.split('/').all(plain)
}

/// In memory where Linux has a place for that: on a disk that others use, writing takes most of the time.
fn directory() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

/// Calls `work` with a directory that holds exactly the files of the input.
pub(super) fn with_files<R>(input: &Input, work: impl FnOnce(&Path) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch { directory, files } =
            scratch.get_or_insert_with(|| Scratch { directory: directory(), files: BTreeMap::new() });
        let wanted: BTreeMap<&str, &[u8]> = input
            .files
            .iter()
            .filter(|(name, _)| is_inside(name))
            .map(|(name, bytes)| (&name[..], &bytes[..]))
            .collect();
        files.retain(|name, _| {
            let keep = wanted.contains_key(&name[..]);
            if !keep {
                let _ = fs::remove_file(directory.path().join(name));
            }
            keep
        });
        for (name, bytes) in wanted {
            if files.get(name).is_some_and(|old| old == bytes) {
                continue;
            }
            let path = directory.path().join(name);
            // A file may be in the way of a folder or the other way round; then the input lacks it.
            let written = fs::create_dir_all(path.parent().expect("inside the directory"))
                .and_then(|()| fs::write(&path, bytes));
            match written {
                Ok(()) => files.insert(name.to_owned(), bytes.to_vec()),
                Err(_) => files.remove(name),
            };
        }
        work(directory.path())
    })
}
