//! The parts of an episode that an agent sees (§3, Approximation I).
//!
//! ```text
//! x = (h, s, c),   c = Σ_{k<h} R_k          the augmented input
//! (x, a, r, x', d)                          a transition; d = 1 when the episode is over
//! ```
//!
//! Why an episode stopped decides what learning may do: `Terminated` and `Horizon` are d = 1, because here the horizon
//! is part of the task; at a `Cutoff` (a time limit that is not part of the task) learning bootstraps.

use serde::{Deserialize, Serialize};

/// An index, or a tensor flattened in row-major order; its shape is in the [`crate::env::EnvSpec`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Observation {
    /// One of finitely many states.
    Index(usize),
    /// A vector, or planes laid end to end.
    Dense(Vec<f32>),
    /// Planes of a game: bit i of the flattened \[planes, height, width\] is bit i % 64 of word i / 64. Bits of the last
    /// word beyond the shape are 0.
    Bits(Vec<u64>),
    /// A frame, or a stack of frames, oldest first.
    Bytes(Vec<u8>),
}

/// x = (h, s, c) of a tabular problem: the input of every tabular policy, planner and evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AugmentedInput {
    /// Decisions taken so far, counted from 0.
    pub stage: usize,
    /// The state's index.
    pub state: usize,
    /// The (discounted) reward collected before this decision.
    pub collected: f64,
}

/// Whether, and why, an episode is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The episode continues.
    NotYet,
    /// A terminal state was reached.
    Terminated,
    /// The last decision of a task with a horizon was taken.
    Horizon,
    /// A time limit that is not part of the task cut the episode off.
    Cutoff,
}

impl End {
    /// True unless the episode continues.
    pub fn is_over(self) -> bool {
        self != End::NotYet
    }

    /// The paper's d: no reward follows, so targets do not bootstrap.
    pub fn is_final(self) -> bool {
        matches!(self, End::Terminated | End::Horizon)
    }
}
