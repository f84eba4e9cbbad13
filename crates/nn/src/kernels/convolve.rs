//! Convolutions, one sample per lane: the dense products, with rows of the input found through a window.
//!
//! ```text
//! forward     Z[o·P + p][s]  = finish( b_o + Σ_i W[o][i] H[i @ p][s] )       i @ p = columns[i] + positions[p]
//! gradient    dW[o][i]       = Σ_p Σ_s dZ[o·P + p][s] H[i @ p][s]
//! backward    dH[i @ p][s]  += Σ_o W[o][i] dZ[o·P + p][s]                    windows may overlap
//! ```
//!
//! A row is as wide as a panel, so a gathered row costs no more than a neighbour: nothing is copied into columns first.

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};
use crate::shape::Window;

/// The forward pass of one panel.
pub(crate) struct Convolve<'a> {
    /// W, rows of `stride` floats, and b.
    pub weights: &'a [f32],
    pub stride: usize,
    pub bias: &'a [f32],
    pub window: &'a Window,
    /// H, rows of `width` lanes.
    pub inputs: &'a [f32],
    pub width: usize,
    /// Z, one row for every channel and position.
    pub out: &'a mut [f32],
    pub relu: bool,
}

impl WithSimd for Convolve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for (p, &position) in self.window.positions.iter().enumerate() {
            let mut row = 0;
            while row + 4 <= self.bias.len() {
                self.tiles::<S, 4>(simd, row, p, position);
                row += 4;
            }
            while row < self.bias.len() {
                self.tiles::<S, 1>(simd, row, p, position);
                row += 1;
            }
        }
    }
}

impl Convolve<'_> {
    #[inline(always)]
    fn tiles<S: Simd, const R: usize>(&mut self, simd: S, row: usize, p: usize, position: usize) {
        let (mut column, columns) = (0, self.width / S::F32_LANES);
        while column + 2 <= columns {
            self.tile::<S, R, 2>(simd, row, p, position, column);
            column += 2;
        }
        if column < columns {
            self.tile::<S, R, 1>(simd, row, p, position, column);
        }
    }

    /// R channels and V vectors at one position.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        row: usize,
        p: usize,
        position: usize,
        column: usize,
    ) {
        let columns = self.width / S::F32_LANES;
        let inputs = vectors::<S>(self.inputs);
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        for r in 0..R {
            sums[r] = [simd.splat_f32s(self.bias[row + r]); V];
        }
        for (i, &feature) in self.window.columns.iter().enumerate() {
            let h = &inputs[(feature + position) * columns + column..][..V];
            for r in 0..R {
                let w = simd.splat_f32s(self.weights[(row + r) * self.stride + i]);
                for v in 0..V {
                    sums[r][v] = simd.mul_add_e_f32s(w, h[v], sums[r][v]);
                }
            }
        }
        let zero = simd.splat_f32s(0.0);
        let out = vectors_mut::<S>(self.out);
        for r in 0..R {
            let place = ((row + r) * self.window.positions.len() + p) * columns + column;
            for v in 0..V {
                let z = sums[r][v];
                out[place + v] = if self.relu { simd.max_f32s(z, zero) } else { z };
            }
        }
    }
}

/// The gradient of W from one panel, added to `out`.
pub(crate) struct WindowGradient<'a> {
    pub window: &'a Window,
    /// dZ, one row of `width` lanes for every channel and position.
    pub d_z: &'a [f32],
    /// H.
    pub inputs: &'a [f32],
    pub width: usize,
    /// Lanes that hold samples.
    pub count: usize,
    /// dW, rows of `stride` floats.
    pub out: &'a mut [f32],
    pub stride: usize,
    pub rows: usize,
}

impl WithSimd for WindowGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let n = self.window.columns.len();
        let mut row = 0;
        while row < self.rows {
            let tall = row + 4 <= self.rows;
            let mut column = 0;
            while column < n {
                match (tall, column + 2 <= n) {
                    (true, true) => self.tile::<S, 4, 2>(simd, row, column),
                    (true, false) => self.tile::<S, 4, 1>(simd, row, column),
                    (false, true) => self.tile::<S, 1, 2>(simd, row, column),
                    (false, false) => self.tile::<S, 1, 1>(simd, row, column),
                }
                column += 2;
            }
            row += if tall { 4 } else { 1 };
        }
    }
}

impl WindowGradient<'_> {
    /// R channels and C cells of the window. The sums stay in registers over all positions.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize>(&mut self, simd: S, row: usize, column: usize) {
        let n_positions = self.window.positions.len();
        let mut sums = [[simd.splat_f32s(0.0); C]; R];
        let mut rest = [[0.0f32; C]; R];
        for (p, &position) in self.window.positions.iter().enumerate() {
            let d_z = |r: usize| &self.d_z[((row + r) * n_positions + p) * self.width..][..self.count];
            let h = |c: usize| {
                &self.inputs[(self.window.columns[column + c] + position) * self.width..][..self.count]
            };
            let d_z: [_; R] = std::array::from_fn(|r| S::as_simd_f32s(d_z(r)));
            let h: [_; C] = std::array::from_fn(|c| S::as_simd_f32s(h(c)));
            for v in 0..self.count / S::F32_LANES {
                for c in 0..C {
                    let h = h[c].0[v];
                    for r in 0..R {
                        sums[r][c] = simd.mul_add_e_f32s(d_z[r].0[v], h, sums[r][c]);
                    }
                }
            }
            for (r, c) in (0..R).flat_map(|r| (0..C).map(move |c| (r, c))) {
                for (d, h) in d_z[r].1.iter().zip(h[c].1) {
                    rest[r][c] += d * h;
                }
            }
        }
        for (r, c) in (0..R).flat_map(|r| (0..C).map(move |c| (r, c))) {
            let sum = simd.reduce_sum_f32s(sums[r][c]) + rest[r][c];
            self.out[(row + r) * self.stride + column + c] += sum;
        }
    }
}

/// dH of one panel, added to `out`.
pub(crate) struct ConvolveBack<'a> {
    /// W, rows of `stride` floats.
    pub weights: &'a [f32],
    pub stride: usize,
    pub rows: usize,
    pub window: &'a Window,
    /// dZ, one row of `width` lanes for every channel and position.
    pub d_z: &'a [f32],
    pub width: usize,
    /// dH.
    pub out: &'a mut [f32],
}

impl WithSimd for ConvolveBack<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.width / S::F32_LANES;
        let n_positions = self.window.positions.len();
        let (d_z, out) = (vectors::<S>(self.d_z), vectors_mut::<S>(self.out));
        for (p, &position) in self.window.positions.iter().enumerate() {
            for (i, &feature) in self.window.columns.iter().enumerate() {
                let out = &mut out[(feature + position) * columns..][..columns];
                for row in 0..self.rows {
                    let w = simd.splat_f32s(self.weights[row * self.stride + i]);
                    let d_z = &d_z[(row * n_positions + p) * columns..][..columns];
                    for (out, &d) in out.iter_mut().zip(d_z) {
                        *out = simd.mul_add_e_f32s(w, d, *out);
                    }
                }
            }
        }
    }
}

/// The derivative of ReLU: 1{H > 0} times each number, for an H that lies as they do.
pub(crate) struct Gate<'a> {
    pub active: &'a [f32],
    pub out: &'a mut [f32],
}

impl WithSimd for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let zero = simd.splat_f32s(0.0);
        for (out, &active) in vectors_mut::<S>(self.out).iter_mut().zip(vectors::<S>(self.active)) {
            *out = simd.select_f32s(simd.greater_than_f32s(active, zero), *out, zero);
        }
    }
}
