//! A small file system in memory, to be filled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs. It is unmounted with this value.
pub struct Disk {
    place: PathBuf,
}

/// How much a disk takes.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub bytes: u64,
    pub files: u64,
}

impl Disk {
    /// An error says why mounting is not possible.
    pub fn mount(place: &Path, size: Size) -> Result<Self, String> {
        fs::create_dir_all(place).map_err(|error| format!("creating {}: {error}", place.display()))?;
        command("mount", &["-t", "tmpfs", "-o", &options(size), "bqrl-survive"], place)?;
        Ok(Self { place: place.to_path_buf() })
    }

    pub fn resize(&self, size: Size) -> Result<(), String> {
        command("mount", &["-o", &format!("remount,{}", options(size))], &self.place)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = command("umount", &[], &self.place) {
            eprintln!("{error}");
        }
    }
}

fn options(Size { bytes, files }: Size) -> String {
    format!("size={bytes},nr_inodes={files}")
}

fn command(name: &str, arguments: &[&str], place: &Path) -> Result<(), String> {
    let output = Command::new(name)
        .args(arguments)
        .arg(place)
        .output()
        .map_err(|error| format!("starting {name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
