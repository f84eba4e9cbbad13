//! The targets: a reader each, and some use of what it accepts.

mod agents;
mod canary;
mod checkpoint;
mod config;
mod mdp;
mod networks;
mod replay;
mod run;
mod scratch;

use std::path::{Path, PathBuf};
use std::{fs, io};

pub use self::agents::restore;
pub(crate) use self::agents::{Setting, saved};
pub(crate) use self::replay::{KINDS, played};

use crate::Input;

/// A reader under attack.
pub struct Target {
    /// Its name, and that of its folder of seeds.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// The name of the file that it reads; none if an input is several files.
    pub file: Option<&'static str>,
    /// Reads an input; true if it was accepted. A panic is a failure.
    pub run: fn(&Input) -> bool,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "mdp",
        about: "the CSV reader of MDP files; small tables are planned",
        file: Some("table.csv"),
        run: mdp::run,
    },
    Target {
        name: "config",
        about: "config.toml: alone, and on top of a preset with overrides",
        file: Some("config.toml"),
        run: config::config,
    },
    Target { name: "sweep", about: "sweep files", file: Some("sweep.toml"), run: config::sweep },
    Target {
        name: "checkpoint",
        about: "a directory of checkpoints, which is also a saved model: manifests, parts, sealed parts",
        file: None,
        run: checkpoint::run,
    },
    Target {
        name: "agents",
        about: "forged checkpoints with valid checksums, of every algorithm; training goes on from them",
        file: None,
        run: agents::run,
    },
    Target {
        name: "replay",
        about: "saved replays of every kind of observation; transitions are stored and drawn",
        file: None,
        run: replay::run,
    },
    Target {
        name: "networks",
        about: "safetensors files of networks; they predict and learn",
        file: Some("networks.safetensors"),
        run: networks::run,
    },
    Target {
        name: "run",
        about: "a run directory, finished or not, turned into a report page",
        file: None,
        run: run::run,
    },
    Target {
        name: "policy",
        about: "policy.csv of a good run, turned into a report page",
        file: Some("policy.csv"),
        run: run::policy,
    },
];

/// Not one of them: it fails on purpose, so that the engine can be tested.
pub const CANARY: Target =
    Target { name: "canary", about: "fails as told", file: Some("canary.txt"), run: canary::run };

impl Target {
    /// The files of an input.
    pub fn decode(&self, bytes: &[u8]) -> Input {
        self.file.map_or_else(|| Input::from_bytes(bytes), |name| Input::one(name, bytes))
    }

    /// The bytes of an input.
    pub fn encode(&self, input: &Input) -> Vec<u8> {
        match (self.file, &input.files[..]) {
            (Some(_), [(_, bytes)]) => bytes.clone(),
            _ => input.to_bytes(),
        }
    }

    /// The folder of its seeds.
    pub fn folder(&self) -> PathBuf {
        let folder = if self.name == CANARY.name { "tests" } else { "seeds" };
        Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(self.name)
    }

    /// Its seeds, in the order of their names.
    pub fn seeds(&self) -> io::Result<Vec<Input>> {
        let folder = self.folder();
        let mut paths = Vec::new();
        for entry in fs::read_dir(&folder)? {
            paths.push(entry?.path());
        }
        paths.sort();
        let seeds: Vec<Input> =
            paths.iter().map(|path| Ok(self.decode(&fs::read(path)?))).collect::<io::Result<_>>()?;
        match seeds.len() {
            0 => Err(io::Error::other(format!("no seeds in {}", folder.display()))),
            _ => Ok(seeds),
        }
    }
}
