//! Opening a file, or listing a directory, that must lie below a directory.
//!
//! Somebody else may write to the directory and put a link in the place of a file at any moment. So nothing is checked before and
//! opened afterwards: the path is opened part by part, each from the handle of the one before, and a link is an error of the
//! opening itself. What was opened is then checked through its handle.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Component, Path};

/// Names of a directory. `below` is as for [`open`], and may be empty.
pub fn names(root: &Path, below: &Path) -> io::Result<Vec<OsString>> {
    names_of(root, &parts(below)?)
}

/// The parts of a path that does not lead up.
fn parts(below: &Path) -> io::Result<Vec<&OsStr>> {
    let part = |part| match part {
        Component::Normal(name) => Ok(name),
        _ => Err(refused()),
    };
    below.components().map(part).collect()
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "there is no such file")
}

/// Opens a regular file. `below` is relative to `root`, which may be reached through links itself. No part of `below` may be a
/// link, and none may lead up. A pipe does not make the caller wait.
pub fn open(root: &Path, below: &Path) -> io::Result<File> {
    let parts = parts(below)?;
    let (name, folders) = parts.split_last().ok_or_else(refused)?;
    let file = step_by_step(root, folders, name)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

#[cfg(unix)]
fn step_by_step(root: &Path, folders: &[&OsStr], name: &OsStr) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, openat};

    let handle = directory(root, folders)?;
    let file = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(&handle, name, file, Mode::empty())?.into())
}

#[cfg(unix)]
fn directory(root: &Path, folders: &[&OsStr]) -> io::Result<rustix::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags, open, openat};

    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut handle = open(root, folder, Mode::empty())?;
    for part in folders {
        handle = openat(&handle, *part, folder | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(handle)
}

#[cfg(unix)]
fn names_of(root: &Path, folders: &[&OsStr]) -> io::Result<Vec<OsString>> {
    use std::os::unix::ffi::OsStrExt;

    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(directory(root, folders)?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Here a link can only be noticed: before, because opening a pipe may wait, and afterwards.
#[cfg(not(unix))]
fn step_by_step(root: &Path, folders: &[&OsStr], name: &OsStr) -> io::Result<File> {
    let path = without_links(root, folders.iter().chain([&name]))?;
    let file = File::open(&path)?;
    if path.canonicalize()?.starts_with(root.canonicalize()?) { Ok(file) } else { Err(refused()) }
}

#[cfg(not(unix))]
fn names_of(root: &Path, folders: &[&OsStr]) -> io::Result<Vec<OsString>> {
    std::fs::read_dir(without_links(root, folders.iter())?)?.map(|entry| Ok(entry?.file_name())).collect()
}

#[cfg(not(unix))]
fn without_links<'a>(
    root: &Path,
    parts: impl Iterator<Item = &'a &'a OsStr>,
) -> io::Result<std::path::PathBuf> {
    let mut path = root.to_path_buf();
    for part in parts {
        path.push(part);
        if std::fs::symlink_metadata(&path)?.is_symlink() {
            return Err(refused());
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_below_are_opened_and_nothing_else() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("seed-1")).unwrap();
        fs::write(root.join("seed-1/episodes.csv"), "x").unwrap();
        fs::write(outer.path().join("secret"), "x").unwrap();
        assert!(open(&root, Path::new("seed-1/episodes.csv")).is_ok());
        for below in ["../secret", "seed-1/../../secret", "", ".", "seed-1", "/etc/passwd", "seed-1/none"] {
            assert!(open(&root, Path::new(below)).is_err(), "{below:?}");
        }
        assert_eq!(names(&root, Path::new("")).unwrap(), ["seed-1"]);
        assert_eq!(names(&root, Path::new("seed-1")).unwrap(), ["episodes.csv"]);
        for below in ["..", "seed-1/..", "/", "none", "seed-1/episodes.csv"] {
            assert!(names(&root, Path::new(below)).is_err(), "{below:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_followed_however_often_it_takes_the_place_of_a_file() {
        use std::io::Read;
        use std::os::unix::fs::symlink;
        use std::sync::atomic::{AtomicBool, Ordering};

        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        let outside = outer.path().join("outside");
        for folder in [&root, &outside] {
            fs::create_dir_all(folder.join("seed-1")).unwrap();
        }
        fs::write(outside.join("seed-1/rows.csv"), "secret").unwrap();
        // Two threads: one swaps the folder and the file for links and back, one reads.
        let stop = AtomicBool::new(false);
        let (folder, file) = (root.join("seed-1"), root.join("seed-1/rows.csv"));
        let swap = || {
            let aside = root.join("aside");
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::write(&file, "fine");
                let _ = fs::remove_file(&file);
                let _ = symlink(outside.join("seed-1/rows.csv"), &file);
                let _ = fs::remove_file(&file);
                let _ = fs::rename(&folder, &aside);
                let _ = symlink(outside.join("seed-1"), &folder);
                let _ = fs::remove_file(&folder);
                let _ = fs::rename(&aside, &folder);
            }
        };
        let (mut seen, mut linked) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(swap);
            while seen < 200 || linked < 200 {
                if fs::read_to_string(&file).is_ok_and(|text| text == "secret") {
                    linked += 1;
                }
                let mut text = String::new();
                if open(&root, Path::new("seed-1/rows.csv"))
                    .is_ok_and(|mut file| file.read_to_string(&mut text).is_ok())
                {
                    seen += 1;
                }
                assert_ne!(text, "secret");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_directory_is_not_listed() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(outer.path().join("outside/000001")).unwrap();
        fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink(outer.path().join("outside"), root.join("link")).unwrap();
        assert!(names(&root, Path::new("link")).is_err());
        assert!(names(&root, Path::new("link/000001")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn pipes_are_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(directory.path().join("pipe")).status();
        if made.is_ok_and(|made| made.success()) {
            assert!(open(directory.path(), Path::new("pipe")).is_err());
        }
    }
}
