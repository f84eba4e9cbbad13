//! Bits and bytes become floats, one sample per lane.
//!
//! ```text
//! lanes     word w of the rows, four bytes of each, side by side
//! out       cell w·P + k of every lane = bits k·32/P … of its word         P = 32 cells of a bit, or 4 of a byte
//! ```
//!
//! So bits and bytes are turned as words, a fourth of the floats that they become or less, and take the same way.

use pulp::{Simd, WithSimd};

use super::transpose::{TILE, turn};
use super::{vectors, vectors_mut};
use crate::panels::PANEL;
use crate::rows::Cells;

/// Words worked on at a time: four cache lines of every row, so that each row is read ahead.
const WORDS: usize = 64;

/// `out[i][r]` = cell i of the row that begins at byte `begins[r]`, as a number from 0 to 1.
pub(crate) struct Unpack<'a> {
    pub cells: Cells,
    /// Cells of a row.
    pub n: usize,
    pub from: &'a [u8],
    /// Where the rows begin: at most as many as samples in a panel.
    pub begins: &'a [usize],
    /// Rows of `out_width` floats, whole vectors. Lanes beyond the rows have arbitrary contents.
    pub out: &'a mut [f32],
    pub out_width: usize,
}

impl WithSimd for Unpack<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.cells {
            Cells::Bits => self.unpack::<S, 32>(simd),
            Cells::Bytes => self.unpack::<S, 4>(simd),
        }
    }
}

impl Unpack<'_> {
    /// P cells to a word.
    #[inline(always)]
    fn unpack<S: Simd, const P: usize>(self, simd: S) {
        let Self { cells, n, from, begins, out, out_width } = self;
        assert!(begins.len() <= out_width, "{} rows in {out_width} lanes", begins.len());
        let n_bytes = cells.bytes(n);
        let mut rows = [&from[..0]; PANEL];
        rows.iter_mut().zip(begins).for_each(|(row, &begin)| *row = &from[begin..][..n_bytes]);
        let rows = &rows[..begins.len()];
        let whole = rows.len() / TILE * TILE;
        // Word w of every row, its bits as those of a float.
        let mut lanes = [[0.0; PANEL]; WORDS];
        let lines = out[..n * out_width].chunks_mut(WORDS * P * out_width);
        for (byte, out) in (0..n_bytes).step_by(4 * WORDS).zip(lines) {
            let mut rest = 0;
            if byte + 4 * WORDS <= n_bytes {
                rest = whole;
                for (r, rows) in (0..whole).step_by(TILE).zip(rows.chunks_exact(TILE)) {
                    for w in (0..WORDS).step_by(TILE) {
                        let tile = std::array::from_fn(|i| {
                            let (words, _) = rows[i][byte + 4 * w..][..4 * TILE].as_chunks();
                            std::array::from_fn(|j| word(words[j]))
                        });
                        for (lanes, tile) in lanes[w..w + TILE].iter_mut().zip(turn(tile)) {
                            lanes[r..r + TILE].copy_from_slice(&tile);
                        }
                    }
                }
            }
            for (r, row) in rows.iter().enumerate().skip(rest) {
                for (bytes, lanes) in row[byte..].chunks(4).zip(&mut lanes) {
                    let mut padded = [0; 4];
                    padded[..bytes.len()].copy_from_slice(bytes);
                    lanes[r] = word(padded);
                }
            }
            for (out, lanes) in out.chunks_mut(P * out_width).zip(&lanes) {
                let lanes = vectors::<S>(&lanes[..out_width]);
                for (k, out) in out.chunks_exact_mut(out_width).enumerate() {
                    for (out, &lanes) in vectors_mut::<S>(out).iter_mut().zip(lanes) {
                        *out = cell::<S, P>(simd, lanes, k);
                    }
                }
            }
        }
    }
}

/// Four bytes, on their way through registers of floats.
#[inline(always)]
fn word(bytes: [u8; 4]) -> f32 {
    f32::from_bits(u32::from_le_bytes(bytes))
}

/// 2²³: from here on floats are whole numbers, so that its bits with those of a cell at the end are 2²³ + cell.
const WHOLE: f32 = 8_388_608.0;

/// Cell k of every word.
#[inline(always)]
fn cell<S: Simd, const P: usize>(simd: S, words: S::f32s, k: usize) -> S::f32s {
    let bits = 32 / P;
    let shifted =
        simd.wrapping_dyn_shr_u32s(simd.transmute_u32s_f32s(words), simd.splat_u32s((k * bits) as u32));
    let cell = simd.and_u32s(shifted, simd.splat_u32s((1 << bits) - 1));
    let sum = simd.transmute_f32s_u32s(simd.or_u32s(cell, simd.splat_u32s(WHOLE.to_bits())));
    let cell = simd.sub_f32s(sum, simd.splat_f32s(WHOLE));
    if P == 32 {
        return cell;
    }
    // b/255 = b (2⁻⁸ + 2⁻¹⁶ + 2⁻²⁴) (1 + 2⁻²⁴ + …), two operations instead of a division. The first product has 24 bits at most, so only
    // the sum is rounded, to the same float as the quotient, fused or not.
    let tiny = 1.0 / 16_777_216.0;
    let most = simd.mul_f32s(cell, simd.splat_f32s(65_793.0 * tiny));
    simd.mul_add_e_f32s(most, simd.splat_f32s(tiny), most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::padded;
    use crate::{Kernels, Planes, Rows};

    fn unpacked(kernels: Kernels, cells: Cells, n: usize, from: &[u8], order: &[usize]) -> Vec<f32> {
        let begins: Vec<usize> = order.iter().map(|row| row * cells.bytes(n)).collect();
        let out_width = padded(order.len());
        let mut out = vec![-1.0; n * out_width];
        kernels.run(Unpack { cells, n, from, begins: &begins, out: &mut out, out_width });
        out
    }

    #[test]
    fn lanes_hold_the_same_bits_as_the_plain_way() {
        for kernels in Kernels::available() {
            for cells in [Cells::Bits, Cells::Bytes] {
                // Words and cache lines that are whole and that are not, and every number of rows that has a tail.
                for (rows, n) in
                    [(1, 1), (3, 7), (4, 32), (5, 64), (16, 70), (33, 400), (64, 513), (64, 1024)]
                {
                    let bytes: Vec<u8> = (0..64 * cells.bytes(n)).map(|i| ((i * 151) >> 3) as u8).collect();
                    let order: Vec<usize> = (0..rows).map(|r| (r * 37 + 5) % 64).collect();
                    let planes = Planes { cells, n, bytes: &bytes };
                    let plain = Rows { planes: Some(planes), floats: &[] }.expanded(n).into_owned();
                    let out = unpacked(kernels, cells, n, &bytes, &order);
                    for (i, lanes) in out.chunks_exact(padded(rows)).enumerate() {
                        let bits = |value: &f32| value.to_bits();
                        let want: Vec<u32> = order.iter().map(|row| plain[row * n + i].to_bits()).collect();
                        let got: Vec<u32> = lanes[..rows].iter().map(bits).collect();
                        assert_eq!(got, want, "{}, {cells:?}, {rows} × {n}, cell {i}", kernels.name());
                    }
                }
            }
        }
    }

    #[test]
    fn rounding_trap_every_byte_is_its_quotient_by_255() {
        let bytes: Vec<u8> = (0..=255).collect();
        for kernels in Kernels::available() {
            let out = unpacked(kernels, Cells::Bytes, 256, &bytes, &[0]);
            for (byte, lanes) in bytes.iter().zip(out.chunks_exact(16)) {
                assert_eq!(lanes[0].to_bits(), (f32::from(*byte) / 255.0).to_bits(), "{byte}");
            }
        }
    }

    #[test]
    fn order_trap_the_first_cell_is_the_lowest_bit_and_bits_beyond_the_last_cell_are_not_read() {
        for kernels in Kernels::available() {
            let out = unpacked(kernels, Cells::Bits, 9, &[0b0000_0010, 0b1111_1110], &[0]);
            let cells: Vec<f32> = out.chunks_exact(16).map(|lanes| lanes[0]).collect();
            assert_eq!(cells, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "{}", kernels.name());
        }
    }
}
