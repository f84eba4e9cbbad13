//! How often every outcome was seen: the data behind an estimated table.
//!
//! The episodes of a log are divided into two halves. The first one suggests a plan, and the second one, `check`, is kept apart to
//! prove what the plan is worth ([`crate::plan::confident`]). The halves are drawn at random, always in the same way: the order of a log may
//! depend on what happened (a log that is sorted by profit) or on what was done (a comparison in which two actions take turns).

use bqrl_math::{Purpose, Rng, stream};

/// For each of n episodes whether it is kept apart; true for ⌊n/2⌋ of them, all such choices equally likely.
pub(crate) fn kept_apart(n: usize) -> Vec<bool> {
    let mut rng = draws();
    let mut wanted = n / 2;
    let draw = |place: usize| {
        let kept = rng.below(n - place) < wanted;
        wanted -= usize::from(kept);
        kept
    };
    (0..n).map(draw).collect()
}

/// The stream that divides data into halves.
pub(crate) fn draws() -> Rng {
    stream(0, Purpose::Halves)
}

/// How many of `count` observations are kept apart if a fair coin decides for each.
pub(crate) fn coins(count: u64, rng: &mut Rng) -> u64 {
    /// Beyond this many coins the normal law is exact enough.
    const MANY: u64 = 1 << 20;
    /// The random bits of one uniform draw.
    const BITS: u64 = 53;
    if count > MANY {
        let n = count as f64;
        return (n / 2.0 + n.sqrt() / 2.0 * rng.normal()).round().clamp(0.0, n) as u64;
    }
    let heads = |coins: u64| u64::from(((rng.uniform() * (1u64 << coins) as f64) as u64).count_ones());
    (0..count / BITS).map(|_| BITS).chain([count % BITS]).map(heads).sum()
}

/// One outcome of (s, a), as it was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The next state.
    pub next: u32,
    /// The reward of the transition.
    pub reward: f64,
    /// How often.
    pub count: u64,
    /// How many of them are kept apart.
    pub check: u64,
    /// Whether the episode is known to end there, if the next state is never left. Otherwise nobody knows what follows.
    pub ends: bool,
}

/// How many episodes start in a state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// The state.
    pub state: u32,
    /// All of them.
    pub count: u64,
    /// Those that are kept apart.
    pub check: u64,
}

/// One outcome with its place in the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// h; 0 if one table serves all stages.
    pub stage: u32,
    /// s.
    pub state: u32,
    /// a.
    pub action: u32,
    /// The outcome.
    pub seen: Seen,
}

/// The counts of a table: one for all stages, or one per stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    n_states: usize,
    n_actions: usize,
    kernels: Vec<(Vec<usize>, Vec<Seen>)>,
    starts: Vec<Start>,
}

impl Counts {
    /// Sorts the rows; equal outcomes add up, and those that were never seen are left out. `starts` is empty if the start is
    /// certain.
    pub fn new(
        n_states: usize,
        n_actions: usize,
        n_kernels: usize,
        rows: impl IntoIterator<Item = Counted>,
        starts: Vec<Start>,
    ) -> Self {
        let mut sorted: Vec<Counted> = rows.into_iter().filter(|row| row.seen.count > 0).collect();
        let key = |row: &Counted| (row.stage, row.state, row.action, row.seen.next);
        sorted.sort_by(|a, b| key(a).cmp(&key(b)).then(a.seen.reward.total_cmp(&b.seen.reward)));
        let mut rows = sorted.into_iter().peekable();
        let mut kernels = Vec::with_capacity(n_kernels);
        for stage in 0..n_kernels as u32 {
            let mut first = Vec::with_capacity(n_states * n_actions + 1);
            let mut seen: Vec<Seen> = Vec::new();
            for pair in 0..n_states * n_actions {
                let begin = seen.len();
                first.push(begin);
                let place = (stage, (pair / n_actions) as u32, (pair % n_actions) as u32);
                while let Some(row) = rows.next_if(|row| (row.stage, row.state, row.action) == place) {
                    match seen[begin..].last_mut() {
                        Some(last) if last.next == row.seen.next && last.reward == row.seen.reward => {
                            last.count += row.seen.count;
                            last.check += row.seen.check;
                            last.ends &= row.seen.ends;
                        }
                        _ => seen.push(row.seen),
                    }
                }
            }
            first.push(seen.len());
            kernels.push((first, seen));
        }
        Self { n_states, n_actions, kernels, starts }
    }

    /// 1, or one per stage.
    pub fn n_kernels(&self) -> usize {
        self.kernels.len()
    }

    /// |𝒮|.
    pub fn n_states(&self) -> usize {
        self.n_states
    }

    /// |𝒜|.
    pub fn n_actions(&self) -> usize {
        self.n_actions
    }

    /// The outcomes of (s, a); empty if the action was never tried there.
    pub fn seen(&self, kernel: usize, state: usize, action: usize) -> &[Seen] {
        let (first, seen) = &self.kernels[kernel];
        let row = state * self.n_actions + action;
        &seen[first[row]..first[row + 1]]
    }

    /// How often (s, a) was tried.
    pub fn tried(&self, kernel: usize, state: usize, action: usize) -> u64 {
        self.seen(kernel, state, action).iter().map(|seen| seen.count).sum()
    }

    /// Where episodes start; empty if that is certain.
    pub fn starts(&self) -> &[Start] {
        &self.starts
    }

    /// (all, kept apart) for every state.
    pub fn starts_of_all_states(&self) -> Vec<(u64, u64)> {
        let mut all = vec![(0, 0); self.n_states];
        for start in &self.starts {
            all[start.state as usize] = (start.count, start.check);
        }
        all
    }

    /// The number of transitions.
    pub fn transitions(&self) -> u64 {
        self.kernels.iter().flat_map(|(_, seen)| seen).map(|seen| seen.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_episodes_are_kept_apart_whatever_their_order() {
        for n in [0, 1, 2, 7, 1000] {
            assert_eq!(kept_apart(n).iter().filter(|&&kept| kept).count(), n / 2);
        }
        // Of 1,000 episodes 500 are kept. Among the even ones 250 are expected, with variance 1000/16; five standard errors.
        let even = kept_apart(1000).iter().step_by(2).filter(|&&kept| kept).count();
        assert!(even.abs_diff(250) < 40, "{even}");
    }

    #[test]
    fn coins_have_the_mean_and_the_variance_of_a_binomial_law() {
        // n = 2,000 draws, five standard errors; the law is nearly normal, so the variance has the error σ² √(2/n).
        let mut rng = stream(1, Purpose::Test);
        for count in [1, 52, 53, 54, 1000, 1 << 21] {
            let draws: Vec<f64> = (0..2_000).map(|_| coins(count, &mut rng) as f64).collect();
            let (mean, variance) = (count as f64 / 2.0, count as f64 / 4.0);
            let got = draws.iter().sum::<f64>() / 2_000.0;
            assert!((got - mean).abs() < 5.0 * (variance / 2_000.0).sqrt(), "{count}: {got}");
            let got = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2_000.0;
            assert!((got / variance - 1.0).abs() < 5.0 * (2.0f64 / 2_000.0).sqrt(), "{count}: {got}");
        }
        assert_eq!(coins(0, &mut rng), 0);
    }
}
