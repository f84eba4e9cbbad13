//! Reading files that may not be what they should be.
//!
//! A directory that someone else prepared may have a pipe in the place of a file, which would block the reader, or a device
//! that never ends. A file may be larger than memory. Links are followed: a directory may be made of links to a store.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::{beneath, naming};

/// The contents of a regular file of at most `most` bytes. Anything else is refused without being read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    contents(path, most).map_err(naming("reading", path))
}

/// The same as text.
pub fn read_to_string(path: &Path, most: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not text");
    contents(path, most)
        .and_then(|bytes| String::from_utf8(bytes).map_err(not_text))
        .map_err(naming("reading", path))
}

/// As [`read`], with an error that does not name the path.
pub(crate) fn contents(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    contents_from(open(path)?, 0, most)
}

/// A regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Before opening, because opening a pipe waits for a writer; and after, because another file may have taken its place.
    check(&fs::metadata(path)?, u64::MAX)?;
    let file = File::open(path)?;
    check(&file.metadata()?, u64::MAX)?;
    Ok(file)
}

/// The same. With `below`, the file must lie below that directory, and no link is followed on the way from there.
pub(crate) fn open_below(path: &Path, below: Option<&Path>) -> io::Result<File> {
    let Some(root) = below else { return open(path) };
    let rest = path.strip_prefix(root).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
    beneath::open(root, rest)
}

/// As [`read`], from below a directory if there is one.
pub(crate) fn read_below(path: &Path, below: Option<&Path>, most: u64) -> io::Result<Vec<u8>> {
    open_below(path, below).and_then(|file| contents_from(file, 0, most)).map_err(naming("reading", path))
}

/// The contents from a place on, of a file of at most `most` bytes.
pub(crate) fn contents_from(mut file: File, from: u64, most: u64) -> io::Result<Vec<u8>> {
    check(&file.metadata()?, most)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check(metadata: &Metadata, most: u64) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    if metadata.len() > most {
        let message = format!("it has {} bytes, at most {most} are read", metadata.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_file_is_read_and_a_longer_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        assert_eq!(read_to_string(&path, 9).unwrap(), "four");
        let error = read(&path, 3).unwrap_err();
        assert!(error.to_string().ends_with("file: it has 4 bytes, at most 3 are read"), "{error}");
        // Two terabytes that take no space.
        File::options().write(true).open(&path).unwrap().set_len(1 << 41).unwrap();
        assert_eq!(read(&path, 1 << 40).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_to_string(&path, 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&directory.path().join("none"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(directory.path(), 9).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_and_links_to_them_are_refused_and_links_to_files_followed() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let (link, file) = (directory.path().join("link"), directory.path().join("file"));
        assert_eq!(read(Path::new("/dev/zero"), 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
        symlink("/dev/zero", &link).unwrap();
        assert_eq!(read(&link, 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_file(&link).unwrap();
        fs::write(&file, "four").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 9).unwrap(), b"four");
    }
}
