//! Fused multiply-adds on registers alone: the most that one core can do.

use std::hint::black_box;
use std::time::Instant;

use pulp::{Simd, WithSimd};

/// Independent sums: enough to hide the latency of two units, few enough for sixteen registers.
const CHAINS: usize = 12;
/// About a millisecond.
const ROUNDS: usize = 500_000;

pub(crate) struct Peak;

impl WithSimd for Peak {
    /// Floating-point operations per second.
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let (factor, term) = (simd.splat_f32s(black_box(0.999)), simd.splat_f32s(black_box(0.001)));
        let mut sums = [simd.splat_f32s(black_box(1.0)); CHAINS];
        let start = Instant::now();
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, term);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        for sum in sums {
            black_box(simd.reduce_sum_f32s(sum));
        }
        (2 * CHAINS * S::F32_LANES * ROUNDS) as f64 / seconds
    }
}
