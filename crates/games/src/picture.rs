//! A position as text and as pixels, from its observation.
//!
//! Where planes overlap, a thing hides a mark, and an earlier plane hides a later one.

use std::fmt::Write;

use crate::plane::{Plane, SIDE, unpack};
use crate::rules::Look;

/// The colour of an empty cell.
const GROUND: [u8; 3] = [24, 26, 36];
/// The colour between cells.
const FRAME: [u8; 3] = [8, 9, 14];

/// Pixels of a picture, as indices of the palette, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Pixels in a row, and rows.
    pub side: usize,
    /// Indices of the palette.
    pub indices: Vec<u8>,
}

/// The plane that is drawn in each cell, row by row.
fn shown(looks: &[Look], words: &[u64]) -> Vec<Option<usize>> {
    let planes: Vec<Plane> = (0..looks.len()).map(|plane| unpack(words, plane)).collect();
    let cells = (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (x, y)));
    let top = |(x, y): (u8, u8)| {
        let there = |&plane: &usize| planes[plane].has(x, y);
        let thing = (0..looks.len()).filter(|&plane| !looks[plane].faint).find(there);
        thing.or_else(|| (0..looks.len()).find(there))
    };
    cells.map(top).collect()
}

/// Ten lines of text inside a frame.
pub fn text(looks: &[Look], words: &[u64]) -> String {
    let line = "-".repeat(usize::from(SIDE));
    let mut text = format!("+{line}+\n");
    for row in shown(looks, words).chunks(usize::from(SIDE)) {
        let cells: String = row.iter().map(|plane| plane.map_or(' ', |plane| looks[plane].glyph)).collect();
        let _ = writeln!(text, "|{cells}|");
    }
    text + &format!("+{line}+\n")
}

/// Red, green and blue of every index: the frame, the ground, then the planes.
pub fn palette(looks: &[Look]) -> Vec<u8> {
    [FRAME, GROUND].into_iter().chain(looks.iter().map(|look| look.colour)).flatten().collect()
}

/// A picture with cells of this many pixels, at least 4.
pub fn pixels(looks: &[Look], words: &[u64], cell: usize) -> Pixels {
    let cell = cell.max(4);
    let shown = shown(looks, words);
    let side = usize::from(SIDE) * cell;
    let index = |i: usize| {
        let (x, y) = (i % side, i / side);
        let (dx, dy) = (x % cell, y % cell);
        let within = |margin: usize| [dx, dy].iter().all(|d| (margin..cell - margin).contains(d));
        match shown[y / cell * usize::from(SIDE) + x / cell] {
            Some(plane) if within(if looks[plane].faint { cell / 3 } else { 1 }) => plane as u8 + 2,
            _ => u8::from(within(1)),
        }
    };
    Pixels { side, indices: (0..side * side).map(index).collect() }
}
