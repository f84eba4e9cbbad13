//! The kernels of networks, one source for every vector width. (Those of planning are in `plan/sweep.rs` of `bqrl-mdp`.)
//!
//! Each kernel is generic over [`pulp::Simd`] and compiled once for AVX-512, AVX2, NEON and plain scalars; which one
//! runs is decided at run time, so a plain `cargo build --release` is fast everywhere. A kernel is a struct that holds
//! its operands and implements [`pulp::WithSimd`]; everything below that must be inlined to be compiled for the same
//! instructions. All rows are whole vectors of 16 floats, so no kernel has a tail.
//!
//! Matrix products are our own too. The operands are already in the layout of a register tile, so nothing is packed, and
//! bias, ReLU and its derivative are applied when a tile is stored. The `gemm` crates would need `unsafe` calls, and they
//! choose the instructions themselves, so that a variant could not be pinned.

// Code inside a dispatch is compiled once per vector width, so it must be inlined.
#![allow(clippy::inline_always)]
// Counted loops over a tile of registers are unrolled completely; iterators over several arrays at once are not always.
#![allow(clippy::needless_range_loop)]

pub(crate) mod act;
pub(crate) mod adam;
pub(crate) mod convolve;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod peak;
pub(crate) mod product;
pub(crate) mod sort;
pub(crate) mod target;
pub(crate) mod transpose;
pub(crate) mod unpack;

use pulp::{Arch, Simd, WithSimd};

/// Which instructions the kernels use.
///
/// Different variants round differently: only the same variant (and the same binary) gives the same bits. To repeat a run
/// on another machine, pin the narrowest variant that both machines have.
#[derive(Clone, Copy, Debug)]
pub struct Kernels(Arch);

impl Kernels {
    /// The widest that this machine has.
    pub fn detect() -> Self {
        Self(Arch::new())
    }

    /// No vector instructions beyond the baseline of the compiler. Slow; the same bits on every machine of one architecture.
    pub fn scalar() -> Self {
        Self(Arch::Scalar)
    }

    /// All that this machine can run, the scalar one first and the widest last.
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self::scalar()];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(pulp::x86::V3::try_new().map(|v3| Self(Arch::V3(v3))));
            all.extend(pulp::x86::V4::try_new().map(|v4| Self(Arch::V4(v4))));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(pulp::aarch64::Neon::try_new().map(|neon| Self(Arch::Neon(neon))));
        all
    }

    /// The variant of this name, if this machine has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|kernels| kernels.name() == name)
    }

    /// `"scalar"`, `"avx2"`, `"avx512"` or `"neon"`.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Arch::V4(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Arch::Neon(_) => "neon",
            _ => "scalar",
        }
    }

    /// The peak of one core with these instructions, in floating-point operations per second: one measurement of about a
    /// millisecond.
    pub fn peak_flops(self) -> f64 {
        self.run(peak::Peak)
    }

    pub(crate) fn run<K: WithSimd>(self, kernel: K) -> K::Output {
        self.0.dispatch(kernel)
    }
}

impl Default for Kernels {
    fn default() -> Self {
        Self::detect()
    }
}

impl PartialEq for Kernels {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Kernels {}

/// A slice of whole vectors.
#[inline(always)]
fn vectors<S: Simd>(floats: &[f32]) -> &[S::f32s] {
    let (vectors, rest) = S::as_simd_f32s(floats);
    debug_assert!(rest.is_empty(), "{} floats, want whole vectors", floats.len());
    vectors
}

#[inline(always)]
fn vectors_mut<S: Simd>(floats: &mut [f32]) -> &mut [S::f32s] {
    S::as_mut_simd_f32s(floats).0
}
