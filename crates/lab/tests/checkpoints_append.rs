//! Checkpoints of a growing replay write what is new, and not what is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bqrl_agents::experience::replay::Replay;
use bqrl_agents::{Body, Input, Transition};
use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::{End, Observation};
use bqrl_runs::checkpoint::{CheckpointStore, Contents};

/// Frames of side × side bytes in stacks of four, in two lanes.
struct World {
    side: usize,
    replay: Replay,
    now: [Vec<u8>; 2],
    steps: usize,
}

impl World {
    fn new(side: usize, capacity: usize, block: Option<usize>) -> Self {
        let space = ObservationSpace::Bytes { shape: vec![4, side, side], stack: 4 };
        let replay = Replay::new(capacity, 2, &space);
        let replay = block.map_or(replay.clone(), |block| replay.with_block(block));
        Self { side, replay, now: [vec![0; 4 * side * side], vec![0; 4 * side * side]], steps: 0 }
    }

    fn grow(&mut self, transitions: usize) {
        for _ in 0..transitions {
            let (lane, stage, frame) = (self.steps % 2, self.steps / 2, self.side * self.side);
            let mut next = self.now[lane][frame..].to_vec();
            next.extend((0..frame).map(|pixel| (pixel * 7 + self.steps * 13) as u8));
            let (x, after) =
                (Observation::Bytes(std::mem::take(&mut self.now[lane])), Observation::Bytes(next.clone()));
            self.replay.store(
                lane,
                &Transition {
                    x: Input { stage, observation: &x, collected: 0.0 },
                    action: self.steps % 3,
                    reward: self.steps as f64,
                    next: Input { stage: stage + 1, observation: &after, collected: 0.0 },
                    end: End::NotYet,
                },
            );
            self.now[lane] = next;
            self.steps += 1;
        }
    }

    /// Saves a checkpoint; the bytes of the files that were not there before.
    fn save(&self, store: &CheckpointStore, directory: &Path) -> u64 {
        let before: BTreeSet<PathBuf> = files(directory).into_iter().collect();
        let parts = self.replay.save(&|name| store.has(name));
        let contents = |body: &'_ Body| match body {
            Body::Bytes(bytes) => bytes.len(),
            Body::Sealed(bytes) => bytes.as_ref().map_or(0, Vec::len),
        };
        let given: usize = parts.iter().map(|part| contents(&part.body)).sum();
        let parts: Vec<(&str, Contents)> = parts
            .iter()
            .map(|part| match &part.body {
                Body::Bytes(bytes) => (&*part.name, Contents::Plain(bytes)),
                Body::Sealed(bytes) => (&*part.name, Contents::Sealed(bytes.as_deref())),
            })
            .collect();
        store.save_parts(self.steps as u64, &parts).unwrap();
        let new = files(directory).into_iter().filter(|path| !before.contains(path));
        let written = new.map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(written >= given as u64, "{written} bytes of files, {given} given");
        written
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn the_second_checkpoint_writes_only_what_is_new() {
    let run = tempfile::tempdir().unwrap();
    let directory = run.path().join("checkpoints");
    let store = CheckpointStore::open(&directory);
    let mut world = World::new(20, 6000, Some(64));
    let row = 20 * 20 + 26;
    world.grow(5000);
    let first = world.save(&store, &directory);
    assert!(first > 5000 * row, "{first}");
    // Growing, and then overwriting the oldest: 200 new transitions, less than a block that was open before, of the
    // oldest block the half that is left, and a few headers.
    for _ in 0..20 {
        world.grow(200);
        let written = world.save(&store, &directory);
        assert!(written < (200 + 64 + 32) * row + 40_000, "{written}");
    }
    // Another process goes on from there.
    let store = CheckpointStore::open(&directory);
    let loaded = store.latest().unwrap().unwrap();
    assert_eq!((loaded.number, loaded.warnings.len()), (9000, 0));
    let mut restored = World::new(20, 6000, Some(64));
    restored.replay.restore(&|name| loaded.part(name)).unwrap();
    assert_eq!(restored.replay.save(&|_| false), world.replay.save(&|_| false));
    world.grow(200);
    let written = world.save(&store, &directory);
    assert!(written < (200 + 64 + 32) * row + 40_000, "{written}");
    // No more is on disk than two checkpoints need.
    let all: u64 = files(&directory).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(all < (6000 + 2 * 300) * row + 500_000, "{all}");
}

/// `cargo test --release -p bqrl-lab --test checkpoints_append -- --ignored --nocapture`
#[test]
#[ignore = "writes a gigabyte, to be measured"]
fn a_gigabyte_of_frames() {
    let run = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = run.path().join("checkpoints");
    let store = CheckpointStore::open(&directory);
    let mut world = World::new(84, 1_000_000, None);
    world.grow(141_000);
    for _ in 0..6 {
        let begin = Instant::now();
        let written = world.save(&store, &directory);
        println!(
            "{} transitions: {:.1} MB written in {:.2} s",
            world.steps,
            written as f64 / 1e6,
            begin.elapsed().as_secs_f64()
        );
        world.grow(1000);
    }
    let begin = Instant::now();
    let loaded = CheckpointStore::open(&directory).latest().unwrap().unwrap();
    let verified = begin.elapsed().as_secs_f64();
    let mut restored = World::new(84, 1_000_000, None).replay;
    restored.restore(&|name| loaded.part(name)).unwrap();
    println!(
        "{} restored: verified in {verified:.2} s, read by {:.2} s",
        restored.len(),
        begin.elapsed().as_secs_f64()
    );
}
