//! One run: an agent, a problem, a seed (§4).
//!
//! ```text
//! Reg_E(k) = Σ_{t≤k} (max_π E[R^π] − G_t)                 returns collected while training, exploration included
//! 𝒢_τ(k)   = Σ_{t≤k} [Q*_τ − Q_τ(R^{π̄_t})]₊               π̄_t the most recently evaluated greedy policy
//! ```
//!
//! The greedy policy is evaluated before the first episode and after every `evaluate_every` episodes; between evaluations
//! the latest value counts, so the first episodes count for the untrained policy. Evaluation is exact where the set of
//! possible returns allows it. Elsewhere it plays `evaluation_episodes` episodes, every time with the same draws, and Q*_τ
//! is the value that a plan with rewards rounded down attains.
//!
//! A stochastic policy is evaluated twice: its mode, which is its greedy policy and what the measures count, and the
//! distribution itself beside it.

pub use bqrl_agents::Objective;
use bqrl_agents::{Agent, Input, Mode, OnTable, OutputPolicy, Transition, policies};
use bqrl_math::buffer::Buffer;
use bqrl_math::law::ReturnLaw;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_mdp::env::Env;
use bqrl_mdp::evaluate::Evaluator;
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::UpdateError;
use serde::{Deserialize, Serialize};

/// What a run is measured against.
pub struct Yardstick {
    /// Evaluates greedy policies exactly; `None` where that is not possible.
    pub evaluator: Option<Evaluator>,
    /// Episodes to play where it is not.
    pub evaluation_episodes: usize,
    /// max_π E[R^π].
    pub max_mean: f64,
    /// The levels, each with its Q*_τ.
    pub levels: Vec<(Buffer, f64)>,
    /// γ: a reward of stage h counts γ^h, in the return and to the agent.
    pub discount: f64,
}

/// One episode of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// Counted from 1, as t is.
    pub episode: usize,
    /// G_t.
    pub episode_return: f64,
    /// Decisions taken.
    pub length: usize,
}

/// One evaluation at one level.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Evaluated {
    /// Episodes trained so far.
    pub episode: usize,
    /// τ.
    pub tau: f64,
    /// Q_τ of the greedy policy.
    pub quantile: f64,
    /// Q_τ^β of the greedy policy.
    pub buffered_quantile: f64,
    /// `E[R]` of the greedy policy.
    pub mean: f64,
    /// 𝒢_τ so far.
    pub quantile_policy_gap: f64,
    /// Reg_E so far.
    pub expected_return_regret: f64,
}

/// Episodes over which the reported reward is averaged (§4.2).
const RECENT: usize = 50;

/// One policy's measures.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Standing {
    /// 𝒢_τ, per level.
    pub gaps: Vec<f64>,
    /// The latest evaluation, per level.
    pub last: Vec<Evaluated>,
}

impl Standing {
    /// An episode more with the policy that was evaluated last.
    fn episode(&mut self, levels: &[(Buffer, f64)]) {
        for ((gap, (_, best)), latest) in self.gaps.iter_mut().zip(levels).zip(&self.last) {
            *gap += (best - latest.quantile).max(0.0);
        }
    }

    /// A new evaluation: one law per level, or one for all.
    fn evaluated(
        &mut self,
        laws: &[(ReturnLaw, f64)],
        levels: &[(Buffer, f64)],
        episode: usize,
        regret: f64,
    ) {
        let level = |(index, ((buffer, _), &gap)): (usize, (&(Buffer, f64), &f64))| {
            let (law, mean) = laws.get(index).unwrap_or(&laws[0]);
            Evaluated {
                episode,
                tau: buffer.tau(),
                quantile: law.quantile(buffer.tau()),
                buffered_quantile: law.buffered_quantile(buffer),
                mean: *mean,
                quantile_policy_gap: gap,
                expected_return_regret: regret,
            }
        };
        self.last = levels.iter().zip(&self.gaps).enumerate().map(level).collect();
    }
}

/// Where a run stands: everything but the agent and the random stream.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Progress {
    /// Episodes trained.
    pub episode: usize,
    /// Decisions taken.
    pub env_steps: u64,
    /// Reg_E.
    pub regret: f64,
    /// The greedy policy's measures.
    pub greedy: Standing,
    /// The same of the distribution, where the agent's output is stochastic.
    pub distribution: Option<Standing>,
    /// The returns of the last 50 episodes, oldest first.
    pub recent: Vec<f64>,
}

impl Progress {
    /// The 50-episode moving average of G_t.
    pub fn moving_average_reward(&self) -> f64 {
        self.recent.iter().sum::<f64>() / self.recent.len().max(1) as f64
    }
}

/// An agent in training.
pub struct Training<'a> {
    env: Box<dyn Env>,
    /// The learner.
    pub agent: Box<dyn Agent>,
    yardstick: &'a Yardstick,
    seed: u64,
    /// Draws the environment's randomness.
    pub rng: Rng,
    /// Where the run stands.
    pub progress: Progress,
}

impl<'a> Training<'a> {
    /// Before the first episode.
    pub fn new(env: Box<dyn Env>, agent: Box<dyn Agent>, yardstick: &'a Yardstick, seed: u64) -> Self {
        let standing = Standing { gaps: vec![0.0; yardstick.levels.len()], last: Vec::new() };
        let distribution = agent.is_stochastic().then(|| standing.clone());
        let progress = Progress { greedy: standing, distribution, ..Progress::default() };
        Self { env, agent, yardstick, seed, rng: stream(seed, Purpose::Env), progress }
    }

    /// Lines 5–29 of Algorithm 1: one episode. The measures grow by it.
    pub fn episode(&mut self) -> Result<Episode, UpdateError> {
        let (episode_return, length) = self.play()?;
        let progress = &mut self.progress;
        progress.episode += 1;
        progress.env_steps += length as u64;
        progress.regret += self.yardstick.max_mean - episode_return;
        progress.greedy.episode(&self.yardstick.levels);
        if let Some(distribution) = &mut progress.distribution {
            distribution.episode(&self.yardstick.levels);
        }
        if progress.recent.len() == RECENT {
            progress.recent.remove(0);
        }
        progress.recent.push(episode_return);
        Ok(Episode { episode: progress.episode, episode_return, length })
    }

    fn play(&mut self) -> Result<(f64, usize), UpdateError> {
        self.agent.begin_episode(self.progress.episode);
        let mut observation = self.env.reset(&mut self.rng);
        let (mut stage, mut collected) = (0, 0.0);
        loop {
            let x = Input { stage, observation: &observation, collected };
            let action = self.agent.act(&x);
            let step = self.env.step(action, &mut self.rng);
            let reward = self.yardstick.discount.powi(stage as i32) * step.reward;
            let next =
                Input { stage: stage + 1, observation: &step.observation, collected: collected + reward };
            self.agent.observe(&Transition { x, action, reward, next, end: step.end })?;
            (stage, collected) = (next.stage, next.collected);
            if step.end.is_over() {
                return Ok((collected, stage));
            }
            observation = step.observation;
        }
    }

    /// The levels that are reported.
    pub fn levels(&self) -> Vec<Buffer> {
        self.yardstick.levels.iter().map(|&(buffer, _)| buffer).collect()
    }

    /// What is seen at the start of an episode. Between episodes of training the environment is free.
    pub fn start(&mut self, rng: &mut Rng) -> Observation {
        self.env.reset(rng)
    }

    /// Law and mean of the greedy policies: one per level, or a single one that serves them all.
    pub fn laws(&mut self, levels: &[Buffer], objective: Objective) -> Vec<(ReturnLaw, f64)> {
        let Self { env, agent, yardstick, seed, .. } = self;
        let policies = policies(&**agent, levels, objective);
        policies.iter().map(|policy| law(&Mode(&**policy), &mut **env, yardstick, *seed)).collect()
    }

    /// Evaluates the output policies; the agent is not changed. Returns the laws of the greedy policies' returns.
    pub fn evaluate(&mut self) -> Vec<ReturnLaw> {
        let levels = self.levels();
        let laws = self.laws(&levels, Objective::Quantile);
        let Self { env, agent, yardstick, seed, progress, .. } = self;
        let Progress { episode, regret, greedy, distribution, .. } = progress;
        greedy.evaluated(&laws, &yardstick.levels, *episode, *regret);
        if let Some(distribution) = distribution {
            let policies = agent.output(&levels);
            let laws: Vec<_> =
                policies.iter().map(|policy| law(&**policy, &mut **env, yardstick, *seed)).collect();
            distribution.evaluated(&laws, &yardstick.levels, *episode, *regret);
        }
        laws.into_iter().map(|(law, _)| law).collect()
    }
}

/// The law of a policy's return and its mean: exact where that is possible.
fn law(policy: &dyn OutputPolicy, env: &mut dyn Env, yardstick: &Yardstick, seed: u64) -> (ReturnLaw, f64) {
    if let Some(evaluator) = &yardstick.evaluator {
        let evaluation = evaluator.evaluate(&OnTable(policy));
        (evaluation.law, evaluation.mean)
    } else {
        let law = sample_law(policy, env, yardstick, seed);
        let mean = law.mean();
        (law, mean)
    }
}

/// The returns of a policy in a sample of episodes. Between episodes of training the environment is free.
fn sample_law(policy: &dyn OutputPolicy, env: &mut dyn Env, yardstick: &Yardstick, seed: u64) -> ReturnLaw {
    let rng = &mut stream(seed, Purpose::Evaluation);
    let mut returns = Vec::with_capacity(yardstick.evaluation_episodes);
    let mut choice = Vec::new();
    for _ in 0..yardstick.evaluation_episodes {
        let mut observation = env.reset(rng);
        let (mut stage, mut collected) = (0, 0.0);
        loop {
            choice.clear();
            policy.decide(&Input { stage, observation: &observation, collected }, &mut choice);
            let action = if let [(action, _)] = choice[..] {
                action
            } else {
                let probabilities: Vec<f64> = choice.iter().map(|&(_, probability)| probability).collect();
                choice[rng.categorical(&probabilities)].0
            };
            let step = env.step(action, rng);
            collected += yardstick.discount.powi(stage as i32) * step.reward;
            stage += 1;
            if step.end.is_over() {
                break;
            }
            observation = step.observation;
        }
        returns.push(collected);
    }
    ReturnLaw::from_samples(&returns).expect("there are episodes, and rewards are finite")
}
