//! Positions of a game as a file: an animated GIF, or a PNG with a few positions side by side.

use std::io;

use bqrl_games::picture::{Pixels, palette, pixels};
use bqrl_games::rules::Look;

/// Pixels of a cell.
const CELL: usize = 20;
/// Positions in a PNG, and in a row of it.
const POSITIONS: usize = 8;
const ACROSS: usize = 4;
/// Pixels between two positions.
const GAP: usize = 12;
/// The index of the frame's colour.
const FRAME: u8 = 0;

/// An animated GIF that is shown again and again.
pub fn gif(looks: &[Look], positions: &[Vec<u64>], fps: f64) -> io::Result<Vec<u8>> {
    let side = usize::from(bqrl_games::plane::SIDE) * CELL;
    let mut file = Vec::new();
    let mut encoder =
        gif::Encoder::new(&mut file, side as u16, side as u16, &palette(looks)).map_err(io::Error::other)?;
    encoder.set_repeat(gif::Repeat::Infinite).map_err(io::Error::other)?;
    for position in positions {
        let Pixels { side, indices } = pixels(looks, position, CELL);
        let mut frame = gif::Frame::from_indexed_pixels(side as u16, side as u16, indices, None);
        // Hundredths of a second.
        frame.delay = (100.0 / fps).round().clamp(2.0, 6000.0) as u16;
        encoder.write_frame(&frame).map_err(io::Error::other)?;
    }
    drop(encoder);
    Ok(file)
}

/// A PNG with the first position, the last one, and others evenly in between; read row by row.
pub fn png(looks: &[Look], positions: &[Vec<u64>]) -> io::Result<Vec<u8>> {
    let shown = POSITIONS.min(positions.len()).max(1);
    let last = positions.len().saturating_sub(1);
    let pictures: Vec<Pixels> = (0..shown)
        .filter_map(|k| positions.get(if shown == 1 { 0 } else { k * last / (shown - 1) }))
        .map(|position| pixels(looks, position, CELL))
        .collect();
    let side = usize::from(bqrl_games::plane::SIDE) * CELL;
    let extent = |n: usize| n * (side + GAP) + GAP;
    let (width, height) = (extent(shown.min(ACROSS)), extent(shown.div_ceil(ACROSS)));
    let mut sheet = vec![FRAME; width * height];
    for (k, picture) in pictures.iter().enumerate() {
        let (left, top) = (GAP + k % ACROSS * (side + GAP), GAP + k / ACROSS * (side + GAP));
        for (y, row) in picture.indices.chunks(side).enumerate() {
            let start = (top + y) * width + left;
            sheet[start..start + side].copy_from_slice(row);
        }
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette(looks));
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&sheet))
        .map_err(io::Error::other)?;
    Ok(file)
}
