//! What agents learn from: inputs as numbers ([`encode`]), transitions remembered ([`replay`]) and drawn ([`minibatch`]),
//! episodes that are not over yet ([`open`]); and how an agent is saved ([`arrays`], [`saved`]).

pub mod arrays;
pub mod encode;
pub mod minibatch;
pub mod open;
pub mod replay;
pub mod saved;
