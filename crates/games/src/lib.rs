//! MinAtar's five games as native environments, written from their published rules.
//!
//! Each game is one file that opens with its rules: [`breakout`], [`asterix`], [`freeway`], [`seaquest`], [`space_invaders`]. A game
//! is a position of small integers and planes of bits ([`plane`]) and a rule to go on ([`rules`]); [`minatar`] adds sticky actions,
//! the two sets of actions and the horizon; [`list`] knows the games by name.
//!
//! ```
//! use bqrl_games::list;
//! use bqrl_math::rng::{Purpose, stream};
//!
//! let mut env = list::build("minatar/breakout", &[]).unwrap().env();
//! let mut rng = stream(42, Purpose::Env);
//! env.reset(&mut rng);
//! assert_eq!(env.step(0, &mut rng).reward, 0.0);
//! ```
//!
//! MinAtar: K. Young and T. Tian, "MinAtar: An Atari-inspired testbed for thorough and reproducible reinforcement learning
//! experiments", arXiv 1903.03176. `cargo xtask test-clients` compares these games with the Python package, step for step.

pub mod asterix;
pub mod breakout;
pub mod draws;
pub mod freeway;
pub mod list;
pub mod minatar;
pub mod picture;
pub mod plane;
pub mod rules;
pub mod seaquest;
pub mod space_invaders;
