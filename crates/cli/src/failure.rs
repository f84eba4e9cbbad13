//! Errors in the form that a user sees: `error: …`, sometimes `hint: …`, and an exit code.

use crate::terminal::say;

/// The caller's mistake (exit code 2), a failure at run time (1), or an interruption that left nothing half written (130).
#[derive(Debug)]
pub struct Failure {
    /// 2, 1 or 130.
    pub code: u8,
    /// One line: the problem, its place, the value and the allowed range.
    pub message: String,
    /// A suggestion.
    pub hint: Option<String>,
}

// Errors are handed over by value, as `map_err(Failure::usage)` does.
#[allow(clippy::needless_pass_by_value)]
impl Failure {
    /// The caller's mistake.
    pub fn usage(message: impl ToString) -> Self {
        Self { code: 2, message: message.to_string(), hint: None }
    }

    /// A failure at run time: a full disk, a missing permission.
    pub fn runtime(message: impl ToString) -> Self {
        Self { code: 1, message: message.to_string(), hint: None }
    }

    /// Stopped by the user, after a checkpoint or with nothing written.
    pub fn interrupted(message: impl ToString) -> Self {
        Self { code: 130, message: message.to_string(), hint: None }
    }

    /// Adds a suggestion.
    pub fn hint(mut self, hint: impl ToString) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Prints to standard error. Line breaks inside become spaces, so that scripts can rely on one line each.
    pub fn report(&self) {
        say(&format!("error: {}", self.message));
        if let Some(hint) = &self.hint {
            say(&format!("hint: {hint}"));
        }
    }
}
