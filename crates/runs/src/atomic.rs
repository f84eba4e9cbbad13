//! Writes a file completely or not at all.
//!
//! ```text
//! temporary file beside the target → contents → flush → fsync → rename over the target → fsync the directory
//! ```
//!
//! Renaming within one directory is atomic, so a reader sees the old file or the new one.
//! When any step before the rename fails, the temporary file is removed and the old file is untouched;
//! only a kill or a power cut can leave a `.bqrl-*.tmp` behind, which may be deleted.
//!
//! The target behaves as it would under [`std::fs::File::create`]: a new file gets the permissions that the umask allows,
//! an existing one keeps its own, a symbolic link is followed, and a file that is write-protected is refused.
//! Something that is not a regular file (`/dev/stdout`, a pipe) cannot be replaced, so it is written directly.

#[cfg(unix)]
use std::fs::File;
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::naming;

const PREFIX: &str = ".bqrl-";
const SUFFIX: &str = ".tmp";

/// Writes `contents` to `path`, replacing an existing file.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_with(path, |out| out.write_all(contents))
}

/// Writes to `path` the output of `fill`, which gets a buffered writer. An error of `fill` cancels the whole write.
///
/// The error names the path and keeps the kind of its cause.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let written = match destination(path) {
        Ok(Destination::Stream) => stream(path, fill),
        Ok(Destination::File(file)) => replace(&file, fill),
        Err(error) => Err(error),
    };
    written.map_err(naming("writing", path))
}

/// A temporary path in `directory`. [`sweep`] removes everything with such a name.
pub(crate) fn temporary(directory: &Path, stem: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{stem}{SUFFIX}"))
}

/// Removes unfinished files that a kill left in `directory`. Only the one process that writes there may call this.
pub(crate) fn sweep(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory).map_err(naming("reading", directory))? {
        let path = entry.map_err(naming("reading", directory))?.path();
        if is_temporary(&path) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Whether a path has the name of a temporary file.
pub(crate) fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Removes a file, a link or a directory with its contents. A missing path is not an error.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(naming("removing", path)(error)),
        _ => Ok(()),
    }
}

/// Makes a directory, unless it exists, and its name in the parent durable.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    let created = match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_directory(directory_of(path)),
    };
    created.map_err(naming("creating", path))
}

/// Makes the names in a directory durable: those created, renamed or removed there.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return sync_handle(&File::open(directory)?);
    #[cfg(not(unix))]
    return fs::metadata(directory).map(|_| ());
}

#[cfg(unix)]
fn sync_handle(directory: &File) -> io::Result<()> {
    match directory.sync_all() {
        // Some network file systems cannot sync a directory; the file itself is safe by now.
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(()),
    }
}

enum Destination {
    /// A regular file, or one yet to be created, with the symbolic links in front of it resolved.
    File(PathBuf),
    /// Anything else: a device, a pipe, an open descriptor.
    Stream,
}

fn destination(path: &Path) -> io::Result<Destination> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Ok(Destination::Stream),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Not with `canonicalize`, which fails for dangling links. `metadata` above has refused cycles.
    let mut file = path.to_path_buf();
    loop {
        // An open descriptor stays a stream even if it points to a regular file: after `>> log`, replacing the log
        // would lose its contents.
        if file.starts_with("/proc") || file.starts_with("/dev/fd") {
            return Ok(Destination::Stream);
        }
        match fs::read_link(&file) {
            Ok(target) => file = directory_of(&file).join(target),
            Err(_) => return Ok(Destination::File(file)),
        }
    }
}

pub(crate) fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn stream(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // Appending has no effect on a pipe or a device, and keeps the contents of the file behind a redirected descriptor.
    let mut out = BufWriter::new(OpenOptions::new().append(true).open(path)?);
    fill(&mut out)?;
    out.flush()
}

fn replace(file: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let directory = directory_of(file);
    // Opened first, so that a missing directory is reported before anything changes.
    #[cfg(unix)]
    let directory_handle = File::open(directory)?;

    // Renaming needs only write permission for the directory; a write-protected file must stay protected.
    let permissions = match OpenOptions::new().append(true).open(file) {
        Ok(existing) => Some(existing.metadata()?.permissions()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };

    // tempfile's own files are 0600; one opened by std has the permissions of any other new file.
    let mut temporary = tempfile::Builder::new()
        .prefix(PREFIX)
        .suffix(SUFFIX)
        .make_in(directory, |name| OpenOptions::new().write(true).create_new(true).open(name))?;
    let mut out = BufWriter::new(temporary.as_file_mut());
    fill(&mut out)?;
    out.flush()?;
    drop(out);
    if let Some(permissions) = permissions {
        temporary.as_file().set_permissions(permissions)?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(file).map_err(|refused| refused.error)?;

    #[cfg(unix)]
    sync_handle(&directory_handle)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn a_write_creates_then_replaces_and_leaves_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("law.csv");
        write(&path, b"a longer first version").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(directory.path()), ["law.csv"]);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_litter() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("law.csv");
        write(&path, b"old").unwrap();
        let error = write_with(&path, |out| {
            // More than the buffer holds, so that part of it reaches the temporary file.
            out.write_all(&vec![b'x'; 100_000])?;
            Err(io::Error::new(io::ErrorKind::InvalidData, "law sums to 0.9"))
        })
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(error.to_string(), format!("writing {}: law sums to 0.9", path.display()));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["law.csv"]);
    }

    #[test]
    fn a_panic_while_writing_leaves_no_litter() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("law.csv");
        let outcome = std::panic::catch_unwind(|| write_with(&path, |_| panic!("on purpose")));
        assert!(outcome.is_err());
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_missing_directory_is_named_and_not_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing/law.csv");
        let error = write(&path, b"new").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with(&format!("writing {}: ", path.display())), "{error}");
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_sweep_removes_the_unfinished_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["law.csv", ".bqrl-lock", "notes.tmp", ".bqrl-x1.tmp"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        fs::create_dir_all(temporary(directory.path(), "000007").join("deep")).unwrap();
        sweep(directory.path()).unwrap();
        assert_eq!(names(directory.path()), [".bqrl-lock", "law.csv", "notes.tmp"]);
    }

    #[test]
    fn a_directory_as_target_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let error = write(directory.path(), b"new").unwrap_err();
        assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    }

    #[cfg(unix)]
    mod unix {
        use std::os::unix::fs::{PermissionsExt, symlink};

        use super::*;

        fn mode(path: &Path) -> u32 {
            fs::metadata(path).unwrap().permissions().mode()
        }

        #[test]
        fn a_new_file_has_the_permissions_of_any_new_file() {
            let directory = tempfile::tempdir().unwrap();
            let (ours, plain) = (directory.path().join("ours"), directory.path().join("plain"));
            write(&ours, b"").unwrap();
            File::create(&plain).unwrap();
            assert_eq!(mode(&ours), mode(&plain));
        }

        #[test]
        fn a_replaced_file_keeps_its_permissions() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("private");
            write(&path, b"old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            write(&path, b"new").unwrap();
            assert_eq!(mode(&path) & 0o777, 0o600);
        }

        #[test]
        fn a_write_protected_file_is_refused_where_create_would_refuse_it() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("protected");
            write(&path, b"old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
            // Permission bits do not bind root, so the expectation is what std itself meets.
            let binding = OpenOptions::new().write(true).open(&path).is_err();
            assert_eq!(write(&path, b"new").is_err(), binding);
            assert_eq!(fs::read(&path).unwrap(), if binding { b"old" } else { b"new" });
        }

        #[test]
        fn a_read_only_directory_is_refused_where_create_would_refuse_it() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("law.csv");
            write(&path, b"old").unwrap();
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
            let binding = File::create(directory.path().join("probe")).is_err();
            let written = write(&path, b"new");
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(written.is_err(), binding);
            if let Err(error) = written {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                assert!(error.to_string().contains("law.csv"), "{error}");
                assert_eq!(fs::read(&path).unwrap(), b"old");
                assert_eq!(names(directory.path()), ["law.csv"]);
            }
        }

        #[test]
        fn a_symbolic_link_is_followed_and_stays_a_link() {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir(directory.path().join("store")).unwrap();
            let link = directory.path().join("latest");
            symlink("store/run-1", &link).unwrap();
            // The first write finds the link dangling, the second finds its file.
            for contents in ["first", "second"] {
                write(&link, contents.as_bytes()).unwrap();
                assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
                assert_eq!(fs::read_to_string(directory.path().join("store/run-1")).unwrap(), contents);
            }
            assert_eq!(names(&directory.path().join("store")), ["run-1"]);
        }

        #[test]
        fn a_cycle_of_links_is_an_error() {
            let directory = tempfile::tempdir().unwrap();
            let (a, b) = (directory.path().join("a"), directory.path().join("b"));
            symlink(&a, &b).unwrap();
            symlink(&b, &a).unwrap();
            assert!(write(&a, b"new").is_err());
        }
    }

    #[cfg(target_os = "linux")]
    mod linux {
        use std::os::fd::AsRawFd;

        use super::*;

        #[test]
        fn a_full_disk_is_an_error_that_names_the_path() {
            let error = write(Path::new("/dev/full"), b"new").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert!(error.to_string().starts_with("writing /dev/full: "), "{error}");
            assert!(!fs::metadata("/dev/full").unwrap().is_file(), "the device must survive");
        }

        #[test]
        fn a_directory_nobody_may_write_to_is_an_error() {
            // Binds root too.
            assert!(write(Path::new("/proc/self/law.csv"), b"new").is_err());
        }

        #[test]
        fn an_open_descriptor_is_appended_to() {
            // What `/dev/stdout` is after `>> log`.
            let directory = tempfile::tempdir().unwrap();
            let log = directory.path().join("log");
            fs::write(&log, "before, ").unwrap();
            let open = OpenOptions::new().append(true).open(&log).unwrap();
            let link = directory.path().join("out");
            std::os::unix::fs::symlink(format!("/proc/self/fd/{}", open.as_raw_fd()), &link).unwrap();
            write(&link, b"after").unwrap();
            assert_eq!(fs::read_to_string(&log).unwrap(), "before, after");
        }
    }
}
