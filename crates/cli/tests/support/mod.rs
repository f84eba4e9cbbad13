//! How the tests run `bqrl`: in a directory of their own, with captured output.

// Every test file uses a part of these.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// The header of an MDP file.
pub const HEADER: &str = "idstatefrom,idaction,idstateto,probability,reward\n";

/// Problems whose table is the same at every stage, with the id that their start state has in an exported file.
pub const STARTS: [(&str, u64); 9] = [
    ("asset-selling", 5),
    ("frozen-lake", 0),
    ("cliff-walk", 36),
    ("gamble-chain", 0),
    ("machine-replacement", 0),
    ("inventory", 0),
    ("gamblers-ruin", 5),
    ("river-swim", 0),
    ("american-put", 19),
];

/// What one run of the command left behind.
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: portable(String::from_utf8(output.stdout).expect("text on standard output")),
            stderr: portable(String::from_utf8(output.stderr).expect("text on standard error")),
        }
    }
}

/// With `/` between the parts of a path on every platform, as the tests write it. JSON doubles a backslash.
fn portable(text: String) -> String {
    if cfg!(windows) { text.replace(r"\\", "/").replace('\\', "/") } else { text }
}

/// A directory that `bqrl` is run in; it disappears with the value.
pub struct Desk(TempDir);

impl Desk {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The names of all files, hidden ones included.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bqrl"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Starts `bqrl` with nobody listening to it.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The finished checkpoints and summaries below a folder, and the checkpoints being written: how far its runs are.
    pub fn progress(&self, folder: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.path(folder)];
        while let Some(folder) = folders.pop() {
            let is_store = folder.ends_with("checkpoints");
            // A folder may be renamed or removed while this looks.
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if is_store || path.ends_with("summary.json") {
                    found.push(path);
                } else if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        found
    }

    /// Starts `bqrl` again and again, and kills it when its runs below `folder` got further, until it gets through. Every
    /// second kill comes while a checkpoint is being written, the others when one is finished; later kills leave it more
    /// time. Returns the number of kills.
    pub fn kill_until_done(&self, arguments: impl Fn() -> Vec<&'static str>, folder: &str) -> usize {
        let finished = |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
        for kills in 0.. {
            let before = self.progress(folder);
            let mut child = self.spawn(&arguments());
            let mut ended = None;
            wait_until("progress or the end", || {
                ended = child.try_wait().unwrap();
                let is_news = |path: &PathBuf| !before.contains(path) && (kills % 2 == 1 || finished(path));
                let news = self.progress(folder).into_iter().filter(is_news).count();
                ended.is_some() || news > kills / 2
            });
            if let Some(status) = ended {
                assert!(status.success(), "{status}");
                return kills;
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        unreachable!("a run has a finite number of checkpoints")
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    /// Standard output of a run that must succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, Some(0), "bqrl {}: {}", arguments.join(" "), run.stderr);
        run.stdout
    }

    /// The one JSON object that a run must print, on one line and with nothing around it.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ok(&[arguments, &["--json"]].concat());
        assert!(out.starts_with('{') && out.ends_with("}\n") && out.lines().count() == 1, "{out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Plans the MDP file `rows` (without its header).
    pub fn plan_rows(&self, rows: &str, flags: &[&str]) -> Value {
        self.write("mdp.csv", format!("{HEADER}{rows}"));
        self.json(&[&["plan", "mdp.csv"], flags].concat())
    }

    /// A run must be refused as the caller's mistake: exit code 2, one `error:` line and at most one `hint:` line, nothing
    /// on standard output, and no file that was not there. Returns what was said.
    pub fn refusal(&self, arguments: &[&str]) -> String {
        let before = self.names();
        let run = self.run(arguments);
        let shown = arguments.join(" ");
        assert_eq!(run.code, Some(2), "bqrl {shown}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout, "", "bqrl {shown}");
        assert_eq!(self.names(), before, "bqrl {shown}");
        let lines: Vec<&str> = run.stderr.lines().collect();
        assert!(lines[0].starts_with("error: "), "bqrl {shown}: {}", run.stderr);
        assert!(lines.len() == 1 || lines.len() == 2 && lines[1].starts_with("hint: "), "{}", run.stderr);
        assert!(!run.stderr.contains('\u{1b}'), "bqrl {shown}: {:?}", run.stderr);
        run.stderr
    }
}

/// Waits until something holds. Minutes are more than any machine needs; a test that waits in vain must end too.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..200_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain for {what}");
}

/// Programs that are started from now on react to SIGINT, even where this one was told to ignore it (`nohup … &`): the
/// signals that a program ignores stay ignored in its children, those that it handles do not.
#[cfg(unix)]
pub fn let_children_be_interrupted() {
    // Our own reaction stays the usual one, to end.
    let always = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, always).unwrap();
}

/// Compares files by name and contents; a failure says which differ, not how.
pub fn assert_same_files(left: &[(String, Vec<u8>)], right: &[(String, Vec<u8>)]) {
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|file| file.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(left), names(right));
    let differ = left.iter().zip(right).filter(|(left, right)| left != right).map(|(left, _)| &left.0);
    assert_eq!(differ.collect::<Vec<_>>(), [""; 0], "differ");
}

/// Sends a signal, `-INT` or `-TERM`.
#[cfg(unix)]
pub fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success(), "kill {signal}");
}

/// The number in a field.
pub fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value}"))
}

/// The entries of `taus`.
pub fn levels(plan: &Value) -> &[Value] {
    plan["taus"].as_array().unwrap_or_else(|| panic!("taus in {plan}"))
}

pub fn assert_close(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got - want).abs() <= tolerance, "{what}: got {got}, want {want} ± {tolerance}");
}

/// True when two values are of one shape and their numbers agree within the tolerance.
pub fn agree(a: &Value, b: &Value, tolerance: f64) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap(), y.as_f64().unwrap());
            (x - y).abs() <= tolerance * x.abs().max(1.0)
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| agree(x, y, tolerance))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| agree(x, y, tolerance)))
        }
        _ => a == b,
    }
}

/// A small generator of random test cases (xorshift64*), so that failures can be repeated.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Uniform on [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform on 0..n.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
