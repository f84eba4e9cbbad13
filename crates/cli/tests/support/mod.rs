//! How the tests run `bqrl`: in a directory of their own, with captured output.

// Every test file uses a part of these.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
            stdout: String::from_utf8(output.stdout).expect("text on standard output"),
            stderr: String::from_utf8(output.stderr).expect("text on standard error"),
        }
    }
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
