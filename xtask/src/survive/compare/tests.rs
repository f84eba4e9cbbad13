//! The comparison finds a changed byte in each kind of file, and does not find a changed time.

use std::fs;
use std::path::{Path, PathBuf};

use super::{crc32c, masked_crc};
use crate::survive::compare;

/// A run of one seed as `bqrl train` leaves it, small and by hand; `clock` goes into every wall-clock field.
fn run(directory: &Path, clock: f64, previous: u64) {
    let seed = directory.join("out/seed-42");
    fs::create_dir_all(seed.join("checkpoints/sealed")).unwrap();
    let write = |path: PathBuf, bytes: &[u8]| fs::write(path, bytes).unwrap();
    let monitor = format!(
        "#{{\"t_start\": {clock:?}, \"env_id\": \"lake\"}}\nr,l,t\n0.5,3,{:.6}\n1.0,2,{clock:.6}\n",
        clock / 2.0
    );
    let events = [event(clock, b"eval/mean", 0.5), event(clock, b"time/fps", clock as f32)].concat();
    write(directory.join("out/config.toml"), b"tau = [0.1]\n");
    write(directory.join("out/.bqrl-run"), b"bqrl run, format 2\n");
    write(directory.join("out/.bqrl-lock"), if clock > 1.0 { b"123\n" } else { b"" });
    let summary = format!("{{\"updates\":7,\"seconds\":{clock},\"frames_per_second\":{:?}}}\n", 1e3 * clock);
    write(directory.join("out/summary.json"), summary.as_bytes());
    write(
        seed.join("progress.json"),
        format!("{{\"episodes\":2,\"done\":true,\"time\":{clock}}}\n").as_bytes(),
    );
    write(seed.join("monitor.csv"), monitor.as_bytes());
    write(seed.join(format!("events.out.tfevents.{:010}.bqrl", clock as u64)), &events);
    write(seed.join("weights.safetensors"), &[0, 200, 7]);
    write(seed.join("episodes.csv"), b"episode,episode_return,length\n1,0.5,3\n2,1,2\n");

    let sealed = b"a block of the replay";
    let name = format!("{:08x}-replay-000000", crc32c(sealed));
    write(seed.join("checkpoints/sealed").join(&name), sealed);
    for number in [previous, 5] {
        let place = seed.join(format!("checkpoints/{number:06}"));
        fs::create_dir_all(&place).unwrap();
        let end = |bytes: &[u8]| format!("{{\"length\":{},\"crc32c\":{}}}", bytes.len(), crc32c(bytes));
        let state = format!(
            "{{\"recent\":[0.5,1.0],\"positions\":{{\"episodes\":44,\"monitor\":{},\"events\":{},\"t_start\":{clock:?}}},\
             \"sessions\":[{clock:?}]}}",
            monitor.len(),
            end(&events)
        );
        let parts = [("agent.json", &b"{}"[..], ""), ("state.json", state.as_bytes(), "")];
        for (name, bytes, _) in parts {
            write(place.join(name), bytes);
        }
        let parts = [&parts[..], &[("replay-000000", &sealed[..], ",\"sealed\":true")]].concat();
        let compact = |(name, bytes, sealed): &(&str, &[u8], &str)| {
            format!("{{\"name\":\"{name}\",\"length\":{},\"crc32c\":{}{sealed}}}", bytes.len(), crc32c(bytes))
        };
        let parts: Vec<String> = parts.iter().map(compact).collect();
        let manifest = format!("{{\"number\":{number},\"parts\":[{}]}}", parts.join(","));
        let crc = crc32c(manifest.as_bytes());
        // One key a line, as the real one.
        let lines =
            manifest.replace("\":", "\": ").replace(',', ",\n").replace('{', "{\n").replace('}', "\n}");
        let text = format!("{{\n\"format\": 2,\n\"crc32c\": {crc},\n\"manifest\": {lines}\n}}");
        write(place.join("manifest.json"), text.as_bytes());
    }
}

/// An event of TensorBoard: a time, and a tag with its value.
fn event(time: f64, tag: &[u8], value: f32) -> Vec<u8> {
    let tagged = [b"\x0a", &[tag.len() as u8][..], tag, b"\x15", &value.to_le_bytes()].concat();
    let data = [b"\x09", &time.to_le_bytes()[..], b"\x2a", &[tagged.len() as u8], &tagged].concat();
    let length = (data.len() as u64).to_le_bytes();
    let sum = |bytes: &[u8]| masked_crc(bytes).to_le_bytes();
    [&length[..], &sum(&length), &data, &sum(&data)].concat()
}

/// Two equal runs at different times in a directory that disappears; the second is then changed.
struct Pair(tempfile::TempDir);

impl Pair {
    fn new(previous: u64) -> Self {
        let pair = Self(tempfile::tempdir().unwrap());
        run(&pair.reference(), 0.5, 4);
        run(&pair.other(), 1234567890.0625, previous);
        pair
    }

    fn reference(&self) -> PathBuf {
        self.0.path().join("reference")
    }

    fn other(&self) -> PathBuf {
        self.0.path().join("other")
    }

    fn differences(&self) -> Vec<String> {
        compare::directories(&self.reference(), &self.other()).unwrap()
    }
}

#[test]
fn runs_that_differ_in_times_alone_are_equal() {
    assert_eq!(Pair::new(4).differences(), [] as [&str; 0]);
    // A run that was asked to stop has saved a checkpoint where it stood.
    assert_eq!(Pair::new(3).differences(), [] as [&str; 0]);
}

/// Every byte of every file is flipped, one after the other. The few that may differ are times.
#[test]
fn a_changed_byte_is_found_in_every_file_and_none_but_times_are_passed_over() {
    let pair = Pair::new(4);
    for file in compare::files(&pair.other()).unwrap() {
        let path = pair.other().join(&file);
        let whole = fs::read(&path).unwrap();
        let mut passed_over = 0;
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            let differences = pair.differences();
            if differences.is_empty() {
                passed_over += 1;
            } else {
                let name = file.file_name().unwrap().to_string_lossy();
                let name = if name.starts_with("events") { "events.out" } else { &*name };
                let store = "checkpoints";
                let named = |line: &String| line.contains(name) || line.contains(store);
                assert!(differences.iter().any(named), "{}: {differences:?}", file.display());
            }
        }
        fs::write(&path, whole).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        // The digits of times: flipping the last bit of a digit gives another digit, of a point or a sign something else.
        let most = match &*name {
            "summary.json" => "1234567890.06251234567890062.5".len(),
            "progress.json" => "1234567890.0625".len(),
            // A checkpoint names the checksum of the event file, and the length of the Monitor file.
            "monitor.csv" => "1234567890.0625617283945.0312501234567890.062500".len(),
            ".bqrl-lock" => 4,
            _ => 0,
        };
        assert!(passed_over <= most, "{}: {passed_over} changed bytes were not found", file.display());
        assert_eq!(passed_over > 0, most > 0, "{}", file.display());
    }
}

#[test]
fn files_too_many_and_too_few_are_found() {
    let found = |change: fn(&Path)| {
        let pair = Pair::new(4);
        change(&pair.other().join("out"));
        pair.differences().join("\n")
    };
    let text = found(|out| fs::write(out.join(".bqrl-x1.tmp"), "").unwrap());
    assert!(text.contains("a temporary file is left"), "{text}");
    let text = found(|out| fs::create_dir(out.join("seed-42/checkpoints/.bqrl-000003-old.tmp")).unwrap());
    assert!(text.contains("a temporary file is left"), "{text}");
    let text = found(|out| fs::write(out.join("notes.txt"), "").unwrap());
    assert!(text.contains("notes.txt: only in the interrupted one"), "{text}");
    let text = found(|out| fs::create_dir(out.join("seed-7")).unwrap());
    assert!(text.contains("seed-7: only in the interrupted one"), "{text}");
    let text = found(|out| fs::remove_file(out.join("summary.json")).unwrap());
    assert!(text.contains("summary.json: only in the reference"), "{text}");
    let text = found(|out| fs::remove_dir_all(out.join("seed-42/checkpoints/000004")).unwrap());
    assert!(text.contains("want checkpoints [5, 4], got [5]"), "{text}");
    let text = found(|out| {
        let store = out.join("seed-42/checkpoints");
        fs::create_dir(store.join("000003")).unwrap();
        for name in ["agent.json", "state.json", "manifest.json"] {
            fs::copy(store.join("000004").join(name), store.join("000003").join(name)).unwrap();
        }
    });
    assert!(text.contains("want checkpoints [5, 4], got [5, 4, 3]"), "{text}");
    let text = found(|out| fs::write(out.join("seed-42/checkpoints/sealed/0-x"), "").unwrap());
    assert!(text.contains("no checkpoint names it"), "{text}");
    let text = found(|out| fs::write(out.join("seed-42/events.out.tfevents.0000000007.bqrl"), "").unwrap());
    assert!(text.contains("beside"), "{text}");
}

#[test]
fn the_difference_names_file_line_and_both_sides() {
    let pair = Pair::new(4);
    let path = pair.other().join("out/seed-42/episodes.csv");
    fs::write(path, "episode,episode_return,length\n1,0.5,3\n2,0,2\n").unwrap();
    let text = pair.differences().join("\n");
    assert!(text.contains("out/seed-42/episodes.csv: byte 40, line 3: want"), "{text}");
    assert!(text.contains("2,1,2") && text.contains("2,0,2"), "{text}");
}

#[test]
fn times_on_a_page_of_results_may_differ_and_steps_may_not() {
    let page = |first: &str, second: &str, steps: u32| {
        format!(
            "# Results\n| 1 | 2 |\n## Where the time went\n\n| method | problem | seconds | share |\n|---|---|---|---|\n\
             | {first} | lake | 84.8 | 79.7 % |\n| {second} | lake | 2.1 | 2.0 % |\n\n| run | seconds | steps | updates |\n\
             |---|---|---|---|\n| lake/ppo | 0.9 | {steps} | 7 |\n"
        )
    };
    let masked = super::masked_results;
    assert_eq!(masked(&page("PPO", "TRPO", 5)), masked(&page("TRPO", "PPO", 5).replace("84.8", "3")));
    assert_ne!(masked(&page("PPO", "TRPO", 5)), masked(&page("PPO", "TRPO", 6)));
    assert_ne!(masked(&page("PPO", "TRPO", 5)), masked(&page("PPO", "QPPO", 5)));
    assert_ne!(masked(&page("PPO", "TRPO", 5)), masked(&page("PPO", "TRPO", 5).replace("| 1 |", "| 3 |")));
}

#[test]
fn standard_output_is_compared_without_times() {
    let output = |seconds: f64, steps: u32| format!("{{\"seconds\":{seconds:?},\"env_steps\":{steps}}}\n");
    assert_eq!(compare::outputs(output(0.5, 7).as_bytes(), output(12.25, 7).as_bytes()), None);
    assert!(compare::outputs(output(0.5, 7).as_bytes(), output(0.5, 8).as_bytes()).is_some());
    assert!(compare::outputs(output(0.5, 7).as_bytes(), b"").is_some());
}

#[test]
fn checksums_match_the_published_one() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}
