//! A log as columns in memory: names as places in a list, numbers as they are.

use super::{ACTION, At, EPISODE, KNOWN, Log, LogError, NEXT, NONE, STATE, Transition};
use crate::records::{self, Names, RecordError};

/// A column of names.
#[derive(Clone, Debug, Default)]
pub struct Labelled {
    /// For each row the place of its name in `labels`; negative where the row has none.
    pub codes: Vec<i64>,
    /// The names, as text.
    pub labels: Vec<String>,
}

/// A log, column by column. All columns have one entry per transition.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Which episode.
    pub episode: Labelled,
    /// The stage; the order of the rows if it is left out.
    pub stage: Option<Vec<i64>>,
    /// The state in which the decision was made.
    pub state: Labelled,
    /// The decision.
    pub action: Labelled,
    /// The reward.
    pub reward: Vec<f64>,
    /// The state that it led to; that of the episode's next row if it is left out.
    pub next_state: Option<Labelled>,
    /// Whether the episode ended there; if it is left out, the last row of each episode is its end.
    pub end: Option<Vec<bool>>,
}

/// For episode, stage, state, action, reward, next state and end: which of these headers is that column, by any of its usual names.
pub fn find_columns(headers: &[String]) -> Result<Vec<Option<usize>>, RecordError> {
    let plain: Vec<String> = headers.iter().map(|name| records::plain_name(name)).collect();
    records::find(KNOWN, &plain, || format!("{:?}", headers.join(", ")))
}

impl Log {
    pub(super) fn from_columns(columns: &Columns) -> Result<Self, LogError> {
        let n = columns.episode.codes.len();
        let lengths = [
            (STATE, Some(columns.state.codes.len())),
            (ACTION, Some(columns.action.codes.len())),
            (super::STAGE, columns.stage.as_ref().map(Vec::len)),
            (super::REWARD, Some(columns.reward.len())),
            (NEXT, columns.next_state.as_ref().map(|next| next.codes.len())),
            (super::END, columns.end.as_ref().map(Vec::len)),
        ];
        for (column, rows) in lengths {
            if let Some(rows) = rows.filter(|&rows| rows != n) {
                return Err(LogError::Lengths { episode: n, column: KNOWN[column].name, rows });
            }
        }
        if n > super::MAX_ROWS {
            return Err(RecordError::TooManyRows { most: super::MAX_ROWS }.into());
        }
        let (mut episodes, mut states, mut actions) = (Names::default(), Names::default(), Names::default());
        let numbers = |names: &mut Names, labelled: &Labelled| -> Vec<u32> {
            labelled.labels.iter().map(|text| names.number(&label(text))).collect()
        };
        let of_episode = numbers(&mut episodes, &columns.episode);
        let of_state = numbers(&mut states, &columns.state);
        let of_action = numbers(&mut actions, &columns.action);
        let of_next = columns.next_state.as_ref().map(|next| numbers(&mut states, next));
        let mut lengths = vec![0u32; episodes.len()];
        let mut rows = Vec::with_capacity(n);
        for row in 0..n {
            let at = At { word: "row", number: row as u32 };
            let cell = |column: usize, want: &'static str, value: String| LogError::Cell {
                at,
                column: KNOWN[column].name,
                want,
                value,
            };
            let named = |column: usize, labelled: &Labelled, numbers: &[u32]| {
                let place = usize::try_from(labelled.codes[row]).ok();
                let missing = || cell(column, "a name or a number", "nothing".to_owned());
                place.and_then(|place| numbers.get(place).copied()).ok_or_else(missing)
            };
            let episode = named(EPISODE, &columns.episode, &of_episode)?;
            let stage = match &columns.stage {
                Some(stages) => u32::try_from(stages[row]).map_err(|_| {
                    cell(super::STAGE, "a whole number from 0 to 4294967295", stages[row].to_string())
                })?,
                None => lengths[episode as usize],
            };
            lengths[episode as usize] += 1;
            let reward = columns.reward[row];
            if !reward.is_finite() {
                return Err(cell(super::REWARD, "a finite number", reward.to_string()));
            }
            let ends = columns.end.as_ref().is_some_and(|end| end[row]);
            let next = match (&columns.next_state, &of_next) {
                // The end may have no next state.
                (Some(next), _) if ends && next.codes[row] < 0 => NONE,
                (Some(next), Some(numbers)) => named(NEXT, next, numbers)?,
                _ => NONE,
            };
            let state = named(STATE, &columns.state, &of_state)?;
            let action = named(ACTION, &columns.action, &of_action)?;
            rows.push(Transition { reward, episode, stage, state, action, next, line: row as u32, ends });
        }
        Self::new(rows, episodes, states, actions, columns.end.is_some(), "row")
    }
}

/// The same name as in a file: 3.0 is 3.
fn label(text: &str) -> String {
    let real = || text.parse::<f64>().ok().filter(|x| x.is_finite());
    records::label(text, real).into_owned()
}
