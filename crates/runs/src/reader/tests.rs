//! Runs written by hand, whole, damaged and cut at every byte.

use std::fmt::Write as _;
use std::fs;

use super::*;
use crate::lock::Lock;
use crate::run_dir::{EPISODES_HEADER, EVALUATIONS_HEADER};

const SUMMARY: &str = r#"{"run":"r","problem":"coin","algo":"deep-bqrl","episodes":2,"seeds":[7],"exact":true,
    "max_mean":0.5,"taus":[{"tau":0.1,"beta":0.1,"best_quantile":0.25},{"tau":0.5,"beta":0.2,"best_quantile":1}],
    "env_steps":3,"updates":0,"seconds":0.1}"#;
const PROBLEM: &str = r#"{"name":"coin","horizon":2,"discount":1.0,"states":["a","b"],"actions":["stop","go"],
    "ordered":false,"exact":true,"max_mean":0.5,"levels":[]}"#;

const CONFIG: &str = r#"[problem]
name = "coin"
[run]
tau = [0.1, 0.5]
beta = [0.1, 0.2]
episodes = 2
seeds = [7]
[agent]
kind = "deep-bqrl"
hidden = [64]
"#;
const REFERENCE: &str = "policy,tau,quantile,mean\noptimal,0.5,1,\nrisk-neutral,0.5,0.25,0.5\n";
const EPISODES: &str = "episode,episode_return,length\n1,0.25,1\n2,1,2\n";
const ROWS: &str =
    "0,0.1,0,0,0.5,0,0\n0,0.5,0,0,0.5,0,0\n2,0.1,0.25,0.2,0.5,0.5,-0.25\n2,0.5,1,0.9,0.5,2,-0.25\n";

/// A run in a directory of its own.
struct Written {
    _parent: tempfile::TempDir,
    dir: RunDir,
    lock: Option<Lock>,
}

impl Written {
    fn new(files: &[(&str, &str)]) -> Self {
        let parent = tempfile::tempdir().unwrap();
        let (dir, lock) = RunDir::create(&parent.path().join("run"), false).unwrap();
        let written = Self { _parent: parent, dir, lock: Some(lock) };
        for (name, text) in files {
            written.put(name, text);
        }
        written
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self) -> Result<Run, String> {
        let path = self.dir.path().display().to_string();
        Run::read(self.dir.path()).map_err(|error| error.to_string().replace(&path, "RUN"))
    }
}

/// The files of a whole run of two episodes and two levels.
fn whole_run() -> Vec<(&'static str, String)> {
    [
        ("config.toml", CONFIG.to_owned()),
        ("summary.json", SUMMARY.to_owned()),
        ("problem.json", PROBLEM.to_owned()),
        ("reference.csv", REFERENCE.to_owned()),
        ("seed-7/episodes.csv", EPISODES.to_owned()),
        ("seed-7/evaluations.csv", format!("{EVALUATIONS_HEADER}\n{ROWS}")),
        ("seed-7/policy.csv", "tau,stage,state,action\n,0,0,1\n,1,1,0\n".to_owned()),
        ("seed-7/law.csv", "tau,return,probability\n,0,0.5\n,1,0.5\n".to_owned()),
        ("seed-7/predictions.csv", "critic,action,level,value\n0,0,0.25,0.1\n".to_owned()),
        ("seed-7/achieved.csv", "tau,quantile,mean\n0.05,0.25,0.5\n".to_owned()),
    ]
    .into()
}

/// The whole run, with one file changed or left out.
fn read_with(change: Option<(&str, Option<&str>)>) -> Result<Run, String> {
    let mut files = whole_run();
    if let Some((name, text)) = change {
        files.retain(|file| file.0 != name);
        if let Some(text) = text {
            files.push((whole_run().into_iter().find(|file| file.0 == name).unwrap().0, text.to_owned()));
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Written::new(&files).read()
}

#[test]
fn a_run_is_read_whole() {
    let run = read_with(None).unwrap();
    assert_eq!((run.summary.algo.as_str(), run.summary.episodes), ("deep-bqrl", 2));
    assert_eq!(run.problem.unwrap().actions, ["stop", "go"]);
    assert_eq!(run.reference.unwrap()[0].mean, None);
    let seed = &run.seeds[0];
    assert_eq!((seed.seed, seed.returns()), (7, vec![0.25, 1.0]));
    assert_eq!(seed.episode_steps(), [1, 3]);
    assert_eq!(seed.evaluations[1][1].quantile_policy_gap, Some(2.0));
    assert_eq!(seed.evaluations[0][1].expected_return_regret, Some(-0.25));
    assert_eq!(seed.distribution, None);
    assert_eq!(seed.policy.as_ref().unwrap()[1], Choice { tau: None, stage: 1, state: 1, action: 0 });
    assert_eq!(seed.law.as_ref().unwrap()[1].value, 1.0);
    assert_eq!(seed.predictions.as_ref().unwrap()[0].level, 0.25);
    assert_eq!(seed.achieved.as_ref().unwrap()[0].quantile, 0.25);
}

#[test]
fn optional_files_may_be_missing() {
    for name in
        ["problem.json", "reference.csv", "seed-7/policy.csv", "seed-7/law.csv", "seed-7/achieved.csv"]
    {
        assert!(read_with(Some((name, None))).is_ok(), "{name}");
    }
    assert_eq!(read_with(Some(("seed-7/law.csv", None))).unwrap().seeds[0].law, None);
}

#[test]
fn an_agent_that_has_learned_before_goes_on_counting() {
    let later = |text: &str| {
        let lines = text.lines().map(|line| {
            let (episode, rest) = line.split_once(',').unwrap();
            episode.parse().map_or(line.to_owned(), |episode: usize| format!("{},{rest}", episode + 30))
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    };
    let mut files = whole_run();
    for (name, text) in &mut files {
        match *name {
            "summary.json" => *text = text.replace("\"episodes\":2", "\"episodes\":32"),
            "seed-7/episodes.csv" | "seed-7/evaluations.csv" => *text = later(text),
            _ => {}
        }
    }
    let files = written(&files);
    let run = files.read().unwrap();
    let numbers: Vec<usize> = run.seeds[0].episodes.iter().map(|row| row.episode).collect();
    assert_eq!((numbers, run.seeds[0].last_episode(), run.summary.episodes), (vec![31, 32], 32, 32));
    files.put("seed-7/episodes.csv", &later(EPISODES).replace("31,0.25,1\n", ""));
    let error = files.read().unwrap_err();
    assert!(error.contains("line 2: want episode 31, got 32"), "{error}");
}

#[test]
fn errors_name_file_and_line() {
    let header = EVALUATIONS_HEADER;
    let cases = [
        ("config.toml", None, "RUN is a run without its config.toml"),
        ("summary.json", Some("{\"problem\":"), "reading RUN/summary.json: line 1: EOF"),
        ("seed-7/episodes.csv", None, "reading RUN/seed-7/episodes.csv: the file is missing"),
        ("seed-7/evaluations.csv", None, "reading RUN/seed-7/evaluations.csv: the file is missing"),
        ("seed-7/episodes.csv", Some(""), "line 1: want the columns episode,episode_return,length, got \"\""),
        (
            "seed-7/episodes.csv",
            Some("episode,episode_return,length\n1,0.25,1\n2,1"),
            "line 3: the line is cut off",
        ),
        (
            "seed-7/episodes.csv",
            Some("episode,episode_return,length\n1,0.25,1\n2,1\n"),
            "line 3: want 3 columns",
        ),
        ("seed-7/episodes.csv", Some("episode,episode_return,length\n1,0.25,1\n"), "want 2 episodes"),
        (
            "seed-7/episodes.csv",
            Some("episode,episode_return,length\n1,0.25,18446744073709551615\n2,1,1\n"),
            "line 2: length must be a whole number up to 2^53, got \"18446744073709551615\"",
        ),
        (
            "seed-7/episodes.csv",
            Some("episode,episode_return,length\n2,0.25,1\n"),
            "line 2: want episode 1, got 2",
        ),
        (
            "seed-7/episodes.csv",
            Some("episode,episode_return,length\n1,NaN,1\n"),
            "line 2: episode_return must be a finite",
        ),
        (
            "seed-7/evaluations.csv",
            Some(&format!("{header}\n0,0.1,0,0,0,0,0\n0,0.5,0,0,0,0,0\n")),
            "after episode 2, the last",
        ),
        (
            "seed-7/evaluations.csv",
            Some(&format!("{header}\n2,0.1,0,0,0,0,0\n")),
            "each of 2 levels in the last round",
        ),
        (
            "seed-7/evaluations.csv",
            Some(&format!("{header}\n0,0.2,0,0,0,0,0\n")),
            "line 2: want tau 0.1, got 0.2",
        ),
        (
            "seed-7/policy.csv",
            Some("tau,stage,state,action\n,0,0,2\n"),
            "line 2: action must be below 2, got 2",
        ),
        (
            "seed-7/policy.csv",
            Some("tau,stage,state,action\n,0,-1,0\n"),
            "state must be a whole number up to 2^53, got \"-1\"",
        ),
        ("seed-7/law.csv", Some("tau,return,probability\n,0,0.5\n"), "sum to 1, got 0.5"),
        ("seed-7/law.csv", Some("tau,return,probability\n,0,1.5\n"), "line 2: want a probability in [0, 1]"),
        (
            "seed-7/predictions.csv",
            Some("critic,action,level,value\n0,0,1.5,0\n"),
            "line 2: level must lie in (0, 1), got 1.5",
        ),
        ("summary.json", Some(&SUMMARY.replace("\"beta\":0.2", "\"beta\":0.7")), "want 0 < beta <= tau < 1"),
        ("reference.csv", Some("policy,tau\n"), "reading RUN/reference.csv: line 1: want the columns"),
    ];
    for (name, text, said) in cases {
        let message = read_with(Some((name, text))).unwrap_err();
        assert!(message.contains(said), "{name} {text:?}: {message}");
    }
}

#[test]
fn other_directories_are_not_runs() {
    let directory = tempfile::tempdir().unwrap();
    let said = |path: &Path| Run::read(path).unwrap_err().to_string();
    assert!(said(directory.path()).contains("is not a run: it has no .bqrl-run"));
    assert!(said(&directory.path().join("nowhere")).contains("nowhere"));
    fs::write(directory.path().join(".bqrl-run"), "bqrl run, format 99\n").unwrap();
    assert!(said(directory.path()).contains("format \"99\", this program reads formats up to 3"));
}

const STEP_HEADER: &str = "episode,step,tau,quantile,buffered_quantile,mean,low,high";

/// A run of 100 steps in two lanes, without references, whose two seeds have different numbers of episodes.
fn steps_run() -> Vec<(&'static str, String)> {
    let summary = r#"{"problem":"game","algo":"qr-dqn","episodes":2,"steps":100,"lanes":2,"seeds":[7,8],"exact":false,
        "taus":[{"tau":0.1,"beta":0.1}]}"#;
    let config = CONFIG
        .replace("[0.1, 0.5]", "[0.1]")
        .replace("[0.1, 0.2]", "[]")
        .replace("episodes = 2", "steps = 100\nlanes = 2")
        .replace("[7]", "[7, 8]");
    [
        ("config.toml", config),
        ("summary.json", summary.to_owned()),
        ("seed-7/episodes.csv", format!("{EPISODES_HEADER},step\n1,3,20,40\n2,5,30,60\n")),
        (
            "seed-7/evaluations.csv",
            format!("{STEP_HEADER}\n0,0,0.1,1,1,2,,\n1,50,0.1,2,2,3,1.5,2.5\n2,100,0.1,2,2,3,1.5,2.5\n"),
        ),
        ("seed-8/episodes.csv", format!("{EPISODES_HEADER},step\n1,4,50,99\n")),
        (
            "seed-8/evaluations.csv",
            format!("{STEP_HEADER}\n0,0,0.1,1,1,2,0,1\n0,60,0.1,1,1,2,0,1\n1,100,0.1,4,4,5,3,5\n"),
        ),
    ]
    .into()
}

fn written(files: &[(&str, String)]) -> Written {
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Written::new(&files)
}

#[test]
fn a_run_without_references_has_intervals_and_no_gap() {
    let run = written(&steps_run()).read().unwrap();
    assert!(run.counts_steps() && run.is_finished());
    assert_eq!((run.summary.max_mean, run.summary.taus[0].best_quantile), (None, None));
    let row = run.seeds[0].evaluations[0][1];
    assert_eq!((row.step, row.interval), (Some(50), Some([1.5, 2.5])));
    assert_eq!((row.quantile_policy_gap, row.expected_return_regret), (None, None));
    assert_eq!(run.seeds[0].evaluations[0][0].interval, None);
    assert_eq!(run.seeds[1].episode_steps(), [99]);
    assert_eq!(run.seeds.iter().map(|seed| seed.episodes.len()).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn errors_in_runs_of_steps_name_file_and_line() {
    let row = |text: &str| format!("{STEP_HEADER}\n0,0,0.1,1,1,2,0,1\n{text}\n");
    let cases = [
        ("seed-8/evaluations.csv", row("0,0,0.1,1,1,2,0,1"), "line 3: want a step later than that of the"),
        (
            "seed-8/evaluations.csv",
            row("1,,0.1,1,1,2,0,1"),
            "line 3: step must be a whole number up to 2^53, got \"\"",
        ),
        ("seed-8/evaluations.csv", row("1,9,0.1,1,1,2,3,1"), "line 3: want low <= high"),
        ("seed-8/evaluations.csv", row("1,9,0.1,1,1,2,,1"), "line 3: want low <= high, or neither"),
        ("seed-8/evaluations.csv", row("2,9,0.1,1,1,2,0,1"), "after episode 1, the last"),
        (
            "seed-8/evaluations.csv",
            "episode,tau\n".to_owned(),
            "line 1: want columns like episode,tau,quantile",
        ),
        (
            "seed-7/episodes.csv",
            format!("{EPISODES_HEADER},step\n1,3,20,40\n2,5,30,30\n"),
            "line 3: want a step not before",
        ),
        ("seed-7/episodes.csv", format!("{EPISODES_HEADER},step\n1,3,20\n"), "line 2: want 4 columns"),
    ];
    for (name, text, said) in cases {
        let files: Vec<_> = steps_run()
            .into_iter()
            .map(|(file, old)| (file, if file == name { text.clone() } else { old }))
            .collect();
        let message = written(&files).read().unwrap_err();
        assert!(
            message.starts_with(&format!("reading RUN/{name}")) && message.contains(said),
            "{text}: {message}"
        );
    }
    let mut files = steps_run();
    files[1].1 = files[1].1.replace("\"episodes\":2", "\"episodes\":3");
    assert!(
        written(&files).read().unwrap_err().contains("summary.json: want 2 episodes, those of the longest")
    );
}

#[test]
fn a_gap_may_be_empty_only_where_the_optimum_is_unknown() {
    let first = "0,0.1,0,0,0,,0\n0,0.5,0,0,0,1,0\n";
    let rows = format!("{EVALUATIONS_HEADER}\n{first}2,0.1,0,0,0,,0\n2,0.5,0,0,0,1,0\n");
    let message = read_with(Some(("seed-7/evaluations.csv", Some(&rows)))).unwrap_err();
    assert!(message.contains("line 2: quantile_policy_gap must be a finite number"), "{message}");
    let mut files = whole_run();
    files[1].1 = SUMMARY.replace(",\"best_quantile\":0.25", "");
    files[5].1 = rows;
    let run = written(&files).read().unwrap();
    assert_eq!(
        run.seeds[0].evaluations.iter().map(|level| level[0].quantile_policy_gap).collect::<Vec<_>>(),
        [None, Some(1.0)]
    );
}

/// The whole run of two seeds before its summary, with the second seed's rows still to come.
fn unfinished_run() -> Vec<(&'static str, String)> {
    let config = CONFIG.replace("[7]", "[7, 8]");
    vec![
        ("config.toml", config),
        ("problem.json", PROBLEM.replace("[]}", r#"[{"tau":0.1,"beta":0.1,"best_quantile":0.25}]}"#)),
        ("seed-7/episodes.csv", EPISODES.to_owned()),
        ("seed-7/evaluations.csv", format!("{EVALUATIONS_HEADER}\n{ROWS}")),
        (
            "seed-7/progress.json",
            r#"{"episodes":1,"steps":1,"updates":4,"of_episodes":2,"done":false,"time":1e9}"#.to_owned(),
        ),
    ]
}

#[test]
fn an_unfinished_run_is_what_is_on_disk() {
    let mut files = written(&unfinished_run());
    let run = files.read().unwrap();
    let State::Unfinished { running, seeds, fraction } = &run.state else { panic!("{:?}", run.state) };
    assert!(*running);
    assert_eq!(run.state.name(), "running");
    // The rows are further than the heartbeat: two of two episodes. The other seed has not started.
    assert_eq!((seeds[0].progress.episodes, seeds[0].progress.steps, seeds[0].progress.updates), (2, 3, 4));
    assert_eq!(
        (seeds[1].seed, seeds[1].progress.fraction(), seeds[1].progress.of_episodes),
        (8, 0.0, Some(2))
    );
    assert_eq!(*fraction, 0.5);
    assert_eq!(run.seeds.iter().map(|seed| seed.seed).collect::<Vec<_>>(), [7]);
    let summary = &run.summary;
    assert_eq!((summary.problem.as_str(), summary.algo.as_str(), summary.episodes), ("coin", "deep-bqrl", 2));
    assert_eq!((summary.max_mean, summary.taus[0].best_quantile), (Some(0.5), Some(0.25)));
    assert_eq!((summary.taus[1].beta, summary.taus[1].best_quantile), (0.2, None));
    files.lock = None;
    assert_eq!(files.read().unwrap().state.name(), "interrupted");
    let path = files.dir.path();
    assert_eq!(Run::read_finished(path).unwrap_err(), ReadError::Unfinished(path.to_path_buf()));
}

#[test]
fn a_run_that_has_just_begun_has_no_seeds() {
    let run = Written::new(&[("config.toml", CONFIG)]).read().unwrap();
    assert!(run.seeds.is_empty() && run.state.fraction() == 0.0 && run.summary.episodes == 0);
    let config = CONFIG.replace("[0.1, 0.2]", "[]").replace("episodes = 2", "steps = 100\nlanes = 4");
    let run = Written::new(&[("config.toml", &config)]).read().unwrap();
    assert_eq!((run.summary.steps, run.summary.lanes), (Some(100), Some(4)));
    assert_eq!((run.summary.taus[1].beta, run.counts_steps()), (0.5, true));
}

#[test]
fn a_damaged_config_of_an_unfinished_run_is_named() {
    for (config, said) in [
        ("tau = ", "reading RUN/config.toml: line 1"),
        ("[problem]\nname = 3\n", "reading RUN/config.toml: line 2"),
        (&CONFIG.replace("[0.1, 0.5]", "[]"), "want at least one seed, one level"),
        (&CONFIG.replace("episodes = 2", "episodes = 0"), "one episode or step"),
        (&CONFIG.replace("[0.1, 0.2]", "[0.1, 0.7]"), "want 0 < beta <= tau < 1"),
        (&CONFIG.replace("kind", "sort"), "missing field `kind`"),
    ] {
        let message = Written::new(&[("config.toml", config)]).read().unwrap_err();
        assert!(message.contains(said), "{config}: {message}");
    }
}

#[test]
fn a_log_cut_at_any_byte_gives_its_whole_rows_and_no_others() {
    let mut all = unfinished_run();
    all.retain(|file| file.0 != "seed-7/progress.json");
    let files = written(&all);
    let whole = files.read().unwrap().seeds.remove(0);
    for (name, text) in [("seed-7/episodes.csv", &all[2].1), ("seed-7/evaluations.csv", &all[3].1)] {
        for cut in 0..=text.len() {
            files.put(name, &text[..cut]);
            let run = files.read().unwrap_or_else(|error| panic!("{name} cut at {cut}: {error}"));
            let lines = text[..cut].matches('\n').count().saturating_sub(1);
            let seed = &run.seeds[0];
            if name.ends_with("episodes.csv") {
                assert_eq!(seed.episodes, whole.episodes[..lines], "cut at {cut}");
            } else {
                // Two levels take turns: a round counts when both are there.
                for (level, rows) in seed.evaluations.iter().zip(&whole.evaluations) {
                    assert_eq!(*level, rows[..lines / 2], "cut at {cut}");
                }
            }
        }
        files.put(name, text);
    }
    // With a summary, the same cuts are errors.
    files.put("summary.json", SUMMARY);
    for (name, text) in [("seed-7/episodes.csv", &all[2].1), ("seed-7/evaluations.csv", &all[3].1)] {
        for cut in 0..text.len() {
            files.put(name, &text[..cut]);
            assert!(files.read().is_err(), "{name} cut at {cut}");
        }
        files.put(name, text);
    }
    assert!(files.read().is_ok());
}

#[test]
fn every_prefix_of_every_file_of_an_unfinished_run_is_read_or_refused() {
    let all = unfinished_run();
    let files = written(&all);
    let whole = files.read().unwrap();
    for (name, text) in &all {
        for cut in (0..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
            files.put(name, &text[..cut]);
            match files.read() {
                // Files that are replaced as a whole are never seen cut; if they are, the error names them.
                Err(message) => assert!(message.contains(name), "{name} cut at {cut}: {message}"),
                Ok(run) if *name == "seed-7/progress.json" => {
                    assert_eq!((&run.seeds, run.state.fraction()), (&whole.seeds, 0.5), "cut at {cut}");
                }
                Ok(_) => {}
            }
        }
        files.put(name, text);
    }
    // A damaged row in the middle is an error in an unfinished run, too.
    files.put("seed-7/episodes.csv", &EPISODES.replace("0.25", "x"));
    assert!(files.read().unwrap_err().contains("episodes.csv: line 2: episode_return must be"));
}

/// Logs of an unfinished run with so many episodes; every one is evaluated.
fn grown(files: &Written, episodes: usize) {
    let mut rows = format!("{EPISODES_HEADER}\n");
    let mut evaluations = format!("{EVALUATIONS_HEADER}\n");
    for episode in 0..=episodes {
        if episode > 0 {
            let _ = writeln!(rows, "{episode},0.{},2", episode % 10);
        }
        for tau in [0.1, 0.5] {
            let _ = writeln!(evaluations, "{episode},{tau},0.25,0.2,0.5,0,0");
        }
    }
    files.put("seed-7/episodes.csv", &rows);
    files.put("seed-7/evaluations.csv", &evaluations);
}

#[test]
fn a_followed_run_is_the_run_however_its_logs_change() {
    let files = written(&unfinished_run());
    let mut follower = Follower::new(files.dir.path(), None);
    let mut same = |what: &str| {
        let followed = follower.read().map(|run| run.clone()).map_err(|error| error.to_string());
        assert_eq!(followed, Run::read(files.dir.path()).map_err(|error| error.to_string()), "{what}");
    };
    for episodes in [0, 1, 50, 51, 51, 400] {
        grown(&files, episodes);
        same("the logs grow");
    }
    let path = files.dir.path().join("seed-7/evaluations.csv");
    let whole = fs::read_to_string(&path).unwrap();
    for cut in [3, 30, 60, 200] {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        same("the end of a log is torn, or a round lacks a level");
        fs::write(&path, &whole).unwrap();
        same("the log goes on");
    }
    grown(&files, 30);
    same("a run that is resumed begins with fewer rows");
    files.put("seed-7/episodes.csv", &format!("{EPISODES_HEADER}\nx\n"));
    same("a damaged row");
    grown(&files, 60);
    same("after an error");
    fs::remove_file(&path).unwrap();
    same("a log is gone");
}

#[test]
fn a_followed_run_reads_only_the_rows_that_were_appended() {
    let files = written(&unfinished_run());
    grown(&files, 400);
    let mut follower = Follower::new(files.dir.path(), None);
    follower.read().unwrap();
    assert!(follower.is_growing());
    // The first row is damaged, which only a reader of the first row can notice.
    grown(&files, 401);
    let path = files.dir.path().join("seed-7/episodes.csv");
    let rows = fs::read_to_string(&path).unwrap().replacen("\n1,", "\nx,", 1);
    fs::write(&path, rows).unwrap();
    assert_eq!(follower.read().unwrap().seeds[0].episodes.len(), 401);
    assert!(files.read().is_err());
    // An error in a new row has the right line: a header and 401 rows are before it.
    let mut log = fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut log, b"402,y,2\n").unwrap();
    let error = follower.read().unwrap_err().to_string();
    assert!(error.contains("line 403: episode_return must be"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_are_followed_unless_the_directory_must_not_be_left() {
    let files = written(&unfinished_run());
    let aside = files.dir.path().join("aside.csv");
    let log = files.dir.path().join("seed-7/episodes.csv");
    fs::rename(&log, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &log).unwrap();
    assert_eq!(files.read().unwrap().seeds[0].episodes.len(), 2);
    let error = Run::read_below(files.dir.path(), files.dir.path()).unwrap_err().to_string();
    assert!(error.contains("episodes.csv"), "{error}");
}
