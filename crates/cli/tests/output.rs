//! What `bqrl` writes: policies that do what was promised, pictures that open, and nothing half-finished.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::process::Stdio;

use support::{Desk, HEADER, Run, assert_close, levels, number};

/// Collected rewards and returns as whole numbers, so that they can be looked up: all are far apart on this scale.
fn key(value: f64) -> i64 {
    (value * 1e6).round() as i64
}

/// (tau, stage, state, collected) → action, as a policy file lists them.
type PolicyFile = HashMap<(String, usize, String, i64), String>;

fn read_policy(text: &str) -> PolicyFile {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("tau,stage,state,collected,action"));
    let mut policy = PolicyFile::new();
    for line in lines {
        let [tau, stage, state, collected, action] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("five fields in {line}");
        };
        let at = (tau.to_owned(), stage.parse().unwrap(), state.to_owned(), key(collected.parse().unwrap()));
        assert_eq!(policy.insert(at, action.to_owned()), None, "listed twice: {line}");
    }
    policy
}

/// One outcome: probability, next state (`None`: the episode is over), reward.
type Step = (f64, Option<String>, f64);

/// The outcomes of an action in a state.
type Rules = fn(&str, &str) -> Vec<Step>;

/// The law of the return when the file's actions are taken, over all paths: return → probability.
fn follow(
    policy: &PolicyFile,
    tau: &str,
    start: &str,
    horizon: usize,
    step: impl Fn(&str, &str) -> Vec<Step>,
) -> Vec<(f64, f64)> {
    let mut law: BTreeMap<i64, f64> = BTreeMap::new();
    let mut here: BTreeMap<(String, i64), f64> = BTreeMap::from([((start.to_owned(), 0), 1.0)]);
    for stage in 0..horizon {
        let mut next: BTreeMap<(String, i64), f64> = BTreeMap::new();
        for ((state, collected), weight) in here {
            let at = (tau.to_owned(), stage, state.clone(), collected);
            let action = policy.get(&at).unwrap_or_else(|| panic!("the file says nothing about {at:?}"));
            for (probability, to, reward) in step(&state, action) {
                let sum = collected + key(reward);
                match to {
                    Some(to) => *next.entry((to, sum)).or_default() += weight * probability,
                    None => *law.entry(sum).or_default() += weight * probability,
                }
            }
        }
        here = next;
    }
    for ((_, collected), weight) in here {
        *law.entry(collected).or_default() += weight;
    }
    law.into_iter().map(|(value, probability)| (value as f64 / 1e6, probability)).collect()
}

fn mean(law: &[(f64, f64)]) -> f64 {
    law.iter().map(|(value, probability)| value * probability).sum()
}

fn at_least(law: &[(f64, f64)], g: f64) -> f64 {
    law.iter().filter(|(value, _)| *value >= g - 1e-5).map(|(_, probability)| probability).sum()
}

/// Q_τ^β: the mean of the quantiles between the levels τ − β and τ.
fn buffered(law: &[(f64, f64)], tau: f64, beta: f64) -> f64 {
    let (mut below, mut sum) = (0.0, 0.0);
    for (value, probability) in law {
        let overlap = (below + probability).min(tau) - f64::max(below, tau - beta);
        sum += overlap.max(0.0) * value;
        below += probability;
    }
    sum / beta
}

fn sell(state: &str, action: &str) -> Vec<Step> {
    let offer: f64 = state.parse().unwrap();
    match action {
        "stop" => vec![(1.0, None, offer / 24.0)],
        "continue" => (0..25).map(|next| (0.04, Some(next.to_string()), 0.0)).collect(),
        other => panic!("unknown action {other}"),
    }
}

fn gamble(_: &str, action: &str) -> Vec<Step> {
    let play = Some("play".to_owned());
    match action {
        "safe" => vec![(1.0, play, 1.0)],
        "gamble" => vec![(0.4, play.clone(), 3.0), (0.6, play, 0.0)],
        other => panic!("unknown action {other}"),
    }
}

#[test]
fn policy_file_attains_what_the_plan_promises() {
    let desk = Desk::new();
    let taus = "0.1,0.25,0.5,0.9";
    for (name, start, rules) in [("asset-selling", "5", sell as Rules), ("gamble-chain", "play", gamble)] {
        let plan = desk.json(&["plan", name, "--tau", taus, "--policy", "p.csv"]);
        let policy = read_policy(&desk.read("p.csv"));
        assert_eq!(levels(&plan).len(), 4);
        for (level, tau) in levels(&plan).iter().zip(taus.split(',')) {
            let law = follow(&policy, tau, start, 10, rules);
            let what = format!("{name}, {level}");
            assert_close(law.iter().map(|atom| atom.1).sum(), 1.0, 1e-9, &what);
            let reached = at_least(&law, number(level, "best_quantile"));
            assert_close(reached, number(level, "probability_at_least"), 1e-9, &what);
            assert_close(mean(&law), number(level, "policy_mean"), 1e-5, &what);
        }
    }
}

#[test]
fn policy_file_of_a_buffered_plan_attains_its_lower_bound() {
    let desk = Desk::new();
    let flags = ["--tau", "0.1,0.5", "--beta", "0.02,0.1", "--policy", "p.csv"];
    for (name, start) in [("asset-selling", "5"), ("gamble-chain", "play")] {
        let plan = desk.json(&[&["plan", name], &flags[..]].concat());
        let policy = read_policy(&desk.read("p.csv"));
        for (level, tau) in levels(&plan).iter().zip(["0.1", "0.5"]) {
            let rules: Rules = if start == "5" { sell } else { gamble };
            let law = follow(&policy, tau, start, 10, rules);
            let score = buffered(&law, number(level, "tau"), number(level, "beta"));
            assert_close(score, number(level, "buffered_lower"), 1e-5, &format!("{name}, {level}"));
            assert_close(
                mean(&law),
                number(level, "buffered_policy_mean"),
                1e-5,
                &format!("{name}, {level}"),
            );
        }
    }
}

/// Tags open and close in order, and nothing but white space follows the root.
fn assert_balanced(svg: &str, what: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').unwrap_or_else(|| panic!("{what}: an unfinished tag"));
        rest = after;
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        match tag {
            _ if tag.starts_with(['?', '!']) || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{what}"),
            _ => open.push(name),
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{what}: {open:?} {rest:?}");
}

#[test]
fn pictures_are_whole_files_of_their_kind() {
    let desk = Desk::new();
    for flags in
        [&["asset-selling"][..], &["asset-selling", "--beta", "0.05"], &["cliff-walk"], &["american-put"]]
    {
        let svg = [&["plan"], flags, &["--plot", "map.svg", "--plot-law", "law.svg"]].concat();
        desk.ok(&svg);
        for (name, panels) in [("map.svg", "τ=0.1"), ("law.svg", "τ=0.9")] {
            let svg = desk.read(name);
            assert!(svg.trim_start().starts_with('<') && svg.contains("<svg"), "{flags:?} {name}");
            assert_balanced(&svg, &format!("{flags:?} {name}"));
            // With a buffer the headline has spaces.
            let named = svg.contains(flags[0]) && svg.replace("τ = ", "τ=").contains(panels);
            assert!(named, "{flags:?} {name} names its subject");
            assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{flags:?} {name}");
        }
    }
    // Capital letters in a suffix are no reason to refuse.
    desk.ok(&["plan", "gamble-chain", "--plot", "map.PNG", "--plot-law", "law.png"]);
    for name in ["map.PNG", "law.png"] {
        let png = desk.bytes(name);
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB`\x82"), "{name}");
        let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        assert!((300..5000).contains(&side(16)) && (200..5000).contains(&side(20)), "{name}");
    }
}

#[test]
fn the_law_shades_its_window_only_with_a_buffer() {
    let desk = Desk::new();
    desk.ok(&["plan", "asset-selling", "--plot-law", "plain.svg"]);
    desk.ok(&["plan", "asset-selling", "--beta", "0.05", "--plot-law", "buffered.svg"]);
    assert!(!desk.read("plain.svg").contains("buffer window"));
    assert!(desk.read("buffered.svg").contains("buffer window"));
}

#[test]
fn failed_writes_end_with_code_1_and_leave_nothing() {
    let desk = Desk::new();
    for (flag, path) in [
        ("--policy", "missing/p.csv"),
        ("--plot", "missing/p.svg"),
        ("--plot-law", "missing/p.png"),
        ("--policy", "."),
        #[cfg(target_os = "linux")]
        ("--policy", "/dev/full"),
        #[cfg(target_os = "linux")]
        ("--policy", "/proc/p.csv"),
    ] {
        let run = desk.run(&["plan", "asset-selling", flag, path, "--json"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{flag} {path}");
        assert!(run.stderr.starts_with("error: ") && run.stderr.contains(path), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert_eq!(desk.names(), [""; 0], "{flag} {path}");
    }
    let run = desk.run(&["envs", "asset-selling", "--export", "missing/x.csv"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
}

#[cfg(unix)]
#[test]
fn read_only_directory_is_reported_and_an_old_file_in_it_kept() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new();
    desk.write("old.csv", "old");
    let mode = |mode| std::fs::set_permissions(desk.path(""), PermissionsExt::from_mode(mode)).unwrap();
    mode(0o555);
    // The superuser may write everywhere; for it there is nothing to see here.
    let is_protected = std::fs::write(desk.path("probe"), "").is_err();
    let elsewhere = Desk::new();
    let runs = ["old.csv", "new.csv"]
        .map(|name| elsewhere.run(&["plan", "gamble-chain", "--policy", support::text(&desk.path(name))]));
    mode(0o755);
    if is_protected {
        for run in runs {
            assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{}", run.stderr);
        }
        assert_eq!((desk.names(), desk.read("old.csv")), (vec!["old.csv".into()], "old".into()));
    }
}

#[test]
fn old_files_are_replaced_and_nothing_else_is_left() {
    let desk = Desk::new();
    // A policy of an earlier run: other files are kept, which another test shows.
    let old = format!("tau,stage,state,collected,action\n{}", "old ".repeat(100_000));
    desk.write("p.csv", old);
    desk.ok(&["plan", "gamble-chain", "--policy", "p.csv"]);
    assert!(!desk.read("p.csv").contains("old"));
    assert_eq!(desk.names(), ["p.csv"]);
}

#[test]
fn closed_pipe_is_no_error() {
    let desk = Desk::new();
    for arguments in
        [&["plan", "asset-selling"][..], &["plan", "asset-selling", "--json"], &["envs"], &["--help"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = desk.command(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_standard_output_is_a_failure_that_says_so() {
    let desk = Desk::new();
    for arguments in [&["plan", "asset-selling", "--json"][..], &["envs"], &["--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let run = Run::of(desk.command(arguments).stdout(full).output().unwrap());
        assert_eq!(run.code, Some(1), "{arguments:?}");
        assert!(run.stderr.starts_with("error: "), "{arguments:?}: {:?}", run.stderr);
    }
}

/// A sure 1, or 3 with probability ½: returns are whole numbers, so work grows with the square of the horizon.
fn endless() -> String {
    format!("{HEADER}0,0,0,1,1\n0,1,0,0.5,3\n0,1,0,0.5,0\n")
}

#[cfg(unix)]
#[test]
fn interrupt_ends_a_long_plan_and_leaves_no_file() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;

    support::let_children_be_interrupted();
    let desk = Desk::new();
    // Some minutes of work, were it not interrupted.
    desk.write("mdp.csv", endless());
    let mut command = desk.command(&["plan", "mdp.csv", "--horizon", "1000000", "--start", "0"]);
    command.args(["--discount", "0.9999", "--policy", "p.csv"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // A sign of life: discounted returns are too many, and it says so before it plans with bounds.
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("note: "), "{said}");
    support::signal(&child, "-INT");
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(signal_hook::consts::SIGINT), "{status}");
    assert_eq!(desk.names(), ["mdp.csv"]);
}

#[cfg(unix)]
#[test]
fn interrupt_in_the_middle_of_a_write_leaves_no_file() {
    support::let_children_be_interrupted();
    for signal in ["-INT", "-TERM"] {
        let desk = Desk::new();
        // A moment to plan; then some hundred megabytes of policies to write, were it not interrupted.
        desk.write("mdp.csv", endless());
        let mut command = desk.command(&["plan", "mdp.csv", "--horizon", "3000", "--start", "0"]);
        command.args(["--refine", "0", "--policy", "p.csv"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        support::wait_until("the temporary file", || desk.names().len() > 1);
        support::signal(&child, signal);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
        assert_eq!(said, "error: interrupted while writing p.csv\n");
        assert_eq!(desk.names(), ["mdp.csv"]);
    }
}

#[test]
fn output_without_a_terminal_has_no_control_codes_whatever_the_colour_variables_say() {
    let desk = Desk::new();
    for (variable, value) in
        [("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1"), ("FORCE_COLOR", "1"), ("TERM", "dumb")]
    {
        for arguments in [&["plan", "asset-selling", "--beta", "0.05"][..], &["envs"], &["plan", "nothing"]] {
            let run = Run::of(desk.command(arguments).env(variable, value).output().unwrap());
            for text in [run.stdout, run.stderr] {
                assert!(!text.contains(['\u{1b}', '\r']), "{variable}={value} {arguments:?}: {text:?}");
            }
        }
    }
}

#[test]
fn help_names_every_flag_and_goes_to_standard_output() {
    let desk = Desk::new();
    let plan = desk.ok(&["plan", "--help"]);
    for flag in
        ["--env", "--horizon", "--start", "--discount", "--tau", "--beta", "--grid", "--policy", "--plot"]
    {
        assert!(plan.contains(flag), "{flag} in {plan}");
    }
    assert!(desk.ok(&["envs", "--help"]).contains("--export"));
    assert!(desk.ok(&["--help"]).contains("plan"));
    assert!(desk.ok(&["--version"]).starts_with("bqrl "));
    assert!(plan.lines().all(|line| line.chars().count() <= 110), "{plan}");
}
