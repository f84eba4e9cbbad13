//! The ring of one lane: every observation once.
//!
//! Transitions of a lane are numbered 0, 1, 2, …; number n lies in slot n mod `slots`. There are stack − 1 more slots than
//! transitions that can be drawn: the oldest of these needs the frames before it.

use std::collections::BTreeMap;

use bqrl_mdp::trajectory::{End, Observation};

use super::rows::{Base, HEADER, Header, Layout, Pages};
use crate::{Input, Transition};

/// (h, s, c) with an observation of its own.
pub(super) type Owned = (usize, Observation, f64);

/// The successor of the newest transition.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub x: Owned,
    /// Whether its observation is a shift of the one before.
    pub shifts: bool,
}

/// A successor that is not the next x of its lane.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Detached {
    pub stage: u32,
    pub collected: f64,
    /// Whether its observation is a shift of x; then only the newest group is held.
    pub shifts: bool,
    pub observation: Box<[u8]>,
}

#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub layout: Layout,
    /// Transitions that can be drawn, at most.
    pub capacity: u64,
    pub slots: u64,
    /// Transitions ever stored.
    pub stored: u64,
    pub rows: Pages,
    /// The older groups of stacks that no other row holds, by number.
    pub older: BTreeMap<u64, Box<[u8]>>,
    /// x' of the newest transition, while its episode continues.
    pub waiting: Option<Waiting>,
    /// x' that learning bootstraps from and that is not x of the next number, by number.
    pub detached_next: BTreeMap<u64, Detached>,
    /// Memory for one observation.
    scratch: Vec<u8>,
}

impl Lane {
    pub fn new(capacity: usize, layout: Layout) -> Self {
        let slots = capacity + layout.stack() - 1;
        Self {
            layout,
            capacity: capacity as u64,
            slots: slots as u64,
            stored: 0,
            rows: Pages::new(HEADER + layout.group(), slots),
            older: BTreeMap::new(),
            waiting: None,
            detached_next: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Transitions that can be drawn.
    pub fn len(&self) -> usize {
        self.stored.min(self.capacity) as usize
    }

    /// The oldest number that is still in its slot.
    pub fn oldest(&self) -> u64 {
        self.stored.saturating_sub(self.slots)
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.slots) as usize
    }

    /// The number at a place below [`len`](Self::len): the newest one that is equal to it mod capacity.
    pub fn number_at(&self, place: usize) -> u64 {
        let newest = self.stored - 1;
        newest - (newest % self.capacity + self.capacity - place as u64) % self.capacity
    }

    /// True when this one was stored in the place of another.
    pub fn store(&mut self, transition: &Transition) -> bool {
        let Transition { x, action, reward, next, end } = transition;
        let (number, layout) = (self.stored, self.layout);
        let mut base = None;
        if let Some(waiting) = self.waiting.take() {
            if (waiting.x.0, &waiting.x.1, waiting.x.2) == (x.stage, x.observation, x.collected) {
                base = waiting.shifts.then_some(Base::Shift);
            } else {
                let (stage, observation, collected) = &waiting.x;
                let next = Input { stage: *stage, observation, collected: *collected };
                let detached = self.detach(&next, waiting.shifts);
                self.detached_next.insert(number - 1, detached);
            }
        }
        let base = base.unwrap_or_else(|| Base::alone(layout, x.observation));
        if number >= self.slots {
            self.older.remove(&(number - self.slots));
            self.detached_next.remove(&(number - self.slots));
        }

        let (stage, action) = (whole(x.stage, "stage"), whole(*action, "action"));
        let header = Header { stage, collected: x.collected, action, reward: *reward, end: *end, base };
        self.scratch.clear();
        layout.write(x.observation, &mut self.scratch);
        let (older, newest) = self.scratch.split_at(layout.width() - layout.group());
        if base == Base::Older {
            self.older.insert(number, older.into());
        }
        let slot = (number % self.slots) as usize;
        self.rows.put(slot, &header.to_bytes(), newest);
        self.stored += 1;

        if !end.is_final() {
            let shifts = layout.shifts(x.observation, next.observation);
            if *end == End::Cutoff {
                let detached = self.detach(next, shifts);
                self.detached_next.insert(number, detached);
            } else {
                let x = (next.stage, next.observation.clone(), next.collected);
                self.waiting = Some(Waiting { x, shifts });
            }
        }
        number >= self.capacity
    }

    fn detach(&mut self, next: &Input, shifts: bool) -> Detached {
        self.scratch.clear();
        self.layout.write(next.observation, &mut self.scratch);
        let from = if shifts { self.layout.width() - self.layout.group() } else { 0 };
        let (stage, collected) = (whole(next.stage, "stage"), next.collected);
        Detached { stage, collected, shifts, observation: self.scratch[from..].into() }
    }

    pub fn header(&self, number: u64) -> Header {
        Header::read(self.rows.row(self.slot(number)))
    }

    /// The newest group of x.
    pub fn group(&self, number: u64) -> &[u8] {
        &self.rows.row(self.slot(number))[HEADER..]
    }

    pub fn x(&self, number: u64) -> Owned {
        let Header { stage, collected, .. } = self.header(number);
        (stage as usize, self.observation(number), collected)
    }

    fn observation(&self, number: u64) -> Observation {
        let Layout::Bytes { group, stack } = self.layout else {
            return self.layout.read(self.group(number));
        };
        let mut bytes = vec![0; self.layout.width()];
        // From the newest group back, through earlier rows for as long as each is a shift of the one before.
        let (mut at, mut place) = (number, stack - 1);
        loop {
            let newest = self.group(at);
            bytes[place * group..(place + 1) * group].copy_from_slice(newest);
            if place == 0 {
                break;
            }
            match self.header(at).base {
                Base::Shift => (at, place) = (at - 1, place - 1),
                Base::Zeros => break,
                Base::Repeat => {
                    bytes[..place * group]
                        .chunks_exact_mut(group)
                        .for_each(|older| older.copy_from_slice(newest));
                    break;
                }
                Base::Older => {
                    let left_behind = (stack - 1 - place) * group;
                    bytes[..place * group].copy_from_slice(&self.older[&at][left_behind..]);
                    break;
                }
            }
        }
        Observation::Bytes(bytes)
    }

    /// Whether the next number is the next transition of the same episode.
    pub fn is_followed(&self, number: u64) -> bool {
        let goes_on = matches!(self.header(number).end, End::NotYet);
        goes_on && number + 1 < self.stored && !self.detached_next.contains_key(&number)
    }

    /// x' of a transition whose x is given.
    pub fn next(&self, number: u64, x: &Owned) -> Option<Owned> {
        match self.header(number).end {
            End::Terminated | End::Horizon => return None,
            End::NotYet if number + 1 == self.stored => return self.waiting.as_ref().map(|w| w.x.clone()),
            End::NotYet | End::Cutoff => {}
        }
        let Some(next) = self.detached_next.get(&number) else { return Some(self.x(number + 1)) };
        let observation = match &x.1 {
            Observation::Bytes(before) if next.shifts => {
                let group = next.observation.len();
                Observation::Bytes([&before[group..], &next.observation].concat())
            }
            _ => self.layout.read(&next.observation),
        };
        Some((next.stage as usize, observation, next.collected))
    }
}

fn whole(number: usize, what: &str) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| panic!("{what} must be below 2^32, got {number}"))
}
