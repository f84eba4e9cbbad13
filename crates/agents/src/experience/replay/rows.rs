//! How a transition lies in memory: one row of bytes, in pages that are no larger than needed.
//!
//! ```text
//! collected f64 | reward f64 | stage u32 | action u32 | end u8 | base u8 | observation
//! ```
//!
//! An index is 4 bytes, a vector f32, bits are packed. Of a stack of frames only the newest group is here; `base` says
//! where the older groups are.

use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::{End, Observation};
use safetensors::Dtype;

/// Bytes in front of the observation.
pub(super) const HEADER: usize = 26;
/// Bytes of a page, at most: a lane that grows holds less than this in vain.
const PAGE: usize = 1 << 18;

/// Where the older groups of a stack are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Base {
    /// All groups are equal; so are the groups of an observation that is no stack.
    Repeat,
    /// They are 0.
    Zeros,
    /// They are the newer groups of the observation before.
    Shift,
    /// They are kept in full beside the rows.
    Older,
}

impl Base {
    pub fn of(number: u8) -> Option<Self> {
        [Self::Repeat, Self::Zeros, Self::Shift, Self::Older].into_iter().find(|&base| base as u8 == number)
    }

    /// The cheapest that gives back this observation alone.
    pub fn alone(layout: Layout, observation: &Observation) -> Self {
        let (Layout::Bytes { group, stack: 2.. }, Observation::Bytes(bytes)) = (layout, observation) else {
            return Self::Repeat;
        };
        if bytes[group..] == bytes[..bytes.len() - group] {
            Self::Repeat
        } else if bytes[..bytes.len() - group].iter().all(|&byte| byte == 0) {
            Self::Zeros
        } else {
            Self::Older
        }
    }
}

/// The layout of the observations of a replay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Layout {
    Index,
    /// So many f32.
    Dense(usize),
    /// So many bits.
    Bits(usize),
    /// A stack of groups of so many bytes.
    Bytes {
        group: usize,
        stack: usize,
    },
}

impl Layout {
    pub fn of(space: &ObservationSpace) -> Self {
        match space {
            ObservationSpace::Discrete { .. } => Self::Index,
            ObservationSpace::Dense(_) => Self::Dense(space.size()),
            ObservationSpace::Bits(_) => Self::Bits(space.size()),
            ObservationSpace::Bytes { shape, stack } => {
                let even = *stack > 0 && shape.first().is_some_and(|n| n.is_multiple_of(*stack));
                assert!(even, "the first axis of {shape:?} must be a stack of {stack} equal groups");
                Self::Bytes { group: space.size() / stack, stack: *stack }
            }
        }
    }

    pub fn stack(self) -> usize {
        if let Self::Bytes { stack, .. } = self { stack } else { 1 }
    }

    /// Bytes of an observation in a row.
    pub fn group(self) -> usize {
        match self {
            Self::Index => 4,
            Self::Dense(n) => 4 * n,
            Self::Bits(n) => n.div_ceil(8),
            Self::Bytes { group, .. } => group,
        }
    }

    /// Bytes of a whole observation.
    pub fn width(self) -> usize {
        self.group() * self.stack()
    }

    /// The same as numbers, to tell whether a saved replay fits.
    pub fn described(self) -> [u64; 3] {
        let kind = match self {
            Self::Index => 0,
            Self::Dense(_) => 1,
            Self::Bits(n) => return [2, n as u64, 1],
            Self::Bytes { .. } => 3,
        };
        [kind, self.group() as u64, self.stack() as u64]
    }

    pub fn dtype(self) -> Dtype {
        match self {
            Self::Index => Dtype::U32,
            Self::Dense(_) => Dtype::F32,
            Self::Bits(_) | Self::Bytes { .. } => Dtype::U8,
        }
    }

    /// Appends a whole observation.
    pub fn write(self, observation: &Observation, out: &mut Vec<u8>) {
        match (self, observation) {
            (Self::Index, &Observation::Index(index)) => {
                let index = u32::try_from(index).expect("an index below 2^32");
                out.extend(index.to_le_bytes());
            }
            (Self::Dense(n), Observation::Dense(values)) => {
                assert_eq!(values.len(), n, "length of the observation");
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            (Self::Bits(n), Observation::Bits(words)) => {
                assert_eq!(words.len(), n.div_ceil(64), "words of the observation");
                let padding = if n % 64 == 0 { 0 } else { words[n / 64] >> (n % 64) };
                assert_eq!(padding, 0, "bits of the observation beyond its shape");
                out.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(n.div_ceil(8)));
            }
            (Self::Bytes { .. }, Observation::Bytes(bytes)) => {
                assert_eq!(bytes.len(), self.width(), "length of the observation");
                out.extend_from_slice(bytes);
            }
            (layout, other) => panic!("{other:?} does not fit {layout:?}"),
        }
    }

    /// A whole observation.
    pub fn read(self, bytes: &[u8]) -> Observation {
        match self {
            Self::Index => Observation::Index(u32_at(bytes, 0) as usize),
            Self::Dense(_) => {
                let (values, _) = bytes.as_chunks();
                Observation::Dense(values.iter().map(|&value| f32::from_le_bytes(value)).collect())
            }
            Self::Bits(_) => {
                let word = |chunk: &[u8]| {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    u64::from_le_bytes(word)
                };
                Observation::Bits(bytes.chunks(8).map(word).collect())
            }
            Self::Bytes { .. } => Observation::Bytes(bytes.to_vec()),
        }
    }

    /// Whether the second of two observations is the first one shifted by a group.
    pub fn shifts(self, before: &Observation, now: &Observation) -> bool {
        match (self, before, now) {
            (Self::Bytes { group, stack: 2.. }, Observation::Bytes(before), Observation::Bytes(now)) => {
                before[group..] == now[..now.len() - group]
            }
            _ => false,
        }
    }
}

/// A row without its observation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub stage: u32,
    pub collected: f64,
    pub action: u32,
    pub reward: f64,
    pub end: End,
    pub base: Base,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.collected.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.reward.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.stage.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.action.to_le_bytes());
        (bytes[24], bytes[25]) = (self.end as u8, self.base as u8);
        bytes
    }

    pub fn read(row: &[u8]) -> Self {
        let f64_at =
            |at: usize| f64::from_bits(u64::from_le_bytes(row[at..at + 8].try_into().expect("8 bytes")));
        Self {
            collected: f64_at(0),
            reward: f64_at(8),
            stage: u32_at(row, 16),
            action: u32_at(row, 20),
            end: end_of(row[24]).expect("checked when it was written"),
            base: Base::of(row[25]).expect("checked when it was written"),
        }
    }
}

pub(super) fn end_of(number: u8) -> Option<End> {
    let ends = [End::NotYet, End::Terminated, End::Horizon, End::Cutoff];
    ends.into_iter().find(|&end| end as u8 == number)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Rows of the same width. Pages are added as they are needed and never moved, so that growing costs no second copy.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    width: usize,
    slots: usize,
    per_page: usize,
    len: usize,
    /// Page by page.
    bytes: Vec<Vec<u8>>,
}

impl Pages {
    pub fn new(width: usize, slots: usize) -> Self {
        Self { width, slots, per_page: (PAGE / width).max(1), len: 0, bytes: Vec::new() }
    }

    /// Writes a row in two pieces, behind the last row or in the place of another.
    pub fn put(&mut self, slot: usize, header: &[u8], observation: &[u8]) {
        assert_eq!(header.len() + observation.len(), self.width, "length of a row");
        let (page, begin) = (slot / self.per_page, slot % self.per_page * self.width);
        if slot == self.len {
            if begin == 0 {
                let rows = self.per_page.min(self.slots - slot);
                self.bytes.push(Vec::with_capacity(rows * self.width));
            }
            self.bytes[page].extend_from_slice(header);
            self.bytes[page].extend_from_slice(observation);
            self.len += 1;
        } else {
            let row = &mut self.bytes[page][begin..begin + self.width];
            row[..header.len()].copy_from_slice(header);
            row[header.len()..].copy_from_slice(observation);
        }
    }

    pub fn row(&self, slot: usize) -> &[u8] {
        let begin = slot % self.per_page * self.width;
        &self.bytes[slot / self.per_page][begin..begin + self.width]
    }

    /// Rows of zeros up to `len`, to be written in any order.
    pub fn fill(&mut self, len: usize) {
        let zeros = vec![0; self.width];
        while self.len < len {
            self.put(self.len, &zeros, &[]);
        }
    }

    /// Bytes reserved.
    #[cfg(test)]
    pub fn reserved(&self) -> usize {
        self.bytes.iter().map(Vec::capacity).sum()
    }
}
