//! QPPO: quantile-based proximal policy optimisation (Jiang, Hu and Peng, arXiv 2305.07248), with tables.
//!
//! ```text
//! d q_τ/dθ   = −∇_θ P(R ≤ q; θ)|_{q = q_τ} / f(q_τ)        so: climb −P(R ≤ q), with q tracking the quantile
//! q          ← q + β_k (τ − 1{R_k ≤ q})                     β_k = quantile_step / (1 + k/quantile_decay)
//! π(a|x)     = softmax of the logits of row(x)              row = (bin of h, s, bin of c)
//! G          = −1{R ≤ q + slack}                            the only "reward", at the end of an episode
//! Â_t        = Σ_{k≥t} λ^{k−t} (V(x_{k+1}) − V(x_k)),        with G in the place of V after the last step
//! L          = min(ρ Â, clip(ρ, 1−ε, 1+ε) Â) + entropy·H(π)  ρ = π(a|x)/π_old(a|x)
//! θ_row      ← θ_row + η_t · mean of ∇L over the visits of the row in the batch        `epochs` times
//! V(row)     ← V(row) + value_step · mean of (Â + V_old − V)
//! ```
//!
//! Two time scales: q moves with every episode, θ with every batch of `batch_episodes`; the first batch's empirical quantile is where q
//! starts, as in the authors' experiments. With the mean over a row's visits the visit frequency divides out, as it does
//! in the natural gradient of a softmax table.
//!
//! The paper's agent sees the state only: `stage_bins = 1` and `collected_bins = 1`. Where we depart from it: the ratio is PPO's, per
//! decision, not of the whole trajectory; the baseline is V of the row, not of the start; advantages are divided by their
//! root mean square over the batch; q follows the episodes as they are played, where no ratio is needed. At `slack = 0` the indicator is
//! the paper's; where the return has atoms, q swings about one of them by β_k, and a slack of that size keeps the atom in
//! view. Rewards are divided by `reward_scale`.

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::{Clock, Span};
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::trajectory::Observation;
use serde::{Deserialize, Serialize};

use crate::experience::arrays::{Array, Arrays, to_bytes};
use crate::experience::open::OpenEpisodes;
use crate::experience::saved;
use crate::policy_gradient::stage_table::{add_entropy, clipped, score_function, softmax};
use crate::settings::reward_scale;
use crate::settings::{count, n_states, not_negative, positive, positive_span, probability, share};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served,
    Transition, Waiting, finite, state,
};

/// The most logits that are kept: 1 GiB.
const MAX_LOGITS: usize = 1 << 27;

/// Every setting but τ.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// Parts of the horizon that have rows of their own; 1 is the paper's, 0 stands for every stage.
    pub stage_bins: usize,
    /// Parts of the range of the collected reward that have rows of their own; 1 is the paper's.
    pub collected_bins: usize,
    /// Episodes in a batch.
    pub batch_episodes: usize,
    /// Steps of θ per batch.
    pub epochs: usize,
    /// ε of the clipped ratio.
    pub clip: f64,
    /// η_0, the step of θ.
    pub learning_rate: f64,
    /// After this time η has halved.
    pub learning_rate_decay: Span,
    /// β_0, in units of `reward_scale`.
    pub quantile_step: f64,
    /// After this time β has halved.
    pub quantile_decay: Span,
    /// How far above q a return still counts as bad, in units of `reward_scale`; 0 is the paper's.
    pub slack: f64,
    /// λ: 1 takes the indicator itself less the baseline, 0 the next row's value.
    pub gae_lambda: f64,
    /// Share of the way that V goes per batch.
    pub value_step: f64,
    /// Weight of the entropy.
    pub entropy: f64,
    /// The reward that counts as 1 for q; 0 takes the largest |reward| that the problem names.
    pub reward_scale: f64,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        count("collected_bins", self.collected_bins, 1..=1_000_000)?;
        count("batch_episodes", self.batch_episodes, 1..=1_000_000)?;
        count("epochs", self.epochs, 1..=10_000)?;
        positive("clip", self.clip)?;
        positive("learning_rate", self.learning_rate)?;
        positive_span("learning_rate_decay", &self.learning_rate_decay)?;
        positive("quantile_step", self.quantile_step)?;
        positive_span("quantile_decay", &self.quantile_decay)?;
        not_negative("slack", self.slack)?;
        probability("gae_lambda", self.gae_lambda)?;
        share("value_step", self.value_step)?;
        not_negative("entropy", self.entropy)?;
        not_negative("reward_scale", self.reward_scale)
    }
}

/// One step of the quantile tracker: q + β (τ − 1{R ≤ q}).
fn track(q: f64, beta: f64, tau: f64, episode_return: f64) -> f64 {
    q + beta * (tau - if episode_return <= q { 1.0 } else { 0.0 })
}

/// Â_t of one episode whose rows have these values.
fn advantages(values: &[f64], outcome: f64, gae_lambda: f64) -> Vec<f64> {
    let mut advantages = vec![0.0; values.len()];
    let (mut next, mut advantage) = (outcome, 0.0);
    for (a, &value) in advantages.iter_mut().zip(values).rev() {
        advantage = (next - value) + gae_lambda * advantage;
        (*a, next) = (advantage, value);
    }
    advantages
}

/// One decision: the row that it was taken in, the action, and the probability with which it was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decision {
    row: usize,
    action: usize,
    probability: f64,
}

/// Whole episodes that are not learned from yet.
#[derive(Clone, Debug, Default, PartialEq)]
struct Batch {
    decisions: Vec<Decision>,
    /// Where each episode ends in the decisions, and its return in units of `reward_scale`.
    ends: Vec<usize>,
    returns: Vec<f64>,
}

/// The agent.
pub struct Qppo {
    config: Config,
    tau: f64,
    horizon: usize,
    n_states: usize,
    n_actions: usize,
    stage_bins: usize,
    /// The smallest and the largest return that the reward's bounds allow.
    return_bounds: (f64, f64),
    reward_scale: f64,
    /// θ at row·A + a.
    logits: Vec<f64>,
    /// V of each row.
    values: Vec<f64>,
    /// q, in units of `reward_scale`; none before the first batch.
    q: Option<f64>,
    batch: Batch,
    /// Episodes of the batch that q has followed.
    tracked: usize,
    open: OpenEpisodes<Decision>,
    rng: Rng,
    updates: u64,
}

/// What [`Agent::save`] keeps beside the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    q: Option<f64>,
    updates: u64,
    /// Seed, stream and position of the behaviour stream.
    rng: [u64; 3],
}

impl Qppo {
    /// An untrained agent for one level.
    pub fn new(config: Config, buffer: Buffer, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let n_states = n_states("qppo", spec)?;
        if config.collected_bins > 1 && spec.reward_bounds.is_none() {
            let want = "be 1 where the problem names no bounds of its rewards";
            return Err(AgentError::Setting {
                key: "collected_bins",
                want: want.to_owned(),
                got: config.collected_bins.to_string(),
            });
        }
        let (low, high) = spec.reward_bounds.unwrap_or((0.0, 0.0));
        let reward_scale = reward_scale(config.reward_scale, spec);
        let stage_bins = match config.stage_bins {
            0 => spec.horizon,
            bins => bins.min(spec.horizon),
        };
        let rows = stage_bins.checked_mul(n_states).and_then(|n| n.checked_mul(config.collected_bins));
        let logits = rows.and_then(|n| n.checked_mul(spec.n_actions)).filter(|&n| n <= MAX_LOGITS);
        let (Some(rows), Some(logits)) = (rows, logits) else {
            return Err(AgentError::Setting {
                key: "collected_bins",
                want: "keep stage bins × states × collected bins × actions within 2^27".to_owned(),
                got: config.collected_bins.to_string(),
            });
        };
        let horizon = spec.horizon as f64;
        Ok(Self {
            tau: buffer.tau(),
            horizon: spec.horizon,
            n_states,
            n_actions: spec.n_actions,
            stage_bins,
            return_bounds: (horizon * low.min(0.0), horizon * high.max(0.0)),
            reward_scale,
            logits: vec![0.0; logits],
            values: vec![-buffer.tau(); rows],
            q: None,
            batch: Batch::default(),
            tracked: 0,
            open: OpenEpisodes::default(),
            rng: stream(seed, Purpose::Agent),
            updates: 0,
            config,
        })
    }

    /// Where the quantile tracker stands, in the problem's own units.
    pub fn tracked_quantile(&self) -> Option<f64> {
        self.q.map(|q| q * self.reward_scale)
    }

    fn row(&self, x: &Input) -> usize {
        let (low, high) = self.return_bounds;
        let bins = self.config.collected_bins;
        // A cast of a negative number or NaN is 0.
        let bin = ((x.collected - low) / (high - low) * bins as f64) as usize;
        let collected = if bins == 1 { 0 } else { bin.min(bins - 1) };
        let stage = x.stage * self.stage_bins / self.horizon;
        (stage * self.n_states + state(x)) * bins + collected
    }

    /// π(·|row).
    fn probabilities(&self, row: usize) -> Vec<f64> {
        softmax(self.logits[row * self.n_actions..(row + 1) * self.n_actions].to_vec())
    }

    /// Refuses tables that are no longer finite: no action could be drawn from them.
    fn check(&self) -> Result<(), LearnError> {
        let is_finite = |table: &[f64]| table.iter().all(|value| value.is_finite());
        let diverged = |table| Err(LearnError::TableDiverged { table, step: self.updates });
        if !is_finite(&self.logits) {
            diverged("logits")
        } else if !is_finite(&self.values) {
            diverged("values")
        } else {
            Ok(())
        }
    }

    /// `epochs` steps along the clipped surrogate, and one of the baseline.
    fn update(&mut self, clock: &Clock, batch: &Batch, q: f64) {
        let Config { epochs, clip, slack, gae_lambda, value_step, entropy, .. } = self.config;
        let n_actions = self.n_actions;
        let mut weights = Vec::with_capacity(batch.decisions.len());
        let mut first = 0;
        for (&end, &episode_return) in batch.ends.iter().zip(&batch.returns) {
            let values: Vec<f64> = batch.decisions[first..end].iter().map(|d| self.values[d.row]).collect();
            let outcome = if episode_return <= q + slack { -1.0 } else { 0.0 };
            weights.extend(advantages(&values, outcome, gae_lambda));
            first = end;
        }
        let mut visits = vec![0_usize; self.values.len()];
        let mut errors = vec![0.0; self.values.len()];
        for (&Decision { row, .. }, advantage) in batch.decisions.iter().zip(&weights) {
            visits[row] += 1;
            errors[row] += advantage;
        }
        let mean_square = weights.iter().map(|a| a * a).sum::<f64>() / weights.len() as f64;
        if mean_square > 0.0 {
            for advantage in &mut weights {
                *advantage /= mean_square.sqrt();
            }
        }
        let step = self.config.learning_rate / self.config.learning_rate_decay.slowdown(clock);
        let mut gradient = vec![0.0; self.logits.len()];
        for _ in 0..epochs {
            gradient.fill(0.0);
            for (&Decision { row, action, probability }, &advantage) in batch.decisions.iter().zip(&weights) {
                let probabilities = self.probabilities(row);
                let gradient = &mut gradient[row * n_actions..(row + 1) * n_actions];
                let weight = clipped(probabilities[action] / probability, advantage, clip);
                let score = score_function(&probabilities, action, weight);
                gradient.iter_mut().zip(score).for_each(|(g, score)| *g += score);
                add_entropy(gradient, &probabilities, entropy);
            }
            for (row, &visits) in visits.iter().enumerate().filter(|(_, visits)| **visits > 0) {
                let row = row * n_actions..(row + 1) * n_actions;
                for (logit, gradient) in self.logits[row.clone()].iter_mut().zip(&gradient[row]) {
                    *logit += step * gradient / visits as f64;
                }
            }
            self.updates += 1;
        }
        for ((value, error), &visits) in self.values.iter_mut().zip(errors).zip(&visits) {
            if visits > 0 {
                *value += value_step * error / visits as f64;
            }
        }
    }
}

/// inf{w : share of returns ≤ w is at least τ}.
fn empirical_quantile(returns: &[f64], tau: f64) -> f64 {
    let mut sorted = returns.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (tau * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

impl Agent for Qppo {
    fn begin(&mut self, _: &Clock, lane: usize, _: &Observation) -> Memo {
        self.open.restart(lane);
        Memo::default()
    }

    fn act(&mut self, _: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        let rows: Vec<usize> = waiting.iter().map(|lane| self.row(&lane.x)).collect();
        let mut actions = Vec::with_capacity(rows.len());
        for row in rows {
            let probabilities = self.probabilities(row);
            actions.push(self.rng.categorical(&probabilities));
        }
        actions
    }

    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        let Transition { x, action, reward, next, end } = transition;
        finite(*reward)?;
        let row = self.row(x);
        let decision = Decision { row, action: *action, probability: self.probabilities(row)[*action] };
        if let Some(episode) = self.open.step(lane, decision, end.is_over()) {
            self.batch.decisions.extend(episode);
            self.batch.ends.push(self.batch.decisions.len());
            self.batch.returns.push(next.collected / self.reward_scale);
        }
        Ok(())
    }

    /// After every episode q moves; a full batch is learned from.
    fn learn(&mut self, clock: &Clock) -> Result<(), LearnError> {
        if let Some(q) = &mut self.q {
            let beta = self.config.quantile_step / self.config.quantile_decay.slowdown(clock);
            for &episode_return in &self.batch.returns[self.tracked..] {
                *q = track(*q, beta, self.tau, episode_return);
            }
        }
        self.tracked = self.batch.ends.len();
        if self.tracked >= self.config.batch_episodes {
            self.tracked = 0;
            let batch = std::mem::take(&mut self.batch);
            let q = *self.q.get_or_insert_with(|| empirical_quantile(&batch.returns, self.tau));
            self.update(clock, &batch, q);
            self.check()?;
        }
        Ok(())
    }

    fn serve(&self, _: &[Buffer], _: Objective) -> Served {
        Served::One(Memo::default())
    }

    fn decide(&self, _: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.extend(self.probabilities(self.row(x)).into_iter().enumerate());
    }

    fn predictions(&self, _: &Input) -> Vec<Prediction> {
        Vec::new()
    }

    fn is_stochastic(&self) -> bool {
        true
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    /// Only an update changes the output.
    fn policy_version(&self) -> Option<u64> {
        Some(self.updates())
    }

    fn save(&self, _has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let state = State { q: self.q, updates: self.updates, rng: saved::position(&self.rng) };
        let (open, lengths) = self.open.columns();
        let all: Vec<&Decision> = self.batch.decisions.iter().chain(open).collect();
        let whole = |of: fn(&Decision) -> usize| all.iter().map(|d| of(d) as u64).collect::<Vec<_>>();
        let ends: Vec<u64> = self.batch.ends.iter().map(|&end| end as u64).collect();
        let batch = to_bytes(&[
            Array::u64("rows", &whole(|d| d.row)),
            Array::u64("actions", &whole(|d| d.action)),
            Array::f64("probabilities", &all.iter().map(|d| d.probability).collect::<Vec<_>>()),
            Array::u64("ends", &ends),
            Array::f64("returns", &self.batch.returns),
            Array::u64("open", &lengths),
        ]);
        vec![
            Part::new("table.safetensors", self.weights()),
            Part::new("batch.safetensors", batch),
            Part::new("agent.json", serde_json::to_vec(&state).expect("plain numbers serialise")),
        ]
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let bytes = saved::part("table.safetensors", file)?;
        let in_table = |error| saved::wrong("table.safetensors", &error);
        let table = Arrays::read(&bytes).map_err(in_table)?;
        let numbers = |name: &str| {
            let values = table.f64(name)?;
            saved::finite(name, &values).map(|()| values)
        };
        let (logits, values) = (numbers("logits").map_err(in_table)?, numbers("values").map_err(in_table)?);
        let (sizes, want) = ((logits.len(), values.len()), (self.logits.len(), self.values.len()));
        if sizes != want {
            return Err(RestoreError(format!("table.safetensors: sizes {sizes:?}, want {want:?}")));
        }
        let bytes = saved::part("batch.safetensors", file)?;
        let in_batch = |error| saved::wrong("batch.safetensors", &error);
        let (batch, open) = self.read_batch(&Arrays::read(&bytes).map_err(in_batch)?).map_err(in_batch)?;
        let State { q, updates, rng } = saved::json("agent.json", file)?;
        saved::count("agent.json: updates", updates)?;
        self.rng = saved::at(rng);
        (self.tracked, self.open, self.batch) = (batch.ends.len(), open, batch);
        (self.logits, self.values, self.q, self.updates) = (logits, values, q, updates);
        Ok(())
    }

    fn weights(&self) -> Vec<u8> {
        to_bytes(&[Array::f64("logits", &self.logits), Array::f64("values", &self.values)])
    }
}

impl Qppo {
    /// Whole and open episodes of a checkpoint, refused where the table has no row for them.
    fn read_batch(&self, arrays: &Arrays) -> Result<(Batch, OpenEpisodes<Decision>), RestoreError> {
        let whole = |name: &str, limit: usize| saved::below(name, arrays.u64(name)?, limit);
        let (rows, actions) = (whole("rows", self.values.len())?, whole("actions", self.n_actions)?);
        let (ends, returns) = (whole("ends", rows.len() + 1)?, arrays.f64("returns")?);
        let probabilities = arrays.f64("probabilities")?;
        saved::taken("probabilities", &probabilities)?;
        saved::finite("returns", &returns)?;
        let misfit = || RestoreError("the columns do not fit together".into());
        let fits = [actions.len(), probabilities.len()] == [rows.len(); 2]
            && returns.len() == ends.len()
            // An episode has a decision.
            && ends.first() != Some(&0)
            && ends.is_sorted_by(|a, b| a < b)
            && ends.len() < self.config.batch_episodes;
        if !fits {
            return Err(misfit());
        }
        let columns = rows.into_iter().zip(actions).zip(probabilities);
        let mut decisions: Vec<Decision> =
            columns.map(|((row, action), probability)| Decision { row, action, probability }).collect();
        let open = decisions.split_off(ends.last().copied().unwrap_or(0));
        let open = OpenEpisodes::from_columns(open, &arrays.u64("open")?).ok_or_else(misfit)?;
        Ok((Batch { decisions, ends, returns }, open))
    }
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::env::ObservationSpace;
    use bqrl_mdp::trajectory::End;

    use super::*;

    fn config() -> Config {
        Config {
            stage_bins: 0,
            collected_bins: 1,
            batch_episodes: 2,
            epochs: 1,
            clip: 0.2,
            learning_rate: 0.5,
            learning_rate_decay: Span::episodes(1e9),
            quantile_step: 0.1,
            quantile_decay: Span::episodes(1e9),
            slack: 0.0,
            gae_lambda: 1.0,
            value_step: 0.5,
            entropy: 0.0,
            reward_scale: 1.0,
        }
    }

    fn agent(config: Config, horizon: usize, reward_bounds: Option<(f64, f64)>) -> Qppo {
        let spec = EnvSpec {
            reward_bounds,
            ..EnvSpec::new("test", ObservationSpace::Discrete { n: 1, ordered: false }, 2, horizon)
        };
        Qppo::new(config, Buffer::new(0.5, 0.5).unwrap(), &spec, 1).unwrap()
    }

    fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
        let close = got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g - w).abs() <= tolerance);
        assert!(close, "{got:?}, want {want:?}");
    }

    #[test]
    fn one_batch_moves_logits_and_baseline_as_computed_by_hand() {
        // One decision, two episodes: action 0 returned 0 (bad, q = 0), action 1 returned 1. V = −½, so Â = −½, +½, which the
        // root mean square ½ scales to −1, +1. π = (½, ½), ρ = 1:
        //   mean of Â ∇ ln π = ½ [−1·(½, −½) + 1·(−½, ½)] = (−½, ½), times η = ½.
        let mut agent = agent(config(), 1, None);
        let decisions = [0, 1].map(|action| Decision { row: 0, action, probability: 0.5 }).to_vec();
        let batch = Batch { decisions, ends: vec![1, 2], returns: vec![0.0, 1.0] };
        agent.update(&Clock::default(), &batch, 0.0);
        assert_close(&agent.logits, &[-0.25, 0.25], 1e-15);
        // The errors −½ and +½ cancel; with two bad ones V goes half of the way from −½ to −1.
        assert_close(&agent.values, &[-0.5], 1e-15);
        agent.update(&Clock::default(), &batch, 1.0);
        assert_close(&agent.values, &[-0.75], 1e-15);
        assert_eq!(agent.updates, 2);
    }

    #[test]
    fn advantages_match_hand_computation() {
        // V = −.5, −.2, outcome −1: δ = .3, −.8. λ = 1: −.5, −.8. λ = ½: .3 − .4 = −.1, −.8.
        assert_close(&advantages(&[-0.5, -0.2], -1.0, 1.0), &[-0.5, -0.8], 1e-15);
        assert_close(&advantages(&[-0.5, -0.2], -1.0, 0.5), &[-0.1, -0.8], 1e-15);
    }

    #[test]
    fn clipping_stops_a_ratio_that_has_gone_far_enough() {
        assert_eq!([clipped(1.1, 2.0, 0.2), clipped(1.3, 2.0, 0.2), clipped(0.7, 2.0, 0.2)], [2.2, 0.0, 1.4]);
        assert_eq!([clipped(1.3, -1.0, 0.2), clipped(0.7, -1.0, 0.2)], [-1.3, 0.0]);
    }

    #[test]
    fn the_tracker_starts_at_the_first_batchs_quantile_and_follows_every_episode() {
        assert_eq!(empirical_quantile(&[3.0, 1.0, 2.0, 4.0], 0.5), 2.0);
        assert_eq!(empirical_quantile(&[3.0, 1.0, 2.0, 4.0], 0.51), 3.0);
        let mut agent = agent(config(), 1, None);
        let observation = Observation::Index(0);
        let at = |stage, collected| Input { stage, observation: &observation, collected };
        let episode = |agent: &mut Qppo, reward: f64| {
            let (x, next) = (at(0, 0.0), at(1, reward));
            agent.store(0, &Transition { x, action: 0, reward, next, end: End::Horizon }).unwrap();
            agent.learn(&Clock::default()).unwrap();
        };
        episode(&mut agent, 4.0);
        assert_eq!(agent.tracked_quantile(), None);
        episode(&mut agent, 2.0);
        // Half of {2, 4}; then τ = ½, β = .1: a return above q lifts it by .05, one at q lowers it.
        assert_eq!(agent.tracked_quantile(), Some(2.0));
        episode(&mut agent, 2.5);
        assert_close(&[agent.q.unwrap()], &[2.05], 1e-15);
    }

    #[test]
    fn the_tracker_finds_the_quantile_of_a_fixed_law() {
        // U(0, 1) at τ = .1, β_k = 1/(1 + k/10), k < 20 000. Near the end q − .1 is nearly normal: with gain a = β_k k → 10 and
        // density 1 its variance is a² τ(1−τ) / ((2a − 1) k) = 100·.09/(19·20 000) = (.0049)². Six of them: false alarm
        // below 1e-8 for each of three streams.
        for seed in [1, 2, 3] {
            let rng = &mut stream(seed, Purpose::Test);
            let q =
                (0..20_000).fold(0.9, |q, k| track(q, 1.0 / (1.0 + f64::from(k) / 10.0), 0.1, rng.uniform()));
            assert!((q - 0.1).abs() < 6.0 * 0.0049, "seed {seed}: {q}");
        }
    }

    #[test]
    fn scores_weighted_by_the_indicator_are_minus_the_gradient_of_falling_short() {
        // Two stages of one state: safe pays 1; the gamble pays 3 with .4, else 0. All 9 histories, P(R ≤ q) for q = 2.
        let chances =
            |action: usize| if action == 0 { vec![(1.0, 1.0)] } else { vec![(0.4, 3.0), (0.6, 0.0)] };
        let histories = |logits: &[f64]| {
            let policies = [softmax(logits[..2].to_vec()), softmax(logits[2..].to_vec())];
            let mut all = Vec::new();
            for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                for (p, r) in chances(a) {
                    for (q, s) in chances(b) {
                        all.push((policies[0][a] * p * policies[1][b] * q, r + s, [a, b]));
                    }
                }
            }
            all
        };
        let short = |logits: &[f64]| -> f64 {
            histories(logits).iter().filter(|(_, r, _)| *r <= 2.0).map(|(p, ..)| p).sum()
        };
        let logits = [0.3, -0.4, 0.1, 0.9];
        let mut gradient = vec![0.0; 4];
        for (probability, r, actions) in histories(&logits) {
            // Any baseline per row leaves the sum as it is.
            let outcome = if r <= 2.0 { -1.0 } else { 0.0 };
            for (row, (&action, advantage)) in
                actions.iter().zip(advantages(&[-0.7, -0.2], outcome, 1.0)).enumerate()
            {
                let row = row * 2..row * 2 + 2;
                let weight = probability * clipped(1.0, advantage, 0.2);
                let policy = softmax(logits[row.clone()].to_vec());
                let score = score_function(&policy, action, weight);
                gradient[row].iter_mut().zip(score).for_each(|(g, score)| *g += score);
            }
        }
        for (index, got) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut moved = logits;
                moved[index] += by;
                short(&moved)
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert!((got + slope).abs() < 1e-9, "{got}, want {}", -slope);
        }
        assert!(gradient.iter().any(|g| g.abs() > 0.01), "{gradient:?}");
    }

    #[test]
    fn the_entropys_gradient_agrees_with_differences() {
        let logits = [0.3, -0.4, 0.1, 1.9];
        let entropy = |logits: &[f64]| -> f64 { softmax(logits.to_vec()).iter().map(|p| -p * p.ln()).sum() };
        let mut gradient = [0.0; 4];
        add_entropy(&mut gradient, &softmax(logits.to_vec()), 2.0);
        for (index, got) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut moved = logits;
                moved[index] += by;
                entropy(&moved)
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert!((got - 2.0 * slope).abs() < 1e-8, "{got}, want {}", 2.0 * slope);
        }
    }

    #[test]
    fn rows_are_bins_of_stage_and_collected_reward() {
        let settings = Config { stage_bins: 2, collected_bins: 3, ..config() };
        let agent = agent(settings, 5, Some((-1.0, 2.0)));
        let observation = Observation::Index(0);
        let row = |stage, collected| agent.row(&Input { stage, observation: &observation, collected });
        // c in [−5, 10], thirds end at 0 and 5; stages 0..2 and 3..4.
        assert_eq!([row(0, -5.0), row(0, 0.0), row(2, 4.9), row(2, 5.0), row(0, 10.0)], [0, 1, 1, 2, 2]);
        assert_eq!([row(3, -9.0), row(4, 99.0)], [3, 5]);
    }
}
