//! Rows become columns: samples of a minibatch become lanes, and lanes rows of samples.

use pulp::{Simd, WithSimd};

/// Rows and columns that go through registers together.
pub(super) const TILE: usize = 4;
/// Columns worked on at a time: a cache line of every row.
const LINE: usize = 16;

/// `out[c][r] = from[begins[r] + c]` for the first `n` columns of every row.
pub(crate) struct Transpose<'a> {
    pub from: &'a [f32],
    /// Where the rows begin: at most as many as samples in a panel.
    pub begins: &'a [usize],
    pub n: usize,
    /// Rows of `out_width` floats. Floats beyond the rows are not changed.
    pub out: &'a mut [f32],
    pub out_width: usize,
}

impl WithSimd for Transpose<'_> {
    /// Whether all of them are finite.
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        let Self { from, begins, n, out, out_width } = self;
        assert!(begins.len() <= out_width, "{} rows in {out_width} lanes", begins.len());
        let (mut poison, mut single) = ([0.0; LINE], 0.0);
        let whole = begins.len() / TILE * TILE;
        // A cache line of every row at a time: each is read from memory once.
        let lines = out[..n * out_width].chunks_mut(LINE * out_width);
        for (column, out) in (0..n).step_by(LINE).zip(lines) {
            let mut rest = 0;
            if column + LINE <= n {
                rest = whole;
                for (r, begins) in (0..whole).step_by(TILE).zip(begins.chunks_exact(TILE)) {
                    let mut rows = [&[0.0; LINE]; TILE];
                    for i in 0..TILE {
                        let row = &from[begins[i] + column..][..LINE];
                        rows[i] = row.try_into().expect("a line");
                        poison = std::array::from_fn(|c| poison[c] + 0.0 * rows[i][c]);
                    }
                    for (c, out) in (0..LINE).step_by(TILE).zip(out.chunks_exact_mut(TILE * out_width)) {
                        let tile = turn(rows.map(|row| std::array::from_fn(|i| row[c + i])));
                        for (out, tile) in out.chunks_exact_mut(out_width).zip(tile) {
                            out[r..r + TILE].copy_from_slice(&tile);
                        }
                    }
                }
            }
            for (r, &begin) in (rest..).zip(&begins[rest..]) {
                let row = &from[begin + column..begin + n.min(column + LINE)];
                for (&value, out) in row.iter().zip(out.chunks_exact_mut(out_width)) {
                    single += 0.0 * value;
                    out[r] = value;
                }
            }
        }
        // 0 · x is zero, or NaN where x is not finite.
        poison.iter().sum::<f32>() + single == 0.0
    }
}

/// The transpose of a tile. Compilers do not find these eight instructions in the plain form below.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn turn(tile: [[f32; TILE]; TILE]) -> [[f32; TILE]; TILE] {
    let sse = pulp::core_arch::x86::Sse::try_new().expect("every x86_64 has SSE");
    let [a, b, c, d] = tile.map(pulp::cast);
    let (ab, cd) = (sse._mm_unpacklo_ps(a, b), sse._mm_unpacklo_ps(c, d));
    let (ab_high, cd_high) = (sse._mm_unpackhi_ps(a, b), sse._mm_unpackhi_ps(c, d));
    let turned = [
        sse._mm_movelh_ps(ab, cd),
        sse._mm_movehl_ps(cd, ab),
        sse._mm_movelh_ps(ab_high, cd_high),
        sse._mm_movehl_ps(cd_high, ab_high),
    ];
    turned.map(pulp::cast)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn turn(tile: [[f32; TILE]; TILE]) -> [[f32; TILE]; TILE] {
    std::array::from_fn(|i| std::array::from_fn(|j| tile[j][i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernels;

    #[test]
    fn columns_become_rows_and_nothing_beyond_them_is_touched() {
        for kernels in Kernels::available() {
            for (rows, n) in [(1, 1), (3, 5), (4, 4), (5, 17), (16, 16), (33, 70), (64, 64)] {
                let mut from: Vec<f32> = (0..64 * n).map(|i| i as f32).collect();
                // Rows in any order.
                let begins: Vec<usize> = (0..rows).map(|r| (r * 37 + 5) % 64 * n).collect();
                let mut out = vec![-1.0; n * 80];
                let mut run = |from: &[f32]| {
                    kernels.run(Transpose { from, begins: &begins, n, out: &mut out, out_width: 80 })
                };
                assert!(run(&from), "{rows} × {n}");
                for place in [0, n - 1] {
                    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                        let good = std::mem::replace(&mut from[begins[rows - 1] + place], bad);
                        assert!(!run(&from), "{bad} in {rows} × {n}");
                        from[begins[rows - 1] + place] = good;
                    }
                }
                assert!(run(&from));
                for (c, row) in out.chunks_exact(80).enumerate() {
                    let want: Vec<f32> = begins.iter().map(|begin| from[begin + c]).collect();
                    assert_eq!(row[..rows], want, "{}, {rows} × {n}", kernels.name());
                    assert!(row[rows..].iter().all(|&value| value == -1.0));
                }
            }
        }
    }
}
