//! The memory of agents: inputs as numbers ([`encode`]), stored transitions ([`replay`]), minibatches ([`minibatch`]) and
//! unfinished episodes ([`open`]); and how an agent is saved ([`arrays`], [`saved`]).

pub mod arrays;
pub mod encode;
pub mod minibatch;
pub mod open;
pub mod replay;
pub mod saved;
pub mod unit;
