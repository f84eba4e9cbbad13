//! Matrix products, and sums of rows.
//!
//! ```text
//! C[r][·] = finish( start + Σ_k A(r, k) B[k][·] )
//!
//! forward     H'[o][s] = relu( b_o + Σ_i W[o][i] H[i][s] )           lanes are samples
//! backward    dH[i][s] = 1{H > 0} Σ_o W[o][i] dZ[o][s]               lanes are samples
//! gradient    dW[o][i] = Σ_s dZ[o][s] Hᵀ[s][i]                       lanes are inputs
//! ```
//!
//! A tile of R rows × V vectors of C stays in registers while k runs; each step loads V vectors of B and broadcasts R
//! scalars of A. So only B and C need contiguous lanes, and A may be a matrix or its transpose at no cost.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};

/// One product. B has rows of `width` floats, at most 64.
pub(crate) struct Product<'a> {
    pub left: Left<'a>,
    pub right: &'a [f32],
    pub width: usize,
    /// The lanes to compute, rounded to whole vectors.
    pub lanes: Range<usize>,
    /// Number of rows of B that are summed over.
    pub depth: usize,
    pub out: &'a mut [f32],
    /// Floats from one row of C to the next, and the number of rows.
    pub out_stride: usize,
    pub rows: usize,
    pub start: Start<'a>,
    pub finish: Finish<'a>,
}

/// The matrix A.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub floats: &'a [f32],
    pub stride: usize,
    /// A(r, k) = floats[k·stride + r] if transposed, floats[r·stride + k] otherwise.
    pub transposed: bool,
}

/// The initial value of the sum.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    Zero,
    /// One number per row.
    Bias(&'a [f32]),
    /// The present contents of C.
    Out,
}

/// The operation on the sum before it is stored.
#[derive(Clone, Copy)]
pub(crate) enum Finish<'a> {
    Keep,
    Relu,
    /// 1{H > 0} times the sum, for an H that lies as C does: the derivative of ReLU.
    Gate(&'a [f32]),
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let columns = self.lanes.start / S::F32_LANES..self.lanes.end.div_ceil(S::F32_LANES);
        // 6·V accumulators, V vectors of B and a broadcast fit the registers: 32 for AVX-512 and NEON, 16 for AVX2. More
        // rows would need more pointers into A than there are address registers, and run at half the speed.
        let column = match S::F32_LANES {
            8 => columns.start,
            _ => self.tiles::<S, 4>(simd, columns.start, columns.end),
        };
        let column = self.tiles::<S, 2>(simd, column, columns.end);
        self.tiles::<S, 1>(simd, column, columns.end);
    }
}

impl Product<'_> {
    /// As many columns of V vectors as fit before `end`. Returns where they end.
    #[inline(always)]
    fn tiles<S: Simd, const V: usize>(&mut self, simd: S, mut column: usize, end: usize) -> usize {
        while column + V <= end {
            let mut row = 0;
            while row + 6 <= self.rows {
                self.tile::<S, 6, V>(simd, row, column);
                row += 6;
            }
            while row + 2 <= self.rows {
                self.tile::<S, 2, V>(simd, row, column);
                row += 2;
            }
            if row < self.rows {
                self.tile::<S, 1, V>(simd, row, column);
            }
            column += V;
        }
        column
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, row: usize, column: usize) {
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        let first = row * self.out_stride + column * S::F32_LANES;
        match self.start {
            Start::Bias(bias) => {
                for (sums, &bias) in sums.iter_mut().zip(&bias[row..row + R]) {
                    *sums = [simd.splat_f32s(bias); V];
                }
            }
            Start::Zero => {}
            Start::Out => {
                for r in 0..R {
                    let out =
                        &vectors::<S>(&self.out[first + r * self.out_stride..][..V * S::F32_LANES])[..V];
                    sums[r].copy_from_slice(out);
                }
            }
        }
        let right = vectors::<S>(self.right).chunks_exact(self.width / S::F32_LANES).take(self.depth);
        let Left { floats, stride, transposed } = self.left;
        if transposed {
            for (right, left) in right.zip(floats[row..].chunks(stride)) {
                let (right, left) = (&right[column..column + V], &left[..R]);
                for r in 0..R {
                    let scalar = simd.splat_f32s(left[r]);
                    for v in 0..V {
                        sums[r][v] = simd.mul_add_e_f32s(scalar, right[v], sums[r][v]);
                    }
                }
            }
        } else {
            let mut left = [&floats[..0]; R];
            for r in 0..R {
                left[r] = &floats[(row + r) * stride..][..self.depth];
            }
            for (k, right) in right.enumerate() {
                let right = &right[column..column + V];
                for r in 0..R {
                    let scalar = simd.splat_f32s(left[r][k]);
                    for v in 0..V {
                        sums[r][v] = simd.mul_add_e_f32s(scalar, right[v], sums[r][v]);
                    }
                }
            }
        }
        let zero = simd.splat_f32s(0.0);
        for r in 0..R {
            let place = first + r * self.out_stride;
            let out = &mut vectors_mut::<S>(&mut self.out[place..][..V * S::F32_LANES])[..V];
            match self.finish {
                Finish::Keep => out.copy_from_slice(&sums[r]),
                Finish::Relu => {
                    for v in 0..V {
                        out[v] = simd.max_f32s(sums[r][v], zero);
                    }
                }
                Finish::Gate(active) => {
                    let active = &vectors::<S>(&active[place..][..V * S::F32_LANES])[..V];
                    for v in 0..V {
                        let open = simd.greater_than_f32s(active[v], zero);
                        out[v] = simd.select_f32s(open, sums[r][v], zero);
                    }
                }
            }
        }
    }
}

/// `out[r] (+)= Σ_s rows[r][s]` over some of `width` lanes: the gradient of a bias.
pub(crate) struct RowSums<'a> {
    pub rows: &'a [f32],
    pub width: usize,
    pub lanes: Range<usize>,
    pub out: &'a mut [f32],
    pub accumulate: bool,
}

impl WithSimd for RowSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, out) in self.rows.chunks_exact(self.width).zip(self.out) {
            let (whole, rest) = S::as_simd_f32s(&row[self.lanes.clone()]);
            let mut sums = simd.splat_f32s(0.0);
            for &vector in whole {
                sums = simd.add_f32s(sums, vector);
            }
            let mut sum = simd.reduce_sum_f32s(sums);
            for &value in rest {
                sum += value;
            }
            *out = if self.accumulate { *out + sum } else { sum };
        }
    }
}
