//! Random draws of a game: from a stream, or from a list.
//!
//! The list is for comparisons: another implementation that is fed the same numbers must play the same game.

use bqrl_math::rng::Rng;

/// A source of random numbers.
pub trait Draws {
    /// Uniform on [0, 1).
    fn uniform(&mut self) -> f64;
    /// Uniform on 0..n.
    fn below(&mut self, n: usize) -> usize;

    /// True with probability 1/2.
    fn coin(&mut self) -> bool {
        self.uniform() < 0.5
    }
}

impl Draws for Rng {
    fn uniform(&mut self) -> f64 {
        Rng::uniform(self)
    }

    fn below(&mut self, n: usize) -> usize {
        Rng::below(self, n)
    }
}

/// Draws in a given order: u is uniform, and ⌊u n⌋ is uniform on 0..n. Zeros follow the last one.
pub struct Script<'a> {
    draws: &'a [f64],
    used: usize,
}

impl<'a> Script<'a> {
    /// Numbers in [0, 1).
    pub fn new(draws: &'a [f64]) -> Self {
        Self { draws, used: 0 }
    }

    /// How many numbers were asked for; more than were given if they did not suffice.
    pub fn used(&self) -> usize {
        self.used
    }
}

impl Draws for Script<'_> {
    fn uniform(&mut self) -> f64 {
        let draw = self.draws.get(self.used).copied().unwrap_or(0.0);
        self.used += 1;
        draw
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n - 1)
    }
}
