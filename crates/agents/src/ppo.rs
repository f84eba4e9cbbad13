//! PPO on tables (Schulman et al. 2017): risk-neutral, on-policy.
//!
//! ```text
//! π_old           the policy that played the last `episodes_per_update` episodes; A_t, y_t from `experience::rollout`
//! ratio_t(θ)    = π_θ(a_t | h, s_t) / π_old(a_t | h, s_t)
//! L_t(θ)        = min{ ratio_t A_t, clip(ratio_t, 1−ε, 1+ε) A_t } + entropy_bonus · H(π_θ(· | h, s_t))
//! logits       += learning_rate_t Σ_{t in minibatch} ∂L_t         `epochs` times over the rollout, in a random order
//! V            += value_rate (y_t − V)                             once over the rollout
//! ```
//!
//! What the source leaves open on tables: the gradient is summed over a minibatch, not averaged, so that a visited (h, s)
//! moves as far in a batch of long episodes as in one of short ones; plain gradient steps, because a table has no
//! ill-conditioned layers for Adam to even out; the step size falls as 1/(1 + t/`learning_rate_decay`) over the episodes;
//! updates stop early once the mean KL(π_old ‖ π_θ) over the visited states exceeds `target_kl`.

use bqrl_math::buffer::Buffer;
use bqrl_mdp::env::EnvSpec;
use bqrl_nn::UpdateError;
use serde::{Deserialize, Serialize};

use crate::actor_critic::{ActorCritic, SoftmaxPolicy, mean_kl};
use crate::experience::rollout::{Decision, normalise};
use crate::stage_table::{StageTable, check_widths, score_function};
use crate::{
    Agent, AgentError, Input, OutputPolicy, RestoreError, Transition, not_negative, positive, require,
};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Episodes of one policy before it is changed.
    pub episodes_per_update: usize,
    /// Passes over them.
    pub epochs: usize,
    /// Decisions per gradient step.
    pub minibatch_size: usize,
    /// ε.
    pub clip: f64,
    /// Step size of the logits in the beginning, …
    pub learning_rate: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub learning_rate_decay: f64,
    /// Weight of the entropy.
    pub entropy_bonus: f64,
    /// Mean KL(π_old ‖ π_θ) after which no further pass is made; 0 for no limit.
    pub target_kl: f64,
    /// λ of the advantages.
    pub gae_lambda: f64,
    /// Step size of the values.
    pub value_rate: f64,
    /// Widths of the groups of stages whose tables add up: [1] is one row per (h, s).
    pub stage_widths: Vec<usize>,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        let at_least_1 = |key, value: usize| require(key, value >= 1, "be at least 1", &value);
        at_least_1("episodes_per_update", self.episodes_per_update)?;
        at_least_1("epochs", self.epochs)?;
        at_least_1("minibatch_size", self.minibatch_size)?;
        positive("clip", self.clip)?;
        positive("learning_rate", self.learning_rate)?;
        positive("learning_rate_decay", self.learning_rate_decay)?;
        not_negative("entropy_bonus", self.entropy_bonus)?;
        not_negative("target_kl", self.target_kl)?;
        let within = |key, value: f64, holds, want| require(key, holds, want, &value);
        within("gae_lambda", self.gae_lambda, (0.0..=1.0).contains(&self.gae_lambda), "lie in [0, 1]")?;
        let rate = self.value_rate;
        within("value_rate", rate, rate > 0.0 && rate <= 1.0, "lie in (0, 1]")?;
        check_widths(&self.stage_widths)
    }
}

/// The agent.
pub struct Ppo {
    config: Config,
    tables: ActorCritic,
    learning_rate: f64,
}

impl Ppo {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let tables = ActorCritic::new("ppo", &config.stage_widths, spec, seed)?;
        Ok(Self { learning_rate: config.learning_rate, tables, config })
    }

    /// An update from the rollout, which is then forgotten.
    fn update(&mut self) -> Result<(), UpdateError> {
        let Self { config, tables, learning_rate } = self;
        let mut estimates = tables.rollout.estimate(&tables.values, config.gae_lambda);
        normalise(&mut estimates.advantages);
        let old = tables.visits();
        let decisions = tables.rollout.decisions();
        let old_probability: Vec<f64> =
            decisions.iter().map(|d| tables.logits.policy(d.stage, d.state)[d.action]).collect();
        let mut order: Vec<usize> = (0..decisions.len()).collect();
        for _ in 0..config.epochs {
            tables.order.shuffle(&mut order);
            for minibatch in order.chunks(config.minibatch_size) {
                // All gradients at the same θ, then the step.
                let gradients: Vec<Vec<f64>> = minibatch
                    .iter()
                    .map(|&t| {
                        gradient(
                            &tables.logits,
                            &decisions[t],
                            old_probability[t],
                            estimates.advantages[t],
                            config.clip,
                            config.entropy_bonus,
                        )
                    })
                    .collect();
                for (&t, gradient) in minibatch.iter().zip(&gradients) {
                    let step: Vec<f64> = gradient.iter().map(|g| *learning_rate * g).collect();
                    tables.logits.add(decisions[t].stage, decisions[t].state, &step);
                }
                tables.updates += 1;
            }
            if config.target_kl > 0.0 && mean_kl(&old, &tables.logits) > config.target_kl {
                break;
            }
        }
        tables.rollout.fit(&mut tables.values, &estimates.targets, config.value_rate);
        tables.rollout.clear();
        tables.check()
    }
}

/// ∂L_t in the logits of (h, s_t). Where the minimum is the clipped term, only the entropy has a slope.
fn gradient(
    logits: &StageTable,
    decision: &Decision,
    old_probability: f64,
    advantage: f64,
    clip: f64,
    entropy_bonus: f64,
) -> Vec<f64> {
    let policy = logits.policy(decision.stage, decision.state);
    let ratio = policy[decision.action] / old_probability;
    let clipped = if advantage > 0.0 { ratio > 1.0 + clip } else { ratio < 1.0 - clip };
    // ∂ ratio = ratio ∂ log π.
    let scale = if clipped { 0.0 } else { ratio * advantage };
    let mut gradient = score_function(&policy, decision.action, scale);
    // ∂H / ∂ logit_b = −π_b (ln π_b + H).
    let log = |p: f64| if p > 0.0 { p.ln() } else { 0.0 };
    let entropy: f64 = -policy.iter().map(|&p| p * log(p)).sum::<f64>();
    gradient.iter_mut().zip(&policy).for_each(|(g, &p)| *g -= entropy_bonus * p * (log(p) + entropy));
    gradient
}

impl Agent for Ppo {
    fn begin_episode(&mut self, episode: usize) {
        let Config { learning_rate, learning_rate_decay, .. } = self.config;
        self.learning_rate = learning_rate / (1.0 + episode as f64 / learning_rate_decay);
    }

    fn act(&mut self, x: &Input) -> usize {
        self.tables.act(x)
    }

    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError> {
        if self.tables.remember(transition, self.config.episodes_per_update) { self.update() } else { Ok(()) }
    }

    fn output(&self, _: &[Buffer]) -> Vec<Box<dyn OutputPolicy + '_>> {
        vec![Box::new(SoftmaxPolicy(&self.tables.logits))]
    }

    fn is_stochastic(&self) -> bool {
        true
    }

    fn updates(&self) -> u64 {
        self.tables.updates
    }

    fn save(&self) -> Vec<(&'static str, Vec<u8>)> {
        self.tables.save()
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        self.tables.restore(file)
    }

    fn weights(&self) -> Vec<u8> {
        self.tables.weights()
    }
}
