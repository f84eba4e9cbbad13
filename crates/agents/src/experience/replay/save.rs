//! A replay as files: sealed segments that never change, and one open part.
//!
//! ```text
//! replay-000012.safetensors   transitions 12·B … 13·B − 1 of all lanes together, in the order of storing
//! replay.safetensors          all others, x' that wait, and which segments belong to it
//! ```
//!
//! A segment is complete when its B transitions are stored, so a checkpoint writes the segments completed since the last
//! one, and the open part. B is such that a segment has about 16 MB, and at most 2^14 transitions. Transitions are
//! counted over all lanes, so that the open part stays small with many lanes, too. If the oldest transitions of a segment
//! were overwritten, the rest moves to the open part when less than half is left or when the segment was never saved.
//!
//! Only the next transition of a lane shows whether the episode before it was abandoned. For the last transition of a
//! segment this is too late, so its successor is in the open part.

use std::collections::VecDeque;

use super::super::arrays::{self, Array, Arrays};
use super::super::saved::{self, Body, Part, Parts};
use super::lane::{Detached, Lane, Waiting};
use super::rows::{Base, Header, Layout, end_of};
use super::{Limits, Replay};
use crate::RestoreError;
use bqrl_mdp::trajectory::{End, Observation};

const OPEN: &str = "replay.safetensors";
/// Bytes of a segment, about.
const SEGMENT: usize = 1 << 24;
/// Transitions of a segment, at most.
const LONGEST: usize = 1 << 14;

fn segment_name(number: u64) -> String {
    format!("replay-{number:06}.safetensors")
}

/// The positions at which segments begin and end in each lane.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    /// B.
    block: u64,
    /// Transitions stored since the last mark.
    open: u64,
    /// The segment that begins at the first mark.
    first: u64,
    /// Numbers reached by the lanes when a segment began; the last mark is where the open part begins.
    marks: VecDeque<Box<[u64]>>,
}

impl Segments {
    pub fn new(n_lanes: usize, row: usize) -> Self {
        let block = (SEGMENT / row).clamp(1, LONGEST);
        let block = 1 << block.ilog2();
        Self { block, open: 0, first: 0, marks: [vec![0; n_lanes].into()].into() }
    }

    /// Called after every transition.
    pub fn stored(&mut self, lanes: &[Lane]) {
        self.open += 1;
        if self.open < self.block {
            return;
        }
        self.open = 0;
        self.marks.push_back(lanes.iter().map(|lane| lane.stored).collect());
        let overwritten = |end: &[u64]| lanes.iter().zip(end).all(|(lane, &end)| end <= lane.oldest());
        while self.marks.len() > 2 && overwritten(&self.marks[1]) {
            self.marks.pop_front();
            self.first += 1;
        }
    }

    /// Reads the saved marks of a replay that has stored this many transitions.
    fn read(open: &Arrays, stored: &[u64]) -> Result<Self, RestoreError> {
        let block = open.one_u64("block")?;
        if block == 0 || block > u64::from(u32::MAX) {
            return Err(RestoreError(format!("block is {block}, want a number from 1 to 2^32 - 1")));
        }
        let marks = open.u64("marks")?;
        let marks: VecDeque<Box<[u64]>> = marks.chunks(stored.len()).map(Into::into).collect();
        // The number of transitions between two marks; none if the marks are not in order. Sums of `stored` were checked.
        let between = |from: &[u64], to: &[u64]| -> Option<u64> {
            let steps = from.iter().zip(to).map(|(from, to)| to.checked_sub(*from));
            steps.sum::<Option<u64>>().filter(|_| from.len() == to.len())
        };
        let open_since = marks.back().and_then(|last| between(last, stored));
        let even = open_since.is_some()
            && (1..marks.len()).rev().all(|k| between(&marks[k - 1], &marks[k]) == Some(block));
        let Some(since) = open_since.filter(|&since| even && since < block) else {
            return Err(RestoreError("the segments do not match".into()));
        };
        // Segments are counted from the first transition on.
        let (first, before) = (open.one_u64("first_segment")?, marks[0].iter().sum::<u64>());
        if first.checked_mul(block) != Some(before) {
            return Err(RestoreError(format!(
                "first_segment is {first}, want {} after {before} transitions",
                before / block
            )));
        }
        Ok(Self { block, open: since, first, marks })
    }
}

/// Consecutive transitions of a lane.
#[derive(Clone, Copy, Debug)]
struct Run {
    lane: usize,
    from: u64,
    to: u64,
}

impl Run {
    fn len(self) -> u64 {
        self.to - self.from
    }

    /// Those between two marks that are still there, lane by lane.
    fn between(lanes: &[Lane], from: &[u64], to: &[u64]) -> Vec<Self> {
        let run = |lane: usize| Self { lane, from: from[lane].max(lanes[lane].oldest()), to: to[lane] };
        (0..lanes.len()).map(run).filter(|run| run.from < run.to).collect()
    }
}

/// A successor beside the ring, with its lane and number.
type Entry<'a> = (usize, u64, &'a Detached);

impl Replay {
    /// Sets the number of transitions per segment, which otherwise depends on the observations.
    #[must_use]
    pub fn with_block(mut self, transitions: usize) -> Self {
        assert!(transitions > 0 && self.is_empty(), "the size of a segment is set before anything is stored");
        self.segments.block = transitions as u64;
        self
    }

    /// The contents as files. `has` says which sealed parts are stored already and need no bytes.
    pub fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let Segments { block, first, marks, .. } = &self.segments;
        let (mut parts, mut named, mut open, mut entries) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (number, k) in (*first..).zip(1..marks.len()) {
            let runs = Run::between(&self.lanes, &marks[k - 1], &marks[k]);
            let left: u64 = runs.iter().map(|run| run.len()).sum();
            let name = segment_name(number);
            let known = left > 0 && has(&name);
            if left == *block || (known && 2 * left >= *block) {
                let (late, known_then): (Vec<Entry>, Vec<Entry>) =
                    self.entries(&runs).into_iter().partition(|entry| self.is_late(&runs, entry));
                entries.extend(late);
                let body = (!known).then(|| arrays::to_bytes(&self.chunk(&runs, &known_then)));
                parts.push(Part { name, body: Body::Sealed(body) });
                named.push(number);
            } else {
                open.extend(runs);
            }
        }
        let now: Vec<u64> = self.lanes.iter().map(|lane| lane.stored).collect();
        open.extend(Run::between(&self.lanes, marks.back().expect("never empty"), &now));
        entries.extend(self.entries(&open));
        parts.push(Part { name: OPEN.into(), body: Body::Bytes(self.open_part(&open, &entries, &named)) });
        parts
    }

    /// The successors beside the ring of some transitions.
    fn entries(&self, runs: &[Run]) -> Vec<Entry<'_>> {
        let mut entries = Vec::new();
        for run in runs {
            let of_run = self.lanes[run.lane].detached_next.range(run.from..run.to);
            entries.extend(of_run.map(|(&number, detached)| (run.lane, number, detached)));
        }
        entries
    }

    /// Whether a successor may have become known only when a segment was complete.
    fn is_late(&self, runs: &[Run], &(lane, number, _): &Entry) -> bool {
        let is_last = runs.iter().any(|run| run.lane == lane && run.to == number + 1);
        is_last && self.lanes[lane].header(number).end == End::NotYet
    }

    /// Transitions as arrays.
    fn chunk(&self, runs: &[Run], entries: &[Entry]) -> Vec<Array> {
        let layout = self.layout();
        let rows =
            || runs.iter().flat_map(|run| (run.from..run.to).map(|number| (&self.lanes[run.lane], number)));
        let headers: Vec<Header> = rows().map(|(lane, number)| lane.header(number)).collect();
        let mut observations = Vec::with_capacity(headers.len() * layout.group());
        rows().for_each(|(lane, number)| observations.extend_from_slice(lane.group(number)));
        let older = || {
            runs.iter().flat_map(|run| {
                let of_run = self.lanes[run.lane].older.range(run.from..run.to);
                of_run.map(|(&number, groups)| ([run.lane as u64, number], groups))
            })
        };
        let u32s = |of: fn(&Header) -> u32| headers.iter().map(of).collect::<Vec<_>>();
        let f64s = |of: fn(&Header) -> f64| headers.iter().map(of).collect::<Vec<_>>();
        let u8s = |of: fn(&Header) -> u8| headers.iter().map(of).collect::<Vec<_>>();
        let of_runs: Vec<u64> = runs.iter().flat_map(|run| [run.lane as u64, run.from, run.to]).collect();
        let keys: Vec<u64> = entries.iter().flat_map(|&(lane, number, _)| [lane as u64, number]).collect();
        let next: Vec<&Detached> = entries.iter().map(|entry| entry.2).collect();
        vec![
            Array::u64("runs", &of_runs),
            Array::u32("stages", &u32s(|header| header.stage)),
            Array::f64("collected", &f64s(|header| header.collected)),
            Array::u32("actions", &u32s(|header| header.action)),
            Array::f64("rewards", &f64s(|header| header.reward)),
            Array::u8("ends", &u8s(|header| header.end as u8)),
            Array::u8("bases", &u8s(|header| header.base as u8)),
            Array::raw("observations", layout.dtype(), observations),
            Array::u64("older_keys", &older().flat_map(|(key, _)| key).collect::<Vec<_>>()),
            Array::u8("older", &older().flat_map(|(_, groups)| groups.iter().copied()).collect::<Vec<_>>()),
            Array::u64("next_keys", &keys),
            Array::u32("next_stages", &next.iter().map(|next| next.stage).collect::<Vec<_>>()),
            Array::f64("next_collected", &next.iter().map(|next| next.collected).collect::<Vec<_>>()),
            Array::u8("next_shifts", &next.iter().map(|next| u8::from(next.shifts)).collect::<Vec<_>>()),
            Array::raw(
                "next_observations",
                layout.dtype(),
                next.iter().flat_map(|next| next.observation.iter().copied()).collect(),
            ),
        ]
    }

    fn open_part(&self, runs: &[Run], entries: &[Entry], named: &[u64]) -> Vec<u8> {
        let layout = self.layout();
        let Segments { block, first, marks, .. } = &self.segments;
        let mut waiting_lanes = Vec::new();
        let (mut stages, mut collected, mut shifts, mut observations) = (vec![], vec![], vec![], vec![]);
        for (lane, waiting) in (0..).zip(&self.lanes) {
            let Some(Waiting { x, shifts: does }) = &waiting.waiting else { continue };
            waiting_lanes.push(lane);
            stages.push(x.0 as u64);
            collected.push(x.2);
            shifts.push(u8::from(*does));
            layout.write(&x.1, &mut observations);
        }
        let stored: Vec<u64> = self.lanes.iter().map(|lane| lane.stored).collect();
        let marks: Vec<u64> = marks.iter().flat_map(|mark| mark.iter().copied()).collect();
        let mut arrays = self.chunk(runs, entries);
        arrays.extend([
            Array::u64("layout", &layout.described()),
            Array::u64("capacity", &[self.lanes[0].capacity]),
            Array::u64("stored", &stored),
            Array::u64("block", &[*block]),
            Array::u64("first_segment", &[*first]),
            Array::u64("marks", &marks),
            Array::u64("segments", named),
            Array::u64("waiting_lanes", &waiting_lanes),
            Array::u64("waiting_stages", &stages),
            Array::f64("waiting_collected", &collected),
            Array::u8("waiting_shifts", &shifts),
            Array::raw("waiting_observations", layout.dtype(), observations),
        ]);
        arrays::to_bytes(&arrays)
    }

    fn layout(&self) -> Layout {
        self.lanes[0].layout
    }
}

/// Restored, byte for byte.
impl Replay {
    /// Restores the result of [`save`](Self::save), into a replay made with the same settings. A state that does not fit is
    /// refused, and nothing is changed.
    pub fn restore(&mut self, file: Parts) -> Result<(), RestoreError> {
        let bytes = saved::part(OPEN, file)?;
        let in_open = |error| saved::wrong(OPEN, &error);
        let open = Arrays::read(&bytes).map_err(in_open)?;
        let (mut new, named) = self.read_open(&open).map_err(in_open)?;
        let last = new.segments.first + new.segments.marks.len() as u64 - 1;
        if let Some(number) = named.iter().find(|&&number| !(new.segments.first..last).contains(&number)) {
            return Err(in_open(RestoreError(format!("segments names {number}, want numbers below {last}"))));
        }
        let mut runs = new.read_chunk(&open).map_err(in_open)?;
        for number in named {
            let name = segment_name(number);
            let bytes = saved::part(&name, file)?;
            let read = Arrays::read(&bytes).and_then(|arrays| new.read_chunk(&arrays));
            runs.extend(read.map_err(|error| saved::wrong(&name, &error))?);
        }
        new.check(runs).map_err(in_open)?;
        *self = new;
        Ok(())
    }

    /// Everything except the transitions, and the numbers of the segments.
    fn read_open(&self, open: &Arrays) -> Result<(Self, Vec<u64>), RestoreError> {
        let layout = self.layout();
        if open.u64("layout")? != layout.described() {
            return Err(RestoreError("it holds observations of another kind".into()));
        }
        let (stored, capacity) = (open.u64("stored")?, open.one_u64("capacity")?);
        if (stored.len(), capacity) != (self.lanes.len(), self.lanes[0].capacity) {
            let (n, want, want_capacity) = (stored.len(), self.lanes.len(), self.lanes[0].capacity);
            return Err(RestoreError(format!(
                "it holds {n} rings of {capacity} transitions, want {want} of {want_capacity}"
            )));
        }
        saved::counts("stored", &stored)?;
        let mut lanes: Vec<Lane> = Vec::new();
        for &stored in &stored {
            let mut lane = Lane::new(capacity as usize, layout);
            lane.stored = stored;
            lanes.push(lane);
        }

        let segments = Segments::read(open, &stored)?;
        let which = open.u64("waiting_lanes")?;
        let (stages, collected) = (open.u64("waiting_stages")?, open.f64("waiting_collected")?);
        let (shifts, bytes) = (open.u8("waiting_shifts")?, open.raw("waiting_observations", layout.dtype())?);
        if [stages.len(), collected.len(), shifts.len()] != [which.len(); 3]
            || bytes.len() != which.len() * layout.width()
        {
            return Err(RestoreError("the successors do not match".into()));
        }
        for (k, &lane) in which.iter().enumerate() {
            let bytes = &bytes[k * layout.width()..(k + 1) * layout.width()];
            self.check_observation("waiting_observations", bytes)?;
            // Stages are stored in 32 bits.
            let stage = u32::try_from(stages[k]).map_err(|_| {
                RestoreError(format!("waiting_stages holds {}, want less than 2^32", stages[k]))
            })?;
            let x = (stage as usize, layout.read(bytes), collected[k]);
            let lane = lanes.get_mut(lane as usize).ok_or_else(|| RestoreError("a lane too many".into()))?;
            lane.waiting = Some(Waiting { x, shifts: shifts[k] == 1 });
        }
        saved::finite("waiting_collected", &collected)?;
        let len = lanes.iter().map(Lane::len).sum();
        Ok((Self { lanes, len, segments, limits: self.limits }, open.u64("segments")?))
    }

    /// Refuses an observation that the environment does not have: one of an index that does not exist, or with bits
    /// beyond its shape.
    fn check_observation(&self, name: &str, bytes: &[u8]) -> Result<(), RestoreError> {
        let observation = self.layout().read(bytes);
        let n_observations = self.limits.and_then(|limits| limits.n_observations);
        let fits = match (&observation, self.layout(), n_observations) {
            (Observation::Index(index), _, Some(n)) => *index < n,
            (Observation::Bits(words), Layout::Bits(n), _) => n % 64 == 0 || words[n / 64] >> (n % 64) == 0,
            _ => true,
        };
        if fits {
            return Ok(());
        }
        Err(RestoreError(format!("{name} holds {observation:?}, which the environment does not have")))
    }

    /// Transitions of a file, into their slots; those that were overwritten since are skipped.
    fn read_chunk(&mut self, file: &Arrays) -> Result<Vec<Run>, RestoreError> {
        let layout = self.layout();
        let mut runs = Vec::new();
        for run in file.u64("runs")?.chunks(3) {
            let &[lane, from, to] = run else { return Err(RestoreError("runs have three numbers".into())) };
            let lane = lane as usize;
            if lane >= self.lanes.len() || from > to || to > self.lanes[lane].stored {
                return Err(RestoreError(format!("no transitions {from} to {to} in lane {lane}")));
            }
            runs.push(Run { lane, from, to });
        }
        let lengths: Vec<u64> = runs.iter().map(|run| run.len()).collect();
        let n = saved::counts("runs", &lengths)? as usize;
        let (stages, collected) = (file.u32("stages")?, file.f64("collected")?);
        let (actions, rewards) = (file.u32("actions")?, file.f64("rewards")?);
        let (ends, bases) = (file.u8("ends")?, file.u8("bases")?);
        let observations = file.raw("observations", layout.dtype())?;
        let lengths = [stages.len(), collected.len(), actions.len(), rewards.len(), ends.len(), bases.len()];
        if lengths != [n; 6] || observations.len() != n * layout.group() {
            return Err(RestoreError(format!("arrays of {lengths:?} entries, want {n}")));
        }
        saved::finite("collected", &collected)?;
        saved::finite("rewards", &rewards)?;
        if let Some(Limits { n_actions, .. }) = self.limits
            && let Some(action) = actions.iter().find(|&&action| action as usize >= n_actions)
        {
            return Err(RestoreError(format!("actions holds {action}, want values below {n_actions}")));
        }
        // Of a stack of frames only the newest group is here, and any bytes are a group.
        if layout.stack() == 1 {
            let mut all = observations.chunks_exact(layout.group().max(1));
            all.try_for_each(|bytes| self.check_observation("observations", bytes))?;
        }
        let mut k = 0;
        for &Run { lane, from, to } in &runs {
            let lane = &mut self.lanes[lane];
            lane.rows.fill(lane.stored.min(lane.slots) as usize);
            for number in from..to {
                let (end, base) = (end_of(ends[k]), Base::of(bases[k]));
                let (Some(end), Some(base)) = (end, base) else {
                    return Err(RestoreError(format!("{} and {} are no end and base", ends[k], bases[k])));
                };
                let (stage, action) = (stages[k], actions[k]);
                let header = Header { stage, collected: collected[k], action, reward: rewards[k], end, base };
                if number >= lane.oldest() {
                    let slot = (number % lane.slots) as usize;
                    lane.rows.put(
                        slot,
                        &header.to_bytes(),
                        &observations[k * layout.group()..(k + 1) * layout.group()],
                    );
                }
                k += 1;
            }
        }
        self.read_beside(file)?;
        Ok(runs)
    }

    /// The contents of a file other than the rows.
    fn read_beside(&mut self, file: &Arrays) -> Result<(), RestoreError> {
        let layout = self.layout();
        let wrong = || RestoreError("the successors do not match".into());
        let (keys, groups) = (file.u64("older_keys")?, file.u8("older")?);
        let width = layout.width() - layout.group();
        if groups.len() != keys.len() / 2 * width {
            return Err(wrong());
        }
        for (key, groups) in keys.chunks(2).zip(groups.chunks(width.max(1))) {
            let lane = self.lanes.get_mut(key[0] as usize).ok_or_else(wrong)?;
            let number = *key.get(1).filter(|&&number| number < lane.stored).ok_or_else(wrong)?;
            if number >= lane.oldest() {
                lane.older.insert(number, groups.into());
            }
        }

        let (keys, stages) = (file.u64("next_keys")?, file.u32("next_stages")?);
        let (collected, shifts) = (file.f64("next_collected")?, file.u8("next_shifts")?);
        let mut rest = file.raw("next_observations", layout.dtype())?;
        if [stages.len(), collected.len(), shifts.len()] != [keys.len() / 2; 3] {
            return Err(wrong());
        }
        saved::finite("next_collected", &collected)?;
        for (k, key) in keys.chunks_exact(2).enumerate() {
            let shifts = shifts[k] == 1;
            let width = if shifts { layout.group() } else { layout.width() };
            let (observation, others) = rest.split_at_checked(width).ok_or_else(wrong)?;
            rest = others;
            if width == layout.width() {
                self.check_observation("next_observations", observation)?;
            }
            let lane = self.lanes.get_mut(key[0] as usize).filter(|lane| key[1] < lane.stored);
            let lane = lane.ok_or_else(wrong)?;
            if key[1] >= lane.oldest() {
                let observation = observation.into();
                let next = Detached { stage: stages[k], collected: collected[k], shifts, observation };
                lane.detached_next.insert(key[1], next);
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(wrong()) }
    }

    /// Checks that every transition is there once, with everything it needs.
    fn check(&self, mut runs: Vec<Run>) -> Result<(), RestoreError> {
        runs.sort_by_key(|run| (run.lane, run.from));
        for (index, lane) in self.lanes.iter().enumerate() {
            let mut at = lane.oldest();
            for run in runs.iter().filter(|run| run.lane == index && run.to > lane.oldest()) {
                if run.from.max(lane.oldest()) != at {
                    return Err(RestoreError(format!(
                        "lane {index}: transition {at} is missing or there twice"
                    )));
                }
                at = run.to;
            }
            if at != lane.stored {
                return Err(RestoreError(format!("lane {index}: transition {at} is missing")));
            }
            for number in lane.oldest()..lane.stored {
                let Header { end, base, .. } = lane.header(number);
                let newest = number + 1 == lane.stored;
                let complete = match end {
                    End::Cutoff => lane.detached_next.contains_key(&number),
                    End::NotYet => !newest || lane.waiting.is_some(),
                    End::Terminated | End::Horizon => true,
                } && match base {
                    Base::Older => lane.older.contains_key(&number),
                    Base::Shift => number > 0,
                    Base::Repeat | Base::Zeros => true,
                };
                if !complete {
                    return Err(RestoreError(format!("lane {index}: transition {number} is incomplete")));
                }
            }
        }
        Ok(())
    }
}
