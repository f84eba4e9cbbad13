//! Speed of the replay: `cargo bench -p bqrl-agents`. Memory of a million transitions, measured (Linux):
//! `cargo bench -p bqrl-agents --bench replay -- memory`; the largest takes 7 GB.

#![allow(clippy::print_stdout, clippy::print_stderr)] // It prints what it found.

use std::process::Command;

use bqrl_agents::experience::replay::{Replay, memory};
use bqrl_agents::{Input, Transition};
use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::{End, Observation};
use divan::Bencher;

const KINDS: [&str; 3] = ["frames", "planes", "index"];
const LANES: [usize; 2] = [1, 64];
const TRANSITIONS: usize = 1_000_000;
/// Bytes of memory that a million transitions may take.
const BARS: [(&str, u64); 2] = [("frames", 7_500_000_000), ("planes", 180_000_000)];

/// 84 × 84 bytes in stacks of four, 1000 bits, or an index.
fn space(kind: &str) -> ObservationSpace {
    match kind {
        "frames" => ObservationSpace::Bytes { shape: vec![4, 84, 84], stack: 4 },
        "planes" => ObservationSpace::Bits(vec![10, 10, 10]),
        _ => ObservationSpace::Discrete { n: 1000, ordered: false },
    }
}

/// Lanes that step in turn, with episodes of a thousand steps.
struct World {
    replay: Replay,
    now: Vec<Observation>,
    steps: usize,
}

impl World {
    fn new(kind: &str, n_lanes: usize, capacity: usize) -> Self {
        let space = space(kind);
        let first = match &space {
            ObservationSpace::Bytes { .. } => Observation::Bytes(vec![1; space.size()]),
            ObservationSpace::Bits(_) => Observation::Bits(vec![1; space.size().div_ceil(64)]),
            _ => Observation::Index(0),
        };
        Self { replay: Replay::new(capacity, n_lanes, &space), now: vec![first; n_lanes], steps: 0 }
    }

    fn step(&mut self) {
        let (lane, stage) = (self.steps % self.now.len(), self.steps / self.now.len() % 1000);
        let now = &mut self.now[lane];
        let next = match now {
            Observation::Bytes(stack) => {
                let mut next = Vec::with_capacity(stack.len());
                next.extend_from_slice(&stack[84 * 84..]);
                next.resize(stack.len(), 1 + self.steps as u8 % 200);
                Observation::Bytes(next)
            }
            Observation::Bits(words) => {
                Observation::Bits(words.iter().map(|word| word ^ self.steps as u64 & 255).collect())
            }
            _ => Observation::Index(self.steps % 1000),
        };
        let transition = Transition {
            x: Input { stage, observation: now, collected: stage as f64 },
            action: lane % 6,
            reward: 1.0,
            next: Input { stage: stage + 1, observation: &next, collected: stage as f64 + 1.0 },
            end: if stage == 999 { End::Terminated } else { End::NotYet },
        };
        self.replay.store(lane, &transition);
        *now = next;
        self.steps += 1;
    }
}

/// Making an observation and storing a transition, in a ring that is full.
#[divan::bench(args = KINDS, consts = LANES)]
fn store<const N: usize>(bencher: Bencher, kind: &str) {
    let mut world = World::new(kind, N, 10_000);
    (0..20_000).for_each(|_| world.step());
    bencher.bench_local(|| world.step());
}

/// Drawing a transition.
#[divan::bench(args = KINDS, consts = LANES)]
fn sample<const N: usize>(bencher: Bencher, kind: &str) {
    let mut world = World::new(kind, N, 10_000);
    (0..20_000).for_each(|_| world.step());
    let rng = &mut stream(42, Purpose::Test);
    bencher.bench_local(|| world.replay.sample(1, 1.0, rng));
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = text.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("pages in memory");
    pages * 4096
}

/// In a process of its own, so that nothing freed before is counted.
fn measure(kind: &str, n_lanes: usize) {
    let before = resident();
    let begin = std::time::Instant::now();
    let mut world = World::new(kind, n_lanes, TRANSITIONS);
    (0..TRANSITIONS + TRANSITIONS / 10).for_each(|_| world.step());
    let (filled, taken) = (begin.elapsed(), resident() - before);
    let said = memory(TRANSITIONS, n_lanes, &space(kind));
    println!(
        "{kind:<7} {n_lanes:>3} lanes: {:>7.1} MB resident, {:>7.1} MB estimated, filled in {:.1} s",
        taken as f64 / 1e6,
        said as f64 / 1e6,
        filled.as_secs_f64()
    );
    let bar = BARS.iter().find(|bar| bar.0 == kind).map_or(u64::MAX, |bar| bar.1);
    assert!(taken <= bar, "{taken} bytes, want at most {bar}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory"] => {
            let program = std::env::current_exe().expect("this program");
            for kind in ["index", "planes", "frames"] {
                for n_lanes in LANES {
                    let child = Command::new(&program).args(["measure", kind, &n_lanes.to_string()]).status();
                    assert!(child.is_ok_and(|status| status.success()), "{kind}, {n_lanes} lanes");
                }
            }
        }
        ["measure", kind, n_lanes] => measure(kind, n_lanes.parse().expect("a number of lanes")),
        _ => divan::main(),
    }
}
