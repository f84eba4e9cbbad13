//! A finished figure and the two forms it is written in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use resvg::{tiny_skia, usvg};

/// Pixels per SVG unit in a PNG made by [`Figure::encode`]: sharp in print at the width of a text column.
pub const PNG_SCALE: f32 = 2.0;

/// A drawing that is ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    svg: String,
}

/// Why a figure could not be turned into a file's bytes.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The file name asks for another format.
    #[error("a figure is written as .svg or .png, got {}", .path.display())]
    Extension {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The bitmap would be empty or too large to hold.
    #[error("a figure of {width} × {height} cannot be drawn at scale {scale}")]
    Scale {
        /// Width of the figure in SVG units.
        width: f32,
        /// Height of the figure in SVG units.
        height: f32,
        /// The scale asked for.
        scale: f32,
    },
    /// The renderer did not accept the drawing.
    #[error("the drawing is not valid SVG: {0}")]
    Svg(#[from] usvg::Error),
    /// The bitmap could not be compressed.
    #[error("the bitmap could not be encoded as PNG: {0}")]
    Png(String),
}

impl Figure {
    pub(crate) fn new(svg: String) -> Self {
        Self { svg }
    }

    /// The drawing as a whole SVG document.
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// The drawing as part of an HTML page, the figure with this number on it. The style is left to the page.
    pub fn inline(&self, number: usize) -> String {
        let (before, rest) = self.svg.split_once("<style>").expect("every figure has a style");
        let (_, after) = rest.split_once("</style>\n").expect("a style ends");
        // HTML needs no namespace; ids must differ between figures on one page.
        let before = before.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
        (before + after).replace("bqrl-hatch", &format!("bqrl-hatch-{number}"))
    }

    /// The drawing as a PNG on white, with `scale` pixels per SVG unit.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, RenderError> {
        let tree = usvg::Tree::from_str(&self.svg, &options())?;
        let (width, height) = (tree.size().width(), tree.size().height());
        // At most 2¹⁵ pixels a side. That is larger than any page, and a mistyped scale cannot use up the memory.
        let side = |length: f32| {
            let pixels = (length * scale).ceil();
            (1.0..=32768.0).contains(&pixels).then_some(pixels as u32)
        };
        let mut pixmap = side(width)
            .zip(side(height))
            .and_then(|(w, h)| tiny_skia::Pixmap::new(w, h))
            .ok_or(RenderError::Scale { width, height, scale })?;
        pixmap.fill(tiny_skia::Color::WHITE);
        resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut pixmap.as_mut());
        let written = |error: png::EncodingError| RenderError::Png(error.to_string());
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, pixmap.width(), pixmap.height());
        encoder.set_color(png::ColorType::Rgba);
        encoder.add_text_chunk("Software".to_owned(), "bqrl".to_owned()).map_err(written)?;
        let mut writer = encoder.write_header().map_err(written)?;
        // On white everything is opaque, so that colours do not have to be divided by their opacity.
        writer.write_image_data(pixmap.data()).map_err(written)?;
        writer.finish().map_err(written)?;
        Ok(bytes)
    }

    /// Whether a file that begins so is a figure of this crate. A few thousand bytes are enough.
    pub fn is_ours(start: &[u8]) -> bool {
        let holds = |mark: &[u8]| start.windows(mark.len()).any(|bytes| bytes == mark);
        if start.starts_with(b"<svg") { holds(b"bqrl-hatch") } else { holds(b"tEXtSoftware\0bqrl") }
    }

    /// The bytes to write to `path`, in the format its extension asks for.
    pub fn encode(&self, path: &Path) -> Result<Vec<u8>, RenderError> {
        let extension = path.extension().unwrap_or_default();
        if extension.eq_ignore_ascii_case("svg") {
            Ok(self.svg.clone().into_bytes())
        } else if extension.eq_ignore_ascii_case("png") {
            self.png(PNG_SCALE)
        } else {
            Err(RenderError::Extension { path: path.to_path_buf() })
        }
    }
}

/// Only the fonts carried here, so that a figure looks the same on every machine.
pub(crate) fn options() -> usvg::Options<'static> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    usvg::Options {
        font_family: "DejaVu Sans".to_owned(),
        fontdb: Arc::new(fonts),
        ..usvg::Options::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{Canvas, LABEL, Tone};

    fn drawing(text: &str) -> Figure {
        let mut canvas = Canvas::new(120.0, 50.0);
        canvas.text((10.0, 30.0), text, &LABEL);
        canvas.finish("a title", "a description")
    }

    #[test]
    fn a_png_decodes_to_the_scaled_size_on_white() {
        let png = drawing("τ = 0.5").png(1.5).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
        let bitmap = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!((bitmap.width(), bitmap.height()), (180, 75));
        // White also shows that the dark colours, which are for browsers, were left alone.
        let corner = bitmap.pixel(0, 0).unwrap();
        assert_eq!([corner.red(), corner.green(), corner.blue(), corner.alpha()], [255; 4]);
    }

    #[test]
    fn text_is_drawn_without_any_installed_font() {
        let darkest = |text| {
            let bitmap = tiny_skia::Pixmap::decode_png(&drawing(text).png(2.0).unwrap()).unwrap();
            bitmap.pixels().iter().map(|pixel| pixel.red()).min().unwrap()
        };
        assert_eq!(darkest(""), 255);
        for text in ["Stop", "τ", "β", "−", "≤", "·", "…", "×"] {
            assert!(darkest(text) < 128, "{text} left no ink");
        }
    }

    #[test]
    fn figures_know_their_own() {
        let figure = drawing("x");
        for name in ["a.svg", "a.png"] {
            let bytes = figure.encode(Path::new(name)).unwrap();
            assert!(Figure::is_ours(&bytes[..bytes.len().min(4096)]), "{name}");
        }
        let foreign = tiny_skia::Pixmap::new(3, 3).unwrap().encode_png().unwrap();
        assert!(
            !Figure::is_ours(&foreign) && !Figure::is_ours(b"<svg><rect/></svg>") && !Figure::is_ours(b"")
        );
    }

    #[test]
    fn light_colours_are_the_ones_in_the_png() {
        let mut canvas = Canvas::new(10.0, 10.0);
        canvas.line((0.0, 5.0), (10.0, 5.0), Tone::Planned, 10.0, "");
        let bitmap = tiny_skia::Pixmap::decode_png(&canvas.finish("", "").png(1.0).unwrap()).unwrap();
        let pixel = bitmap.pixel(5, 5).unwrap();
        assert_eq!([pixel.red(), pixel.green(), pixel.blue()], [0x00, 0x72, 0xb2]);
    }

    #[test]
    fn the_extension_chooses_the_format() {
        let figure = drawing("x");
        assert_eq!(figure.encode(Path::new("a/map.svg")).unwrap(), figure.svg().as_bytes());
        assert!(figure.encode(Path::new("map.PNG")).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn other_extensions_are_refused_by_name() {
        for path in ["map.pdf", "figures/map", ".png"] {
            let error = drawing("x").encode(Path::new(path)).unwrap_err();
            assert_eq!(error.to_string(), format!("a figure is written as .svg or .png, got {path}"));
        }
    }

    #[test]
    fn impossible_scales_are_errors() {
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e6] {
            assert!(matches!(drawing("x").png(scale), Err(RenderError::Scale { .. })), "{scale}");
        }
    }
}
