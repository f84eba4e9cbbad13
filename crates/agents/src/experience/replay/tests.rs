//! A replay against a plain list of everything that was stored.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::trajectory::End;
use proptest::prelude::*;

use super::*;
use crate::Input;
use crate::experience::saved::{Body, Part};

/// One of the four kinds of observation, small.
fn space(kind: u8, stack: usize) -> ObservationSpace {
    match kind {
        0 => ObservationSpace::Discrete { n: 256, ordered: false },
        1 => ObservationSpace::Dense(vec![2]),
        2 => ObservationSpace::Bits(vec![7, 10]),
        _ => ObservationSpace::Bytes { shape: vec![2 * stack, 3], stack },
    }
}

/// One event in a lane: a step, its end and its observation.
#[derive(Clone, Copy, Debug)]
struct Event {
    lane: usize,
    /// 0 to 2: ends; 3: the episode is given up; else it goes on.
    end: u8,
    /// How an episode begins and how a stack moves.
    how: u8,
    /// Few values, so that observations are equal by chance, too.
    value: u8,
}

fn events(n: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = (0usize..12, 0u8..12, any::<u8>(), 0u8..3);
    prop::collection::vec(event.prop_map(|(lane, end, how, value)| Event { lane, end, how, value }), 1..n)
}

/// Environments in lanes, what they showed, and a replay that was told.
struct World {
    space: ObservationSpace,
    /// (h, s, c) of the lanes that are in an episode.
    now: Vec<Option<(usize, Observation, f64)>>,
    /// The transitions stored in every ring.
    wanted: Vec<Vec<Remembered>>,
    replay: Replay,
}

impl World {
    fn new(capacity: usize, n_lanes: usize, space: ObservationSpace, block: usize) -> Self {
        let replay = Replay::new(capacity, n_lanes, &space).with_block(block);
        Self { space, now: vec![None; n_lanes], wanted: vec![Vec::new(); n_lanes], replay }
    }

    /// With so many lanes, more than there are rings.
    fn with_lanes(self, n_lanes: usize) -> Self {
        assert!(n_lanes >= self.wanted.len());
        Self { now: vec![None; n_lanes], ..self }
    }

    fn seen(&self, before: Option<&Observation>, event: Event) -> Observation {
        let Event { value, how, .. } = event;
        match &self.space {
            ObservationSpace::Discrete { .. } => Observation::Index(usize::from(value)),
            ObservationSpace::Dense(_) => Observation::Dense(vec![f32::from(value), -0.5]),
            ObservationSpace::Bits(_) => {
                Observation::Bits(vec![u64::from(value) << 63 | u64::from(how), u64::from(value)])
            }
            ObservationSpace::Bytes { stack, .. } => {
                let group = [value, 1, 2, 3, 4, how];
                let others = |k: usize| [value, 7, how, 9, 9, k as u8];
                Observation::Bytes(match before {
                    // One step in eight does not shift.
                    Some(Observation::Bytes(before)) if how % 8 != 0 => [&before[6..], &group].concat(),
                    None if how % 3 == 0 => group.repeat(*stack),
                    None if how % 3 == 1 => [vec![0; 6 * (stack - 1)], group.to_vec()].concat(),
                    _ => (0..*stack).flat_map(others).collect(),
                })
            }
        }
    }

    fn play(&mut self, event: Event) {
        let lane = event.lane % self.now.len();
        let ring = lane % self.wanted.len();
        let k = self.wanted[ring].len();
        let start = Event { value: (event.value + 1) % 3, ..event };
        let x = self.now[lane].take().unwrap_or_else(|| (0, self.seen(None, start), 0.0));
        let reward = k as f64 / 3.0;
        let next = (x.0 + 1, self.seen(Some(&x.1), event), x.2 + reward);
        let end = match event.end {
            0 => End::Terminated,
            1 => End::Horizon,
            2 => End::Cutoff,
            _ => End::NotYet,
        };
        let input = |x: &'_ (usize, Observation, f64)| (x.0, x.2);
        let ((stage, collected), (next_stage, next_collected)) = (input(&x), input(&next));
        let action = k % 5;
        self.replay.store(
            lane,
            &Transition {
                x: Input { stage, observation: &x.1, collected },
                action,
                reward,
                next: Input { stage: next_stage, observation: &next.1, collected: next_collected },
                end,
            },
        );
        let number = (k * self.wanted.len() + ring) as u64;
        self.now[lane] = (event.end > 3).then(|| next.clone());
        let next = (!end.is_final()).then_some(next);
        let continuation = if next.is_some() { 1.0 } else { 0.0 };
        self.wanted[ring].push(Remembered { number, x, action, reward, next, continuation, n_steps: 1 });
    }

    /// Exactly the newest of each ring are held, in their order by slot.
    fn check(&self, capacity: usize) {
        let per_lane = capacity.div_ceil(self.wanted.len());
        let mut wanted = Vec::new();
        for all in &self.wanted {
            let first = all.len() - all.len().min(per_lane);
            let mut held: Vec<(usize, &Remembered)> = (first..).zip(&all[first..]).collect();
            held.sort_by_key(|(k, _)| k % per_lane);
            wanted.extend(held.into_iter().map(|(_, transition)| transition));
        }
        assert_eq!(self.replay.len(), wanted.len());
        for (place, wanted) in wanted.into_iter().enumerate() {
            assert_eq!(&self.replay.get(place, 1, 1.0), wanted);
        }
        for lane in &self.replay.lanes {
            let beside = lane.older.keys().chain(lane.detached_next.keys());
            assert!(beside.min().is_none_or(|&number| number >= lane.oldest()), "kept for nothing");
        }
    }
}

/// Sealed parts by name, and the last open one.
#[derive(Default)]
struct Store(RefCell<BTreeMap<String, Vec<u8>>>);

impl Store {
    /// Saves; a sealed part that is there must be the same, and the bytes written are returned.
    fn save(&self, replay: &Replay) -> usize {
        let parts = replay.save(&|name| self.0.borrow().contains_key(name));
        // Named without bytes or with them: the segments are the same ones, with the same bytes.
        for part in replay.save(&|_| false) {
            if let (Body::Sealed(Some(bytes)), Some(there)) = (&part.body, self.0.borrow().get(&part.name)) {
                assert_eq!(bytes, there, "{} has changed", part.name);
            }
        }
        let mut written = 0;
        for Part { name, body } in parts {
            if let Body::Bytes(bytes) | Body::Sealed(Some(bytes)) = body {
                written += bytes.len();
                self.0.borrow_mut().insert(name, bytes);
            } else {
                assert!(self.0.borrow().contains_key(&name));
            }
        }
        written
    }

    fn restore(&self, replay: &mut Replay) -> Result<(), crate::RestoreError> {
        replay.restore(&|name| self.0.borrow().get(name).cloned())
    }
}

proptest! {
    #[test]
    fn exactly_the_newest_transitions_are_held_with_their_successors(
        capacity in 1usize..20,
        n_lanes in 1usize..5,
        kind in 0u8..4,
        stack in 1usize..5,
        events in events(120),
    ) {
        let mut world = World::new(capacity, n_lanes, space(kind, stack), 8);
        for event in events {
            world.play(event);
            world.check(capacity);
        }
    }

    #[test]
    fn saved_again_and_again_it_is_restored_and_goes_on(
        capacity in 1usize..40,
        n_lanes in 1usize..5,
        kind in 0u8..4,
        stack in 1usize..5,
        block in 1usize..12,
        every in 1usize..30,
        events in events(160),
    ) {
        let mut world = World::new(capacity, n_lanes, space(kind, stack), block);
        let store = Store::default();
        for (k, &event) in events.iter().enumerate() {
            world.play(event);
            if k % every == 0 {
                store.save(&world.replay);
                let mut restored = Replay::new(capacity, n_lanes, &world.space);
                store.restore(&mut restored).unwrap();
                prop_assert_eq!(restored.save(&|_| false), world.replay.save(&|_| false));
                world.replay = restored;
                world.check(capacity);
            }
        }
        world.check(capacity);
    }

    #[test]
    fn lanes_that_share_a_ring_are_given_back_their_own_successors(
        capacity in 1usize..20,
        rings in 1usize..4,
        more in 1usize..6,
        kind in 0u8..4,
        stack in 1usize..5,
        every in 1usize..30,
        events in events(120),
    ) {
        // The next x of a ring is often that of another lane, and sometimes equal to the x' that waits, by chance.
        let mut world = World::new(capacity, rings, space(kind, stack), 4).with_lanes(rings + more);
        let store = Store::default();
        for (k, event) in events.into_iter().enumerate() {
            world.play(event);
            world.check(capacity);
            if k % every == 0 {
                store.save(&world.replay);
                let mut restored = Replay::new(capacity, rings, &world.space);
                store.restore(&mut restored).unwrap();
                prop_assert_eq!(restored.save(&|_| false), world.replay.save(&|_| false));
                world.replay = restored;
                world.check(capacity);
            }
        }
    }

    #[test]
    fn with_one_lane_a_draw_is_the_slot_below_the_number_held(
        capacity in 1usize..20, n in 1usize..50, seed: u64,
    ) {
        let mut world = World::new(capacity, 1, space(0, 1), 8);
        (0..n).for_each(|_| world.play(Event { lane: 0, end: 9, how: 1, value: 0 }));
        let (mut rng, mut same) = (stream(seed, Purpose::Test), stream(seed, Purpose::Test));
        for _ in 0..20 {
            let number = world.replay.sample(1, 1.0, &mut rng).number as usize;
            prop_assert_eq!(number % capacity, same.below(n.min(capacity)));
            prop_assert!(number + capacity >= n);
        }
        prop_assert_eq!(rng.state(), same.state());
    }
}

#[test]
fn sampling_is_uniform_over_lanes_of_different_lengths() {
    let mut world = World::new(15, 3, space(0, 1), 8);
    for (lane, n) in [(0, 8), (1, 2), (2, 3)] {
        (0..n).for_each(|_| world.play(Event { lane, end: 9, how: 1, value: 0 }));
    }
    assert_eq!(world.replay.len(), 5 + 2 + 3);
    let rng = &mut stream(42, Purpose::Test);
    let mut counts = BTreeMap::new();
    for _ in 0..20_000 {
        *counts.entry(world.replay.sample(1, 1.0, rng).number).or_insert(0u32) += 1;
    }
    let numbers: Vec<u64> = counts.keys().copied().collect();
    assert_eq!(numbers, [1, 2, 4, 5, 8, 9, 12, 15, 18, 21]);
    // 2000 expected, standard deviation 42.4; six of them: a false alarm in fewer than one seed in 10^7.
    assert!(counts.values().all(|&n| n.abs_diff(2000) < 255), "{counts:?}");
}

#[test]
fn a_replay_with_other_settings_or_torn_files_is_refused_and_nothing_changes() {
    let play = |replay: &mut World| {
        (0..60u8).for_each(|k| {
            replay.play(Event { lane: usize::from(k % 2), end: 2 + k % 9, how: 2 + k % 5, value: k % 3 });
        });
    };
    for (kind, stack) in [(0, 1), (1, 1), (2, 1), (3, 1), (3, 3)] {
        let mut world = World::new(30, 2, space(kind, stack), 4);
        play(&mut world);
        let store = Store::default();
        store.save(&world.replay);
        for (capacity, n_lanes, space) in [
            (28, 2, space(kind, stack)),
            (30, 3, space(kind, stack)),
            (30, 2, space((kind + 1) % 4, stack)),
            (30, 2, ObservationSpace::Bytes { shape: vec![4, 3], stack: 2 }),
        ] {
            assert!(store.restore(&mut Replay::new(capacity, n_lanes, &space)).is_err());
        }
        let mut restored = Replay::new(30, 2, &world.space);
        assert!(restored.restore(&|_| None).is_err());
        let names: Vec<String> = store.0.borrow().keys().cloned().collect();
        assert!(names.len() > 5, "{names:?}");
        for name in &names {
            let whole = store.0.borrow()[name].clone();
            let others: Vec<&String> = names.iter().filter(|other| *other != name).collect();
            let mut wrong = vec![None, Some(whole[..whole.len() - 1].to_vec()), Some(b"garbage".to_vec())];
            wrong.extend(others.iter().map(|other| Some(store.0.borrow()[*other].clone())));
            for wrong in wrong {
                let file = |asked: &str| {
                    if asked == name { wrong.clone() } else { store.0.borrow().get(asked).cloned() }
                };
                let error = restored.restore(&file).unwrap_err();
                assert!(error.to_string().contains("replay"), "{error}");
            }
        }
        assert!(restored.is_empty());
        store.restore(&mut restored).unwrap();
        assert_eq!(restored.save(&|_| false), world.replay.save(&|_| false));
    }
}

#[test]
fn a_checkpoint_writes_only_what_is_new() {
    // Two lanes, blocks of 64: 1000 bits and 26 bytes more are 151 bytes a transition.
    let mut replay = Replay::new(10_000, 2, &ObservationSpace::Bits(vec![10, 10, 10])).with_block(64);
    let seen: Vec<Observation> = (0..2).map(|k| Observation::Bits(vec![k; 16])).collect();
    let store = Store::default();
    let mut k = 0;
    let mut grow = |replay: &mut Replay, n: usize| {
        for _ in 0..n {
            let input = |k: usize| Input { stage: k, observation: &seen[k % 2], collected: 0.0 };
            let (x, next) = (input(k / 2), input(k / 2 + 1));
            replay.store(k % 2, &Transition { x, action: 0, reward: 0.0, next, end: End::NotYet });
            k += 1;
        }
        store.save(replay)
    };
    let (all, rows) = (grow(&mut replay, 8000), |n: usize| n * 151);
    assert!(all > rows(8000), "{all}");
    // At most one block is open and 200 transitions are new; a file has a header of about 2 kB.
    for _ in 0..20 {
        let written = grow(&mut replay, 200);
        assert!(written < rows(200 + 2 * 64) + 5 * 2500, "{written}");
    }
    // Overwritten transitions change nothing about that.
    for _ in 0..100 {
        let written = grow(&mut replay, 200);
        assert!(written < rows(200 + 3 * 64) + 5 * 2500, "{written}");
    }
}

#[test]
fn nothing_is_reserved_that_is_not_needed() {
    for (capacity, n_lanes, space) in [
        (5000, 1, space(1, 1)),
        (5001, 4, space(2, 1)),
        (70, 3, ObservationSpace::Bytes { shape: vec![4, 84, 84], stack: 4 }),
    ] {
        let mut world = World::new(capacity, n_lanes, ObservationSpace::Dense(vec![2]), 1 << 14);
        world.replay = Replay::new(capacity, n_lanes, &space);
        let blank = Layout::of(&space).read(&vec![0; Layout::of(&space).width()]);
        let input = Input { stage: 0, observation: &blank, collected: 0.0 };
        let reserved =
            |replay: &Replay| replay.lanes.iter().map(|lane| lane.rows.reserved() as u64).sum::<u64>();
        for k in 0..2 * capacity {
            let transition = Transition { x: input, action: 0, reward: 0.0, next: input, end: End::NotYet };
            world.replay.store(k % n_lanes, &transition);
            assert!(reserved(&world.replay) <= memory(capacity, n_lanes, &space));
        }
        assert_eq!(reserved(&world.replay), memory(capacity, n_lanes, &space));
        assert!(world.replay.lanes.iter().all(|lane| lane.older.is_empty() && lane.detached_next.is_empty()));
    }
}

#[test]
fn frames_are_stored_once_however_an_episode_begins_and_ends() {
    let mut world = World::new(100, 2, space(3, 4), 64);
    for k in 0..300u16 {
        // Starts that repeat a frame (3, 9) or pad with zeros (1); every step shifts; episodes of five end by a cut-off.
        let how = [3, 1, 9][usize::from(k % 3)];
        world.play(Event { lane: 0, end: if k % 5 == 4 { 2 } else { 9 }, how, value: (k % 3) as u8 });
    }
    world.check(100);
    let lane = &world.replay.lanes[0];
    assert!(lane.older.is_empty());
    assert!(lane.detached_next.len() >= 10);
    assert!(lane.detached_next.values().all(|next| next.shifts && next.observation.len() == 6));
}

#[test]
fn several_steps_add_up_and_stop_at_the_end_of_an_episode() {
    let space = ObservationSpace::Discrete { n: 10, ordered: false };
    let mut replay = Replay::new(100, 1, &space);
    // An episode of five steps with rewards 1, 2, 4, 8, 16, and the first two steps of another.
    for step in 0..7_usize {
        let (stage, reward) = (step % 5, f64::from(1 << step));
        let (now, after) = (Observation::Index(stage), Observation::Index(stage + 1));
        let x = Input { stage, observation: &now, collected: 0.0 };
        let next = Input { stage: stage + 1, observation: &after, collected: 0.0 };
        let end = if step == 4 { End::Terminated } else { End::NotYet };
        replay.store(0, &Transition { x, action: 0, reward, next, end });
        let mut wanted: Vec<f64> = (0..=stage).map(|k| f64::from(1 << (step - k))).collect();
        wanted.truncate(stage + 1);
        assert_eq!(replay.newest_rewards(0).collect::<Vec<_>>(), wanted);
    }
    let at = |place, n_steps| {
        let drawn = replay.get(place, n_steps, 1.0);
        (drawn.reward, drawn.next.map(|next| next.0))
    };
    assert_eq!(at(0, 1), (1.0, Some(1)));
    assert_eq!(at(0, 3), (7.0, Some(3)));
    assert_eq!(at(2, 3), (28.0, None));
    assert_eq!(at(3, 5), (24.0, None));
    assert_eq!(at(5, 3), (96.0, Some(2)));
    // With γ = ½ the rewards 1, 2, 4 count 1, 1, 1, and what follows counts an eighth; after an end nothing follows.
    let discounted = |place| {
        let drawn = replay.get(place, 3, 0.5);
        (drawn.reward, drawn.continuation)
    };
    assert_eq!([discounted(0), discounted(2)], [(3.0, 0.125), (12.0, 0.0)]);
}

#[test]
fn a_transition_is_moved_to_another_stage_with_its_end_and_its_discount() {
    let remembered = |stage: usize, next: Option<usize>| Remembered {
        number: 0,
        x: (stage, Observation::Index(7), 3.0),
        action: 1,
        reward: 8.0,
        next: next.map(|stage| (stage, Observation::Index(9), 11.0)),
        continuation: if next.is_some() { 1.0 } else { 0.0 },
        n_steps: 2,
    };
    // γ = ½ and three stages later: the reward counts an eighth.
    let moved = remembered(1, Some(3)).at_stage(4, 10, 0.5);
    assert_eq!((moved.x.0, moved.reward, moved.next.map(|next| next.0)), (4, 1.0, Some(6)));
    // The horizon ends it.
    let last = remembered(1, Some(3)).at_stage(8, 10, 1.0);
    assert_eq!((last.x.0, last.reward, last.next, last.continuation), (8, 8.0, None, 0.0));
    // An end before the horizon is an end at every stage. What follows an end at the horizon is not known.
    assert_eq!(remembered(1, None).at_stage(5, 10, 1.0).x.0, 5);
    assert_eq!(remembered(8, None).at_stage(5, 10, 1.0), remembered(8, None));
}
