//! Figures of policies and return laws, as SVG and PNG.
//!
//! Plain data goes in and a [`figure::Figure`] comes out; nothing here plans, learns or touches the disk.
//! The SVG is written by hand, the same bytes on every machine. The PNG is that SVG drawn with a font carried in
//! this crate, so it does not depend on the fonts that happen to be installed.

mod axis;
pub mod figure;
pub mod law_plot;
mod page;
pub mod policy_map;
mod svg;
