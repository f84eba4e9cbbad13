//! What agents learn from: inputs as numbers ([`encode`]), the targets that returns are told apart by ([`grid`]), transitions
//! remembered ([`replay`]) and drawn ([`minibatch`]), whole episodes of the current policy ([`rollout`]); and how an agent is
//! saved ([`arrays`], [`saved`]).

pub mod arrays;
pub mod encode;
pub mod grid;
pub mod minibatch;
pub mod replay;
pub mod rollout;
pub mod saved;
