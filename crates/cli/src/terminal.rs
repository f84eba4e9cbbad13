//! The only place that writes to standard output and standard error.
//!
//! A message that cannot be written is dropped: a full disk or a closed pipe behind standard error must not end a healthy
//! run. Control characters are escaped, because names and values come from files that others wrote, and a terminal obeys
//! escape sequences.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::failure::Failure;

/// One line on standard error, or nothing if it cannot be written.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", one_line(line));
}

/// A message as one line: white space is one space, control characters are escaped, and 1e308 does not take 309 digits.
pub fn one_line(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(|word| shortened(&escaped(word))).collect();
    words.join(" ")
}

/// The longest run of digits that a message shows as it is.
const LONGEST_NUMBER: usize = 32;

/// The word with `1e308` in place of 309 digits, and 1e-320 in place of as many zeros.
fn shortened(word: &str) -> String {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let mut shorter = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(is_part) {
        let (before, number) = rest.split_at(start);
        let (number, after) = number.split_at(number.find(|c| !is_part(c)).unwrap_or(number.len()));
        let value = number.parse::<f64>().ok().filter(|_| number.len() > LONGEST_NUMBER);
        shorter += before;
        shorter += &value.map_or(number.to_owned(), |value| format!("{value:e}"));
        rest = after;
    }
    shorter + rest
}

/// Data on standard output. A reader that closes the pipe early (`| head`) is not an error.
pub fn print(output: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(escaped(output).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("writing to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A picture in text on standard output. On a terminal it replaces the one before it, which had `above` lines. False if
/// nobody can read it.
pub fn show(picture: &str, above: usize) -> bool {
    let mut out = io::stdout().lock();
    // Up, and clear to the end of the screen.
    let back =
        if above > 0 && out.is_terminal() { format!("\u{1b}[{above}A\u{1b}[J") } else { String::new() };
    out.write_all((back + &escaped(picture)).as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// The text with `\u001b` in place of each control character, except line breaks. This form is also valid inside the
/// strings of JSON, the only place where JSON can have such a character.
fn escaped(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && (c.is_control() || changes_direction(c)) {
            let _ = write!(visible, "\\u{:04x}", u32::from(c));
        } else {
            visible.push(c);
        }
    }
    visible
}

/// Whether a character changes the order in which a terminal shows the others.
fn changes_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{escaped, one_line};

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        assert_eq!(escaped("τ = 0.1 · ← größe\n"), "τ = 0.1 · ← größe\n");
        // A red word, a new title of the window, C1's form of an escape sequence, and a reversed name.
        assert_eq!(
            escaped("\x1b[31mred \x1b]0;title\x07 \u{9b}2J a\u{202e}b\r\t\x7f"),
            "\\u001b[31mred \\u001b]0;title\\u0007 \\u009b2J a\\u202eb\\u000d\\u0009\\u007f"
        );
    }

    #[test]
    fn a_message_is_one_line_with_short_numbers() {
        assert_eq!(one_line("a  b\n\n c\t\x1b[2J"), "a b c \\u001b[2J");
        assert_eq!(one_line(&format!("got {}, want 0.1.", 1e308)), "got 1e308, want 0.1.");
        assert_eq!(one_line(&format!("({})", -1e-320)), "(-1e-320)");
        // Ids and paths with dots stay as they are.
        assert_eq!(
            one_line("18446744073709551615 1.2.3 seed-42/x.csv"),
            "18446744073709551615 1.2.3 seed-42/x.csv"
        );
        let dots = "1.".repeat(40);
        assert_eq!(one_line(&dots), dots);
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let name = "a\u{9b}\u{7f}\u{202e}b";
        let json = serde_json::to_string(name).unwrap();
        let read: String = serde_json::from_str(&escaped(&json)).unwrap();
        assert_eq!(read, name);
    }
}
