//! From feature-major lanes to sample-major rows.

use pulp::{Simd, WithSimd};

/// `out[s][f] = rows[f][s]` for every sample of `out` and all features of one block.
pub(crate) struct Transpose<'a> {
    /// Rows of `width` lanes, one per feature, at most 64 of them.
    pub rows: &'a [f32],
    pub width: usize,
    /// Rows of `out_width` floats, one per sample. Floats beyond the features are not changed.
    pub out: &'a mut [f32],
    pub out_width: usize,
}

impl WithSimd for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // A whole tile goes through registers; the compiler knows how to transpose an array of constant size.
        const TILE: usize = 8;
        let n_features = self.rows.len() / self.width;
        let n_samples = self.out.len() / self.out_width;
        for f0 in (0..n_features).step_by(TILE) {
            for s0 in (0..n_samples).step_by(TILE) {
                if f0 + TILE <= n_features && s0 + TILE <= n_samples {
                    let mut tile = [[0.0; TILE]; TILE];
                    for (f, tile) in tile.iter_mut().enumerate() {
                        tile.copy_from_slice(&self.rows[(f0 + f) * self.width + s0..][..TILE]);
                    }
                    for s in 0..TILE {
                        let out = &mut self.out[(s0 + s) * self.out_width + f0..][..TILE];
                        for f in 0..TILE {
                            out[f] = tile[f][s];
                        }
                    }
                } else {
                    for s in s0..(s0 + TILE).min(n_samples) {
                        for f in f0..(f0 + TILE).min(n_features) {
                            self.out[s * self.out_width + f] = self.rows[f * self.width + s];
                        }
                    }
                }
            }
        }
    }
}
