//! Stores of checkpoints, compared and verified.
//!
//! The last checkpoint of a finished run must be that of the reference. The one before it may have another number: a run
//! that was asked to stop saves one where it stands. It must be whole. There
//! must be two, unless the reference saved only one, and of sealed parts those that the checkpoints name, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::compare::{crc32c, file, files, is_temporary};

/// The name of a store.
pub const STORE: &str = "checkpoints";

/// Takes the files of all stores out of a list, and returns the stores.
pub fn take(paths: &mut BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut stores = BTreeSet::new();
    paths.retain(|path| {
        let store = path.ancestors().find(|folder| folder.ends_with(STORE));
        stores.extend(store.map(Path::to_path_buf));
        store.is_none()
    });
    stores
}

/// Everything below a directory, which may change meanwhile.
pub fn walk(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}

/// The numbers of the checkpoints in a store, the latest first.
pub fn numbers(store: &Path) -> Vec<u64> {
    let entries = fs::read_dir(store).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u64> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers
}

/// The steps of the latest checkpoints of all runs below a directory: how far they are.
pub fn progress(directory: &Path) -> u64 {
    let stores = walk(directory).into_iter().filter(|path| path.ends_with(STORE));
    stores.filter_map(|store| numbers(&store).first().copied()).sum()
}

/// What is wrong with the checkpoints that can be seen below a directory: at any time, each of them is whole.
pub fn damages(directory: &Path) -> Vec<String> {
    let mut damages = Vec::new();
    for store in walk(directory).into_iter().filter(|path| path.ends_with(STORE)) {
        for number in numbers(&store) {
            damages.extend(verify(&store, number).err());
        }
    }
    damages
}

/// The differences between a store and that of the reference.
pub fn compare(reference: &Path, other: &Path, store: &Path) -> Result<Vec<String>, String> {
    let (expected, found) = (reference.join(store), other.join(store));
    let (wanted, there) = (numbers(&expected), numbers(&found));
    let mut differences = Vec::new();
    // A reference that saved only once has one; a run keeps two at most.
    if wanted.first() != there.first() || there.len() < wanted.len() || there.len() > 2 {
        differences.push(format!("{}: want checkpoints {wanted:?}, got {there:?}", store.display()));
    }
    let mut named = BTreeSet::new();
    for &number in &there {
        match verify(&found, number) {
            Ok(sealed) => named.extend(sealed.into_iter().map(|name| Path::new("sealed").join(name))),
            Err(error) => differences.push(error),
        }
    }
    let all = |store: &Path| if store.is_dir() { files(store) } else { Ok(BTreeSet::new()) };
    let (ours, theirs) = (all(&expected)?, all(&found)?);
    for path in &theirs {
        let shown = store.join(path);
        if is_temporary(path) {
            differences.push(format!("{}: a temporary file is left", shown.display()));
        } else if path.starts_with("sealed") && !named.contains(path) {
            differences.push(format!("{}: no checkpoint names it", shown.display()));
        } else if ours.contains(path) {
            let difference = file(&expected.join(path), &found.join(path), &shown.display().to_string());
            differences.extend(difference?);
        } else if wanted.iter().any(|&number| path.starts_with(folder(number))) {
            differences.push(format!("{}: only in the interrupted one", shown.display()));
        }
    }
    let last = wanted.first().map(|&number| folder(number)).unwrap_or_default();
    for path in ours.iter().filter(|path| path.starts_with(&last) && !theirs.contains(*path)) {
        differences.push(format!("{}: only in the reference", store.join(path).display()));
    }
    if let (Some(&number), Some(run)) = (there.first(), found.parent())
        && let Ok(state) = read_json(&found.join(folder(number)).join("state.json"))
    {
        let wrong = wrong_ends(&state["positions"], run);
        differences.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", store.display())));
    }
    Ok(differences)
}

/// The ends of the records in the last checkpoint must be those of the files, also where they cannot be compared with those
/// of the reference because they follow from times.
fn wrong_ends(positions: &Value, run: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let key = match &*name {
            "episodes.csv" => "episodes",
            "evaluations.csv" => "evaluations",
            "evaluations-distribution.csv" => "distribution",
            "monitor.csv" => "monitor",
            _ if name.starts_with("events.out") => "events",
            _ => continue,
        };
        let bytes = fs::read(entry.path()).unwrap_or_default();
        let said = &positions[key];
        let is_right =
            *said == bytes.len() || (said["length"] == bytes.len() && said["crc32c"] == crc32c(&bytes));
        if !is_right {
            wrong.push(format!("{name} has {} bytes, state.json says {said}", bytes.len()));
        }
    }
    wrong
}

/// `state.json` without times: when the run began and was trained, how long the Monitor file is, whose times have as many
/// digits as they need, and the checksum of the event file. [`wrong_ends`] tests the last two.
pub fn masked_state(text: &str) -> Result<String, String> {
    let mut state: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for place in [
        "/positions/monitor",
        "/positions/t_start",
        "/positions/t_last",
        "/positions/events/crc32c",
        "/sessions",
    ] {
        if let Some(value) = state.pointer_mut(place) {
            *value = "*".into();
        }
    }
    Ok(state.to_string())
}

fn folder(number: u64) -> String {
    format!("{number:06}")
}

fn read_json(path: &Path) -> Result<Value, String> {
    let bytes = fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Tests lengths and checksums of a checkpoint. Returns the names of its sealed files.
fn verify(store: &Path, number: u64) -> Result<Vec<String>, String> {
    let place = store.join(folder(number));
    let path = place.join("manifest.json");
    let envelope = read_json(&path)?;
    let wrong = |what: &str| Err(format!("{}: {what}", path.display()));
    let manifest = &envelope["manifest"];
    if manifest["number"] != number {
        return wrong("another number");
    }
    let (mut compact, mut sealed) = (Vec::new(), Vec::new());
    for part in manifest["parts"].as_array().into_iter().flatten() {
        let (Some(name), Some(length), Some(crc)) =
            (part["name"].as_str(), part["length"].as_u64(), part["crc32c"].as_u64())
        else {
            return wrong("a part without name, length or checksum");
        };
        let is_sealed = part["sealed"] == true;
        let flag = if is_sealed { ",\"sealed\":true" } else { "" };
        compact.push(format!(r#"{{"name":"{name}","length":{length},"crc32c":{crc}{flag}}}"#));
        let file =
            if is_sealed { store.join("sealed").join(format!("{crc:08x}-{name}")) } else { place.join(name) };
        let bytes = fs::read(&file).map_err(|error| format!("reading {}: {error}", file.display()))?;
        if bytes.len() as u64 != length || u64::from(crc32c(&bytes)) != crc {
            return Err(format!("{} is not what was saved", file.display()));
        }
        if is_sealed {
            sealed.push(format!("{crc:08x}-{name}"));
        }
    }
    let compact = format!(r#"{{"number":{number},"parts":[{}]}}"#, compact.join(","));
    if envelope["crc32c"] != crc32c(compact.as_bytes()) {
        return wrong("a wrong checksum");
    }
    Ok(sealed)
}

/// Without length and checksum of `state.json`, which depend on the clock, and the checksum over them. [`verify`] has tested
/// all of them.
pub fn masked_manifest(text: &str) -> String {
    let mut masked = String::new();
    let (mut nested, mut of_state) = (false, false);
    for line in text.split_inclusive('\n') {
        nested |= line.contains("\"manifest\":");
        if line.contains("\"name\":") {
            of_state = line.contains("\"state.json\"");
        }
        let number = line.contains("\"length\":") || line.contains("\"crc32c\":");
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        if number && (of_state || !nested) {
            let end = value.trim_start_matches(|c: char| c.is_ascii_digit());
            masked.extend([key, ": *", end]);
        } else {
            masked += line;
        }
    }
    masked
}
