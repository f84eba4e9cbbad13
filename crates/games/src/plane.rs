//! A plane of 10 × 10 cells as one number: cell (x, y) is bit 10 y + x. Row 0 is the top.

/// Cells in a row, and rows.
pub const SIDE: u8 = 10;
/// Cells of a plane.
pub const CELLS: usize = 100;
/// All cells.
const ALL: u128 = (1 << CELLS) - 1;

/// A set of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plane(u128);

impl Plane {
    /// No cell.
    pub const EMPTY: Self = Self(0);

    /// One cell.
    #[inline]
    pub fn cell(x: u8, y: u8) -> Self {
        debug_assert!(x < SIDE && y < SIDE, "cell ({x}, {y})");
        Self(1 << (y * SIDE + x))
    }

    /// The cells of a row from `from` up to but not including `to`.
    pub fn row(y: u8, from: u8, to: u8) -> Self {
        debug_assert!(from <= to && to <= SIDE && y < SIDE);
        Self(((1 << to) - (1 << from)) << (y * SIDE))
    }

    /// From bits; bits beyond the plane are dropped.
    #[inline]
    pub fn from_bits(bits: u128) -> Self {
        Self(bits & ALL)
    }

    /// As bits.
    #[inline]
    pub fn bits(self) -> u128 {
        self.0
    }

    /// Whether a cell is in the set.
    #[inline]
    pub fn has(self, x: u8, y: u8) -> bool {
        self.0 >> (y * SIDE + x) & 1 == 1
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of cells in the set.
    #[inline]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The cells in both sets.
    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The cells in either set.
    #[inline]
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The cells that are not in the other set.
    #[inline]
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Every cell one row up; the top row leaves the board.
    #[inline]
    #[must_use]
    pub fn up(self) -> Self {
        Self(self.0 >> SIDE)
    }

    /// Every cell one row down; the bottom row leaves the board.
    #[inline]
    #[must_use]
    pub fn down(self) -> Self {
        Self(self.0 << SIDE & ALL)
    }

    /// The cells of one row as ten bits.
    #[inline]
    pub fn line(self, y: u8) -> u16 {
        (self.0 >> (y * SIDE)) as u16 & 0x3ff
    }

    /// Which columns have a cell, as ten bits.
    pub fn columns(self) -> u16 {
        let five = self.0 | self.0 >> 50;
        let folded = five | five >> 10 | five >> 20 | five >> 30 | five >> 40;
        folded as u16 & 0x3ff
    }
}

/// Writes planes end to end: bit i of the flattened \[planes, 10, 10\] is bit i % 64 of word i / 64.
#[inline]
pub fn pack(planes: &[Plane], words: &mut [u64]) {
    assert_eq!(words.len(), n_words(planes.len()), "words of {} planes", planes.len());
    let (mut word, mut filled, mut next) = (0_u64, 0, 0);
    for plane in planes {
        for (bits, n) in [(plane.0 as u64, 64), ((plane.0 >> 64) as u64, CELLS - 64)] {
            word |= bits << filled;
            filled += n;
            if filled >= 64 {
                words[next] = word;
                next += 1;
                filled -= 64;
                // The bits that did not fit. All of them fitted if nothing is left over.
                word = if filled == 0 { 0 } else { bits >> (n - filled) };
            }
        }
    }
    if filled > 0 {
        words[next] = word;
    }
}

/// Words of an observation of so many planes.
pub const fn n_words(planes: usize) -> usize {
    (planes * CELLS).div_ceil(64)
}

/// The plane at this position of an observation.
pub fn unpack(words: &[u64], plane: usize) -> Plane {
    let bit = |i: usize| words.get(i / 64).map_or(0, |word| word >> (i % 64) & 1);
    let cell = |cell: usize| u128::from(bit(plane * CELLS + cell)) << cell;
    Plane((0..CELLS).map(cell).fold(0, |plane, cell| plane | cell))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_rows_and_columns_are_where_they_should_be() {
        let plane = Plane::cell(3, 0).or(Plane::cell(9, 9)).or(Plane::row(4, 2, 5));
        assert_eq!(plane.count(), 5);
        assert!(plane.has(3, 0) && plane.has(9, 9) && plane.has(4, 4) && !plane.has(5, 4));
        assert_eq!((plane.line(4), plane.line(9)), (0b1_1100, 0b10_0000_0000));
        assert_eq!(plane.columns(), 0b10_0001_1100);
        // The bottom row leaves the board, the top row comes to the second.
        assert_eq!(plane.down(), Plane::cell(3, 1).or(Plane::row(5, 2, 5)));
        assert_eq!(plane.up(), Plane::cell(9, 8).or(Plane::row(3, 2, 5)));
    }

    proptest! {
        #[test]
        fn planes_survive_being_packed(bits in prop::collection::vec(any::<u128>(), 1..11)) {
            let planes: Vec<Plane> = bits.into_iter().map(Plane::from_bits).collect();
            let mut words = vec![u64::MAX; n_words(planes.len())];
            pack(&planes, &mut words);
            let unpacked: Vec<Plane> = (0..planes.len()).map(|i| unpack(&words, i)).collect();
            prop_assert_eq!(&unpacked, &planes);
            let ones: u32 = words.iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(ones, planes.iter().map(|plane| plane.count()).sum::<u32>());
        }
    }
}
