//! The few SVG elements that the figures are made of.
//!
//! Colours that must change with a reader's dark mode are named by [`Tone`]. Each is written twice: as a presentation
//! attribute, which every renderer knows, and as a class, which a browser in dark mode overrides.
//! Numbers have at most two decimals, so the same figure is the same bytes everywhere.

use std::fmt::Write as _;

use crate::figure::Figure;

/// A position in SVG units, from the top left.
pub(crate) type Point = (f64, f64);

/// An axis-parallel box in SVG units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// A colour by its part in the figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Paper,
    Ink,
    Muted,
    Rule,
    Blank,
    Planned,
    Reference,
    Window,
    Quantile,
    Buffered,
    Green,
    Amber,
    Rose,
    Indigo,
}

impl Tone {
    const ALL: [Self; 14] = [
        Self::Paper,
        Self::Ink,
        Self::Muted,
        Self::Rule,
        Self::Blank,
        Self::Planned,
        Self::Reference,
        Self::Window,
        Self::Quantile,
        Self::Buffered,
        Self::Green,
        Self::Amber,
        Self::Rose,
        Self::Indigo,
    ];

    /// The colour of the series with this index: eight hues, dark enough for letters on white. Further series repeat them with
    /// other markers.
    pub fn of_series(index: usize) -> Self {
        let tones = [
            Self::Planned,
            Self::Quantile,
            Self::Green,
            Self::Buffered,
            Self::Amber,
            Self::Indigo,
            Self::Rose,
            Self::Ink,
        ];
        tones[index % tones.len()]
    }

    /// Name, colour on light paper, colour in dark mode.
    const fn entry(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Paper => ("paper", "#ffffff", "#16181d"),
            Self::Ink => ("ink", "#1a1a1a", "#e8e8e8"),
            Self::Muted => ("muted", "#5a5a5a", "#a8a8a8"),
            Self::Rule => ("rule", "#dedede", "#363a42"),
            Self::Blank => ("blank", "#c8c8c8", "#4a4f59"),
            Self::Planned => ("planned", "#0072b2", "#56b4e9"),
            Self::Reference => ("reference", "#767676", "#9a9a9a"),
            Self::Window => ("window", "#e69f00", "#e69f00"),
            Self::Quantile => ("quantile", "#c04a00", "#ff8a3d"),
            Self::Buffered => ("buffered", "#8f4a77", "#dd9cc2"),
            Self::Green => ("green", "#007a5a", "#2fc49b"),
            Self::Amber => ("amber", "#946800", "#f0b93a"),
            Self::Rose => ("rose", "#b0003a", "#ff7a9c"),
            Self::Indigo => ("indigo", "#4b3fa8", "#a79bf5"),
        }
    }
}

/// The mark of a series: with its colour, the same in every figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Down,
    Plus,
    Bar,
}

impl Marker {
    /// The marker of the series with this index; 64 series differ in colour or marker.
    pub fn of_series(index: usize) -> Self {
        let markers = [
            Self::Circle,
            Self::Square,
            Self::Triangle,
            Self::Diamond,
            Self::Cross,
            Self::Down,
            Self::Plus,
            Self::Bar,
        ];
        markers[(index + index / markers.len()) % markers.len()]
    }

    /// Its outline around a centre, and whether it is closed; a circle is drawn as one.
    fn outline(self, (x, y): Point, r: f64) -> (String, bool) {
        let path = |lines: &[&[(f64, f64)]]| {
            let mut path = String::new();
            for line in lines {
                for (k, (dx, dy)) in line.iter().enumerate() {
                    let letter = if k == 0 { 'M' } else { 'L' };
                    let _ = write!(path, "{letter}{} {}", number(x + r * dx), number(y + r * dy));
                }
            }
            path
        };
        match self {
            Self::Circle => (String::new(), true),
            Self::Square => {
                (path(&[&[(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)]]) + "z", true)
            }
            Self::Triangle => (path(&[&[(0.0, -1.15), (1.1, 0.8), (-1.1, 0.8)]]) + "z", true),
            Self::Diamond => (path(&[&[(-1.2, 0.0), (0.0, -1.2), (1.2, 0.0), (0.0, 1.2)]]) + "z", true),
            Self::Down => (path(&[&[(0.0, 1.15), (1.1, -0.8), (-1.1, -0.8)]]) + "z", true),
            Self::Bar => (path(&[&[(-0.45, -1.2), (0.45, -1.2), (0.45, 1.2), (-0.45, 1.2)]]) + "z", true),
            Self::Cross => (path(&[&[(-0.9, -0.9), (0.9, 0.9)], &[(-0.9, 0.9), (0.9, -0.9)]]), false),
            Self::Plus => (path(&[&[(-1.15, 0.0), (1.15, 0.0)], &[(0.0, -1.15), (0.0, 1.15)]]), false),
        }
    }
}

/// The fill of a shape.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fill<'a> {
    Tone(Tone),
    /// A tone at this opacity.
    Tint(Tone, f64),
    /// A data colour, the same in light and dark.
    Colour(&'a str),
    /// Light diagonal lines: no value here.
    Hatch,
}

/// How a text is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lettering {
    pub size: f64,
    pub bold: bool,
    pub tone: Tone,
    pub anchor: Anchor,
}

/// The part of a text that is at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

pub(crate) const TITLE: Lettering =
    Lettering { size: 16.0, bold: true, tone: Tone::Ink, anchor: Anchor::Start };
pub(crate) const SUBTITLE: Lettering = Lettering { size: 12.0, bold: false, tone: Tone::Muted, ..TITLE };
pub(crate) const HEADING: Lettering =
    Lettering { size: 12.0, bold: true, tone: Tone::Ink, anchor: Anchor::Start };
pub(crate) const LABEL: Lettering = Lettering { size: 11.0, bold: false, ..HEADING };
pub(crate) const AXIS: Lettering = Lettering { anchor: Anchor::Middle, ..LABEL };
pub(crate) const TICK: Lettering = Lettering { size: 10.0, anchor: Anchor::Middle, ..LABEL };
pub(crate) const NOTE: Lettering = Lettering { size: 10.5, bold: false, tone: Tone::Muted, ..HEADING };

impl Lettering {
    /// The width of `text`, estimated from above by a few per cent.
    ///
    /// Classes of letters instead of a font table: what a browser substitutes for the font is not known anyway.
    pub fn width(&self, text: &str) -> f64 {
        // The marks of an index are not drawn.
        let text = text.replace("_τ", "τ").replace("^β", "β");
        let em: f64 = text
            .chars()
            .map(|letter| match letter {
                'i' | 'j' | 'l' | 'I' | '|' | '\'' | '.' | ',' | ':' | ';' | '!' | ' ' | '·' => 0.34,
                'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' | '"' => 0.42,
                'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' | '—' => 1.0,
                '+' | '=' | '<' | '>' | '−' | '≤' | '≥' | '×' | '~' | '–' | 'N' | 'O' | 'Q' | 'D' | 'G'
                | 'H' => 0.84,
                'A'..='Z' => 0.72,
                'c' | 's' | 'z' | 'k' | 'v' | 'x' | 'y' | '*' | '?' | '_' => 0.6,
                // Ideographs and other wide scripts fill the square.
                '\u{1100}'.. => 1.0,
                _ => 0.64,
            })
            .sum();
        em * self.size * if self.bold { 1.12 } else { 1.0 }
    }

    /// Breaks `text` at spaces into lines no wider than `width`; a single longer word is shortened.
    pub fn wrap(&self, text: &str, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            if let Some(line) = lines.last_mut()
                && self.width(&format!("{line} {word}")) <= width
            {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(self.shorten(word, width));
            }
        }
        lines
    }

    /// `text`, or as much of its beginning as fits into `width` with an ellipsis behind it.
    pub fn shorten(&self, text: &str, width: f64) -> String {
        if self.width(text) <= width {
            return text.to_owned();
        }
        let mut kept = String::new();
        for letter in text.chars() {
            kept.push(letter);
            if self.width(&kept) + self.width("…") > width {
                kept.pop();
                break;
            }
        }
        kept + "…"
    }
}

/// Rounds to two decimals without trailing zeros.
pub(crate) fn number(value: f64) -> String {
    decimals(value, 2)
}

fn decimals(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Makes `text` safe between tags and inside quoted attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' | '\r' => safe.push(' '),
            // XML 1.0 has no way to write these, escaped or not.
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            _ => safe.push(letter),
        }
    }
    safe
}

/// `text` with the paper's `_τ` lowered and `^β` raised; every other underscore and caret is kept as it is.
fn with_indices(text: &str, size: f64) -> String {
    let mut marked = String::new();
    let mut plain = String::new();
    let mut shift = 0.0;
    let mut rest = text;
    let mut put = |marked: &mut String, chunk: &str, to: f64| {
        if chunk.is_empty() {
            return;
        }
        if shift == 0.0 && to == 0.0 {
            marked.push_str(&escape(chunk));
        } else {
            let smaller =
                if to == 0.0 { String::new() } else { format!(" font-size=\"{}\"", number(0.75 * size)) };
            let dy = number(to - shift);
            let _ = write!(marked, "<tspan dy=\"{dy}\"{smaller}>{}</tspan>", escape(chunk));
        }
        shift = to;
    };
    while let Some(letter) = rest.chars().next() {
        let index =
            [("_τ", 0.25 * size), ("^β", -0.4 * size)].into_iter().find(|(mark, _)| rest.starts_with(mark));
        if let Some((mark, to)) = index {
            put(&mut marked, &plain, 0.0);
            plain.clear();
            put(&mut marked, &mark[1..], to);
            rest = &rest[mark.len()..];
        } else {
            plain.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    put(&mut marked, &plain, 0.0);
    marked
}

/// A drawing under construction.
#[derive(Debug)]
pub(crate) struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

impl Canvas {
    pub fn new(width: f64, height: f64) -> Self {
        let mut canvas = Self { width, height, body: String::new() };
        canvas.rect(Area { left: 0.0, top: 0.0, width, height }, Fill::Tone(Tone::Paper));
        canvas
    }

    fn element(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.body.write_fmt(arguments).expect("a string takes any text");
        self.body.push('\n');
    }

    pub fn rect(&mut self, area: Area, fill: Fill<'_>) {
        let [x, y, w, h] = [area.left, area.top, area.width, area.height].map(number);
        let fill = fill_attributes(fill);
        self.element(format_args!("<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"{fill}/>"));
    }

    /// The outline of `area`.
    pub fn frame(&mut self, area: Area, tone: Tone) {
        let [x, y, w, h] = [area.left, area.top, area.width, area.height].map(number);
        let stroke = stroke_attributes(tone, 1.0, "");
        self.element(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"none\"{stroke}/>"
        ));
    }

    /// A straight line; `dashes` as in `stroke-dasharray`, empty for a solid one.
    pub fn line(&mut self, from: Point, to: Point, tone: Tone, width: f64, dashes: &str) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        let stroke = stroke_attributes(tone, width, dashes);
        self.element(format_args!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"{stroke}/>"));
    }

    /// An open path given in SVG path syntax.
    pub fn curve(&mut self, path: &str, tone: Tone, width: f64, dashes: &str) {
        let stroke = stroke_attributes(tone, width, dashes);
        self.element(format_args!("<path d=\"{path}\" fill=\"none\" stroke-linejoin=\"round\"{stroke}/>"));
    }

    /// A closed path given in SVG path syntax.
    pub fn shape(&mut self, path: &str, fill: Fill<'_>) {
        let fill = fill_attributes(fill);
        self.element(format_args!("<path d=\"{path}\"{fill}/>"));
    }

    pub fn circle(&mut self, centre: Point, radius: f64, tone: Tone) {
        let [x, y, r] = [centre.0, centre.1, radius].map(number);
        let fill = fill_attributes(Fill::Tone(tone));
        self.element(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"{fill}/>"));
    }

    /// The marker of a series; hollow ones are filled with paper.
    pub fn marker(&mut self, marker: Marker, centre: Point, radius: f64, tone: Tone, hollow: bool) {
        let (path, closed) = marker.outline(centre, radius);
        let (name, light, _) = tone.entry();
        let (inner, inside, _) = if hollow { Tone::Paper } else { tone }.entry();
        let width = if closed { "1.2" } else { "1.8" };
        let style = if closed {
            format!(
                " fill=\"{inside}\" stroke=\"{light}\" stroke-width=\"{width}\" \
                 class=\"bqrl-fill-{inner} bqrl-stroke-{name}\""
            )
        } else {
            format!(" fill=\"none\"{}", stroke_attributes(tone, 1.8, ""))
        };
        if path.is_empty() {
            let [x, y, r] = [centre.0, centre.1, radius].map(number);
            self.element(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"{style}/>"));
        } else {
            self.element(format_args!("<path d=\"{path}\"{style}/>"));
        }
    }

    pub fn diamond(&mut self, centre: Point, radius: f64, tone: Tone) {
        let (x, y, r) = (centre.0, centre.1, radius);
        let d = format!(
            "M{} {}L{} {}L{} {}L{} {}z",
            number(x - r),
            number(y),
            number(x),
            number(y - r),
            number(x + r),
            number(y),
            number(x),
            number(y + r)
        );
        let fill = fill_attributes(Fill::Tone(tone));
        self.element(format_args!("<path d=\"{d}\"{fill}/>"));
    }

    pub fn text(&mut self, at: Point, text: &str, lettering: &Lettering) {
        self.turned_text(at, text, lettering, 0.0);
    }

    /// Text in a data colour, the same in light and dark.
    pub fn coloured_text(&mut self, at: Point, text: &str, lettering: &Lettering, colour: &str) {
        let [x, y] = [at.0, at.1].map(number);
        let (size, content) = (number(lettering.size), with_indices(text, lettering.size));
        self.element(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"middle\" fill=\"{colour}\">{content}</text>"
        ));
    }

    /// Text turned by `degrees` clockwise around its point.
    pub fn turned_text(&mut self, at: Point, text: &str, lettering: &Lettering, degrees: f64) {
        let [x, y] = [at.0, at.1].map(number);
        let size = number(lettering.size);
        let weight = if lettering.bold { " font-weight=\"bold\"" } else { "" };
        let anchor = match lettering.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let turn = if degrees == 0.0 {
            String::new()
        } else {
            format!(" transform=\"rotate({} {x} {y})\"", number(degrees))
        };
        let fill = fill_attributes(Fill::Tone(lettering.tone));
        let content = with_indices(text, lettering.size);
        self.element(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{weight}{anchor}{turn}{fill}>{content}</text>"
        ));
    }

    /// Filled paths drawn in a grid of unit cells laid over `area`, `columns` × `rows` from the top left.
    ///
    /// Whole-number coordinates keep a large map small, and without antialiasing no seams show between neighbours.
    pub fn cells(&mut self, area: Area, (columns, rows): (usize, usize), paths: &[(String, String)]) {
        let [x, y] = [area.left, area.top].map(number);
        // Two decimals would be off by whole cells at the far end of a map of 500 columns.
        let [sx, sy] =
            [area.width / columns as f64, area.height / rows as f64].map(|scale| decimals(scale, 6));
        self.element(format_args!(
            "<g transform=\"translate({x} {y}) scale({sx} {sy})\" shape-rendering=\"crispEdges\">"
        ));
        for (colour, path) in paths {
            self.element(format_args!("<path fill=\"{colour}\" d=\"{path}\"/>"));
        }
        self.element(format_args!("</g>"));
    }

    /// Closes the document; `title` and `description` are for readers who cannot see the drawing.
    pub fn finish(self, title: &str, description: &str) -> Figure {
        let [width, height] = [self.width, self.height].map(number);
        let (title, description) = (escape(title), escape(description));
        // The hatch, which is not in the body, is drawn with the blank tone.
        let dark = dark_rules(|class| class.ends_with("-blank") || self.body.contains(class));
        let hatch = stroke_attributes(Tone::Blank, 1.2, "");
        let body = self.body;
        Figure::new(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"'DejaVu Sans', Verdana, Arial, sans-serif\">\n\
             <title>{title}</title>\n<desc>{description}</desc>\n\
             <style>@media (prefers-color-scheme: dark){{{dark}}}</style>\n\
             <defs><pattern id=\"bqrl-hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"{hatch}/></pattern></defs>\n\
             {body}</svg>\n"
        ))
    }
}

/// The colours of dark mode, for the classes that are in use.
pub(crate) fn dark_rules(in_use: impl Fn(&str) -> bool) -> String {
    let mut dark = String::new();
    for tone in Tone::ALL {
        let (name, _, colour) = tone.entry();
        for part in ["fill", "stroke"] {
            let class = format!("bqrl-{part}-{name}");
            if in_use(&class) {
                let _ = write!(dark, ".{class}{{{part}:{colour}}}");
            }
        }
    }
    dark
}

fn fill_attributes(fill: Fill<'_>) -> String {
    match fill {
        Fill::Tone(tone) => {
            let (name, light, _) = tone.entry();
            format!(" fill=\"{light}\" class=\"bqrl-fill-{name}\"")
        }
        Fill::Tint(tone, opacity) => {
            format!("{} fill-opacity=\"{}\"", fill_attributes(Fill::Tone(tone)), number(opacity))
        }
        Fill::Colour(colour) => format!(" fill=\"{colour}\""),
        Fill::Hatch => " fill=\"url(#bqrl-hatch)\"".to_owned(),
    }
}

fn stroke_attributes(tone: Tone, width: f64, dashes: &str) -> String {
    let (name, light, _) = tone.entry();
    let width = number(width);
    let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
    format!(" stroke=\"{light}\" stroke-width=\"{width}\"{dashes} class=\"bqrl-stroke-{name}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::options;
    use resvg::usvg;

    #[test]
    fn escaped_text_survives_an_xml_parser() {
        assert_eq!(escape("a<b> & \"c\" 'd'\n\u{1}"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39; \u{fffd}");
        let hostile = "</text><script>&\"'\u{0}]]>";
        let mut canvas = Canvas::new(50.0, 20.0);
        canvas.text((0.0, 10.0), hostile, &LABEL);
        let figure = canvas.finish(hostile, hostile);
        assert!(usvg::Tree::from_str(figure.svg(), &options()).is_ok());
        assert!(!figure.svg().contains("<script>"));
    }

    #[test]
    fn numbers_are_short_and_never_minus_zero() {
        let shown: Vec<String> = [1.0, 0.126, -0.001, 1200.0, -3.456, 0.1 + 0.2].map(number).into();
        assert_eq!(shown, ["1", "0.13", "0", "1200", "-3.46", "0.3"]);
    }

    #[test]
    fn series_are_told_apart_by_colour_and_marker() {
        let style = |index| format!("{:?} {:?}", Tone::of_series(index), Marker::of_series(index));
        let styles: Vec<String> = (0..64).map(style).collect();
        for (index, style) in styles.iter().enumerate() {
            assert!(!styles[..index].contains(style), "{style}");
        }
        // The first eight differ by colour alone, and by marker alone.
        for index in 0..8 {
            assert!((0..index).all(|other| Tone::of_series(other) != Tone::of_series(index)));
            assert!((0..index).all(|other| Marker::of_series(other) != Marker::of_series(index)));
        }
        // No method is drawn in the gray of references.
        assert!((0..8).all(|index| Tone::of_series(index) != Tone::Reference));
    }

    #[test]
    fn only_the_papers_indices_are_set_as_indices() {
        assert_eq!(with_indices("asset_selling", 10.0), "asset_selling");
        assert_eq!(
            with_indices("Q_τ^β = 1", 10.0),
            "Q<tspan dy=\"2.5\" font-size=\"7.5\">τ</tspan><tspan dy=\"-6.5\" font-size=\"7.5\">β</tspan>\
             <tspan dy=\"4\"> = 1</tspan>"
        );
    }

    #[test]
    fn estimated_widths_cover_the_drawn_ones_without_waste() {
        let texts = [
            "cumulative probability P(R ≤ w)",
            "buffer window [τ−β, τ]",
            "exact policies, evaluated at C_h = 0",
            "0.7917",
            "−1234.5",
            "Order 10 units",
            "WWMM mmww",
            "illicit little filter",
            "SLIPPERY FROZEN LAKE",
            "buffered quantile Q_τ^β",
        ];
        for lettering in [LABEL, HEADING, TITLE] {
            for text in texts {
                let mut canvas = Canvas::new(900.0, 40.0);
                canvas.text((0.0, 20.0), text, &lettering);
                let figure = canvas.finish("", "");
                let tree = usvg::Tree::from_str(figure.svg(), &options()).unwrap();
                let drawn = tree
                    .root()
                    .children()
                    .iter()
                    .find_map(|node| match node {
                        usvg::Node::Text(text) => Some(f64::from(text.bounding_box().width())),
                        _ => None,
                    })
                    .unwrap();
                let ratio = lettering.width(text) / drawn;
                assert!((0.99..1.25).contains(&ratio), "{text}: estimated / drawn = {ratio}");
            }
        }
    }

    #[test]
    fn wrapped_lines_fit_and_lose_no_word() {
        let text = "exact policies of the slippery FrozenLake, evaluated at C_h = 0, one panel per level";
        let lines = LABEL.wrap(text, 150.0);
        assert_eq!(lines.join(" "), text);
        assert!(lines.len() > 2 && lines.iter().all(|line| LABEL.width(line) <= 150.0), "{lines:?}");
        assert!(LABEL.wrap("", 150.0).is_empty());
    }

    #[test]
    fn shortened_text_fits_and_keeps_its_beginning() {
        let short = LABEL.shorten("inventory level 17, demand high, season late", 100.0);
        assert!(
            short.starts_with("inventory") && short.ends_with('…') && LABEL.width(&short) <= 100.0,
            "{short}"
        );
        assert_eq!(LABEL.shorten("17", 100.0), "17");
    }
}
