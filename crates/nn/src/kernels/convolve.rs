//! Convolutions, one sample per lane: the dense products, with rows of the input found through a window.
//!
//! ```text
//! forward     Z[o·P + p][s]  = finish( b_o + Σ_i W[o][i] H[i @ p][s] )       i @ p = columns[i] + positions[p]
//! gradient    dW[o][i]       = Σ_p Σ_s dZ[o·P + p][s] H[i @ p][s]
//! backward    dH[i @ p][s]  += Σ_o W[o][i] dZ[o·P + p][s]                    windows may overlap
//! ```
//!
//! A row is as wide as a panel, so a gathered row costs no more than a neighbour: nothing is copied into columns first.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};
use crate::aligned::Aligned;
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
        // Wᵀ, so that the weights of a cell are neighbours: one pointer serves all channels.
        let (rows, n) = (self.bias.len(), self.window.columns.len());
        let mut turned = vec![0.0; n * rows];
        for (row, weights) in self.weights.chunks(self.stride).take(rows).enumerate() {
            for (i, &weight) in weights[..n].iter().enumerate() {
                turned[i * rows + row] = weight;
            }
        }
        for (p, &position) in self.window.positions.iter().enumerate() {
            let mut row = 0;
            // As many sums as there are registers for: 32 for AVX-512 and NEON, 16 for AVX2.
            if S::F32_LANES != 8 {
                while row + 8 <= rows {
                    self.tiles::<S, 8>(simd, &turned, row, p, position);
                    row += 8;
                }
            }
            while row + 6 <= rows {
                self.tiles::<S, 6>(simd, &turned, row, p, position);
                row += 6;
            }
            while row + 4 <= rows {
                self.tiles::<S, 4>(simd, &turned, row, p, position);
                row += 4;
            }
            while row < rows {
                self.tiles::<S, 1>(simd, &turned, row, p, position);
                row += 1;
            }
        }
    }
}

impl Convolve<'_> {
    #[inline(always)]
    fn tiles<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        turned: &[f32],
        row: usize,
        p: usize,
        position: usize,
    ) {
        let (mut column, columns) = (0, self.width / S::F32_LANES);
        while column + 2 <= columns {
            self.tile::<S, R, 2>(simd, turned, row, p, position, column);
            column += 2;
        }
        if column < columns {
            self.tile::<S, R, 1>(simd, turned, row, p, position, column);
        }
    }

    /// R channels and V vectors at one position.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        turned: &[f32],
        row: usize,
        p: usize,
        position: usize,
        column: usize,
    ) {
        let columns = self.width / S::F32_LANES;
        let inputs = &vectors::<S>(self.inputs)[position * columns + column..];
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        for r in 0..R {
            sums[r] = [simd.splat_f32s(self.bias[row + r]); V];
        }
        for (weights, &cell) in turned.chunks_exact(self.bias.len()).zip(&self.window.columns) {
            let (weights, h) = (&weights[row..row + R], &inputs[cell * columns..][..V]);
            for r in 0..R {
                let w = simd.splat_f32s(weights[r]);
                for v in 0..V {
                    sums[r][v] = simd.mul_add_e_f32s(w, h[v], sums[r][v]);
                }
            }
        }
        let zero = simd.splat_f32s(0.0);
        let out = vectors_mut::<S>(self.out);
        for r in 0..R {
            let place = ((row + r) * self.window.positions.len() + p) * columns + column;
            let out = &mut out[place..][..V];
            for v in 0..V {
                let z = sums[r][v];
                out[v] = if self.relu { simd.max_f32s(z, zero) } else { z };
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

/// Bytes of dZ and of windows that are worked on together: they stay in the second-level cache.
const NEAR: usize = 1 << 18;

impl WithSimd for WindowGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let (rows, n, positions) = (self.rows, self.window.columns.len(), self.window.positions.len());
        // One vector for each weight, over all positions, and its sum at the end.
        let mut sums = Aligned::zeros(rows * n * S::F32_LANES);
        let sums = vectors_mut::<S>(&mut sums);
        let near = (NEAR / (size_of::<f32>() * (rows + n) * self.width)).max(1);
        for begin in (0..positions).step_by(near) {
            let some = begin..(begin + near).min(positions);
            let mut row = 0;
            while row + 4 <= rows {
                self.tiles::<S, 4>(simd, some.clone(), row, sums);
                row += 4;
            }
            while row < rows {
                self.tiles::<S, 1>(simd, some.clone(), row, sums);
                row += 1;
            }
        }
        for (row, sums) in sums.chunks_exact(n).enumerate() {
            for (i, &sum) in sums.iter().enumerate() {
                self.out[row * self.stride + i] += self.with_others::<S>(row, i, simd.reduce_sum_f32s(sum));
            }
        }
    }
}

impl WindowGradient<'_> {
    #[inline(always)]
    fn tiles<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        some: Range<usize>,
        row: usize,
        sums: &mut [S::f32s],
    ) {
        let (mut column, n) = (0, self.window.columns.len());
        // As many sums as there are registers for.
        if S::F32_LANES != 8 {
            while column + 6 <= n {
                self.tile::<S, R, 6>(simd, some.clone(), row, column, sums);
                column += 6;
            }
        }
        while column + 3 <= n {
            self.tile::<S, R, 3>(simd, some.clone(), row, column, sums);
            column += 3;
        }
        while column < n {
            self.tile::<S, R, 1>(simd, some.clone(), row, column, sums);
            column += 1;
        }
    }

    /// Some positions of R channels and C cells of the window: whole vectors of samples.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize>(
        &mut self,
        simd: S,
        some: Range<usize>,
        row: usize,
        column: usize,
        all: &mut [S::f32s],
    ) {
        let Self { window, width, count, .. } = *self;
        let (positions, n) = (&window.positions, window.columns.len());
        let whole = count - count % S::F32_LANES;
        let mut d_z = [&self.d_z[..0]; R];
        for r in 0..R {
            d_z[r] = &self.d_z[(row + r) * positions.len() * width..][..positions.len() * width];
        }
        let mut cells = [&self.inputs[..0]; C];
        for c in 0..C {
            cells[c] = &self.inputs[window.columns[column + c] * width..];
        }
        let mut sums = [[simd.splat_f32s(0.0); C]; R];
        for r in 0..R {
            sums[r].copy_from_slice(&all[(row + r) * n + column..][..C]);
        }
        for (p, &position) in some.clone().zip(&positions[some]) {
            let mut d = [vectors::<S>(&[]); R];
            for r in 0..R {
                d[r] = vectors::<S>(&d_z[r][p * width..][..whole]);
            }
            let mut h = [vectors::<S>(&[]); C];
            for c in 0..C {
                h[c] = vectors::<S>(&cells[c][position * width..][..whole]);
            }
            for v in 0..whole / S::F32_LANES {
                for r in 0..R {
                    let d = d[r][v];
                    for c in 0..C {
                        sums[r][c] = simd.mul_add_e_f32s(d, h[c][v], sums[r][c]);
                    }
                }
            }
        }
        for r in 0..R {
            all[(row + r) * n + column..][..C].copy_from_slice(&sums[r]);
        }
    }

    /// Adds the samples beside whole vectors to the sum of a weight.
    #[inline(always)]
    fn with_others<S: Simd>(&self, row: usize, column: usize, mut sum: f32) -> f32 {
        let Self { window, width, count, .. } = *self;
        let lanes = count - count % S::F32_LANES..count;
        if lanes.is_empty() {
            return sum;
        }
        let d_z = self.d_z[row * window.positions.len() * width..].chunks_exact(width);
        for (d_z, &position) in d_z.zip(&window.positions) {
            let h = &self.inputs[(window.columns[column] + position) * width..][lanes.clone()];
            sum += d_z[lanes.clone()].iter().zip(h).map(|(d, h)| d * h).sum::<f32>();
        }
        sum
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
    fn with_simd<S: Simd>(mut self, simd: S) {
        for (p, &position) in self.window.positions.iter().enumerate() {
            let mut cell = 0;
            while cell + 6 <= self.window.columns.len() {
                self.tiles::<S, 6>(simd, cell, p, position);
                cell += 6;
            }
            while cell < self.window.columns.len() {
                self.tiles::<S, 1>(simd, cell, p, position);
                cell += 1;
            }
        }
    }
}

impl ConvolveBack<'_> {
    #[inline(always)]
    fn tiles<S: Simd, const C: usize>(&mut self, simd: S, cell: usize, p: usize, position: usize) {
        let (mut column, columns) = (0, self.width / S::F32_LANES);
        while column + 2 <= columns {
            self.tile::<S, C, 2>(simd, cell, p, position, column);
            column += 2;
        }
        if column < columns {
            self.tile::<S, C, 1>(simd, cell, p, position, column);
        }
    }

    /// C cells of the window at one position, and V vectors.
    #[inline(always)]
    fn tile<S: Simd, const C: usize, const V: usize>(
        &mut self,
        simd: S,
        cell: usize,
        p: usize,
        position: usize,
        column: usize,
    ) {
        let columns = self.width / S::F32_LANES;
        let d_z = vectors::<S>(self.d_z).chunks_exact(columns).skip(p).step_by(self.window.positions.len());
        let mut sums = [[simd.splat_f32s(0.0); V]; C];
        for (weights, d_z) in self.weights[cell..].chunks(self.stride).zip(d_z).take(self.rows) {
            let (weights, d_z) = (&weights[..C], &d_z[column..column + V]);
            for c in 0..C {
                let w = simd.splat_f32s(weights[c]);
                for v in 0..V {
                    sums[c][v] = simd.mul_add_e_f32s(w, d_z[v], sums[c][v]);
                }
            }
        }
        let out = vectors_mut::<S>(self.out);
        for c in 0..C {
            let out = &mut out[(self.window.columns[cell + c] + position) * columns + column..][..V];
            for v in 0..V {
                out[v] = simd.add_f32s(out[v], sums[c][v]);
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
