//! Episodes of the current policy, and how good their actions were (Schulman et al. 2016, γ = 1).
//!
//! ```text
//! δ_t  = r_t + (1 − d_t) V(h+1, s_{t+1}) − V(h, s_t)         d = 1 at the end and at the horizon; a cut-off bootstraps
//! A_t  = δ_t + λ A_{t+1}                                     within an episode; A_t = δ_t at its last step
//! y_t  = A_t + V(h, s_t)                                     the λ-return, which V is fitted to
//! A_t ← (A_t − mean A) / std A                               over the whole rollout
//! ```
//!
//! The standard deviation divides by n. Advantages that are all equal become 0: episodes without any surprise teach
//! nothing.

use super::value_table::ValueTable;
use crate::experience::arrays::{Array, Arrays, RestoreError};
use crate::experience::open::OpenEpisodes;
use crate::experience::saved;
use crate::{Transition, state};

/// A decision, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// h.
    pub stage: usize,
    /// s.
    pub state: usize,
    /// a.
    pub action: usize,
    /// r.
    pub reward: f64,
    /// s'.
    pub next_state: usize,
    /// d.
    pub is_final: bool,
    /// Whether the episode goes on.
    pub goes_on: bool,
    /// π(a | h, s) of the policy that took it.
    pub probability: f64,
}

/// The decisions of a few whole episodes, one after the other, and of those that are not over yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    decisions: Vec<Decision>,
    episodes: usize,
    open: OpenEpisodes<Decision>,
}

/// A_t before normalisation, and y_t.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimates {
    /// A_t.
    pub advantages: Vec<f64>,
    /// y_t.
    pub targets: Vec<f64>,
}

impl Rollout {
    /// Remembers a transition of a lane, taken with this probability.
    pub fn store(&mut self, lane: usize, transition: &Transition, probability: f64) {
        let Transition { x, action, reward, next, end } = *transition;
        let decision = Decision {
            stage: x.stage,
            state: state(&x),
            action,
            reward,
            next_state: state(&next),
            is_final: end.is_final(),
            goes_on: !end.is_over(),
            probability,
        };
        if let Some(episode) = self.open.step(lane, decision, end.is_over()) {
            self.decisions.extend(episode);
            self.episodes += 1;
        }
    }

    /// Forgets the open episode of a lane.
    pub fn restart(&mut self, lane: usize) {
        self.open.restart(lane);
    }

    /// Whole episodes remembered.
    pub fn episodes(&self) -> usize {
        self.episodes
    }

    /// The decisions.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Forgets the whole episodes.
    pub fn clear(&mut self) {
        self.decisions.clear();
        self.episodes = 0;
    }

    /// Advantages and λ-returns from the values V.
    pub fn estimate(&self, values: &ValueTable, gae_lambda: f64) -> Estimates {
        let mut advantages = vec![0.0; self.decisions.len()];
        let mut targets = advantages.clone();
        let mut following = 0.0;
        for (t, decision) in self.decisions.iter().enumerate().rev() {
            let Decision { stage, state, reward, next_state, is_final, goes_on, .. } = *decision;
            let baseline = values.read(stage, state);
            let bootstrap = if is_final { 0.0 } else { values.read(stage + 1, next_state) };
            let delta = reward + bootstrap - baseline;
            advantages[t] = delta + if goes_on { gae_lambda * following } else { 0.0 };
            targets[t] = advantages[t] + baseline;
            following = advantages[t];
        }
        Estimates { advantages, targets }
    }

    /// One pass over the targets, in the order of the episodes.
    pub fn fit(&self, values: &mut ValueTable, targets: &[f64]) {
        for (Decision { stage, state, .. }, y) in self.decisions.iter().zip(targets) {
            values.learn(*stage, *state, *y);
        }
    }

    pub(crate) fn to_arrays(&self) -> Vec<Array> {
        let (open, lengths) = self.open.columns();
        let all: Vec<&Decision> = self.decisions.iter().chain(open).collect();
        let column = |of: fn(&Decision) -> usize| -> Vec<u64> {
            all.iter().map(|decision| of(decision) as u64).collect()
        };
        let real =
            |of: fn(&Decision) -> f64| -> Vec<f64> { all.iter().map(|decision| of(decision)).collect() };
        vec![
            Array::u64("stages", &column(|d| d.stage)),
            Array::u64("states", &column(|d| d.state)),
            Array::u64("actions", &column(|d| d.action)),
            Array::f64("rewards", &real(|d| d.reward)),
            Array::f64("probabilities", &real(|d| d.probability)),
            Array::u64("open", &lengths),
            Array::u64("next_states", &column(|d| d.next_state)),
            Array::u64("final", &column(|d| usize::from(d.is_final))),
            Array::u64("goes_on", &column(|d| usize::from(d.goes_on))),
        ]
    }

    pub(crate) fn from_arrays(
        arrays: &Arrays,
        horizon: usize,
        n_states: usize,
        n_actions: usize,
    ) -> Result<Self, RestoreError> {
        let column = |name, limit| saved::below(name, arrays.u64(name)?, limit);
        let stages = column("stages", horizon)?;
        let n = stages.len();
        let states = column("states", n_states)?;
        let actions = column("actions", n_actions)?;
        let (rewards, probabilities) = (arrays.f64("rewards")?, arrays.f64("probabilities")?);
        let next_states = column("next_states", n_states)?;
        let is_final = column("final", 2)?;
        let goes_on = column("goes_on", 2)?;
        if [&states, &actions, &next_states, &is_final, &goes_on].iter().any(|column| column.len() != n)
            || [rewards.len(), probabilities.len()] != [n; 2]
        {
            return Err(RestoreError("the rollout's columns have different lengths".into()));
        }
        saved::finite("rewards", &rewards)?;
        saved::taken("probabilities", &probabilities)?;
        let mut decisions: Vec<Decision> = (0..n)
            .map(|t| Decision {
                stage: stages[t],
                state: states[t],
                action: actions[t],
                reward: rewards[t],
                next_state: next_states[t],
                is_final: is_final[t] == 1,
                goes_on: goes_on[t] == 1,
                probability: probabilities[t],
            })
            .collect();
        let episodes = decisions.iter().filter(|decision| !decision.goes_on).count();
        // Decisions after the last end belong to the open episodes.
        let whole = decisions.iter().rposition(|decision| !decision.goes_on).map_or(0, |last| last + 1);
        let open = OpenEpisodes::from_columns(decisions.split_off(whole), &arrays.u64("open")?);
        let open = open.ok_or_else(|| RestoreError("the rollout's open episodes do not fit".into()))?;
        Ok(Self { decisions, episodes, open })
    }
}

/// Mean 0 and standard deviation 1 (dividing by n), or all 0 where they are equal.
pub fn normalise(advantages: &mut [f64]) {
    let n = advantages.len() as f64;
    let mean = advantages.iter().sum::<f64>() / n;
    for a in &mut *advantages {
        *a -= mean;
    }
    let deviation = (advantages.iter().map(|a| a * a).sum::<f64>() / n).sqrt();
    // Equal advantages differ from their mean by rounding only.
    let scale = if deviation > 1e-9 * (1.0 + mean.abs()) { deviation.recip() } else { 0.0 };
    for a in advantages {
        *a *= scale;
    }
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::trajectory::{End, Observation};

    use super::*;
    use crate::Input;

    /// Stores (h, s, r, s', end) with action 0.
    fn rollout(steps: &[(usize, usize, f64, usize, End)]) -> Rollout {
        let mut rollout = Rollout::default();
        for &(stage, state, reward, next_state, end) in steps {
            let (here, there) = (Observation::Index(state), Observation::Index(next_state));
            let x = Input { stage, observation: &here, collected: 0.0 };
            let next = Input { stage: stage + 1, observation: &there, collected: reward };
            rollout.store(0, &Transition { x, action: 0, reward, next, end }, 1.0);
        }
        rollout
    }

    /// Different values at every (h, s).
    fn values() -> ValueTable {
        let mut values = ValueTable::new(&[1], 2, 2, 0.1, 0.0);
        for (stage, state) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            values.learn(stage, state, (1 + 2 * stage + state) as f64);
        }
        values
    }

    #[test]
    fn advantages_and_targets_match_hand_computation() {
        let v = values();
        let (a, b) = (v.read(0, 0), v.read(1, 1));
        // Two steps: (0, 0) –r 1→ (1, 1) –r 2→ end at the horizon. λ = ½.
        //   δ_1 = 2 − V(1,1);  A_1 = δ_1;  y_1 = 2
        //   δ_0 = 1 + V(1,1) − V(0,0);  A_0 = δ_0 + ½ A_1;  y_0 = A_0 + V(0,0)
        let steps = [(0, 0, 1.0, 1, End::NotYet), (1, 1, 2.0, 0, End::Horizon)];
        let Estimates { advantages, targets } = rollout(&steps).estimate(&v, 0.5);
        let (a_1, a_0) = (2.0 - b, 1.0 + b - a + 0.5 * (2.0 - b));
        assert_eq!(advantages, [a_0, a_1]);
        assert!((targets[0] - (a_0 + a)).abs() < 1e-12 && (targets[1] - 2.0).abs() < 1e-12);
        // λ = 1 is the return, whatever V is; λ = 0 is one step.
        let monte_carlo = rollout(&steps).estimate(&v, 1.0);
        assert!((monte_carlo.targets[0] - 3.0).abs() < 1e-12, "{:?}", monte_carlo.targets);
        assert!((rollout(&steps).estimate(&v, 0.0).targets[0] - (1.0 + b)).abs() < 1e-12);
    }

    #[test]
    fn an_episode_ends_where_it_ends_and_a_cut_off_bootstraps() {
        let v = values();
        let ends = [End::Terminated, End::Horizon, End::Cutoff];
        let target = |end| {
            let steps = [(0, 0, 1.0, 1, end), (0, 1, 5.0, 0, End::Terminated)];
            rollout(&steps).estimate(&v, 0.9).targets
        };
        let [terminated, horizon, cut_off] = ends.map(target);
        // Nothing of the second episode leaks into the first.
        assert_eq!((&terminated, terminated[0]), (&horizon, 1.0));
        assert!((cut_off[0] - (1.0 + v.read(1, 1))).abs() < 1e-12, "{cut_off:?}");
        assert_eq!(rollout(&[(0, 0, 1.0, 1, End::Cutoff), (0, 1, 5.0, 0, End::NotYet)]).episodes(), 1);
    }

    #[test]
    fn normalised_advantages_have_mean_0_and_deviation_1() {
        // Mean 2, deviations −1, −1, 2: variance 2.
        let mut advantages = [1.0, 1.0, 4.0];
        normalise(&mut advantages);
        let want = [-1.0, -1.0, 2.0].map(|d: f64| d / 2.0_f64.sqrt());
        assert!(advantages.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{advantages:?}");
        // Advantages that differ only by rounding are not scaled up.
        let mut equal = [0.1 + 0.2, 0.3, 0.3];
        normalise(&mut equal);
        assert_eq!(equal, [0.0; 3]);
    }
}
