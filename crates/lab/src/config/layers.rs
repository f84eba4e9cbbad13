//! Layers of a configuration: a preset, a file, flags, overrides.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bqrl_games::list as games;
use bqrl_mdp::env::ObservationSpace;
use bqrl_runs::regular;
use bqrl_runs::run_dir::RunDir;
use toml::{Table, Value};

use super::{Algo, Config, ConfigError, ProblemConfig};

/// Training episodes of the paper on a problem (§4.1, §4.2); on others as many as on asset selling.
pub fn paper_episodes(problem: &str) -> usize {
    if problem == "frozen-lake" { 5000 } else { 2000 }
}

/// How games are trained on: as long as published scores at the smallest budget, in lanes, because acting is then nearly free.
const GAME: &str = r#"
[run]
steps = 1000000
lanes = 16
evaluate_every = "100000 steps"
checkpoint_every = "100000 steps"
"#;

/// The largest file of settings. A device has no end, and must not fill the memory.
const LARGEST: u64 = 1 << 20;

/// The text of a file of settings.
pub fn read_settings(path: &Path) -> Result<String, ConfigError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
    let wrong = |message: String| ConfigError::Disk(format!("reading {}: {message}", path.display()));
    match read {
        Err(error) => Err(wrong(error.to_string())),
        Ok(n) if n as u64 > LARGEST => {
            Err(wrong(format!("it has more than {LARGEST} bytes: this is not a file of settings")))
        }
        Ok(_) => Ok(text),
    }
}

/// The sections of a preset that replace keys of `[agent]` where observations are not indices. A later one is on top of those before.
const KINDS: [&str; 3] = ["vector", "planes", "frames"];
/// Planes at least so high and wide are frames of a video.
const FRAME: usize = 32;

/// The sections that are for these observations.
fn kinds(observations: &ObservationSpace) -> &'static [&'static str] {
    match (observations, observations.planes()) {
        (ObservationSpace::Discrete { .. }, _) => &[],
        (_, None) => &KINDS[..1],
        (_, Some([_, height, width])) if height < FRAME || width < FRAME => &KINDS[..2],
        (_, Some(_)) => &KINDS,
    }
}

/// Layers of a configuration, the later ones on top.
#[derive(Clone, Debug)]
pub struct Layers(Table);

impl Layers {
    /// The preset of an algorithm, for problems with finitely many states.
    pub fn preset(algo: &str) -> Result<Self, ConfigError> {
        let algo = Algo::named(algo)?;
        let mut preset = parse(algo.preset(), algo.name)?;
        for kind in KINDS {
            preset.remove(kind);
        }
        Ok(Self(preset))
    }

    /// The preset of an algorithm for a kind of observations.
    pub fn preset_for(algo: &str, observations: &ObservationSpace) -> Result<Self, ConfigError> {
        let mut layers = Self::preset(algo)?;
        let algo = Algo::named(algo)?;
        let mut preset = parse(algo.preset(), algo.name)?;
        for &kind in kinds(observations) {
            if let Some(keys) = preset.remove(kind) {
                layers.add(Table::from_iter([("agent".to_owned(), keys)]));
            }
        }
        Ok(layers)
    }

    /// The preset of an algorithm, for a problem and as long as the paper trains on it (§4.1, §4.2).
    pub fn of(algo: &str, problem: &str) -> Result<Self, ConfigError> {
        let game = games::build(problem, &[]).ok();
        let is_game = game.is_some();
        let mut layers = match game {
            Some(game) => Self::preset_for(algo, &game.spec().observations)?,
            None => Self::preset(algo)?,
        };
        layers.set("problem", "name", problem);
        if is_game {
            layers.add(parse(GAME, "a game")?);
        } else {
            layers.set("run", "episodes", paper_episodes(problem) as i64);
        }
        Ok(layers)
    }

    /// The keys and values of a section.
    pub fn section(&self, name: &str) -> Option<&Table> {
        self.0.get(name)?.as_table()
    }

    /// All sections.
    pub fn sections(&self) -> &Table {
        &self.0
    }

    /// A complete configuration from a file.
    pub fn written(text: &str, origin: &str) -> Result<Self, ConfigError> {
        Ok(Self(parse(text, origin)?))
    }

    /// The complete configuration of a run.
    pub fn of_run(dir: &RunDir) -> Result<Self, ConfigError> {
        let path = dir.config();
        let text = regular::read_to_string(&path, LARGEST);
        let text = text.map_err(|error| ConfigError::Disk(error.to_string()))?;
        Self::written(&text, &path.display().to_string())
    }

    /// A file on top.
    pub fn file(&mut self, text: &str, origin: &str) -> Result<(), ConfigError> {
        self.add(parse(text, origin)?);
        Ok(())
    }

    /// Other layers on top.
    pub fn add_layers(&mut self, above: Layers) {
        self.add(above.0);
    }

    /// Sections on top. A length in steps replaces one in episodes, and the other way round.
    pub fn add(&mut self, layer: Table) {
        let names =
            |key: &str| layer.get("run").and_then(Value::as_table).is_some_and(|run| run.contains_key(key));
        let replaced = match (names("episodes"), names("steps")) {
            (true, false) => Some("steps"),
            (false, true) => Some("episodes"),
            _ => None,
        };
        if let (Some(key), Some(run)) = (replaced, self.0.get_mut("run").and_then(Value::as_table_mut)) {
            run.remove(key);
        }
        merge(&mut self.0, layer);
    }

    /// One key on top.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        self.add(Table::from_iter([(
            section.to_owned(),
            Table::from_iter([(key.to_owned(), value.into())]).into(),
        )]));
    }

    /// The problem on top.
    pub fn set_problem(&mut self, problem: &ProblemConfig) {
        let table = Table::try_from(problem).expect("a table of plain values");
        merge(&mut self.0, Table::from_iter([("problem".to_owned(), table.into())]));
    }

    /// The value of `section.key`.
    pub fn value(&self, path: &str) -> Option<&Value> {
        let (section, key) = path.split_once('.')?;
        self.0.get(section)?.get(key)
    }

    /// A parameter of the problem on top.
    pub fn set_parameter(&mut self, name: &str, value: &str) {
        self.set("problem", "parameters", Table::from_iter([(name.to_owned(), value.into())]));
    }

    /// `section.key=value` on top; the value is TOML, or else text.
    pub fn override_with(&mut self, text: &str) -> Result<(), ConfigError> {
        let wrong = || ConfigError::Override { text: text.to_owned() };
        let (path, value) = text.split_once('=').ok_or_else(wrong)?;
        let (section, key) = path.trim().split_once('.').ok_or_else(wrong)?;
        let parsed: Result<Table, _> = format!("value = {value}").parse();
        let value = parsed.ok().and_then(|mut table| table.remove("value"));
        self.set(
            section,
            key,
            value.unwrap_or_else(|| Value::String(text.split_once('=').expect("found above").1.into())),
        );
        Ok(())
    }

    /// Refuses a setting that the algorithm's preset does not have. Settings are read in groups, which cannot detect this.
    fn check_agent_keys(&self, origin: &str) -> Result<(), ConfigError> {
        let Some(agent) = self.section("agent") else { return Ok(()) };
        let Some(kind) = agent.get("kind").and_then(Value::as_str) else { return Ok(()) };
        let preset = Self::preset(kind)?;
        let known = preset.section("agent").expect("a preset has an agent");
        match agent.keys().find(|key| !known.contains_key(*key)) {
            None => Ok(()),
            Some(key) => {
                let names: Vec<&str> = known.keys().map(String::as_str).collect();
                let message = format!("{kind} has no setting {key:?}; its settings are {}", names.join(", "));
                Err(ConfigError::Toml { origin: origin.to_owned(), message })
            }
        }
    }

    /// The key whose value cannot be read: the one that the preset's value mends. The reader of TOML does not tell it where
    /// settings are read in groups.
    fn culprit(&self) -> Option<String> {
        let kind = self.section("agent")?.get("kind")?.as_str()?;
        let preset = Self::preset(kind).ok()?;
        for section in ["agent", "run"] {
            for (key, value) in preset.section(section)? {
                let mut mended = self.clone();
                if self.section(section)?.get(key).is_some_and(|own| own != value) {
                    mended.set(section, key, value.clone());
                    if mended.0.try_into::<Config>().is_ok() {
                        return Some(format!("{section}.{key}"));
                    }
                }
            }
        }
        None
    }

    /// Reads and checks the whole.
    pub fn finish(self, origin: &str) -> Result<Config, ConfigError> {
        self.check_agent_keys(origin)?;
        let config: Config = self.0.clone().try_into().map_err(|error: toml::de::Error| {
            let message = error.message().to_owned();
            let message = match self.culprit() {
                Some(key) => format!("{key}: {message}"),
                None => message,
            };
            ConfigError::Toml { origin: origin.to_owned(), message }
        })?;
        config.check()?;
        Ok(config)
    }
}

fn parse(text: &str, origin: &str) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| ConfigError::Toml {
        origin: origin.to_owned(),
        message: error.message().to_owned(),
    })
}

fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}
