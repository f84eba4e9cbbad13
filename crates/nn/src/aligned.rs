//! Memory for the kernels: floats that begin on a cache line and come in whole vectors.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Every row that a kernel touches is a multiple of this many floats: the widest vector, and one cache line.
pub(crate) const LANES: usize = 16;

/// `n` rounded up to whole vectors.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}

/// A fixed number of floats, zero at first, whose address is a multiple of 64 bytes.
///
/// An ordinary `Vec<f32>` may begin anywhere, and a 64-byte load that straddles two cache lines costs double.
#[derive(Default)]
pub(crate) struct Aligned {
    floats: Vec<f32>,
    begin: usize,
    len: usize,
}

impl Aligned {
    pub fn zeros(len: usize) -> Self {
        // Alignment without unsafe code: allocate a little more, and start at a cache line.
        let floats = vec![0.0; len + LANES];
        let begin = floats.as_ptr().align_offset(LANES * size_of::<f32>()).min(LANES);
        Self { floats, begin, len }
    }

    /// Makes room for at least `len` floats. Growing zeroes them; otherwise the contents stay.
    pub fn reserve(&mut self, len: usize) {
        if self.len < len {
            *self = Self::zeros(len);
        }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.floats[self.begin..self.begin + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.floats[self.begin..self.begin + self.len]
    }
}

impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} floats", self.len)
    }
}

impl Clone for Aligned {
    fn clone(&self) -> Self {
        // Not derived: the copy is at another address and must be aligned again.
        let mut copy = Self::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_on_a_cache_line_and_so_does_its_copy() {
        for len in [0, 1, 16, 1000, 100_000] {
            let mut memory = Aligned::zeros(len);
            memory.fill(1.5);
            for memory in [&memory, &memory.clone()] {
                assert_eq!(memory.as_ptr().align_offset(64), 0, "length {len}");
                assert_eq!(memory.len(), len);
                assert!(memory.iter().all(|&value| value == 1.5));
            }
        }
    }
}
