//! Files of a run: whole, piece by piece, or a table with fewer rows.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Component, Path};

use hyper::body::Bytes;

use crate::shelf::Shelf;

/// Bytes of a piece.
const PIECE: usize = 64 << 10;
/// The longest line of a table that is thinned.
const LONGEST_LINE: u64 = 64 << 10;

/// Opens a regular file of a run. No part of its path may be a link or hidden, and none may lead up.
pub fn open(shelf: &Shelf, run: &str, below: &str) -> io::Result<File> {
    let below = Path::new(below);
    // The lock and other hidden files are nobody's business.
    let is_plain = |part: Component| match part {
        Component::Normal(name) => !name.to_string_lossy().starts_with('.'),
        _ => false,
    };
    if !below.components().all(is_plain) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such file"));
    }
    shelf.open_in_run(run, below)
}

/// The next piece of a file; empty at its end.
pub fn piece(file: &mut File) -> io::Result<Bytes> {
    let mut bytes = vec![0; PIECE];
    let n = file.read(&mut bytes)?;
    bytes.truncate(n);
    Ok(bytes.into())
}

/// A table with at most `most` rows, evenly spread, the last one included. The memory needed does not depend on the file.
///
/// Every row is kept at first. Whenever there are twice too many, every second one is dropped.
pub fn thinned(file: File, most: usize) -> io::Result<String> {
    let most = most.max(2);
    let mut reader = BufReader::with_capacity(PIECE, file);
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| -> io::Result<bool> {
        line.clear();
        reader.by_ref().take(LONGEST_LINE).read_until(b'\n', line)?;
        // A line without an end is being written, or is not a line of a table.
        Ok(line.last() == Some(&b'\n'))
    };
    if !next(&mut line)? {
        return Ok(String::new());
    }
    let header = line.clone();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let (mut stride, mut row) = (1_usize, 0_usize);
    let mut last = Vec::new();
    while next(&mut line)? {
        if row % stride == 0 {
            if kept.len() == 2 * most {
                let mut index = 0;
                kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                stride *= 2;
            }
            if row % stride == 0 {
                kept.push(line.clone());
            }
        }
        std::mem::swap(&mut last, &mut line);
        row += 1;
    }
    let stride = kept.len().div_ceil(most).max(1);
    let mut rows: Vec<&[u8]> = kept.iter().step_by(stride).map(Vec::as_slice).collect();
    if !last.is_empty() && rows.last().is_some_and(|end| *end != last) {
        if rows.len() == most {
            rows.pop();
        }
        rows.push(&last);
    }
    let bytes: Vec<u8> = header.into_iter().chain(rows.concat()).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn table(rows: usize) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table.csv");
        let rows = (1..=rows).fold(String::new(), |text, row| text + &format!("{row},0.5\n"));
        fs::write(&path, format!("row,value\n{rows}")).unwrap();
        (directory, path)
    }

    #[test]
    fn a_table_is_thinned_evenly_and_ends_where_it_ends() {
        for (rows, most) in [(0, 10), (1, 10), (10, 10), (11, 10), (1000, 10), (12345, 100)] {
            let (_directory, path) = table(rows);
            let thin = thinned(File::open(&path).unwrap(), most).unwrap();
            let numbers: Vec<usize> =
                thin.lines().skip(1).map(|line| line.split_once(',').unwrap().0.parse().unwrap()).collect();
            assert!(numbers.len() <= most, "{} of {most}", numbers.len());
            assert_eq!(
                (numbers.first(), numbers.last()),
                ((rows > 0).then_some(&1), (rows > 0).then_some(&rows),)
            );
            if rows > most {
                assert!(numbers.len() > most / 2, "{} of {most}", numbers.len());
                let steps: Vec<usize> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let evenly = steps[..steps.len() - 1].iter().all(|step| *step == steps[0]);
                assert!(evenly, "{steps:?}");
            }
        }
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let (_directory, path) = table(3);
        fs::write(&path, "row,value\n1,0.5\n2,0.").unwrap();
        assert_eq!(thinned(File::open(&path).unwrap(), 10).unwrap(), "row,value\n1,0.5\n");
    }

    #[test]
    fn nothing_above_the_directory_and_no_link_is_opened() {
        let (directory, path) = table(3);
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::create_dir(root.join("seed-1")).unwrap();
        fs::write(root.join("seed-1/episodes.csv"), "x").unwrap();
        fs::write(root.join(".hidden"), "x").unwrap();
        let shelf = Shelf::new(directory.path()).unwrap();
        let open = |path: &str| open(&shelf, "root", path);
        assert!(open("seed-1/episodes.csv").is_ok());
        for path in [
            "../table.csv",
            "seed-1/../../table.csv",
            "",
            ".",
            "seed-1",
            "/etc/passwd",
            ".hidden",
            "seed-1//",
        ] {
            assert!(open(path).is_err(), "{path}");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(&path, root.join("link.csv")).unwrap();
            symlink(directory.path(), root.join("up")).unwrap();
            assert!(open("link.csv").is_err());
            assert!(open("up/table.csv").is_err());
        }
    }
}
