//! The interface of the five games: their rules, without sticky actions and without a horizon.

use crate::draws::Draws;
use crate::plane::Plane;

/// The six actions, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do nothing.
    Stay,
    /// Move left.
    Left,
    /// Move up.
    Up,
    /// Move right.
    Right,
    /// Move down.
    Down,
    /// Shoot.
    Fire,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Stay, Self::Left, Self::Up, Self::Right, Self::Down, Self::Fire];

    /// Its name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stay => "stay",
            Self::Left => "left",
            Self::Up => "up",
            Self::Right => "right",
            Self::Down => "down",
            Self::Fire => "fire",
        }
    }
}

/// How a plane is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The plane's name.
    pub name: &'static str,
    /// A character.
    pub glyph: char,
    /// Red, green, blue. The colours of a game differ for colour-blind people, too (Okabe and Ito's palette).
    pub colour: [u8; 3],
    /// Whether it is drawn smaller, and below the others.
    pub faint: bool,
}

impl Look {
    /// A thing.
    pub const fn thing(name: &'static str, glyph: char, colour: [u8; 3]) -> Self {
        Self { name, glyph, colour, faint: false }
    }

    /// A mark, such as a trail.
    pub const fn mark(name: &'static str, glyph: char, colour: [u8; 3]) -> Self {
        Self { name, glyph, colour, faint: true }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Points.
    pub reward: u32,
    /// Whether the game is over.
    pub over: bool,
}

/// One game: a position, and how it goes on.
pub trait Rules: Clone + Send + 'static {
    /// The planes of an observation.
    type Planes: AsRef<[Plane]>;
    /// An observation as words.
    type Words: AsRef<[u64]> + AsMut<[u64]> + Default;

    /// How the planes are drawn, in their order.
    const LOOKS: &'static [Look];
    /// The actions that have an effect.
    const MINIMAL: &'static [Action];
    /// The most points of a step.
    const MOST_POINTS: u32;

    /// The first position of a game.
    fn start(draws: &mut impl Draws) -> Self;
    /// Takes an action. With `ramping`, the game becomes harder as it goes on.
    fn step(&mut self, action: Action, ramping: bool, draws: &mut impl Draws) -> Outcome;
    /// What is seen of the position.
    fn planes(&self) -> Self::Planes;
    /// The position as numbers.
    fn save(&self) -> Vec<u64>;
    /// The position of these numbers; `None` if a game has no such position.
    fn restore(numbers: &mut Numbers) -> Option<Self>;
}

/// Numbers of a saved position, read one after the other.
pub struct Numbers<'a>(&'a [u64]);

impl<'a> Numbers<'a> {
    /// From the beginning.
    pub fn new(numbers: &'a [u64]) -> Self {
        Self(numbers)
    }

    fn next(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next number, if it is below `n`.
    pub fn below(&mut self, n: u64) -> Option<u64> {
        self.next().filter(|&number| number < n)
    }

    /// The next number, if it is from `low` to `high`.
    pub fn within(&mut self, low: u8, high: u8) -> Option<u8> {
        let number = self.below(u64::from(high) + 1)?;
        (number >= u64::from(low)).then_some(number as u8)
    }

    /// The next number as a yes or no.
    pub fn flag(&mut self) -> Option<bool> {
        Some(self.below(2)? == 1)
    }

    /// The next two numbers as a plane.
    pub fn plane(&mut self) -> Option<Plane> {
        let low = self.next()?;
        Some(Plane::from_bits(u128::from(self.below(1 << 36)?) << 64 | u128::from(low)))
    }

    /// Whether all have been read.
    pub fn are_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// A plane as two numbers.
pub fn numbers_of(plane: Plane) -> [u64; 2] {
    [plane.bits() as u64, (plane.bits() >> 64) as u64]
}
