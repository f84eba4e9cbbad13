//! The formulas of lower-buffered quantile reinforcement learning, as pure functions.
//!
//! Rewards, higher is better. The two objectives of the paper, for the law of a return W:
//!
//! ```text
//! Q_q(W)   = inf{ w : P(W ≤ w) ≥ q }            point quantile
//! Q_τ^β(W) = (1/β) ∫_{τ−β}^{τ} Q_u(W) du        lower-buffered quantile, 0 < β ≤ τ < 1
//! ```
//!
//! | module | computes | in the paper |
//! |---|---|---|
//! | [`buffer`] | the window (τ, β), the grid η_j, the weights w_j | §2.2, §3 Approximation II, Eq. (1) |
//! | [`law`] | Q_q, Q_τ^β, CVaR and moments of a finite law, exactly | §2.2 |
//! | [`score`] | B̂, μ_B, σ_B and the argmax over actions | §3 Approximation III, Eqs. (2)–(3), §3.1 |
//! | [`huber`] | h_κ, ρ_η^κ and one sample's share of the critic loss 𝒥 | §3.1, Eq. (4) |
//! | [`schedule`] | the exploration coefficient λ_t | §3.1 |
//! | [`interval`] | confidence intervals from a few seeds | §4, the bands of the figures |
//! | [`rng`] | named random streams of one seed | none: the paper is silent |
//!
//! Nothing here reads a file, holds a network or knows an environment.
//! Types with checked constructors guarantee conditions such as 0 < β ≤ τ; the constructors return typed errors.
//! All other functions accept every input, except for assertions that catch mistakes in the calling code.
//!
//! ```
//! use bqrl_math::{Buffer, ReturnLaw};
//!
//! // A bet that pays 1 three times out of four.
//! let bet = ReturnLaw::from_atoms([(0.0, 0.25), (1.0, 0.75)])?;
//! assert_eq!(bet.quantile(0.2), 0.0);
//! assert_eq!(bet.quantile(0.3), 1.0);
//!
//! // The window [0.2, 0.3] straddles the jump at 0.25, so its average is a half.
//! let buffer = Buffer::new(0.3, 0.1)?;
//! assert!((bet.buffered_quantile(&buffer) - 0.5).abs() < 1e-12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod buffer;
pub mod huber;
pub mod interval;
pub mod law;
pub mod rng;
pub mod schedule;
pub mod score;

#[cfg(test)]
mod close;

pub use buffer::{Buffer, BufferError};
pub use interval::{Interval, MeanInterval, QuantileInterval};
pub use law::{LawError, ReturnLaw};
pub use rng::{Purpose, Rng, RngState, lane_stream, stream};
pub use schedule::{Clock, Exploration, ExplorationError, Span};
pub use score::Spread;
