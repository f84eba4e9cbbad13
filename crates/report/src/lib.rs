//! Run directories as figures, tables and one HTML page.
//!
//! ```text
//! run directories ─► study (method → level → seeds) ─► views ─► figures ─► document (HTML)
//!                                                 └─► paper (the paper's figures, its numbers beside ours)
//!                                                             └─► results (its experiments on one page)
//! runs of sweeps ─► studies (questions that the paper leaves open: tables and figures on one page)
//! ```
//!
//! The figures ([`curves`], [`heat_map`], [`policy_map`], [`quantile_curve`], [`law_plot`], [`prediction_plot`]) are functions of plain
//! data: they touch no file and know no run. Nothing here plans or learns: everything comes from the files of the
//! run. The SVG is written by hand, the same bytes on every machine. The PNG is that SVG drawn with a font
//! carried in this crate, so it does not depend on the fonts that are installed.

mod axis;
pub mod curves;
pub mod document;
pub mod figure;
pub mod heat_map;
pub mod law_plot;
pub mod numbers;
mod page;
pub mod paper;
pub mod policy_map;
pub mod prediction_plot;
pub mod progress;
pub mod quantile_curve;
pub mod results;
pub mod statistics;
pub mod studies;
pub mod study;
mod svg;
pub mod views;

pub use self::axis::four_digits;
pub use self::svg::escape;
