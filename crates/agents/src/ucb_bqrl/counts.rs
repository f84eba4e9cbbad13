//! N(s, a, s') and the other observed facts, and how they are saved.

use crate::RestoreError;
use crate::experience::arrays::{Array, Arrays};
use crate::experience::saved;

/// The counts of one (s, a).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub n: u64,
    pub seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    pub next: u32,
    /// Undiscounted.
    pub reward: f64,
    pub count: u64,
}

/// N, and the other observed facts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counts {
    /// One kernel, or one per stage; rows s · A + a.
    pub kernels: Vec<Vec<Row>>,
    pub starts: Vec<u64>,
    pub terminal: Vec<bool>,
    /// Episodes begun.
    pub episodes: u64,
}

impl Counts {
    /// As arrays of a file.
    pub fn arrays(&self) -> Vec<Array> {
        let n_rows = self.kernels[0].len();
        let (mut row, mut next, mut reward, mut count) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (kernel, rows) in self.kernels.iter().enumerate() {
            for (index, counted) in rows.iter().enumerate() {
                for seen in &counted.seen {
                    row.push((kernel * n_rows + index) as u64);
                    next.push(seen.next);
                    reward.push(seen.reward);
                    count.push(seen.count);
                }
            }
        }
        let terminal: Vec<u8> = self.terminal.iter().map(|&t| u8::from(t)).collect();
        vec![
            Array::u64("row", &row),
            Array::u32("next", &next),
            Array::f64("reward", &reward),
            Array::u64("count", &count),
            Array::u64("starts", &self.starts),
            Array::u8("terminal", &terminal),
            Array::u64("episodes", &[self.episodes]),
        ]
    }

    /// Reads counts of the same shape as `like`, with rewards within bounds and these terminal states, if they are known.
    pub fn read(
        bytes: &[u8],
        like: &Self,
        n_states: usize,
        (bottom, top): (f64, f64),
        known: Option<&[bool]>,
    ) -> Result<Self, RestoreError> {
        let file = Arrays::read(bytes)?;
        let n_rows = like.kernels[0].len();
        let mut kernels = vec![vec![Row::default(); n_rows]; like.kernels.len()];
        let (row, next) = (file.u64("row")?, file.u32("next")?);
        let (reward, count) = (file.f64("reward")?, file.u64("count")?);
        let misfit = || RestoreError("the counts are of another problem".to_owned());
        if [next.len(), reward.len(), count.len()].iter().any(|&n| n != row.len()) {
            return Err(misfit());
        }
        saved::counts("count", &count)?;
        // A reward that was discounted and restored may differ by rounding.
        let room = 1e-6 * (1.0 + bottom.abs().max(top.abs()));
        if let Some(reward) = reward.iter().find(|r| !(bottom - room..=top + room).contains(*r)) {
            return Err(RestoreError(format!(
                "reward holds {reward:?}, want rewards from {bottom:?} to {top:?}"
            )));
        }
        for (((row, next), reward), count) in row.into_iter().zip(next).zip(reward).zip(count) {
            let index = row as usize;
            let place = kernels.get_mut(index / n_rows).ok_or_else(misfit)?;
            if next as usize >= n_states {
                return Err(misfit());
            }
            let place = &mut place[index % n_rows];
            place.n += count;
            place.seen.push(Seen { next, reward, count });
        }
        let starts = file.u64("starts")?;
        let terminal: Vec<bool> = file.u8("terminal")?.iter().map(|&t| t != 0).collect();
        if starts.len() != n_states || terminal.len() != n_states {
            return Err(misfit());
        }
        if known.is_some_and(|known| known != terminal) {
            return Err(RestoreError("terminal names other states than the problem".to_owned()));
        }
        // An episode is counted when it begins.
        let (episodes, begun) = (file.one_u64("episodes")?, saved::counts("starts", &starts)?);
        if episodes != begun {
            return Err(RestoreError(format!("episodes is {episodes}, the starts add up to {begun}")));
        }
        Ok(Self { kernels, starts, terminal, episodes })
    }
}
