//! Rows of delimited text, as spreadsheets and other programs write it: MDP files, logs, policies and laws.
//!
//! The separator is `;`, a tab, `|` or a comma, whichever the header has. With anything but commas a number may have a decimal comma. Fields
//! may be quoted and padded, blank lines are ignored, a byte-order mark and a first line such as `sep=;` do not count. Column
//! names are compared without case, spaces, `_` and `-`. Text that is not UTF-8 is read as Latin-1, in which older programs write.
//!
//! The input may not be text at all. A record is read only up to [`MAX_RECORD_BYTES`], so a missing line end or a missing
//! quote does not make memory grow.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};

use ::csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use thiserror::Error;

/// The longest record, including the header, that is accepted.
pub const MAX_RECORD_BYTES: usize = 64 << 10;

/// An error in a file of rows. Lines count from 1, including the header.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum RecordError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("missing column {}, the header reads {header}", .missing.join(", "))]
    MissingColumns { missing: Vec<&'static str>, header: String },
    #[error("the file is in UTF-16: save it as CSV in UTF-8")]
    Utf16,
    #[error("the file is a spreadsheet or an archive, not text: save it as CSV")]
    Spreadsheet,
    #[error(
        "column {column} appears twice in the header, as {first:?} and as {second:?}: rename one of them"
    )]
    DuplicateColumn { column: &'static str, first: String, second: String },
    #[error("there are no rows after the header")]
    NoRows,
    #[error("there are more than {most} rows")]
    TooManyRows { most: usize },
    #[error("line {line}: no record ends within {MAX_RECORD_BYTES} bytes, this is not {what} in CSV format")]
    LongRecord { line: u64, what: &'static str },
    #[error("line {line}: {fields} fields, the header has {expected}")]
    Fields { line: u64, fields: usize, expected: usize },
    #[error("line {line}, column {column}: want {want}, got {value}")]
    Value { line: u64, column: &'static str, want: &'static str, value: String },
}

/// A column that a file may have.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in messages.
    pub name: &'static str,
    /// Other names, in small letters, without spaces, `_` and `-`.
    pub synonyms: &'static [&'static str],
    /// Whether every file must have it.
    pub required: bool,
    /// A column that makes this one unnecessary.
    pub unless: Option<&'static str>,
}

impl Column {
    /// A column that every file must have.
    pub const fn required(name: &'static str, synonyms: &'static [&'static str]) -> Self {
        Self { name, synonyms, required: true, unless: None }
    }

    /// A column that a file may have.
    pub const fn optional(name: &'static str, synonyms: &'static [&'static str]) -> Self {
        Self { name, synonyms, required: false, unless: None }
    }
}

/// The beginning of a file, which was read to find the separator, the rest of it, and a line end.
type Whole<R> = io::Chain<io::Cursor<Vec<u8>>, io::Chain<R, &'static [u8]>>;

/// Reads rows one after the other.
pub struct Records<R> {
    reader: Reader<Metered<Whole<R>>>,
    record: ByteRecord,
    /// For each known column its place in the header, and the name that the header gives it.
    places: Vec<Option<usize>>,
    names: Vec<String>,
    columns: &'static [Column],
    width: usize,
    decimal_comma: bool,
    what: &'static str,
}

impl<R: Read> Records<R> {
    /// Reads the header. `what` is the kind of file, for messages.
    pub fn new(mut reader: R, columns: &'static [Column], what: &'static str) -> Result<Self, RecordError> {
        let mut start = first_lines(&mut reader)?;
        if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
            return Err(RecordError::Utf16);
        }
        if start.starts_with(b"PK\x03\x04") || start.starts_with(b"\xd0\xcf\x11\xe0") {
            return Err(RecordError::Spreadsheet);
        }
        // Old programs end lines with a carriage return alone.
        let old = start.contains(&b'\r') && !start.contains(&b'\n');
        let line_end = if old { b'\n' } else { b' ' };
        start.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = line_end);
        if hint_line(&start) && header_line(&start).1 {
            // Blanks instead of the line, so that lines are counted right; the header comes after it.
            let end = start.iter().position(|&byte| byte == b'\n').unwrap_or(start.len());
            start[..end].fill(b' ');
            if !header_line(&start).1 {
                start.extend(first_lines(&mut reader)?);
            }
        }
        let separator = separator(&start);
        // With a line end after the last record too, a record that was just read ends on the line before the reader's.
        let rest = reader.chain(&b"\n"[..]);
        let metered = Metered { inner: io::Cursor::new(start).chain(rest), since_record: 0, line_end };
        let reader =
            ReaderBuilder::new().has_headers(false).flexible(true).delimiter(separator).from_reader(metered);
        let mut records = Self {
            reader,
            record: ByteRecord::new(),
            places: Vec::new(),
            names: Vec::new(),
            columns,
            width: 0,
            decimal_comma: separator != b',',
            what,
        };
        records.advance()?.ok_or(RecordError::Empty)?;
        records.find_columns(separator)?;
        records.width = records.record.len();
        Ok(records)
    }

    /// Whether the header has a column.
    pub fn has(&self, column: usize) -> bool {
        self.places[column].is_some()
    }

    /// The header's own name of a column.
    pub fn header(&self, column: usize) -> &str {
        &self.names[column]
    }

    /// Goes to the next row and gives its line; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<u64>, RecordError> {
        let Some(line) = self.advance()? else { return Ok(None) };
        if self.record.len() != self.width {
            return Err(RecordError::Fields { line, fields: self.record.len(), expected: self.width });
        }
        Ok(Some(line))
    }

    /// A field of the present row; empty if the header does not have the column.
    pub fn field(&self, line: u64, column: usize) -> Field<'_> {
        let text = self.places[column].map_or(&b""[..], |place| bare(&self.record[place]));
        Field { line, column: self.columns[column].name, text, decimal_comma: self.decimal_comma }
    }

    fn advance(&mut self) -> Result<Option<u64>, RecordError> {
        loop {
            let line = self.reader.position().line();
            let more = self.reader.read_byte_record(&mut self.record);
            if !more.map_err(|error| read_error(error, line, self.what))? {
                return Ok(None);
            }
            if self.record.iter().any(|field| !bare(field).is_empty()) {
                self.reader.get_mut().since_record = 0;
                return Ok(Some(self.reader.position().line() - 1));
            }
        }
    }

    fn find_columns(&mut self, separator: u8) -> Result<(), RecordError> {
        let plain: Vec<String> = self.record.iter().map(plain).collect();
        let header = || shown(&self.record.iter().collect::<Vec<_>>().join(&separator));
        self.places = find(self.columns, &plain, header)?;
        let name = |place: &Option<usize>| place.map_or(String::new(), |place| plain[place].clone());
        self.names = self.places.iter().map(name).collect();
        Ok(())
    }
}

/// The place of each known column among plain names ([`plain_name`]). `header` is all of them, for the message.
pub(crate) fn find(
    columns: &[Column],
    plain: &[String],
    header: impl Fn() -> String,
) -> Result<Vec<Option<usize>>, RecordError> {
    let mut missing = Vec::new();
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let named = |text: &String| *text == plain_name(column.name) || column.synonyms.contains(&&text[..]);
        let mut found = (0..plain.len()).filter(|&place| named(&plain[place]));
        let place = found.next();
        if let (Some(first), Some(second)) = (place, found.next()) {
            let [first, second] = [first, second].map(|place| plain[place].clone());
            return Err(RecordError::DuplicateColumn { column: column.name, first, second });
        }
        let replaced = || column.unless.is_some_and(|other| plain.iter().any(|text| text == other));
        if place.is_none() && column.required && !replaced() {
            missing.push(column.name);
        }
        places.push(place);
    }
    if missing.is_empty() {
        return Ok(places);
    }
    Err(RecordError::MissingColumns { missing, header: header() })
}

/// A column name without case, spaces, `_` and `-`.
fn plain(field: &[u8]) -> String {
    plain_name(&String::from_utf8_lossy(bare(field)))
}

pub(crate) fn plain_name(name: &str) -> String {
    let letters = name.trim_start_matches('\u{feff}').chars();
    letters.filter(|c| !c.is_whitespace() && !"_-\"".contains(*c)).flat_map(char::to_lowercase).collect()
}

/// The beginning of the file, up to the end of the first line that is not blank.
fn first_lines(reader: &mut impl Read) -> Result<Vec<u8>, io::Error> {
    let mut start = Vec::new();
    let mut buffer = [0; 4096];
    while start.len() < MAX_RECORD_BYTES {
        let n = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        start.extend_from_slice(&buffer[..n]);
        if header_line(&start).1 {
            break;
        }
    }
    Ok(start)
}

/// Whether the first line only tells a spreadsheet the separator: `sep=;`.
fn hint_line(start: &[u8]) -> bool {
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    line.len() <= 7 && bare(line).to_ascii_lowercase().starts_with(b"sep=")
}

/// The first line that is not blank, and whether it is complete.
fn header_line(text: &[u8]) -> (&[u8], bool) {
    let mut lines = text.split(|&byte| byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        if line.iter().any(|byte| !byte.is_ascii_whitespace() && !b",;|".contains(byte)) {
            return (line, lines.peek().is_some());
        }
    }
    (&[], false)
}

/// The separator that the header has most of, outside quotes; a comma if it has none.
fn separator(start: &[u8]) -> u8 {
    let (header, _) = header_line(start);
    let mut counts = [0; SEPARATORS.len()];
    let mut quoted = false;
    for &byte in header {
        quoted ^= byte == b'"';
        if let Some(place) = SEPARATORS.iter().position(|&s| s == byte && !quoted) {
            counts[place] += 1;
        }
    }
    // Header names contain no separators, so a semicolon beside commas is rare; the comma wins a tie.
    let best = (0..SEPARATORS.len()).rev().max_by_key(|&place| counts[place]).unwrap_or(0);
    SEPARATORS[best]
}

const SEPARATORS: [u8; 4] = *b",;\t|";

/// A field without padding and without quotes that padding hid from the CSV reader.
pub(crate) fn bare(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    match field {
        [b'"', inner @ .., b'"'] => bare(inner),
        _ => field,
    }
}

/// The start of some bytes as one line of text for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 80;
    let dots = if bytes.len() > LONGEST { "…" } else { "" };
    format!("{:?}{dots}", String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]))
}

/// One field, with its place.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    /// Its line.
    pub line: u64,
    /// The name of its column.
    pub column: &'static str,
    /// Its text, without padding and quotes.
    pub text: &'a [u8],
    decimal_comma: bool,
}

impl<'a> Field<'a> {
    fn parse<T: std::str::FromStr>(&self) -> Option<T> {
        std::str::from_utf8(self.text).ok()?.parse().ok()
    }

    /// The error that names this field.
    pub fn refuse(&self, want: &'static str) -> RecordError {
        RecordError::Value { line: self.line, column: self.column, want, value: shown(self.text) }
    }

    /// A non-negative integer.
    pub fn id(&self) -> Result<u64, RecordError> {
        // Beyond 2^53 a floating-point id may not be exact.
        let whole = |x: &f64| x.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(x);
        self.parse::<u64>()
            .or_else(|| self.real().filter(whole).map(|x| x as u64))
            .ok_or_else(|| self.refuse("a non-negative integer"))
    }

    /// The number, with a decimal point or, unless commas separate fields, a decimal comma.
    pub fn real(&self) -> Option<f64> {
        self.parse::<f64>().or_else(|| {
            let text = std::str::from_utf8(self.text).ok()?;
            let comma = self.decimal_comma && !text.contains('.') && text.matches(',').count() == 1;
            comma.then(|| text.replace(',', ".").parse().ok())?
        })
    }

    /// A finite number.
    pub fn number(&self) -> Result<f64, RecordError> {
        self.real().filter(|x| x.is_finite()).ok_or_else(|| self.refuse("a finite number"))
    }

    /// A number from 0 to `most`, which is 1 with some tolerance.
    pub fn probability(&self, most: f64) -> Result<f64, RecordError> {
        let allowed = |x: &f64| (0.0..=most).contains(x);
        self.real().filter(allowed).ok_or_else(|| self.refuse("a probability from 0 to 1"))
    }

    /// True, false, or empty, which is false.
    pub fn flag(&self) -> Result<bool, RecordError> {
        match &self.text.to_ascii_lowercase()[..] {
            b"1" | b"true" | b"yes" | b"1.0" | b"t" | b"y" => Ok(true),
            b"" | b"0" | b"false" | b"no" | b"0.0" | b"f" | b"n" => Ok(false),
            _ => Err(self.refuse("true or false")),
        }
    }

    /// A name: whole numbers in their shortest form, other text as it is.
    pub fn label(&self) -> Result<Cow<'a, str>, RecordError> {
        if self.text.is_empty() {
            return Err(self.refuse("a name or a number"));
        }
        if let Ok(text) = std::str::from_utf8(self.text) {
            return Ok(label(text, || self.real()));
        }
        // Latin-1 has a letter for every byte but control characters, which no name contains.
        let letters =
            self.text.iter().map(|&byte| Some(char::from(byte)).filter(|letter| !letter.is_control()));
        let text: Option<String> = letters.collect();
        text.map(Cow::Owned).ok_or_else(|| self.refuse("a name or a number"))
    }
}

/// A text as a name; `real` is the number that it stands for.
pub(crate) fn label(text: &str, real: impl Fn() -> Option<f64>) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0')) {
        return text.into();
    }
    let whole = |x: &f64| x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0;
    real().filter(whole).map_or(text.into(), |x| format!("{}", x + 0.0).into())
}

/// Names as numbers, in the order in which they first appear. A log may have ten million: each is kept once, in one long text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    text: String,
    /// Where each name ends.
    ends: Vec<usize>,
    /// The number of a name by its hash; a name whose hash is taken by another one has the next free place.
    numbers: HashMap<u64, u32>,
    hasher: RandomState,
}

impl Names {
    pub fn number(&mut self, name: &str) -> u32 {
        let mut hash = self.hasher.hash_one(name);
        while let Some(&number) = self.numbers.get(&hash) {
            if self.name(number) == name {
                return number;
            }
            hash = hash.wrapping_add(1);
        }
        let number = self.ends.len() as u32;
        self.text.push_str(name);
        self.ends.push(self.text.len());
        self.numbers.insert(hash, number);
        number
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn name(&self, number: u32) -> &str {
        let number = number as usize;
        let begin = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.text[begin..self.ends[number]]
    }

    /// The names in natural order, and the place of each number in it.
    pub fn sorted(self) -> (Vec<String>, Vec<u32>) {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by(|&a, &b| natural(self.name(a), self.name(b)));
        let mut places = vec![0; order.len()];
        for (place, &number) in order.iter().enumerate() {
            places[number as usize] = place as u32;
        }
        (order.iter().map(|&number| self.name(number).to_owned()).collect(), places)
    }
}

/// Numbers by size, before other text; then texts that begin with a number and a space, by that number: `-0.5 to 0.25` before `0.25 and more`; digits
/// inside a text by size too: `order-2` before `order-10`.
pub(crate) fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let whole = |text: &str| text.parse::<u64>().ok();
    let real = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
    match (real(a), real(b)) {
        // Large whole numbers may be equal as floating-point numbers.
        (Some(x), Some(y)) => return x.total_cmp(&y).then_with(|| (whole(a), a).cmp(&(whole(b), b))),
        (Some(_), None) => return std::cmp::Ordering::Less,
        (None, Some(_)) => return std::cmp::Ordering::Greater,
        (None, None) => {}
    }
    let leading = |text: &str| text.split_once(' ').and_then(|(first, _)| real(first));
    match (leading(a), leading(b)) {
        (Some(x), Some(y)) if x != y => return x.total_cmp(&y),
        (Some(_), None) => return std::cmp::Ordering::Less,
        (None, Some(_)) => return std::cmp::Ordering::Greater,
        _ => {}
    }
    pieces(a).cmp(&pieces(b)).then_with(|| a.cmp(b))
}

/// Runs of digits, without leading zeros, and of other characters. A longer run of digits is a larger number.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let piece = if digits { rest[..end].trim_start_matches('0') } else { &rest[..end] };
        pieces.push((if digits { piece.len() } else { usize::MAX }, piece));
        rest = &rest[end..];
    }
    pieces
}

/// Passes bytes on, until too many have come without a complete record. Carriage returns become padding, because the CSV
/// reader counts lines by line feeds and would stop in the middle of a CRLF; or line feeds, if a file has no others.
struct Metered<R> {
    inner: R,
    since_record: usize,
    line_end: u8,
}

/// Reports through the CSV reader that the limit was reached.
#[derive(Debug, Error)]
#[error("no record ends in sight")]
struct NoRecordInSight;

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since_record >= MAX_RECORD_BYTES {
            return Err(io::Error::other(NoRecordInSight));
        }
        let n = self.inner.read(buffer)?;
        buffer[..n].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = self.line_end);
        self.since_record += n;
        Ok(n)
    }
}

fn read_error(error: ::csv::Error, line: u64, what: &'static str) -> RecordError {
    if let ErrorKind::Io(error) = error.kind()
        && let Some(cause) = error.get_ref()
        && cause.is::<NoRecordInSight>()
    {
        return RecordError::LongRecord { line, what };
    }
    RecordError::Io(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_decides_the_separator() {
        assert_eq!(separator(b"a,b,c\n1;2;3"), b',');
        assert_eq!(separator(b"\n\n a;b;c\n"), b';');
        assert_eq!(separator(b"a\tb\n"), b'\t');
        assert_eq!(separator(b"\"a,b,c\";d\n"), b';');
        assert_eq!(separator(b"alone\n"), b',');
        assert_eq!(separator(b"a|b\n"), b'|');
    }

    const PAIR: &[Column] = &[Column::required("state", &["s"]), Column::required("value", &[])];

    fn pairs(text: &[u8]) -> Result<Vec<(u64, String, f64)>, RecordError> {
        let mut records = Records::new(text, PAIR, "a file of pairs")?;
        let mut rows = Vec::new();
        while let Some(line) = records.next_line()? {
            let (state, value) =
                (records.field(line, 0).label()?.into_owned(), records.field(line, 1).number()?);
            rows.push((line, state, value));
        }
        Ok(rows)
    }

    #[test]
    fn files_of_spreadsheets_are_read_as_they_are() {
        let one = |line, state: &str| vec![(line, state.to_owned(), 1.5)];
        assert_eq!(pairs(b"state|value\nlow|1,5\n").unwrap(), one(2, "low"));
        // Excel's line for the separator; lines are counted with it.
        assert_eq!(pairs(b"sep=;\r\nstate;value\r\nlow;1,5\r\n").unwrap(), one(3, "low"));
        assert_eq!(pairs(b"\xef\xbb\xbfsep=;\nstate;value\nlow;1,5\n").unwrap(), one(3, "low"));
        assert_eq!(pairs(b"\"sep=;\"\nstate;value\nlow;1,5").unwrap(), one(3, "low"));
        assert_eq!(pairs(b"state;value\rlow;1,5\r").unwrap(), one(2, "low"));
        // Latin-1, as older programs write it.
        assert_eq!(pairs(b"state;value\ngr\xf6\xdfe;1,5\n").unwrap(), one(2, "größe"));
        assert!(pairs(b"state;value\n\xff\x00\x01;1\n").is_err());
        let utf16: Vec<u8> = "\u{feff}state;value\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(pairs(&utf16).unwrap_err().to_string(), "the file is in UTF-16: save it as CSV in UTF-8");
        let twice = pairs(b"state;S;value\n").unwrap_err().to_string();
        assert_eq!(
            twice,
            "column state appears twice in the header, as \"state\" and as \"s\": rename one of them"
        );
    }

    #[test]
    fn names_are_in_natural_order() {
        let mut names = ["order-10", "10", "low", "9", "order-2", "-1", "2.5", "Low"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["-1", "2.5", "9", "10", "Low", "low", "order-2", "order-10"]);
        // Bins of a continuous column.
        let mut bins = ["0.3 and more", "-2 to -0.5", "0.12345 to 0.3", "-0.5 to 0.12345", "end"];
        bins.sort_by(|a, b| natural(a, b));
        assert_eq!(bins, ["-2 to -0.5", "-0.5 to 0.12345", "0.12345 to 0.3", "0.3 and more", "end"]);
    }

    #[test]
    fn whole_numbers_have_one_spelling() {
        let label = |text: &'static str, decimal_comma| {
            let field = Field { line: 1, column: "state", text: text.as_bytes(), decimal_comma };
            field.label().unwrap().into_owned()
        };
        assert_eq!(
            ["3", "3.0", "03", "-3.0", "low", "2.5"].map(|text| label(text, false)),
            ["3", "3", "3", "-3", "low", "2.5"]
        );
        assert_eq!(label("3,0", true), "3");
        assert_eq!(label("3,0", false), "3,0");
    }
}
