//! The replay buffer 𝒟: a ring of transitions, each observation stored once.
//!
//! x' of a transition is x of the next one, so only x is stored: a discrete observation as its index, a dense one as its
//! numbers. What follows the newest transition waits in a place of its own until it is stored as the next x. Where it is
//! not (a cut-off; several environments that take turns; an episode that was given up) it is kept beside the ring; after
//! an end that leaves nothing to earn it is not needed.
//!
//! With capacity N exactly the newest N transitions are there, sampled uniformly with replacement from the caller's
//! stream.

use std::collections::BTreeMap;

use bqrl_math::rng::Rng;
use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::{End, Observation};

use super::arrays::{self, Array, RestoreError};
use crate::{Input, Transition};

/// A ring of transitions.
#[derive(Clone, Debug)]
pub struct Replay {
    capacity: usize,
    /// Transitions ever stored; the newest lies in slot (stored − 1) mod capacity.
    stored: u64,
    stages: Vec<u32>,
    collected: Vec<f64>,
    observations: Store,
    actions: Vec<u32>,
    rewards: Vec<f64>,
    ends: Vec<End>,
    /// x' of the newest transition, while its episode goes on.
    newest_next: Option<(usize, Observation, f64)>,
    /// x' that learning bootstraps from and that does not lie in the next slot, by slot.
    beside: BTreeMap<usize, (usize, Observation, f64)>,
}

#[derive(Clone, Debug)]
enum Store {
    Index(Vec<u32>),
    Dense { width: usize, values: Vec<f32> },
}

impl Store {
    fn put(&mut self, slot: usize, observation: &Observation) {
        match (self, observation) {
            (Store::Index(all), &Observation::Index(index)) => {
                put(all, slot, index as u32);
            }
            (Store::Dense { width, values }, Observation::Dense(new)) => {
                assert_eq!(new.len(), *width, "length of the observation");
                let begin = slot * *width;
                if begin == values.len() {
                    values.extend_from_slice(new);
                } else {
                    values[begin..begin + *width].copy_from_slice(new);
                }
            }
            (store, other) => panic!("{other:?} does not fit {store:?}"),
        }
    }

    fn get(&self, slot: usize) -> Observation {
        match self {
            Store::Index(all) => Observation::Index(all[slot] as usize),
            Store::Dense { width, values } => {
                Observation::Dense(values[slot * width..(slot + 1) * width].to_vec())
            }
        }
    }
}

/// A transition as it is read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// Transitions stored before it.
    pub number: u64,
    /// (h, s, c).
    pub x: (usize, Observation, f64),
    /// The action.
    pub action: usize,
    /// Its reward.
    pub reward: f64,
    /// x'; `None` after a last transition, where nothing is left to earn.
    pub next: Option<(usize, Observation, f64)>,
}

impl Replay {
    /// An empty ring for transitions with such observations.
    pub fn new(capacity: usize, observations: &ObservationSpace) -> Self {
        assert!(capacity > 0, "capacity must be at least 1, got 0");
        let observations = match observations {
            ObservationSpace::Discrete { .. } => Store::Index(Vec::new()),
            ObservationSpace::Dense(shape) => {
                Store::Dense { width: shape.iter().product(), values: Vec::new() }
            }
        };
        Self {
            capacity,
            stored: 0,
            stages: Vec::new(),
            collected: Vec::new(),
            observations,
            actions: Vec::new(),
            rewards: Vec::new(),
            ends: Vec::new(),
            newest_next: None,
            beside: BTreeMap::new(),
        }
    }

    /// Transitions held.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// True before the first transition.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Stores a transition, in the place of the oldest when the ring is full.
    pub fn store(&mut self, transition: &Transition) {
        let Transition { x, action, reward, next, end } = transition;
        let slot = (self.stored % self.capacity as u64) as usize;
        if let Some(waiting) = self.newest_next.take()
            && (waiting.0, &waiting.1, waiting.2) != (x.stage, x.observation, x.collected)
        {
            let newest = ((self.stored - 1) % self.capacity as u64) as usize;
            self.beside.insert(newest, waiting);
        }
        self.stored += 1;
        self.observations.put(slot, x.observation);
        put(&mut self.stages, slot, x.stage as u32);
        put(&mut self.collected, slot, x.collected);
        put(&mut self.actions, slot, *action as u32);
        put(&mut self.rewards, slot, *reward);
        put(&mut self.ends, slot, *end);
        let after = |input: &Input| (input.stage, input.observation.clone(), input.collected);
        self.beside.remove(&slot);
        if *end == End::Cutoff {
            self.beside.insert(slot, after(next));
        }
        self.newest_next = (*end == End::NotYet).then(|| after(next));
    }

    /// One transition, uniformly.
    pub fn sample(&self, rng: &mut Rng) -> Remembered {
        self.get(rng.below(self.len()))
    }

    /// The transition in a slot.
    fn get(&self, slot: usize) -> Remembered {
        let input =
            |slot: usize| (self.stages[slot] as usize, self.observations.get(slot), self.collected[slot]);
        let newest = ((self.stored - 1) % self.capacity as u64) as usize;
        let next = match self.ends[slot] {
            End::Terminated | End::Horizon => None,
            End::Cutoff => Some(self.beside[&slot].clone()),
            End::NotYet if slot == newest => self.newest_next.clone(),
            End::NotYet => {
                let beside = self.beside.get(&slot).cloned();
                beside.or_else(|| Some(input((slot + 1) % self.capacity)))
            }
        };
        let age = (newest + self.capacity - slot) % self.capacity;
        let number = self.stored - 1 - age as u64;
        Remembered {
            number,
            x: input(slot),
            action: self.actions[slot] as usize,
            reward: self.rewards[slot],
            next,
        }
    }
}

/// Saved and restored, byte for byte.
impl Replay {
    /// The contents as a safetensors file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let ends: Vec<u8> = self.ends.iter().map(|&end| end as u8).collect();
        let next = self.newest_next.as_ref().map(|(stage, _, collected)| (*stage, *collected));
        let mut arrays = vec![
            Array::u64("stored", &[self.stored]),
            Array::u32("stages", &self.stages),
            Array::f64("collected", &self.collected),
            Array::u32("actions", &self.actions),
            Array::f64("rewards", &self.rewards),
            Array::u8("ends", &ends),
            Array::u64("next_stage", &next.map_or(vec![], |(stage, _)| vec![stage as u64])),
            Array::f64("next_collected", &next.map_or(vec![], |(_, collected)| vec![collected])),
            Array::u64("cut_slots", &self.beside.keys().map(|&slot| slot as u64).collect::<Vec<_>>()),
            Array::u64("cut_stages", &self.beside.values().map(|x| x.0 as u64).collect::<Vec<_>>()),
            Array::f64("cut_collected", &self.beside.values().map(|x| x.2).collect::<Vec<_>>()),
        ];
        let after = self.newest_next.iter().chain(self.beside.values()).map(|x| &x.1);
        match &self.observations {
            Store::Index(all) => {
                arrays.push(Array::u32("observations", all));
                arrays.push(Array::u32("after", &after.map(index_of).collect::<Vec<_>>()));
            }
            Store::Dense { values, .. } => {
                arrays.push(Array::f32("observations", values));
                arrays.push(Array::f32("after", &after.flat_map(dense_of).copied().collect::<Vec<_>>()));
            }
        }
        arrays::to_bytes(&arrays)
    }

    /// Restores what [`to_bytes`](Self::to_bytes) saved, into a ring made with the same settings.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        let file = arrays::Arrays::read(bytes)?;
        let n = file.u32("actions")?.len();
        let same = |name: &'static str, len: usize| {
            if len == n { Ok(()) } else { Err(RestoreError(format!("{name} has {len} entries, want {n}"))) }
        };
        let mut new = Self {
            stored: file.one_u64("stored")?,
            stages: file.u32("stages")?,
            collected: file.f64("collected")?,
            actions: file.u32("actions")?,
            rewards: file.f64("rewards")?,
            ends: file.u8("ends")?.into_iter().map(end_of).collect::<Result<_, _>>()?,
            newest_next: None,
            beside: BTreeMap::new(),
            ..self.clone()
        };
        same("stages", new.stages.len())?;
        same("collected", new.collected.len())?;
        same("rewards", new.rewards.len())?;
        same("ends", new.ends.len())?;
        if n > self.capacity || n as u64 != new.stored.min(self.capacity as u64) {
            return Err(RestoreError(format!("{n} transitions do not fill a ring of {}", self.capacity)));
        }
        let mut after: Vec<Observation> = match &self.observations {
            Store::Index(_) => {
                let all = file.u32("observations")?;
                same("observations", all.len())?;
                new.observations = Store::Index(all);
                file.u32("after")?.into_iter().map(|index| Observation::Index(index as usize)).collect()
            }
            &Store::Dense { width, .. } => {
                let values = file.f32("observations")?;
                same("observations", values.len() / width.max(1))?;
                new.observations = Store::Dense { width, values };
                file.f32("after")?.chunks_exact(width).map(|v| Observation::Dense(v.to_vec())).collect()
            }
        };
        let (next_stage, next_collected) = (file.u64("next_stage")?, file.f64("next_collected")?);
        let (slots, stages) = (file.u64("cut_slots")?, file.u64("cut_stages")?);
        let collected = file.f64("cut_collected")?;
        let waiting = next_stage.len();
        if next_collected.len() != waiting
            || waiting > 1
            || [stages.len(), collected.len(), after.len() - waiting.min(after.len())] != [slots.len(); 3]
        {
            return Err(RestoreError("the successors do not match".into()));
        }
        let mut cut = after.split_off(waiting).into_iter();
        if let Some(observation) = after.pop() {
            new.newest_next = Some((next_stage[0] as usize, observation, next_collected[0]));
        }
        for ((slot, stage), collected) in slots.into_iter().zip(stages).zip(collected) {
            let observation = cut.next().expect("counted above");
            new.beside.insert(slot as usize, (stage as usize, observation, collected));
        }
        *self = new;
        Ok(())
    }
}

fn index_of(observation: &Observation) -> u32 {
    let Observation::Index(index) = observation else { panic!("{observation:?} is no index") };
    *index as u32
}

fn dense_of(observation: &Observation) -> &[f32] {
    let Observation::Dense(values) = observation else { panic!("{observation:?} is not dense") };
    values
}

fn end_of(number: u8) -> Result<End, RestoreError> {
    let ends = [End::NotYet, End::Terminated, End::Horizon, End::Cutoff];
    let found = ends.into_iter().find(|&end| end as u8 == number);
    found.ok_or_else(|| RestoreError(format!("{number} is no way for an episode to end")))
}

fn put<T>(values: &mut Vec<T>, slot: usize, value: T) {
    if slot == values.len() { values.push(value) } else { values[slot] = value }
}

#[cfg(test)]
mod tests {
    use bqrl_math::rng::{Purpose, stream};
    use proptest::prelude::*;

    use super::*;

    /// Transition number k of a life of episodes with the given lengths, each ended as given.
    fn life(episodes: &[(usize, End)]) -> Vec<(usize, Observation, f64, usize, f64, Observation, End)> {
        let mut all = Vec::new();
        let mut k = 0;
        for &(length, end) in episodes {
            for stage in 0..length {
                let end = if stage + 1 == length { end } else { End::NotYet };
                let (now, next) = (Observation::Index(k), Observation::Index(k + 1));
                all.push((stage, now, k as f64 / 2.0, k % 3, k as f64, next, end));
                k += 1;
            }
            k += 1; // The next episode does not start where this one ended.
        }
        all
    }

    fn filled(capacity: usize, episodes: &[(usize, End)]) -> (Replay, Vec<Remembered>) {
        let mut replay = Replay::new(capacity, &ObservationSpace::Discrete { n: 1000, ordered: false });
        let mut wanted = Vec::new();
        for (number, (stage, observation, collected, action, reward, next, end)) in (0..).zip(&life(episodes))
        {
            let after = (stage + 1, next.clone(), collected + 0.5);
            replay.store(&Transition {
                x: Input { stage: *stage, observation, collected: *collected },
                action: *action,
                reward: *reward,
                next: Input { stage: after.0, observation: next, collected: after.2 },
                end: *end,
            });
            let bootstraps = matches!(end, End::NotYet | End::Cutoff);
            wanted.push(Remembered {
                number,
                x: (*stage, observation.clone(), *collected),
                action: *action,
                reward: *reward,
                next: bootstraps.then_some(after),
            });
        }
        (replay, wanted)
    }

    proptest! {
        #[test]
        fn exactly_the_newest_transitions_are_held_with_their_successors(
            capacity in 1usize..20,
            lengths in prop::collection::vec((1usize..6, 0u8..3), 1..12),
            unfinished in 0usize..4,
        ) {
            let ends = [End::Terminated, End::Horizon, End::Cutoff];
            let mut episodes: Vec<(usize, End)> = lengths.iter().map(|&(n, e)| (n, ends[e as usize])).collect();
            if unfinished > 0 {
                episodes.push((unfinished, End::NotYet));
            }
            let (replay, wanted) = filled(capacity, &episodes);
            prop_assert_eq!(replay.len(), wanted.len().min(capacity));
            let mut held: Vec<Remembered> = (0..replay.len()).map(|slot| replay.get(slot)).collect();
            held.sort_by(|a, b| a.reward.total_cmp(&b.reward));
            prop_assert_eq!(&held[..], &wanted[wanted.len() - held.len()..]);
        }
    }

    proptest! {
        #[test]
        fn environments_that_take_turns_keep_their_own_successors(
            capacity in 1usize..20,
            turns in prop::collection::vec((0usize..3, 0u8..6), 1..40),
        ) {
            // Environment e sees 100·e, 100·e + 1, …; an end is followed by a jump, as after a reset.
            let ends = [End::Terminated, End::Horizon, End::Cutoff, End::NotYet, End::NotYet, End::NotYet];
            let mut replay = Replay::new(capacity, &ObservationSpace::Discrete { n: 1000, ordered: false });
            let (mut seen, mut wanted) = ([0, 100, 200], Vec::new());
            for (k, &(e, end)) in turns.iter().enumerate() {
                let (now, next, end) = (seen[e], seen[e] + 1, ends[end as usize]);
                let (x, after) = (Observation::Index(now), Observation::Index(next));
                replay.store(&Transition {
                    x: Input { stage: now, observation: &x, collected: 0.0 },
                    action: e,
                    reward: k as f64,
                    next: Input { stage: next, observation: &after, collected: 0.0 },
                    end,
                });
                let bootstraps = matches!(end, End::NotYet | End::Cutoff);
                wanted.push(Remembered {
                    number: k as u64,
                    x: (now, x, 0.0),
                    action: e,
                    reward: k as f64,
                    next: bootstraps.then_some((next, after, 0.0)),
                });
                seen[e] += if end == End::NotYet { 1 } else { 2 };
            }
            let held = |replay: &Replay| {
                let mut held: Vec<Remembered> = (0..replay.len()).map(|slot| replay.get(slot)).collect();
                held.sort_by(|a, b| a.reward.total_cmp(&b.reward));
                held
            };
            prop_assert_eq!(&held(&replay)[..], &wanted[wanted.len() - replay.len()..]);
            let mut restored = Replay::new(capacity, &ObservationSpace::Discrete { n: 1000, ordered: false });
            restored.restore(&replay.to_bytes()).unwrap();
            prop_assert_eq!(held(&restored), held(&replay));
        }
    }

    #[test]
    fn a_restored_ring_goes_on_as_the_saved_one() {
        for (capacity, episodes) in [
            (6, vec![(4, End::Terminated), (5, End::Cutoff), (2, End::NotYet)]),
            (50, vec![(4, End::Cutoff), (5, End::Horizon)]),
        ] {
            let (replay, _) = filled(capacity, &episodes);
            let mut restored = Replay::new(capacity, &ObservationSpace::Discrete { n: 1000, ordered: false });
            restored.restore(&replay.to_bytes()).unwrap();
            assert_eq!(restored.to_bytes(), replay.to_bytes());
            for slot in 0..replay.len() {
                assert_eq!(restored.get(slot), replay.get(slot));
            }
            // A ring of another size is refused.
            let mut other = Replay::new(3, &ObservationSpace::Discrete { n: 1000, ordered: false });
            assert!(other.restore(&replay.to_bytes()).is_err());
            assert!(restored.restore(b"garbage").is_err());
        }
    }

    #[test]
    fn sampling_is_uniform() {
        let (replay, _) = filled(5, &[(8, End::Terminated)]);
        let rng = &mut stream(42, Purpose::Test);
        let mut counts = [0u32; 8];
        for _ in 0..10_000 {
            counts[replay.sample(rng).reward as usize] += 1;
        }
        assert_eq!(counts[..3], [0, 0, 0]);
        // 2000 expected, standard deviation 40; six of them: a false alarm in fewer than one seed in 10^7.
        assert!(counts[3..].iter().all(|&n| n.abs_diff(2000) < 240), "{counts:?}");
    }

    #[test]
    fn dense_observations_are_stored_once() {
        let mut replay = Replay::new(4, &ObservationSpace::Dense(vec![2]));
        let seen: Vec<Observation> = (0..7).map(|k| Observation::Dense(vec![k as f32, -1.0])).collect();
        for k in 0..6 {
            let input = |k: usize| Input { stage: k, observation: &seen[k], collected: 0.0 };
            let end = if k == 5 { End::Cutoff } else { End::NotYet };
            replay.store(&Transition { x: input(k), action: 0, reward: k as f64, next: input(k + 1), end });
        }
        let Store::Dense { values, .. } = &replay.observations else { panic!("dense") };
        assert_eq!(values.len(), 4 * 2);
        for slot in 0..4 {
            let held = replay.get(slot);
            let k = held.reward as usize;
            assert_eq!(held.next, Some((k + 1, seen[k + 1].clone(), 0.0)));
        }
    }
}
