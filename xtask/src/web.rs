//! The live page in a real Chromium, driven from Node.
//!
//! Chromium comes from the system (Debian's package, installed here if we may), the driver and the accessibility rules from
//! npm by a lock file. Both are for these tests only: the page itself has no build step and needs neither.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{cargo, root, run, target};

/// Names under which a Chromium may be installed.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// Seconds that each step of the installation may take.
const PATIENCE: &str = "300";
const FILES: [&str; 3] = ["package.json", "package-lock.json", "test.mjs"];

/// Runs the tests. With `optional`, a machine without Chromium or Node is no failure.
pub fn test(optional: bool) -> Result<(), String> {
    let prepared = browser().and_then(|browser| Ok((browser, driver()?)));
    let (browser, folder) = match prepared {
        Ok(prepared) => prepared,
        Err(reason) if optional => {
            println!("\ntest-web: skipped, {reason}");
            return Ok(());
        }
        Err(reason) => return Err(reason),
    };
    cargo(&["build", "--locked", "--package", "bqrl-cli"])?;
    let binary = target()?.join("debug").join(format!("bqrl{}", std::env::consts::EXE_SUFFIX));
    println!("\n$ node test.mjs");
    run(Command::new("node").arg("test.mjs").args([&binary, &browser]).current_dir(folder))
}

/// The path of a Chromium; installs Debian's if there is none and we are allowed to.
fn browser() -> Result<PathBuf, String> {
    let find = || {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
        BROWSERS
            .iter()
            .find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
    };
    if let Some(found) = find() {
        return Ok(found);
    }
    let missing = "there is no Chromium (on Debian: apt-get install chromium)";
    if !is_root() {
        return Err(missing.to_owned());
    }
    // A fresh machine or container has no list of packages, and an old list names versions that are gone.
    let update = ["update", "--quiet"].as_slice();
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", "chromium"].as_slice();
    for parameters in [update, install] {
        println!("\n$ apt-get {}", parameters.join(" "));
        let mut apt = Command::new("timeout");
        apt.args([PATIENCE, "apt-get"]).args(parameters);
        apt.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        run(&mut apt).map_err(|error| format!("{missing}: {error}"))?;
    }
    find().ok_or_else(|| missing.to_owned())
}

fn is_root() -> bool {
    let user = Command::new("id").arg("-u").output();
    user.is_ok_and(|user| user.stdout.trim_ascii() == b"0")
}

/// A folder with the tests and what they use.
fn driver() -> Result<PathBuf, String> {
    let folder = target()?.join("web-test");
    std::fs::create_dir_all(&folder).map_err(|error| format!("creating {}: {error}", folder.display()))?;
    let from = root().join("xtask/web");
    let lock = Path::new("package-lock.json");
    let same = std::fs::read(from.join(lock)).ok() == std::fs::read(folder.join(lock)).ok();
    for name in FILES {
        let copied = std::fs::copy(from.join(name), folder.join(name));
        copied.map_err(|error| format!("copying {name}: {error}"))?;
    }
    if !same || !folder.join("node_modules/playwright-core").is_dir() {
        println!("\n$ npm ci");
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
        run(&mut npm)
            .map_err(|error| format!("the driver of the browser could not be installed: {error}"))?;
    }
    Ok(folder)
}
