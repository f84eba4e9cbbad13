//! V(h, s) on a table, from few samples: coarse groups are learned first, and finer ones learn what those leave.
//!
//! ```text
//! V(h, s) = u_0 + Σ_k u_k(⌊h / w_k⌋, s)              u_0 for all, then one table per width, the widest first
//! for a target y of (h, s), from coarse to fine:
//!   n_k ← n_k + 1
//!   u_k ← u_k + max{value_rate, 1/(n_k + value_prior)} (y − u_0 − … − u_k)
//! ```
//!
//! A row that was never visited has the value of its group; one that often was has its own. At first a level averages,
//! shrunk by n/(n + `value_prior`); later it forgets at `value_rate`, because the policy that is evaluated changes. Targets
//! that rise are met by every level, so that V runs ahead of their mean until they settle. That is wanted: bootstrapped
//! targets lag behind a policy that improves (docs/agents/policy-gradients.md has the comparison with plain means).

use super::stage_table::StageTable;
use crate::experience::arrays::{Array, Arrays, RestoreError};
use crate::experience::saved;

/// V.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueTable {
    /// u_k, k ≥ 1.
    residuals: StageTable,
    /// n_k.
    counts: StageTable,
    /// u_0 and n_0.
    everywhere: (f64, f64),
    rate: f64,
    prior: f64,
}

impl ValueTable {
    /// All zero.
    pub fn new(widths: &[usize], horizon: usize, n_states: usize, rate: f64, prior: f64) -> Self {
        let residuals = StageTable::new(widths, horizon, n_states, 1);
        Self { counts: residuals.zeros(), residuals, everywhere: (0.0, 0.0), rate, prior }
    }

    /// V(h, s).
    pub fn read(&self, stage: usize, state: usize) -> f64 {
        self.everywhere.0 + self.residuals.read(stage, state)[0]
    }

    /// Learns that (h, s) was worth `target`.
    pub fn learn(&mut self, stage: usize, state: usize, target: f64) {
        let Self { residuals, counts, everywhere: (mean, count), rate, prior } = self;
        let mut left = target;
        let mut learn = |value: &mut f64, count: &mut f64| {
            *count += 1.0;
            *value += rate.max((*count + *prior).recip()) * (left - *value);
            left -= *value;
        };
        learn(mean, count);
        // Rows come from narrow to wide.
        let rows: Vec<usize> = residuals.rows(stage, state).collect();
        for &row in rows.iter().rev() {
            learn(&mut residuals.values_mut()[row], &mut counts.values_mut()[row]);
        }
    }

    /// Whether all values are finite.
    pub fn is_finite(&self) -> bool {
        self.everywhere.0.is_finite() && self.residuals.values().iter().all(|value| value.is_finite())
    }

    pub(crate) fn to_arrays(&self) -> Vec<Array> {
        vec![
            Array::f64("values", self.residuals.values()),
            Array::f64("value_counts", self.counts.values()),
            Array::f64("value_everywhere", &[self.everywhere.0, self.everywhere.1]),
        ]
    }

    pub(crate) fn restore(&mut self, arrays: &Arrays) -> Result<(), RestoreError> {
        let read = |name: &str, want: usize| match arrays.f64(name)? {
            values if values.len() == want => Ok(values),
            values => Err(RestoreError(format!("{name} has {} entries, want {want}", values.len()))),
        };
        let n = self.residuals.values().len();
        let (values, counts, everywhere) =
            (read("values", n)?, read("value_counts", n)?, read("value_everywhere", 2)?);
        saved::finite("values", &values)?;
        saved::finite("value_everywhere", &everywhere)?;
        let mut all = counts.iter().chain(&everywhere[1..]);
        if let Some(count) = all.find(|count| !(count.is_finite() && **count >= 0.0)) {
            return Err(RestoreError(format!("value_counts holds {count:?}, want numbers of at least 0")));
        }
        self.residuals.values_mut().copy_from_slice(&values);
        self.counts.values_mut().copy_from_slice(&counts);
        self.everywhere = (everywhere[0], everywhere[1]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_matches_hand_computation() {
        // One width, prior 1, forgetting off. First target 8 at (0, 0): u_0 = 8/2 = 4, leaves 4; u_1 = 4/2 = 2. V = 6.
        let mut values = ValueTable::new(&[1], 2, 2, 1e-9, 1.0);
        values.learn(0, 0, 8.0);
        assert_eq!((values.read(0, 0), values.read(1, 1)), (6.0, 4.0));
        // Then 1 at (1, 1): u_0 = 4 + (1 − 4)/3 = 3, leaves −2; u_1(1, 1) = −2/2 = −1.
        values.learn(1, 1, 1.0);
        assert_eq!((values.read(0, 0), values.read(1, 1), values.read(0, 1)), (5.0, 2.0, 3.0));
    }

    #[test]
    fn values_settle_at_the_mean_of_steady_targets_and_follow_others() {
        // Targets 0 and 2 in turn: after n of them every level is within O(1/n) of its mean.
        let mut values = ValueTable::new(&[1, 4], 4, 1, 1e-9, 1.0);
        (0..20_000).for_each(|n| values.learn(3, 0, f64::from(n % 2) * 2.0));
        assert!((values.read(3, 0) - 1.0).abs() < 1e-2, "{}", values.read(3, 0));
        // At rate ½ a jump is followed at once.
        let mut following = ValueTable::new(&[1], 1, 1, 0.5, 0.0);
        (0..20).for_each(|_| following.learn(0, 0, 0.0));
        (0..20).for_each(|_| following.learn(0, 0, 1.0));
        assert!((following.read(0, 0) - 1.0).abs() < 1e-3, "{}", following.read(0, 0));
    }

    #[test]
    fn stages_share_what_is_known_of_their_group() {
        // Width 8 groups all stages of a state: a state seen at one stage is valued at the others.
        let mut values = ValueTable::new(&[1, 8], 8, 2, 0.01, 1.0);
        for _ in 0..1000 {
            values.learn(0, 0, 1.0);
            values.learn(0, 1, 0.0);
        }
        assert!(values.read(5, 0) > 0.9 && values.read(5, 1) < 0.1);
    }
}
