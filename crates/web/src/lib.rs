//! The live page: runs while they learn, and the risk dial, served from the user's own machine.
//!
//! ```text
//! directory ─► shelf (runs, MDP files; cards) ─► site (overview, run, comparison: figures of `report`) ─┐
//! problem ──► dial (every level planned once) ──► cells, episodes ──────────────────────────────────────┤
//! checkpoint ─► trained (the agent of a run) ──► its policy on the dial; game (positions) ──────────────┤
//!                                                                       server (hyper) ◄────────────────┘
//! ```
//!
//! The server only reads. It listens on this machine unless told otherwise, answers only requests that were meant for it
//! ([`request`]), follows no links ([`shelf`], [`files`]), and holds a bounded amount of memory.

mod card;
mod connection;
mod dial;
mod files;
mod game;
mod live;
mod reply;
mod request;
mod server;
mod shelf;
mod site;
mod trained;

pub use self::server::{Options, Server};
