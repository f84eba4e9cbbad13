//! A sweep as a Slurm job array: one script, one task per shard.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;

/// The largest index that Slurm's default (`MaxArraySize = 1001`) allows.
pub const MOST_TASKS: usize = 1000;

/// The parts of a script; the paths are absolute.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The job's name.
    pub name: &'a str,
    /// This program.
    pub program: &'a Path,
    /// The directory in which problem files are looked up.
    pub working_directory: &'a Path,
    /// The sweep's directory, which holds its file.
    pub root: &'a Path,
    /// Shards.
    pub tasks: usize,
    /// Options of `sbatch`, on top of ours.
    pub options: &'a [String],
}

impl Job<'_> {
    /// The text of the script.
    pub fn script(&self) -> Result<String, Failure> {
        let text = |path: &Path| {
            let unsafe_in_a_line = |c: char| c.is_control() || ['"', '\\'].contains(&c);
            let text = path.to_str().filter(|text| !text.contains(unsafe_in_a_line));
            text.map(str::to_owned).ok_or_else(|| {
                Failure::usage(format!("a Slurm script cannot name {} safely", path.display()))
            })
        };
        if let Some(option) = self.options.iter().find(|option| option.contains(char::is_control)) {
            return Err(Failure::usage(format!(
                "--sbatch takes one line without control characters, got {option:?}"
            )));
        }
        let (root, program) = (text(self.root)?, text(self.program)?);
        let mut script = String::from(
            "#!/bin/sh\n# Written by `bqrl sweep --slurm`. Submitted again, it resumes the unfinished runs.\n",
        );
        for option in [
            format!("--job-name={}", job_name(self.name)),
            format!("--array=1-{}", self.tasks),
            "--cpus-per-task=1".to_owned(),
            // A task that lost its node starts again, and its runs resume from their checkpoints.
            "--requeue".to_owned(),
            "--open-mode=append".to_owned(),
            // % begins a pattern.
            format!("--output=\"{}/slurm-%a.log\"", root.replace('%', "%%")),
            format!("--chdir=\"{}\"", text(self.working_directory)?),
        ] {
            let _ = writeln!(script, "#SBATCH {option}");
        }
        for option in self.options {
            let _ = writeln!(script, "#SBATCH {option}");
        }
        // `exec`: Slurm's signals must reach the program, which then ends after a checkpoint.
        let _ = writeln!(
            script,
            "exec {} sweep {} --out {} \\\n  --shard \"$SLURM_ARRAY_TASK_ID/{}\" --threads \"${{SLURM_CPUS_PER_TASK:-1}}\" --quiet",
            quoted(&program),
            quoted(&format!("{root}/sweep.toml")),
            quoted(&root),
            self.tasks
        );
        Ok(script)
    }
}

/// Hands a script to `sbatch`, and returns the job's number.
pub fn submit(script: &Path) -> Result<String, Failure> {
    let output = Command::new("sbatch").arg("--parsable").arg(script).output().map_err(|error| {
        let failure = match error.kind() {
            ErrorKind::NotFound => Failure::runtime("sbatch is not installed here"),
            _ => Failure::runtime(format!("starting sbatch: {error}")),
        };
        failure.hint(format!("`sbatch {}` submits it where Slurm is", script.display()))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::runtime(format!("sbatch {}: {}", script.display(), said.trim())));
    }
    // JOB or JOB;CLUSTER.
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.trim().split(';').next().unwrap_or_default().to_owned())
}

/// A name without spaces, quotes or line breaks: a line break would end the comment, and the rest would be run.
fn job_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

/// A word that the shell takes as it stands.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_what_slurm_reads() {
        let options = ["--time=10".to_owned(), "--partition=long".to_owned()];
        let job = Job {
            name: "bqrl-kappa",
            program: Path::new("/opt/it's/bqrl"),
            working_directory: Path::new("/home/me"),
            root: Path::new("/data/50% off"),
            tasks: 12,
            options: &options,
        };
        let script = job.script().unwrap();
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(lines[0], "#!/bin/sh");
        for line in [
            "#SBATCH --array=1-12",
            "#SBATCH --requeue",
            "#SBATCH --output=\"/data/50%% off/slurm-%a.log\"",
            "#SBATCH --time=10",
        ] {
            assert!(lines.contains(&line), "{line} in {script}");
        }
        // Ours first: what the user says later wins.
        assert!(script.find("--cpus-per-task").unwrap() < script.find("--time").unwrap());
        assert!(
            script
                .contains("exec '/opt/it'\\''s/bqrl' sweep '/data/50% off/sweep.toml' --out '/data/50% off'")
        );
        assert!(script.contains("--shard \"$SLURM_ARRAY_TASK_ID/12\""));
        let odd = Job { root: Path::new("/a\"b"), ..job };
        assert_eq!(odd.script().unwrap_err().code, 2);
        // A line break would end the comment, and the shell would run the next line.
        let injected = Job { name: "bqrl-a\ntouch hacked\n#", root: Path::new("/a"), ..job };
        assert!(injected.script().unwrap().contains("\n#SBATCH --job-name=bqrl-a_touch_hacked__\n"));
        let options = ["--time=10\ntouch hacked".to_owned()];
        let injected = Job { root: Path::new("/a"), options: &options, ..job };
        assert_eq!(injected.script().unwrap_err().code, 2);
    }
}
