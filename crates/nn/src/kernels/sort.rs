//! Sorting K outputs in every lane at once: Batcher's odd-even merge network.
//!
//! The comparators do not depend on the data, so each is a minimum and a maximum of two whole rows. Minimum and maximum
//! do not order NaN: whether parameters are finite is checked after every update instead.

use pulp::{Simd, WithSimd};

use super::vectors_mut;

/// The comparators (low, high) that sort `n` rows, in order.
pub(crate) fn comparators(n: usize) -> Vec<(usize, usize)> {
    let mut comparators = Vec::new();
    // Batcher's network for the next power of two. Rows from n on stand for +∞: they never move and are left out.
    let mut p = 1;
    while p < n {
        let mut k = p;
        while k >= 1 {
            for j in (k % p..n.saturating_sub(k)).step_by(2 * k) {
                for i in j..(j + k).min(n - k) {
                    if i / (2 * p) == (i + k) / (2 * p) {
                        comparators.push((i, i + k));
                    }
                }
            }
            k /= 2;
        }
        p *= 2;
    }
    comparators
}

/// Sorts rows of `width` lanes, in place, in groups of `n_quantiles` rows: one group per action.
pub(crate) struct Sort<'a> {
    pub comparators: &'a [(usize, usize)],
    pub n_quantiles: usize,
    pub width: usize,
    pub rows: &'a mut [f32],
}

impl WithSimd for Sort<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.width / S::F32_LANES;
        for action in self.rows.chunks_exact_mut(self.n_quantiles * self.width) {
            let rows = vectors_mut::<S>(action);
            for &(low, high) in self.comparators {
                let (below, above) = rows.split_at_mut(high * columns);
                let below = &mut below[low * columns..][..columns];
                for (x, y) in below.iter_mut().zip(&mut above[..columns]) {
                    (*x, *y) = (simd.min_f32s(*x, *y), simd.max_f32s(*x, *y));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernels;

    #[test]
    fn the_network_sorts_every_pattern_of_zeros_and_ones() {
        // The 0–1 principle: a network that sorts these sorts everything.
        for n in 1..=14 {
            let network = comparators(n);
            for pattern in 0_u32..1 << n {
                let mut bits: Vec<u32> = (0..n).map(|i| pattern >> i & 1).collect();
                for &(low, high) in &network {
                    if bits[low] > bits[high] {
                        bits.swap(low, high);
                    }
                }
                assert!(bits.is_sorted(), "n = {n}, pattern {pattern:b}");
            }
        }
    }

    #[test]
    fn the_network_has_batchers_size_for_powers_of_two() {
        // (p² − p + 4) 2^(p−2) − 1 comparators for n = 2^p.
        assert_eq!([2, 4, 8, 16, 32, 64].map(|n| comparators(n).len()), [1, 5, 19, 63, 191, 543]);
    }

    #[test]
    fn every_variant_sorts_every_lane_of_every_action() {
        for kernels in Kernels::available() {
            for k in [1, 2, 7, 32, 51, 64, 100, 200] {
                let (width, mut seed) = (32, 1_u32);
                let mut random = || {
                    seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                    (seed >> 8) as f32 - 8e6
                };
                let raw: Vec<f32> = (0..2 * k * width).map(|_| random()).collect();
                let mut rows = raw.clone();
                kernels.run(Sort { comparators: &comparators(k), n_quantiles: k, width, rows: &mut rows });
                for (action, lane) in [(0, 0), (0, 31), (1, 5), (1, 16)] {
                    let column = |rows: &[f32]| -> Vec<f32> {
                        (0..k).map(|j| rows[(action * k + j) * width + lane]).collect()
                    };
                    let mut want = column(&raw);
                    want.sort_unstable_by(f32::total_cmp);
                    assert_eq!(column(&rows), want, "{}, K = {k}", kernels.name());
                }
            }
        }
    }
}
