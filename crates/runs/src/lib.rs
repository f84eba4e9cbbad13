//! Files of a run on disk.
//!
//! A run that is interrupted leaves each of its files either as it was or as it was meant to be, never half of one.

pub mod atomic;
