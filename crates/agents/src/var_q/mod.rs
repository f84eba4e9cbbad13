//! VaR-Q-learning (Hau, Delage, Derman, Ghavamzadeh and Petrik, AISTATS 2025, arXiv 2410.24128), with a horizon.
//!
//! ```text
//! α_j       = (j + ½)/J                                              j = 0..J−1: the grid of levels
//! q_h(s,α,a) ≈ the best α-quantile of the remaining return after a; q_H = 0
//! y_i       = r + (1−d) max_a' q_{h+1}(s', α_i, a')                  the maximum separately for each level
//! q_h(s,α_j,a) ← q_h(s,α_j,a) + β_n · (1/J) Σ_i g_j(y_i − q_h(s,α_j,a))
//! g_j(δ)    = (α_j − 1{δ<0}) · m(|δ|)                                the soft-quantile loss's derivative in δ
//! m(u)      = u/κ  for u ≤ κ,   1 + κ(u − κ)  beyond
//! β_n       = step_0 / (1 + n/step_decay)                            n = updates of (h, s, a) before
//! v         = the τ-quantile of max_a q_0(S_0, ·, a)                 the target, at the root
//! act       = argmax_a q_h(s,α,a),  α = the least level with max_a q_h(s,α,a) ≥ v − c;  ε-greedy while learning
//! ```
//!
//! The loss is the paper's: strongly convex, with a Lipschitz derivative, and the pinball loss as κ → 0. Averaging over all
//! levels i is its expectation over a uniformly drawn next level. Executing by the residual target v − c is the paper's rule that
//! the next level is the least α' with r + max q(s',α',·) ≥ the value promised before, unrolled; it makes the policy a
//! function of (h, s, c). With a random start v is the τ-quantile of the mixture of the curves max_a q_0(s_0, ·, a), start states
//! weighted by how often they were seen: the paper's recursion applied to the draw of S_0.
//!
//! Where the paper is silent: it assumes that every (s, a) is visited for ever, and its experiments update all pairs from a
//! generator. Here q starts at `initial_value` (optimistic) and behaviour is ε-greedy, ε_t = `epsilon_0` / (1 + t/`epsilon_decay`).
//! Episodes are learned from backwards, after their end; then `replay_episodes` earlier ones, drawn uniformly, are learned from again.
//! With `share_stages` a transition teaches (s, a) at every stage where rewards and chances are known not to depend on the
//! stage; with a discount rewards do. After an update the J values of (h, s, a) are sorted: rearrangement never takes a
//! quantile function further from the truth. Actions within `tie_tolerance` of the best at the level tie, the larger mean of q over
//! all levels wins, then the lowest index; the same tolerance applies to reaching the target. Where no level reaches it, the
//! highest decides. Rewards are divided by `reward_scale`.

mod soft_quantile;

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::{Clock, Span};
use bqrl_math::score::argmax_by_mean;
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::trajectory::{End, Observation};
use serde::{Deserialize, Serialize};

use self::soft_quantile::Forces;
pub use self::soft_quantile::soft_quantile_step;
use crate::experience::arrays::{Array, Arrays, to_bytes};
use crate::experience::open::OpenEpisodes;
use crate::experience::saved;
use crate::settings::reward_scale;
use crate::settings::{count, n_states, not_negative, positive, positive_span, probability, require};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served,
    Transition, Waiting, finite, state,
};

/// The most values q_h(s, α, a) that are kept: 1 GiB.
const MAX_VALUES: usize = 1 << 27;

/// Every setting but τ.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// J.
    pub n_levels: usize,
    /// κ, in units of `reward_scale`.
    pub kappa: f64,
    /// Where every q starts, in units of `reward_scale`.
    pub initial_value: f64,
    /// β_0, in units of `reward_scale`.
    pub step_0: f64,
    /// Updates of (h, s, a) after which the step has halved.
    pub step_decay: f64,
    /// ε_0.
    pub epsilon_0: f64,
    /// After this time ε has halved.
    pub epsilon_decay: Span,
    /// Earlier episodes that are learned from again after each episode.
    pub replay_episodes: usize,
    /// Whether a transition teaches every stage, where the problem is known to be the same at all of them.
    pub share_stages: bool,
    /// Values this close count as equal, in units of `reward_scale`.
    pub tie_tolerance: f64,
    /// The reward that counts as 1 for q; 0 takes the largest |reward| that the problem names.
    pub reward_scale: f64,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        count("n_levels", self.n_levels, 1..=10_000)?;
        count("replay_episodes", self.replay_episodes, 0..=10_000)?;
        require("kappa", (1e-6..=1.0).contains(&self.kappa), "lie in [1e-6, 1]", &self.kappa)?;
        require("initial_value", self.initial_value.is_finite(), "be finite", &self.initial_value)?;
        positive("step_0", self.step_0)?;
        positive("step_decay", self.step_decay)?;
        probability("epsilon_0", self.epsilon_0)?;
        positive_span("epsilon_decay", &self.epsilon_decay)?;
        not_negative("tie_tolerance", self.tie_tolerance)?;
        not_negative("reward_scale", self.reward_scale)
    }
}

/// One thing that can happen after (s, a), as learning sees it.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    probability: f64,
    /// In units of `reward_scale`.
    reward: f64,
    /// `None` where nothing is left to earn.
    next: Option<usize>,
}

/// (h, s, a, r, s', d) of an episode that is over, rewards in units of `reward_scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    stage: usize,
    state: usize,
    action: usize,
    reward: f64,
    next: usize,
    /// The problem ended, not just the horizon.
    terminated: bool,
}

/// The agent.
pub struct VarQ {
    config: Config,
    tau: f64,
    horizon: usize,
    n_states: usize,
    n_actions: usize,
    reward_scale: f64,
    /// The setting, where the problem is known to allow it.
    share_stages: bool,
    /// q_h(s, α_j, a) at ((h·S + s)·A + a)·J + j, in units of `reward_scale`, rising in j.
    q: Vec<f64>,
    /// n of (h, s, a).
    visits: Vec<u64>,
    /// How often each state was the first.
    starts: Vec<u64>,
    /// Every step of a whole episode so far, and where episodes begin.
    steps: Vec<Step>,
    episodes: Vec<usize>,
    /// Whole episodes that were not learned from yet.
    pending: usize,
    open: OpenEpisodes<Step>,
    /// v, in units of `reward_scale`.
    target: f64,
    behaviour: Rng,
    replay: Rng,
    updates: u64,
    /// y_i, with the weights of their outcomes; scratch.
    targets: Vec<(f64, f64)>,
}

/// What [`Agent::save`] keeps beside the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    updates: u64,
    /// Seed, stream and position of both streams.
    behaviour: [u64; 3],
    replay: [u64; 3],
}

impl VarQ {
    /// An untrained agent for one level.
    pub fn new(config: Config, buffer: Buffer, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let n_states = n_states("var-q", spec)?;
        let cells = spec.horizon.checked_mul(n_states).and_then(|n| n.checked_mul(spec.n_actions));
        let values = cells.and_then(|n| n.checked_mul(config.n_levels)).filter(|&n| n <= MAX_VALUES);
        let (Some(cells), Some(values)) = (cells, values) else {
            return Err(AgentError::Setting {
                key: "n_levels",
                want: "keep horizon × states × actions × levels within 2^27".to_owned(),
                got: config.n_levels.to_string(),
            });
        };
        let reward_scale = reward_scale(config.reward_scale, spec);
        Ok(Self {
            tau: buffer.tau(),
            horizon: spec.horizon,
            n_states,
            n_actions: spec.n_actions,
            reward_scale,
            share_stages: config.share_stages && spec.stationary && spec.discount == 1.0,
            q: vec![config.initial_value; values],
            visits: vec![0; cells],
            starts: vec![0; n_states],
            steps: Vec::new(),
            episodes: Vec::new(),
            pending: 0,
            open: OpenEpisodes::default(),
            target: config.initial_value,
            behaviour: stream(seed, Purpose::Agent),
            replay: stream(seed, Purpose::Replay),
            updates: 0,
            targets: Vec::new(),
            config,
        })
    }

    /// max_a q_h(s, α_j, a) for every j in the problem's own units: the best quantiles of the remaining return, as
    /// learned so far.
    pub fn curve(&self, stage: usize, state: usize) -> Vec<f64> {
        (0..self.config.n_levels).map(|level| self.best(stage, state, level) * self.reward_scale).collect()
    }

    fn cell(&self, stage: usize, state: usize, action: usize) -> usize {
        (stage * self.n_states + state) * self.n_actions + action
    }

    /// q_h(s, ·, a).
    fn values(&self, stage: usize, state: usize, action: usize) -> &[f64] {
        let first = self.cell(stage, state, action) * self.config.n_levels;
        &self.q[first..first + self.config.n_levels]
    }

    /// max_a q_h(s, α_j, a).
    fn best(&self, stage: usize, state: usize, level: usize) -> f64 {
        let value = |action| self.values(stage, state, action)[level];
        (0..self.n_actions).map(value).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Moves q_h(s, ·, a) by β_n towards the quantiles of r + (1−d) max_a' q_{h+1}(s', ·, a'); several outcomes with their
    /// probabilities make the expected update.
    fn update(
        &mut self,
        stage: usize,
        state: usize,
        action: usize,
        outcomes: &[Outcome],
    ) -> Result<(), LearnError> {
        let n_levels = self.config.n_levels;
        let mut targets = std::mem::take(&mut self.targets);
        targets.clear();
        for outcome in outcomes {
            match outcome.next {
                None => targets.push((outcome.reward, outcome.probability)),
                Some(next) => {
                    let (first, weight) = (targets.len(), outcome.probability / n_levels as f64);
                    let row = self.values(stage + 1, next, 0);
                    targets.extend(row.iter().map(|&value| (value, weight)));
                    let curve = &mut targets[first..];
                    for action in 1..self.n_actions {
                        let row = self.values(stage + 1, next, action);
                        curve.iter_mut().zip(row).for_each(|(best, &value)| best.0 = best.0.max(value));
                    }
                    for (y, _) in curve {
                        *y += outcome.reward;
                    }
                }
            }
        }
        // One outcome's curve rises by itself.
        if outcomes.len() > 1 {
            targets.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let Config { kappa, step_0, step_decay, .. } = self.config;
        let cell = self.cell(stage, state, action);
        let step = step_0 / (1.0 + self.visits[cell] as f64 / step_decay);
        let values = &mut self.q[cell * n_levels..(cell + 1) * n_levels];
        let mut forces = Forces::new(&targets, kappa);
        for (level, q) in values.iter_mut().enumerate() {
            let alpha = (level as f64 + 0.5) / n_levels as f64;
            let (down, up) = forces.at(*q);
            *q += step * (alpha * up - (1.0 - alpha) * down);
        }
        if !values.is_sorted_by(|a, b| a.total_cmp(b).is_le()) {
            values.sort_by(f64::total_cmp);
        }
        // Sorted by total order: a value that is not finite stands at an end.
        let is_finite = values[0].is_finite() && values[n_levels - 1].is_finite();
        self.visits[cell] += 1;
        self.updates += 1;
        self.targets = targets;
        let diverged = LearnError::TableDiverged { table: "q", step: self.updates };
        if is_finite { Ok(()) } else { Err(diverged) }
    }

    /// Learns from an episode, backwards.
    fn learn_episode(&mut self, episode: usize) -> Result<(), LearnError> {
        let end = self.episodes.get(episode + 1).copied().unwrap_or(self.steps.len());
        for index in (self.episodes[episode]..end).rev() {
            let Step { stage, state, action, reward, next, terminated } = self.steps[index];
            let stages = if self.share_stages { 0..self.horizon } else { stage..stage + 1 };
            for stage in stages.rev() {
                let next = (!terminated && stage + 1 < self.horizon).then_some(next);
                self.update(stage, state, action, &[Outcome { probability: 1.0, reward, next }])?;
            }
        }
        Ok(())
    }

    /// v: the τ-quantile of the mixture of the start states' curves.
    fn root_target(&self) -> f64 {
        let mut atoms: Vec<(f64, f64)> = Vec::new();
        for (state, &count) in self.starts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let level = |level| (self.best(0, state, level), count as f64);
            atoms.extend((0..self.config.n_levels).map(level));
        }
        atoms.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = atoms.iter().map(|&(_, weight)| weight).sum();
        // Counts are whole numbers: only τ·total is rounded, so a level on the grid is met a hair early.
        let wanted = self.tau * total * (1.0 - 1e-12);
        let mut below = 0.0;
        let reached = atoms.iter().find(|&&(_, weight)| {
            below += weight;
            below >= wanted
        });
        reached.map_or(self.config.initial_value, |&(value, _)| value)
    }

    fn epsilon_t(&self, clock: &Clock) -> f64 {
        self.config.epsilon_0 / self.config.epsilon_decay.slowdown(clock)
    }

    /// The action at x for the target v.
    fn execute(&self, x: &Input) -> usize {
        let (stage, state) = (x.stage, state(x));
        let tolerance = self.config.tie_tolerance;
        let residual = self.target - x.collected / self.reward_scale - tolerance;
        let reaches = |&level: &usize| self.best(stage, state, level) >= residual;
        let level = (0..self.config.n_levels).find(reaches).unwrap_or(self.config.n_levels - 1);
        let rows = || (0..self.n_actions).map(|action| self.values(stage, state, action));
        let scores: Vec<f64> = rows().map(|values| values[level]).collect();
        let means: Vec<f64> = rows().map(|values| values.iter().sum()).collect();
        argmax_by_mean(&scores, &means, tolerance)
    }

    /// Learns from an episode and from some of those before it.
    fn learn_from_experience(&mut self, episode: usize) -> Result<(), LearnError> {
        self.learn_episode(episode)?;
        for _ in 0..self.config.replay_episodes {
            let episode = self.replay.below(episode + 1);
            self.learn_episode(episode)?;
        }
        self.target = self.root_target();
        Ok(())
    }
}

impl Agent for VarQ {
    fn begin(&mut self, _: &Clock, lane: usize, _: &Observation) -> Memo {
        self.open.restart(lane);
        Memo::default()
    }

    fn act(&mut self, clock: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        let epsilon_t = self.epsilon_t(clock);
        let mut actions = Vec::with_capacity(waiting.len());
        for lane in waiting {
            let explores = self.behaviour.uniform() < epsilon_t;
            actions.push(if explores { self.behaviour.below(self.n_actions) } else { self.execute(&lane.x) });
        }
        actions
    }

    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        let Transition { x, action, reward, next, end } = *transition;
        finite(reward)?;
        let step = Step {
            stage: x.stage,
            state: state(&x),
            action,
            reward: reward / self.reward_scale,
            next: state(&next),
            terminated: end == End::Terminated,
        };
        if let Some(episode) = self.open.step(lane, step, end.is_over()) {
            // Only now: an episode that is given up must leave no start behind, and the target is that of whole ones.
            self.starts[episode[0].state] += 1;
            self.episodes.push(self.steps.len());
            self.steps.extend(episode);
            self.pending += 1;
        }
        Ok(())
    }

    fn learn(&mut self, _: &Clock) -> Result<(), LearnError> {
        let new = std::mem::take(&mut self.pending);
        for episode in self.episodes.len() - new..self.episodes.len() {
            self.learn_from_experience(episode)?;
        }
        if new > 0 && self.config.replay_episodes == 0 {
            self.steps.clear();
            self.episodes.clear();
        }
        Ok(())
    }

    fn serve(&self, _: &[Buffer], _: Objective) -> Served {
        Served::One(Memo::default())
    }

    fn decide(&self, _: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.execute(x), 1.0));
    }

    fn predictions(&self, _: &Input) -> Vec<Prediction> {
        Vec::new()
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn exploration(&self, clock: &Clock) -> Option<f64> {
        Some(self.epsilon_t(clock))
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn save(&self, _has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let state = State {
            updates: self.updates,
            behaviour: saved::position(&self.behaviour),
            replay: saved::position(&self.replay),
        };
        let (open, lengths) = self.open.columns();
        let all: Vec<&Step> = self.steps.iter().chain(open).collect();
        let whole = |of: fn(&Step) -> usize| all.iter().map(|step| of(step) as u64).collect::<Vec<_>>();
        let rewards: Vec<f64> = all.iter().map(|step| step.reward).collect();
        let episodes: Vec<u64> = self.episodes.iter().map(|&first| first as u64).collect();
        let steps = to_bytes(&[
            Array::u64("stage", &whole(|step| step.stage)),
            Array::u64("state", &whole(|step| step.state)),
            Array::u64("action", &whole(|step| step.action)),
            Array::f64("reward", &rewards),
            Array::u64("next", &whole(|step| step.next)),
            Array::u64("terminated", &whole(|step| usize::from(step.terminated))),
            Array::u64("episodes", &episodes),
            Array::u64("open", &lengths),
        ]);
        vec![
            Part::new("table.safetensors", self.weights()),
            Part::new("steps.safetensors", steps),
            Part::new("agent.json", serde_json::to_vec(&state).expect("plain numbers serialise")),
        ]
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let bytes = saved::part("table.safetensors", file)?;
        let in_table = |error| saved::wrong("table.safetensors", &error);
        let (q, visits, starts) =
            self.read_table(&Arrays::read(&bytes).map_err(in_table)?).map_err(in_table)?;
        let bytes = saved::part("steps.safetensors", file)?;
        let in_steps = |error| saved::wrong("steps.safetensors", &error);
        let (steps, episodes, open) =
            self.read_steps(&Arrays::read(&bytes).map_err(in_steps)?).map_err(in_steps)?;
        let State { updates, behaviour, replay } = saved::json("agent.json", file)?;
        saved::count("agent.json: updates", updates)?;
        (self.q, self.visits, self.starts, self.steps, self.episodes) = (q, visits, starts, steps, episodes);
        self.open = open;
        (self.updates, self.behaviour, self.replay) = (updates, saved::at(behaviour), saved::at(replay));
        self.target = self.root_target();
        Ok(())
    }

    fn weights(&self) -> Vec<u8> {
        to_bytes(&[
            Array::f64("q", &self.q),
            Array::u64("visits", &self.visits),
            Array::u64("starts", &self.starts),
        ])
    }
}

/// q, the visits and the starts.
type SavedTable = (Vec<f64>, Vec<u64>, Vec<u64>);
/// Steps of whole episodes, where those begin, and open episodes.
type SavedSteps = (Vec<Step>, Vec<usize>, OpenEpisodes<Step>);

impl VarQ {
    /// q, the visits and the starts of a checkpoint.
    fn read_table(&self, table: &Arrays) -> Result<SavedTable, RestoreError> {
        let (q, visits, starts) = (table.f64("q")?, table.u64("visits")?, table.u64("starts")?);
        let sizes = (q.len(), visits.len(), starts.len());
        let want = (self.q.len(), self.visits.len(), self.starts.len());
        if sizes != want {
            return Err(RestoreError(format!("sizes {sizes:?}, want {want:?}")));
        }
        saved::finite("q", &q)?;
        // One pass over the levels counts on it.
        if let Some(cell) = q.chunks_exact(self.config.n_levels).position(|values| !values.is_sorted()) {
            return Err(RestoreError(format!("q falls from level to level at {cell}")));
        }
        saved::counts("visits", &visits)?;
        saved::counts("starts", &starts)?;
        Ok((q, visits, starts))
    }

    /// The steps of a checkpoint, refused where the table has no row for them.
    fn read_steps(&self, arrays: &Arrays) -> Result<SavedSteps, RestoreError> {
        let whole = |name: &str, limit: usize| saved::below(name, arrays.u64(name)?, limit);
        let rewards = arrays.f64("reward")?;
        saved::finite("reward", &rewards)?;
        let n = rewards.len();
        let columns = [
            whole("stage", self.horizon)?,
            whole("state", self.n_states)?,
            whole("action", self.n_actions)?,
            whole("next", self.n_states)?,
            whole("terminated", 2)?,
        ];
        let episodes = whole("episodes", n.max(1))?;
        let lengths = arrays.u64("open")?;
        let misfit = || RestoreError("the columns do not fit together".into());
        if columns.iter().any(|column| column.len() != n) || !episodes.is_sorted_by(|a, b| a < b) {
            return Err(misfit());
        }
        let [stage, state, action, next, terminated] = columns;
        let step = |i: usize| Step {
            stage: stage[i],
            state: state[i],
            action: action[i],
            reward: rewards[i],
            next: next[i],
            terminated: terminated[i] == 1,
        };
        let mut steps: Vec<Step> = (0..n).map(step).collect();
        let n_open = lengths.iter().try_fold(0_usize, |sum, &length| sum.checked_add(length as usize));
        let first_open = n_open.and_then(|open| n.checked_sub(open)).ok_or_else(misfit)?;
        let open = OpenEpisodes::from_columns(steps.split_off(first_open), &lengths).ok_or_else(misfit)?;
        if episodes.last().is_some_and(|&last| last >= first_open) || (episodes.is_empty() && first_open > 0)
        {
            return Err(misfit());
        }
        Ok((steps, episodes, open))
    }
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::env::ObservationSpace;
    use bqrl_mdp::model::Problem;
    use bqrl_mdp::plan::Planner;
    use bqrl_mdp::problems;
    use bqrl_mdp::trajectory::Observation;

    use super::*;

    fn config() -> Config {
        Config {
            n_levels: 2,
            kappa: 0.5,
            initial_value: 1.0,
            step_0: 0.4,
            step_decay: 1.0,
            epsilon_0: 0.0,
            epsilon_decay: Span::episodes(1.0),
            replay_episodes: 0,
            share_stages: false,
            tie_tolerance: 0.0,
            reward_scale: 1.0,
        }
    }

    fn spec(n: usize, n_actions: usize, horizon: usize) -> EnvSpec {
        let observations = ObservationSpace::Discrete { n, ordered: false };
        EnvSpec { stationary: true, ..EnvSpec::new("test", observations, n_actions, horizon) }
    }

    fn agent(config: Config, spec: &EnvSpec, tau: f64) -> VarQ {
        VarQ::new(config, Buffer::new(tau, tau).unwrap(), spec, 1).unwrap()
    }

    fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
        let close = got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g - w).abs() <= tolerance);
        assert!(close, "{got:?}, want {want:?}");
    }

    #[test]
    fn one_transition_moves_every_level_as_computed_by_hand() {
        // J = 2: α = ¼, ¾; κ = ½. One state, one action, two stages; q_1 = (0, 2), q_0 = (1, 1), r = ½, so y = (½, 2½).
        //   δ = −½, 3/2: m(½) = 1, m(3/2) = 1 + ½·1 = 3/2.
        //   level ¼: ½ (−¾·1 + ¼·3/2) = −3/16;  level ¾: ½ (−¼·1 + ¾·3/2) = 7/16.   β_0 = .4.
        let mut agent = agent(config(), &spec(1, 1, 2), 0.5);
        agent.q = vec![1.0, 1.0, 0.0, 2.0];
        let outcome = [Outcome { probability: 1.0, reward: 0.5, next: Some(0) }];
        agent.update(0, 0, 0, &outcome).unwrap();
        assert_close(&agent.q, &[1.0 - 0.4 * 3.0 / 16.0, 1.0 + 0.4 * 7.0 / 16.0, 0.0, 2.0], 1e-15);
        // n = 1 halves the step; a final transition has r = 1 as its only target at q_1 = (0, 2).
        agent.visits[1] = 1;
        agent.update(1, 0, 0, &[Outcome { probability: 1.0, reward: 1.0, next: None }]).unwrap();
        // δ = 1, −1; m = 5/4: level ¼ rises by .2·¼·5/4, level ¾ falls by .2·¼·5/4.
        assert_close(&agent.q[2..], &[0.0625, 2.0 - 0.0625], 1e-15);
    }

    #[test]
    fn next_values_are_maxima_separately_for_each_level() {
        // a_0 is safe (1, 1), a_1 is not (0, 3): y = (1, 3), which neither action has.
        let mut agent = agent(config(), &spec(1, 2, 2), 0.5);
        agent.q = vec![1.0, 3.0, 0.0, 0.0, 1.0, 1.0, 0.0, 3.0];
        assert_eq!(agent.curve(1, 0), [1.0, 3.0]);
    }

    #[test]
    fn execution_takes_the_least_level_that_reaches_the_residual_target() {
        // Safe (1, 1) or a gamble (0, 3) in the last of two stages; v = 3 of which c is collected.
        let mut agent = agent(config(), &spec(1, 2, 2), 0.5);
        agent.q = vec![1.0, 3.0, 0.0, 0.0, 1.0, 1.0, 0.0, 3.0];
        agent.target = 3.0;
        let observation = Observation::Index(0);
        let at = |agent: &VarQ, collected| {
            agent.execute(&Input { stage: 1, observation: &observation, collected })
        };
        // 2 collected: 1 is missing, which level ¼ reaches, safely. 1.5 collected: only level ¾ reaches, by gambling.
        assert_eq!((at(&agent, 2.0), at(&agent, 1.5)), (0, 1));
        // Out of reach: the highest level decides. Nothing missing: both actions reach it at level ¼ once 0 and 1 tie,
        // and the larger mean (3 against 2) wins.
        assert_eq!(at(&agent, -5.0), 1);
        assert_eq!(at(&agent, 4.0), 0);
        agent.config.tie_tolerance = 1.0;
        assert_eq!(at(&agent, 4.0), 1);
    }

    #[test]
    fn a_random_start_makes_one_target_for_the_mixture_of_starts() {
        // Curves (0, 2) seen once and (1, 5) seen three times: weights 0: 1, 1: 3, 2: 1, 5: 3 of 8.
        let mut agent = agent(config(), &spec(2, 1, 1), 0.5);
        agent.q = vec![0.0, 2.0, 1.0, 5.0];
        agent.starts = vec![1, 3];
        let mut at = |tau| {
            agent.tau = tau;
            agent.root_target()
        };
        assert_eq!([at(0.125), at(0.126), at(0.5), at(0.51), at(0.63)], [0.0, 1.0, 1.0, 2.0, 5.0]);
        agent.starts = vec![0, 0];
        assert_eq!(agent.root_target(), 1.0, "nothing seen: the initial value");
    }

    /// The fixed point of the expected update: every outcome with its probability, stage by stage from the last.
    fn fixed_point(problem: &Problem, n_levels: usize) -> VarQ {
        let model = &problem.model;
        let spec = spec(model.n_states(), model.n_actions(), model.horizon());
        let settings =
            Config { n_levels, kappa: 1e-3, initial_value: 0.0, step_0: 2.0, step_decay: 200.0, ..config() };
        let mut agent = agent(settings, &spec, 0.5);
        for stage in (0..model.horizon()).rev() {
            for state in (0..model.n_states()).filter(|&state| !model.is_terminal(stage, state)) {
                for action in 0..model.n_actions() {
                    let outcomes: Vec<Outcome> = model
                        .outcomes(stage, state, action)
                        .iter()
                        .map(|o| Outcome {
                            probability: o.probability,
                            reward: o.reward,
                            next: (stage + 1 < model.horizon() && !model.is_terminal(stage + 1, o.next))
                                .then_some(o.next),
                        })
                        .collect();
                    for _ in 0..4000 {
                        agent.update(stage, state, action, &outcomes).unwrap();
                    }
                }
            }
        }
        agent
    }

    #[test]
    fn the_fixed_points_root_curve_is_the_planners_within_the_grid() {
        // H stages each round levels to cells of 1/J: the learned curve lies between Q* at levels H/J below and above, up to
        // the smoothing and what is left of the steps (together below 0.1, returns being whole numbers or quarters).
        let owned =
            |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Vec<_>>();
        for (name, parameters, start) in [
            ("gamble-chain", owned(&[("horizon", "3")]), 0),
            ("asset-selling", owned(&[("offers", "5"), ("horizon", "3"), ("start", "1")]), 1),
        ] {
            let problem = problems::build(name, &parameters).unwrap();
            let planner = Planner::exact(&problem.model, &|_, _, _| {}).unwrap();
            let n_levels = 40;
            let curve = fixed_point(&problem, n_levels).curve(0, start);
            let margin = problem.model.horizon() as f64 / n_levels as f64;
            for (level, value) in curve.iter().enumerate() {
                let alpha = (level as f64 + 0.5) / n_levels as f64;
                let best = |tau: f64| planner.best_quantile(tau.clamp(1e-6, 1.0 - 1e-6)).value;
                let (low, high) = (best(alpha - margin), best(alpha + margin));
                let within = (low - 0.1..=high + 0.1).contains(value);
                assert!(within, "{name}: {value} at {alpha}, want {low}..{high}");
            }
        }
    }

    #[test]
    fn sharing_stages_teaches_every_stage_and_ends_at_the_horizon() {
        let settings = Config { share_stages: true, step_0: 0.1, ..config() };
        let mut agent = agent(settings, &spec(2, 1, 3), 0.5);
        agent.episodes.push(0);
        agent.steps.push(Step { stage: 1, state: 0, action: 0, reward: 0.0, next: 1, terminated: false });
        agent.learn_episode(0).unwrap();
        // Before the horizon the next state's 1s are seen and nothing moves; at the last stage nothing is left to earn.
        assert_eq!(agent.values(0, 0, 0), [1.0, 1.0]);
        assert_eq!(agent.values(1, 0, 0), [1.0, 1.0]);
        assert!(agent.values(2, 0, 0).iter().all(|&q| q < 1.0));
        assert_eq!(agent.visits, [1, 0, 1, 0, 1, 0]);
    }
}
