//! What agents learn from: inputs as numbers ([`encode`]), transitions remembered ([`replay`]), and whole episodes of
//! the current policy ([`rollout`]).

pub mod arrays;
pub mod encode;
pub mod minibatch;
pub mod replay;
pub mod rollout;
