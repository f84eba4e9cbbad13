//! Saved replays. What is accepted takes new transitions, is drawn from, saved and restored again.

use bqrl_agents::experience::replay::Replay;
use bqrl_agents::{Input as X, Transition};
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::trajectory::{End, Observation};

use crate::Input;

const LANES: usize = 2;
const CAPACITY: usize = 24;
/// Transitions of a segment.
const BLOCK: usize = 8;
const N_ACTIONS: usize = 3;

/// A kind of observations.
pub type Kind = (&'static str, fn() -> ObservationSpace);

/// All kinds.
pub const KINDS: [Kind; 4] = [
    ("index", || ObservationSpace::Discrete { n: 5, ordered: false }),
    ("dense", || ObservationSpace::Dense(vec![2])),
    ("bits", || ObservationSpace::Bits(vec![7, 10])),
    ("bytes", || ObservationSpace::Bytes { shape: vec![6, 2], stack: 3 }),
];

/// A replay for one kind.
fn empty(space: &ObservationSpace) -> Replay {
    let spec = EnvSpec::new("fuzz", space.clone(), N_ACTIONS, 100);
    Replay::new(CAPACITY, LANES, space).within(&spec).with_block(BLOCK)
}

/// The next observation: a stack shifts more often than not.
fn next(space: &ObservationSpace, before: Option<&Observation>, rng: &mut Rng) -> Observation {
    match space {
        ObservationSpace::Discrete { n, .. } => Observation::Index(rng.below(*n)),
        ObservationSpace::Dense(_) => Observation::Dense(vec![rng.normal() as f32, 1.0]),
        ObservationSpace::Bits(_) => {
            Observation::Bits(vec![rng.below(1 << 40) as u64, rng.below(1 << 6) as u64])
        }
        ObservationSpace::Bytes { .. } => {
            let group: Vec<u8> = (0..4).map(|_| rng.below(256) as u8).collect();
            Observation::Bytes(match before {
                Some(Observation::Bytes(before)) if rng.below(8) > 0 => [&before[4..], &group].concat(),
                _ => group.repeat(3),
            })
        }
    }
}

/// Plays random episodes into a replay.
fn play(replay: &mut Replay, space: &ObservationSpace, transitions: usize, rng: &mut Rng) {
    let mut open: Vec<Option<(usize, Observation, f64)>> = vec![None; LANES];
    for _ in 0..transitions {
        let lane = rng.below(LANES);
        let (stage, seen, collected) = open[lane].take().unwrap_or_else(|| (0, next(space, None, rng), 0.0));
        let after = next(space, Some(&seen), rng);
        let end =
            [End::NotYet, End::NotYet, End::NotYet, End::Terminated, End::Horizon, End::Cutoff][rng.below(6)];
        let reward = rng.below(4) as f64;
        replay.store(
            lane,
            &Transition {
                x: X { stage, observation: &seen, collected },
                action: rng.below(N_ACTIONS),
                reward,
                next: X { stage: stage + 1, observation: &after, collected: collected + reward },
                end,
            },
        );
        // Some episodes are given up.
        if !end.is_over() && rng.below(10) > 0 {
            open[lane] = Some((stage + 1, after, collected + reward));
        }
    }
}

/// The parts of a replay as an input.
fn saved(kind: &str, replay: &Replay) -> Input {
    let mut files = vec![("setting".to_owned(), kind.as_bytes().to_vec())];
    for part in replay.save(&|_| false) {
        let bytes = part.bytes().expect("nothing is stored already").to_vec();
        files.push((part.name, bytes));
    }
    Input { files }
}

/// A replay that has seen so many transitions.
pub(crate) fn played((kind, space): &Kind, transitions: usize) -> Input {
    let (space, rng) = (space(), &mut stream(transitions as u64, Purpose::Test));
    let mut replay = empty(&space);
    play(&mut replay, &space, transitions, rng);
    saved(kind, &replay)
}

fn restored(space: &ObservationSpace, input: &Input) -> Option<Replay> {
    let mut replay = empty(space);
    replay.restore(&|name| input.get(name).map(<[u8]>::to_vec)).ok()?;
    Some(replay)
}

pub(super) fn run(input: &Input) -> bool {
    let kind = input.text("setting").unwrap_or_default();
    let Some((_, space)) = KINDS.iter().find(|(name, _)| *name == kind) else { return false };
    let space = space();
    let Some(mut replay) = restored(&space, input) else { return false };
    let rng = &mut stream(1, Purpose::Test);
    for transitions in [0, 3, CAPACITY] {
        play(&mut replay, &space, transitions, rng);
        for _ in 0..if replay.is_empty() { 0 } else { 2 * CAPACITY } {
            let drawn = replay.sample(1, 1.0, rng);
            assert!(drawn.action < N_ACTIONS && drawn.reward.is_finite(), "{drawn:?}");
            let seen = drawn.next.iter().map(|next| &next.1).chain([&drawn.x.1]);
            seen.for_each(|observation| assert!(space.holds(observation), "{observation:?}"));
        }
        assert!(
            restored(&space, &saved(kind, &replay)).is_some(),
            "what was accepted can be saved and restored"
        );
    }
    true
}
