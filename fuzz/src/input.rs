//! An input: named files, and how they lie in one file.
//!
//! ```text
//! === NAME LENGTH
//! …LENGTH bytes…
//! === NAME LENGTH
//! ```
//!
//! A target that reads a single file takes its bytes as they are.

use std::io::Write as _;

/// The mark in front of every file.
const MARK: &[u8] = b"=== ";

/// Named files, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// Names and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Input {
    /// A single file.
    pub fn one(name: &str, bytes: &[u8]) -> Self {
        Self { files: vec![(name.to_owned(), bytes.to_vec())] }
    }

    /// The contents of a file.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|(other, _)| other == name).map(|(_, bytes)| &bytes[..])
    }

    /// The contents of a file as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    /// All files in one.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, bytes) in &self.files {
            writeln!(out, "=== {name} {}", bytes.len()).expect("a vector takes everything");
            out.extend(bytes);
            out.push(b'\n');
        }
        out
    }

    /// Reads as much as makes sense: a damaged file of files is an input like any other.
    pub fn from_bytes(mut bytes: &[u8]) -> Self {
        let mut files = Vec::new();
        while let Some(rest) = bytes.strip_prefix(MARK) {
            let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { break };
            let header = String::from_utf8_lossy(&rest[..end]);
            let (name, length) = header.rsplit_once(' ').unwrap_or((&header, ""));
            let body = &rest[end + 1..];
            let length = length.parse().unwrap_or(body.len()).min(body.len());
            files.push((name.to_owned(), body[..length].to_vec()));
            bytes = body[length..].strip_prefix(b"\n").unwrap_or(&body[length..]);
        }
        Self { files }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_as_they_were_and_damage_is_read_as_far_as_it_goes() {
        let input =
            Input { files: vec![("a/b.json".into(), b"{}\n=== x 1\n".to_vec()), ("c".into(), vec![])] };
        let bytes = input.to_bytes();
        assert_eq!(Input::from_bytes(&bytes), input);
        assert_eq!(Input::from_bytes(&bytes[..19]).files, [("a/b.json".to_owned(), b"{}\n".to_vec())]);
        assert_eq!(Input::from_bytes(b"nothing"), Input::default());
    }
}
