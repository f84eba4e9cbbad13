//! Inputs as they are stored: rows of floats, and planes of bits or bytes in front of them.
//!
//! ```text
//! input f of a row = cell f of its planes            f < n      a bit: 0 or 1; a byte: over 255
//!                  = float f − n of its floats       n ≤ f < D
//! ```
//!
//! Planes are packed until the kernels write them into lanes: as floats they would be 4 times as large for bytes, and 32 times for bits.

use std::borrow::Cow;

/// The inputs of several samples.
///
/// ```
/// use bqrl_nn::{Cells, Planes, Rows};
///
/// // Two samples of three bits and one number.
/// let planes = Planes { cells: Cells::Bits, n: 3, bytes: &[0b101, 0b010] };
/// let rows = Rows { planes: Some(planes), floats: &[0.5, 0.25] };
/// assert_eq!(*rows.expanded(4), [1.0, 0.0, 1.0, 0.5, 0.0, 1.0, 0.0, 0.25]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The first inputs of every sample, where these are planes.
    pub planes: Option<Planes<'a>>,
    /// The others, one row per sample, one after the other.
    pub floats: &'a [f32],
}

/// Cells of planes.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    /// How they are stored.
    pub cells: Cells,
    /// Cells of one sample.
    pub n: usize,
    /// [`Cells::bytes`] of every sample, one after the other.
    pub bytes: &'a [u8],
}

/// How the cells of planes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Cell i is bit i % 8 of byte i / 8.
    Bits,
    /// Each is a byte, which counts as a fraction of 255.
    Bytes,
}

impl Cells {
    /// Bytes that n cells take.
    pub fn bytes(self, n: usize) -> usize {
        match self {
            Self::Bits => n.div_ceil(8),
            Self::Bytes => n,
        }
    }
}

impl<'a> Rows<'a> {
    /// Rows without planes.
    pub fn floats(floats: &'a [f32]) -> Self {
        Self { planes: None, floats }
    }

    /// Cells of the planes of one sample; 0 where there are none.
    pub(crate) fn n_cells(&self) -> usize {
        self.planes.map_or(0, |planes| planes.n)
    }

    /// Samples with `n_inputs` inputs each. Refuses rows that are not whole.
    pub fn n_samples(&self, n_inputs: usize) -> usize {
        let n = self.n_cells();
        assert!(n <= n_inputs, "planes of {n} cells, want at most D = {n_inputs}");
        let n_bytes = self.planes.map_or(0, |planes| planes.bytes.len());
        let (of_planes, of_floats) = (self.planes.map_or(0, |planes| planes.cells.bytes(n)), n_inputs - n);
        let n_samples = self.floats.len().checked_div(of_floats).unwrap_or_else(|| n_bytes / of_planes);
        assert!(
            (n_bytes, self.floats.len()) == (n_samples * of_planes, n_samples * of_floats),
            "{n_bytes} bytes and {} floats, want n·D, {of_planes} and {of_floats} for each sample",
            self.floats.len()
        );
        n_samples
    }

    /// All as floats, rows of `n_inputs`.
    pub fn expanded(&self, n_inputs: usize) -> Cow<'a, [f32]> {
        let Some(Planes { cells, n, bytes }) = self.planes.filter(|planes| planes.n > 0) else {
            return Cow::Borrowed(self.floats);
        };
        let n_samples = self.n_samples(n_inputs);
        let mut rows = Vec::with_capacity(n_samples * n_inputs);
        for (sample, planes) in bytes.chunks_exact(cells.bytes(n)).enumerate() {
            match cells {
                Cells::Bits => rows.extend((0..n).map(|i| f32::from((planes[i / 8] >> (i % 8)) & 1))),
                Cells::Bytes => rows.extend(planes.iter().map(|&byte| f32::from(byte) / 255.0)),
            }
            rows.extend_from_slice(&self.floats[sample * (n_inputs - n)..][..n_inputs - n]);
        }
        Cow::Owned(rows)
    }
}
