//! What agents learn from: inputs as numbers ([`encode`]) and transitions remembered ([`replay`]).

pub mod arrays;
pub mod encode;
pub mod minibatch;
pub mod replay;
