//! `cargo xtask survive`: interrupts the real `bqrl` at random instants, resumes it, and compares every byte with a run that
//! was never interrupted.
//!
//! A *scenario* is a command of about a second: training with each algorithm, in one lane and in several, tuning, sweeps,
//! reproduction. Its *reference* is a run without interruption. A *story* begins the command anew, interrupts it several
//! times (`KILL`, `INT`, `TERM`, two signals in a row, `STOP` and `CONT`, a full disk, a standard error that takes nothing),
//! resumes it each time, and lets it end. Then all files must be those of the reference, see [`compare`].
//!
//! All draws come from one seed, per scenario and story. The instants at which signals arrive cannot be repeated exactly.

mod compare;
mod disk;
mod draws;
mod process;
mod scenario;
mod stores;
mod story;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use self::disk::{Disk, Size};
use self::draws::Draws;
use self::process::{Errors, Starter};
use self::scenario::Scenario;
use self::story::{Kind, Story, Tally};

const USAGE: &str =
    "cargo xtask survive [--kills N] [--seed S] [--only SCENARIO] [--in DIR] [--short] [--keep] [--list]
  --kills N   interruptions that end a process, over all scenarios [default: 500; 100 with --short]
  --seed S    of all draws [default: 1]
  --only NAME only this scenario; may be repeated
  --in DIR    where to work, to try another file system [default: the target directory]
  --short     the form of `cargo xtask test`: the debug binary, nothing that takes minutes or a mount
  --keep      keep all directories, not only those of failures
  --list      list the scenarios";

/// A scenario that takes minutes is killed at most so often.
const MOST_OF_LONG: usize = 20;
/// A scenario with so many failures is not tried further.
const ENOUGH_FAILURES: usize = 3;

#[derive(Default)]
struct Options {
    kills: Option<usize>,
    seed: Option<u64>,
    only: Vec<String>,
    place: Option<PathBuf>,
    short: bool,
    keep: bool,
    list: bool,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value\n{USAGE}"));
            let number = |text: &String| {
                text.parse().map_err(|_| format!("{argument}: want a number, got {text:?}\n{USAGE}"))
            };
            match &**argument {
                "--kills" => options.kills = Some(number(value()?)? as usize),
                "--seed" => options.seed = Some(number(value()?)?),
                "--only" => options.only.push(value()?.clone()),
                "--in" => options.place = Some(value()?.into()),
                "--short" => options.short = true,
                "--keep" => options.keep = true,
                "--list" => options.list = true,
                other => return Err(format!("unknown argument {other:?}\n{USAGE}")),
            }
        }
        Ok(options)
    }

    fn scenarios(&self) -> Result<Vec<Scenario>, String> {
        let all = scenario::all();
        if let Some(name) = self.only.iter().find(|name| all.iter().all(|one| one.name != **name)) {
            let names: Vec<&str> = all.iter().map(|one| one.name).collect();
            return Err(format!("no scenario {name:?}, there are {}", names.join(", ")));
        }
        let is_wanted = |one: &Scenario| match &self.only[..] {
            [] => !(self.short && one.is_long),
            only => only.iter().any(|name| name == one.name),
        };
        Ok(all.into_iter().filter(is_wanted).collect())
    }
}

/// Runs the campaign that the arguments describe. An error if anything was not as it should be.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let options = Options::read(arguments)?;
    let scenarios = options.scenarios()?;
    if options.list {
        for scenario in &scenarios {
            println!("{:22} bqrl {}", scenario.name, scenario.workers[0].join(" "));
        }
        return Ok(());
    }
    let profile = if options.short { "debug" } else { "release" };
    let build = ["build", "--locked", "--package", "bqrl-cli", "--release"];
    crate::cargo(&build[..if options.short { 4 } else { 5 }])?;
    let target = crate::target()?;
    let seed = options.seed.unwrap_or(1);
    let kills = options.kills.unwrap_or(if options.short { 100 } else { 500 });
    // Several campaigns may run at the same time.
    let place = options.place.clone().unwrap_or_else(|| target.join("survive"));
    let work = place.join(format!("survive-{seed}-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(|error| format!("creating {}: {error}", work.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| format!("listening for signals: {error}"))?;
    }
    println!("\n{kills} kills over {} scenarios, seed {seed}, in {}", scenarios.len(), work.display());
    let campaign = Campaign {
        program: &target.join(profile).join("bqrl"),
        stop: &stop,
        seed,
        keep: options.keep,
        disks: !options.short && can_mount(&work),
        short: options.short,
        work,
    };
    campaign.run(&scenarios, kills)
}

/// Says why if mounting is not possible; full disks are skipped then.
fn can_mount(work: &Path) -> bool {
    match Disk::mount(&work.join("probe"), Size { bytes: 4096, files: 4 }) {
        Ok(_) => true,
        Err(error) => {
            println!("no file system can be mounted, so full disks are skipped ({error})");
            false
        }
    }
}

struct Campaign<'a> {
    program: &'a Path,
    work: PathBuf,
    stop: &'a AtomicBool,
    seed: u64,
    keep: bool,
    disks: bool,
    short: bool,
}

/// What a story is about.
#[derive(Clone, Copy)]
enum Plot {
    Interruptions,
    Mute(Errors),
    FullDisk,
}

impl Campaign<'_> {
    fn run(&self, scenarios: &[Scenario], kills: usize) -> Result<(), String> {
        let mut tallies = Vec::new();
        for (k, scenario) in scenarios.iter().enumerate() {
            // As even as whole numbers allow.
            let quota = kills * (k + 1) / scenarios.len() - kills * k / scenarios.len();
            let quota = if scenario.is_long { quota.min(MOST_OF_LONG) } else { quota };
            let began = Instant::now();
            let tally = self.scenario(scenario, quota, k);
            if self.stop.load(Ordering::Relaxed) {
                self.clean_up(&tallies)?;
                return Err("interrupted".to_owned());
            }
            let tally = tally?;
            println!(
                "{:22} {:3} kills in {:2} stories and {:3} processes, {:5.1} s{}",
                scenario.name,
                tally.kills(),
                tally.stories,
                tally.processes,
                began.elapsed().as_secs_f64(),
                if tally.failures > 0 { format!(", {} FAILURES", tally.failures) } else { String::new() }
            );
            tallies.push((scenario.name, tally));
        }
        println!("\n{}", table(&tallies));
        if !self.disks && !self.short {
            println!("Full disks were skipped: no file system can be mounted here.");
        }
        self.clean_up(&tallies)
    }

    /// Removes everything, unless there were failures.
    fn clean_up(&self, tallies: &[(&str, Tally)]) -> Result<(), String> {
        let failures: usize = tallies.iter().map(|(_, tally)| tally.failures).sum();
        if failures > 0 {
            return Err(format!("{failures} failures; {} has what they left", self.work.display()));
        }
        if !self.keep {
            fs::remove_dir_all(&self.work)
                .map_err(|error| format!("removing {}: {error}", self.work.display()))?;
        }
        Ok(())
    }

    /// Interrupts one scenario until it has been killed `quota` times.
    fn scenario(&self, scenario: &Scenario, quota: usize, index: usize) -> Result<Tally, String> {
        let home = self.work.join(scenario.name);
        let starter = Starter { program: self.program, outputs: home.join("outputs"), stop: self.stop };
        fs::create_dir_all(&starter.outputs)
            .map_err(|error| format!("creating {}: {error}", home.display()))?;
        let reference = story::reference(&starter, scenario, home.join("reference"))?;
        let mut tally = Tally { seconds: reference.seconds, ..Tally::default() };
        let mut plots = Vec::new();
        if !scenario.is_long {
            // Some systems have no device that is always full.
            let full = Path::new("/dev/full").exists().then_some(Errors::Full);
            let kinds: Vec<Errors> = full.into_iter().chain([Errors::Closed]).collect();
            let kinds = if self.short { &kinds[index % kinds.len()..][..1] } else { &kinds[..] };
            plots.extend(kinds.iter().map(|&errors| Plot::Mute(errors)));
        }
        if self.disks && scenario.workers.len() == 1 {
            let disks = if scenario.is_long { 1 } else { quota.div_ceil(8) };
            plots.extend(std::iter::repeat_n(Plot::FullDisk, disks));
        }
        for number in 0.. {
            let plot = match plots.pop() {
                Some(plot) => plot,
                None if tally.kills() < quota => Plot::Interruptions,
                None => break,
            };
            let directory = home.join(format!("story-{number}"));
            let mut story = Story {
                starter: &starter,
                scenario,
                reference: &reference,
                directory: directory.clone(),
                draws: Draws::new(self.seed, scenario.name, number),
                log: Vec::new(),
                tally: &mut tally,
            };
            let most = 2 + story.draws.below(6);
            let result = match plot {
                Plot::Interruptions => story.interrupted(most.min(quota + 1)),
                Plot::Mute(errors) => story.mute(errors),
                Plot::FullDisk => story.full_disk(),
            };
            let log = story.log;
            if self.stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            tally.stories += 1;
            if let Err(error) = result {
                tally.failures += 1;
                println!("\nFAILURE in {}, story {number}: {error}", scenario.name);
                println!("in {}; what was done:\n{}\n", directory.display(), log.join("\n"));
            } else if !self.keep {
                fs::remove_dir_all(&directory)
                    .map_err(|error| format!("removing {}: {error}", directory.display()))?;
            }
            // A process that is always through before it is hit would go on for ever.
            if tally.failures >= ENOUGH_FAILURES || tally.stories > 20 + 2 * quota {
                break;
            }
        }
        Ok(tally)
    }
}

fn table(tallies: &[(&str, Tally)]) -> String {
    let mut text = format!(
        "| scenario | seconds | stories | processes |{}",
        Kind::ALL.map(|kind| format!(" {} |", kind.name())).concat()
    );
    text += " too late | resumed at min / median / max | full disks | mute | looks | failures |\n|---|";
    text += &"---|".repeat(3 + Kind::ALL.len() + 6);
    text.push('\n');
    let mut all = Tally::default();
    for (name, tally) in tallies {
        text += &row(name, tally);
        all.seconds += tally.seconds;
        all.stories += tally.stories;
        all.processes += tally.processes;
        all.interruptions.iter_mut().zip(tally.interruptions).for_each(|(all, one)| *all += one);
        all.shares.extend(&tally.shares);
        all.late += tally.late;
        all.full_disks += tally.full_disks;
        all.mute += tally.mute;
        all.looks += tally.looks;
        all.failures += tally.failures;
    }
    text += &row("all", &all);
    let pauses = all.interruptions[Kind::Pause as usize];
    text + &format!(
        "\n{} kills, {pauses} pauses, {} full disks, {} failures\n",
        all.kills(),
        all.full_disks,
        all.failures
    )
}

fn row(name: &str, tally: &Tally) -> String {
    let mut shares = tally.shares.clone();
    shares.sort_by(f64::total_cmp);
    let percent =
        |at: usize| shares.get(at).map_or("–".to_owned(), |share| format!("{:.0} %", 100.0 * share));
    let shares = [0, shares.len() / 2, shares.len().saturating_sub(1)].map(percent).join(" / ");
    format!(
        "| {name} | {:.1} | {} | {} |{} {} | {shares} | {} | {} | {} | {} |\n",
        tally.seconds,
        tally.stories,
        tally.processes,
        tally.interruptions.map(|n| format!(" {n} |")).concat(),
        tally.late,
        tally.full_disks,
        tally.mute,
        tally.looks,
        tally.failures
    )
}
