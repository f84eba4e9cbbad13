//! Logs of episodes, one transition a row, and the table that they suggest.
//!
//! ```text
//! episode,stage,state,action,reward,next_state,end
//! 1,0,low,order,-4,high,0
//! 1,1,high,wait,3,low,1
//! ```
//!
//! | column | may be left out |
//! |---|---|
//! | `episode` | no |
//! | `stage` | yes: the rows of an episode are in order |
//! | `state`, `action`, `reward` | no |
//! | `next_state` | yes: the state of the episode's next row; its last row leads to a state `end` if it ends there, otherwise to a state `unknown` |
//! | `end` | yes: the last row of an episode is its end |
//!
//! Column names have the usual synonyms (`done`, `next`, `t`, …). The rows may be in any order if there is a `stage`.
//! The horizon is the longest episode, unless it is given. An episode that stops earlier either ends (`end`) or was cut off: then its
//! transitions count, and nobody knows what follows.
//!
//! A log may also come as columns in memory ([`Columns`]), or from a simulator that is asked again and again ([`sample()`]).

mod columns;
mod fit;
mod sample;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Read;

use thiserror::Error;

pub use self::columns::{Columns, Labelled, find_columns};
pub use self::fit::{Binned, Cut, Fitted, Options, fit, fit_columns, unseen};
pub use self::sample::{Simulated, sample};
use crate::model::ModelError;
use crate::records::{Column, Field, Names, RecordError, Records};

/// The most rows that a log may have.
const MAX_ROWS: usize = u32::MAX as usize - 1;

/// No state: the log does not say.
const NONE: u32 = u32::MAX;

const KNOWN: &[Column] = &[
    Column::required("episode", &["episodeid", "idepisode", "ep", "trajectory", "run", "trial", "case"]),
    Column::optional("stage", &["step", "t", "time", "timestep", "period", "day", "week", "month", "h"]),
    Column::required(
        "state",
        &[
            "idstate",
            "idstatefrom",
            "statefrom",
            "fromstate",
            "from",
            "observation",
            "obs",
            "s",
            "currentstate",
        ],
    ),
    Column::required("action", &["actions", "idaction", "act", "decision", "choice", "a"]),
    Column::required("reward", &["rewards", "rew", "payoff", "profit", "r"]),
    Column::optional(
        "next_state",
        &["next", "idstateto", "stateto", "tostate", "to", "nextobservation", "nextobs", "newstate", "s'"],
    ),
    Column::optional("end", &["done", "terminated", "terminal", "last", "final", "isend"]),
];
/// The names by which the columns of a log are found, for messages.
pub fn column_names() -> String {
    let named = |column: &Column| {
        let names: Vec<&str> = [column.name].iter().chain(column.synonyms).copied().collect();
        format!("{}{}", names.join("/"), if column.required { "" } else { " (optional)" })
    };
    KNOWN.iter().map(named).collect::<Vec<_>>().join(", ")
}

const EPISODE: usize = 0;
const STAGE: usize = 1;
const STATE: usize = 2;
const ACTION: usize = 3;
const REWARD: usize = 4;
const NEXT: usize = 5;
const END: usize = 6;

/// The place of a transition: a line of a file, counted from 1 with the header, or a row of columns, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    word: &'static str,
    number: u32,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.word, self.number)
    }
}

/// An error in a log.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum LogError {
    #[error("{0}")]
    Records(#[from] RecordError),
    #[error("{at}: episode {episode} goes from stage {from} to stage {to}, stage {missing} is missing")]
    Gap { at: At, episode: String, from: u32, to: u32, missing: u32 },
    #[error("{at}: episode {episode} begins at stage {stage}, the first stage of the log is {first}")]
    Begins { at: At, episode: String, stage: u32, first: u32 },
    #[error("{at}: episode {episode} has stage {stage} twice, the first time in {first}")]
    Twice { at: At, first: At, episode: String, stage: u32 },
    #[error("{at}: episode {episode} goes on after its end in {end}")]
    AfterEnd { at: At, end: At, episode: String },
    #[error("{at}: episode {episode} is in state {state}, but {before} led to state {next}")]
    Broken { at: At, before: At, episode: String, state: String, next: String },
    #[error("{at}: stage {stage} is beyond the horizon {horizon}; the first stage of the log is {first}")]
    Horizon { at: At, stage: u32, first: u32, horizon: usize },
    #[error("the horizon must be at least 1, got 0")]
    NoHorizon,
    #[error("{at}, column {column}: want a number to put into bins, got {value:?}")]
    NotANumber { at: At, column: &'static str, value: String },
    #[error("{at}, column {column}: want {want}, got {value}")]
    Cell { at: At, column: &'static str, want: &'static str, value: String },
    #[error("the columns must be equally long: episode has {episode} rows, {column} has {rows}")]
    Lengths { episode: usize, column: &'static str, rows: usize },
    #[error("{states} states, {actions} actions and {stages} stages are too many pairs for a table")]
    TooManyPairs { states: usize, actions: usize, stages: usize },
    #[error("{0}")]
    Model(#[from] ModelError),
}

/// One transition. States, actions and episodes are numbered as they appear.
#[derive(Clone, Copy, Debug)]
struct Transition {
    reward: f64,
    episode: u32,
    stage: u32,
    state: u32,
    action: u32,
    next: u32,
    line: u32,
    /// The end column; true at the last row of an episode if there is no such column.
    ends: bool,
}

/// A log in memory: forty bytes a row, sorted by episode and stage.
struct Log {
    rows: Vec<Transition>,
    episodes: Names,
    states: Names,
    actions: Names,
    /// The number that the file gives its first stage.
    first_stage: u32,
    has_end: bool,
    /// "line" or "row", for messages.
    word: &'static str,
}

impl Log {
    fn read(reader: impl Read) -> Result<Self, LogError> {
        let mut records = Records::new(reader, KNOWN, "a log")?;
        let (has_stage, has_next, has_end) = (records.has(STAGE), records.has(NEXT), records.has(END));
        let mut rows: Vec<Transition> = Vec::new();
        let (mut episodes, mut states, mut actions) = (Names::default(), Names::default(), Names::default());
        // How many rows each episode has had so far.
        let mut lengths: Vec<u32> = Vec::new();
        while let Some(line) = records.next_line()? {
            if rows.len() == MAX_ROWS {
                return Err(RecordError::TooManyRows { most: MAX_ROWS }.into());
            }
            let field = |column: usize| records.field(line, column);
            let number =
                |names: &mut Names, field: Field| Ok::<_, RecordError>(names.number(&field.label()?));
            let episode = number(&mut episodes, field(EPISODE))?;
            if episode as usize == lengths.len() {
                lengths.push(0);
            }
            let stage = if has_stage {
                let stage = field(STAGE).id()?;
                u32::try_from(stage).map_err(|_| field(STAGE).refuse("a stage below 2^32"))?
            } else {
                lengths[episode as usize]
            };
            lengths[episode as usize] += 1;
            let ends = has_end && field(END).flag()?;
            // The end may have no next state.
            let named = has_next && !(ends && field(NEXT).text.is_empty());
            let next = if named { number(&mut states, field(NEXT))? } else { NONE };
            rows.push(Transition {
                reward: field(REWARD).number()?,
                episode,
                stage,
                state: number(&mut states, field(STATE))?,
                action: number(&mut actions, field(ACTION))?,
                next,
                line: line as u32,
                ends,
            });
        }
        Self::new(rows, episodes, states, actions, has_end, "line")
    }

    /// Sorts the rows, checks them and fills in what is left out.
    fn new(
        mut rows: Vec<Transition>,
        episodes: Names,
        states: Names,
        actions: Names,
        has_end: bool,
        word: &'static str,
    ) -> Result<Self, LogError> {
        if rows.is_empty() {
            return Err(RecordError::NoRows.into());
        }
        let first_stage = rows.iter().map(|row| row.stage).min().unwrap_or(0);
        for row in &mut rows {
            row.stage -= first_stage;
        }
        let key = |row: &Transition| (row.episode, row.stage, row.line);
        if !rows.is_sorted_by_key(key) {
            rows.sort_unstable_by_key(key);
        }
        let mut log = Self { rows, episodes, states, actions, first_stage, has_end, word };
        log.check()?;
        log.complete();
        Ok(log)
    }

    fn at(&self, line: u32) -> At {
        At { word: self.word, number: line }
    }

    /// Refuses episodes that do not hang together.
    fn check(&self) -> Result<(), LogError> {
        let name = |row: &Transition| self.episodes.name(row.episode).to_owned();
        let shown = |stage: u32| stage.saturating_add(self.first_stage);
        let begins = |row: &Transition| LogError::Begins {
            at: self.at(row.line),
            episode: name(row),
            stage: shown(row.stage),
            first: self.first_stage,
        };
        if self.rows[0].stage != 0 {
            return Err(begins(&self.rows[0]));
        }
        for pair in self.rows.windows(2) {
            let (before, row) = (&pair[0], &pair[1]);
            if before.episode != row.episode {
                if row.stage != 0 {
                    return Err(begins(row));
                }
                continue;
            }
            let (at, episode) = (self.at(row.line), || name(row));
            if row.stage == before.stage {
                return Err(LogError::Twice {
                    at,
                    first: self.at(before.line),
                    episode: episode(),
                    stage: shown(row.stage),
                });
            }
            if row.stage != before.stage + 1 {
                return Err(LogError::Gap {
                    at,
                    episode: episode(),
                    from: shown(before.stage),
                    to: shown(row.stage),
                    missing: shown(before.stage + 1),
                });
            }
            if before.ends {
                return Err(LogError::AfterEnd { at, end: self.at(before.line), episode: episode() });
            }
            if before.next != NONE && before.next != row.state {
                return Err(LogError::Broken {
                    at,
                    before: self.at(before.line),
                    episode: episode(),
                    state: self.states.name(row.state).to_owned(),
                    next: self.states.name(before.next).to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Fills in what the columns leave out: next states, and the ends of episodes.
    fn complete(&mut self) {
        for place in 0..self.rows.len() {
            let following = self.rows.get(place + 1).filter(|row| row.episode == self.rows[place].episode);
            let next = following.map(|row| row.state);
            let row = &mut self.rows[place];
            if row.next == NONE {
                row.next = next.unwrap_or(NONE);
            }
            if !self.has_end {
                row.ends = next.is_none();
            }
        }
    }

    /// Whether a row is the last one of its episode.
    fn is_last(&self, place: usize) -> bool {
        self.rows.get(place + 1).is_none_or(|row| row.episode != self.rows[place].episode)
    }
}
