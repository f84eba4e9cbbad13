//! Append-only logs that a resumed run continues byte for byte.
//!
//! A checkpoint records the [`position`](AppendLog::position) of each log after a [`sync`](AppendLog::sync), and a checksum
//! of everything before it.
//! A run that was killed later has written some more, perhaps half a line:
//!
//! ```text
//! file         episode,episode_return,length⏎ 1,0.75,3⏎ | 2,0.5,1⏎ 3,0.
//! checkpoint                                           ^ position
//! ```
//!
//! [`resume`](AppendLog::resume) cuts the file there, and the run writes the rest again. A file in which something before the
//! position was changed is refused.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomic::{directory_of, sync_directory};
use crate::naming;

/// A position in a log.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Position {
    /// Bytes before it.
    pub length: u64,
    /// Their checksum.
    pub crc32c: u32,
}

/// A text file that grows line by line.
///
/// Lines are buffered: they reach the file with [`flush`](Self::flush), or when the buffer is full.
/// Dropping the log flushes too, but cannot report an error.
/// After an error the end of the file is unknown, and the log can only be resumed.
#[derive(Debug)]
pub struct AppendLog {
    path: PathBuf,
    out: BufWriter<File>,
    position: Position,
}

impl AppendLog {
    /// Starts a log with a header line, which is written immediately.
    ///
    /// An existing file is replaced: a run that was killed before its first checkpoint starts over.
    pub fn create(path: &Path, header: &str) -> io::Result<Self> {
        let mut log = Self::create_empty(path)?;
        log.append(header)?;
        log.flush()?;
        Ok(log)
    }

    pub(crate) fn create_empty(path: &Path) -> io::Result<Self> {
        let file = File::create(path).map_err(naming("creating", path))?;
        sync_directory(directory_of(path)).map_err(naming("creating", path))?;
        Ok(Self { path: path.to_path_buf(), out: BufWriter::new(file), position: Position::default() })
    }

    /// Continues a log at the position that a checkpoint recorded; the rest of the file is cut off.
    ///
    /// A file that is shorter, or in which something before the position was changed, does not belong to the checkpoint: this
    /// is [`io::ErrorKind::InvalidData`], and the file is not changed.
    pub fn resume(path: &Path, position: Position) -> io::Result<Self> {
        let file = open_at(path, position).map_err(naming("resuming", path))?;
        Ok(Self { path: path.to_path_buf(), out: BufWriter::new(file), position })
    }

    /// Adds a line, without its line break.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        assert!(!line.contains('\n'), "one line at a time, got {line:?}");
        self.append_bytes(line.as_bytes())?;
        self.append_bytes(b"\n")
    }

    pub(crate) fn append_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes).map_err(naming("writing", &self.path))?;
        self.position.length += bytes.len() as u64;
        self.position.crc32c = crc32c::crc32c_append(self.position.crc32c, bytes);
        Ok(())
    }

    /// Passes the buffer to the operating system: readers see it, and a kill no longer loses it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(naming("writing", &self.path))
    }

    /// Flushes and waits for the disk: a power cut no longer loses the lines. Call it before a checkpoint records the position.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.get_ref().sync_data().map_err(naming("writing", &self.path))
    }

    /// The end of the log, including lines that are still buffered.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open_at(path: &Path, position: Position) -> io::Result<File> {
    let damaged = |message| Err(io::Error::new(io::ErrorKind::InvalidData, message));
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    if length < position.length {
        return damaged(format!("the file has {length} bytes, the checkpoint knows of {}", position.length));
    }
    if checksum(&file, position.length)? != position.crc32c {
        return damaged(format!("its first {} bytes were changed after they were written", position.length));
    }
    file.set_len(position.length)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// crc32c of the first bytes of a file.
fn checksum(file: &File, length: u64) -> io::Result<u32> {
    let mut bytes = BufReader::new(file.take(length));
    let mut crc32c = 0;
    loop {
        let chunk = bytes.fill_buf()?;
        if chunk.is_empty() {
            return Ok(crc32c);
        }
        crc32c = crc32c::crc32c_append(crc32c, chunk);
        let read = chunk.len();
        bytes.consume(read);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_resumed_log_is_byte_identical_to_one_never_interrupted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("episodes.csv");
        let mut log = AppendLog::create(&path, "episode,length").unwrap();
        log.append("1,3").unwrap();
        log.sync().unwrap();
        // "episode,length⏎" has 15 bytes, "1,3⏎" has 4.
        let position = log.position();
        assert_eq!(position.length, 19);
        log.append("2,5").unwrap();
        log.flush().unwrap();
        drop(log);
        // The kill came in the middle of a line.
        let mut torn = fs::read(&path).unwrap();
        torn.extend(b"3,");
        fs::write(&path, torn).unwrap();

        let mut log = AppendLog::resume(&path, position).unwrap();
        assert_eq!(log.position(), position);
        for line in ["2,5", "3,1"] {
            log.append(line).unwrap();
        }
        log.sync().unwrap();
        assert_eq!(log.position().length, 27);
        assert_eq!(fs::read_to_string(&path).unwrap(), "episode,length\n1,3\n2,5\n3,1\n");
    }

    #[test]
    fn the_header_is_in_the_file_at_once_and_a_new_log_replaces_the_old() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("episodes.csv");
        fs::write(&path, "something longer that was here before").unwrap();
        let _log = AppendLog::create(&path, "episode").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "episode\n");
    }

    #[test]
    fn a_file_shorter_than_the_position_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("episodes.csv");
        fs::write(&path, "episode\n").unwrap();
        let error = AppendLog::resume(&path, Position { length: 9, crc32c: 0 }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(
            error.to_string(),
            format!("resuming {}: the file has 8 bytes, the checkpoint knows of 9", path.display())
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "episode\n");
    }

    #[test]
    fn a_file_with_a_changed_row_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("episodes.csv");
        let mut log = AppendLog::create(&path, "episode,length").unwrap();
        // Longer than one buffer of the reader.
        (0..20_000).try_for_each(|episode| log.append(&format!("{episode},3"))).unwrap();
        log.sync().unwrap();
        let position = log.position();
        drop(log);
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replace("\n19000,3\n", "\n19000,4\n");
        assert_ne!(changed, text);
        fs::write(&path, &changed).unwrap();
        let error = AppendLog::resume(&path, position).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("episodes.csv: its first"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), changed);
        fs::write(&path, &text).unwrap();
        AppendLog::resume(&path, position).unwrap();
    }

    #[test]
    fn a_missing_log_is_named_and_not_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("episodes.csv");
        let error = AppendLog::resume(&path, Position::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("episodes.csv"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    #[should_panic(expected = "one line at a time")]
    fn two_lines_at_once_are_a_mistake() {
        let directory = tempfile::tempdir().unwrap();
        let _ = AppendLog::create(&directory.path().join("log"), "a\nb");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_names_the_log() {
        let mut log = AppendLog::create_empty(Path::new("/dev/full")).unwrap();
        log.append("1,3").unwrap();
        let error = log.flush().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("writing /dev/full: "), "{error}");
    }
}
