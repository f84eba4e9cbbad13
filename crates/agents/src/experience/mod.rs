//! What agents learn from: inputs as numbers ([`encode`]), transitions remembered ([`replay`]), targets ([`grid`]).

pub mod arrays;
pub mod encode;
pub mod grid;
pub mod minibatch;
pub mod replay;
