//! PPO on tables (Schulman et al. 2017): risk-neutral, on-policy.
//!
//! ```text
//! π_old           the policy that played the last `episodes_per_update` episodes; A_t, y_t from `policy_gradient::rollout`
//! ratio_t(θ)    = π_θ(a_t | h, s_t) / π_old(a_t | h, s_t)
//! L_t(θ)        = min{ ratio_t A_t, clip(ratio_t, 1−ε, 1+ε) A_t } + entropy_bonus · H(π_θ(· | h, s_t))
//! logits       += learning_rate_t Σ_{t in minibatch} ∂L_t         `epochs` times over the rollout, in a random order
//! V            += value_rate (y_t − V)                             once over the rollout
//! ```
//!
//! Choices on tables where the source is silent: the gradient is summed over a minibatch, not averaged, so that a visited (h, s)
//! moves as far in a batch of long episodes as in one of short ones; plain gradient steps, because a table has no
//! ill-conditioned layers for Adam to even out; the step size falls as 1/(1 + t/`learning_rate_decay`) over the episodes;
//! updates stop early once the mean KL(π_old ‖ π_θ) over the visited states exceeds `target_kl`.

use bqrl_math::schedule::{Clock, Span};
use bqrl_mdp::env::EnvSpec;
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::policy_gradient::rollout::Decision;
use crate::policy_gradient::stage_table::{StageTable, add_entropy, clipped, score_function};
use crate::policy_gradient::{ActorCritic, Improve, OnPolicy, TableConfig, mean_kl};
use crate::settings::{count, not_negative, positive, positive_span};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// Passes over them.
    pub epochs: usize,
    /// Decisions per gradient step.
    pub minibatch_size: usize,
    /// ε.
    pub clip: f64,
    /// Initial step size of the logits, …
    pub learning_rate: f64,
    /// … which falls as 1/(1 + t/this).
    pub learning_rate_decay: Span,
    /// Weight of the entropy.
    pub entropy_bonus: f64,
    /// Mean KL(π_old ‖ π_θ) after which no further pass is made; 0 for no limit.
    pub target_kl: f64,
    /// The tables and what they learn from.
    #[serde(flatten)]
    pub tables: TableConfig,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        count("epochs", self.epochs, 1..=10_000)?;
        count("minibatch_size", self.minibatch_size, 1..=1 << 24)?;
        positive("clip", self.clip)?;
        positive("learning_rate", self.learning_rate)?;
        positive_span("learning_rate_decay", &self.learning_rate_decay)?;
        not_negative("entropy_bonus", self.entropy_bonus)?;
        not_negative("target_kl", self.target_kl)?;
        self.tables.check()
    }
}

/// The agent.
pub type Ppo = OnPolicy<Config>;

impl Ppo {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let tables = ActorCritic::new("ppo", &config.tables, spec, seed)?;
        Ok(Self { method: config, tables })
    }
}

impl Improve for Config {
    fn tables(&self) -> &TableConfig {
        &self.tables
    }

    fn improve(&self, tables: &mut ActorCritic, advantages: &[f64], clock: &Clock) {
        let learning_rate = self.learning_rate / self.learning_rate_decay.slowdown(clock);
        let old = tables.visits();
        let decisions = tables.rollout.decisions();
        let mut order: Vec<usize> = (0..decisions.len()).collect();
        for _ in 0..self.epochs {
            tables.order.shuffle(&mut order);
            for minibatch in order.chunks(self.minibatch_size) {
                // All gradients at the same θ, then the step.
                let gradients: Vec<Vec<f64>> = minibatch
                    .iter()
                    .map(|&t| {
                        gradient(&tables.logits, &decisions[t], advantages[t], self.clip, self.entropy_bonus)
                    })
                    .collect();
                for (&t, gradient) in minibatch.iter().zip(&gradients) {
                    let step: Vec<f64> = gradient.iter().map(|g| learning_rate * g).collect();
                    tables.logits.add(decisions[t].stage, decisions[t].state, &step);
                }
                tables.updates += 1;
            }
            if self.target_kl > 0.0 && mean_kl(&old, &tables.logits) > self.target_kl {
                break;
            }
        }
    }
}

/// ∂L_t in the logits of (h, s_t). Where the minimum is the clipped term, only the entropy has a slope.
fn gradient(
    logits: &StageTable,
    decision: &Decision,
    advantage: f64,
    clip: f64,
    entropy_bonus: f64,
) -> Vec<f64> {
    let policy = logits.policy(decision.stage, decision.state);
    let ratio = policy[decision.action] / decision.probability;
    // ∂ ratio = ratio ∂ log π.
    let mut gradient = score_function(&policy, decision.action, clipped(ratio, advantage, clip));
    add_entropy(&mut gradient, &policy, entropy_bonus);
    gradient
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::env::ObservationSpace;
    use bqrl_mdp::trajectory::{End, Observation};

    use super::*;
    use crate::{Agent, Input, Transition};

    fn config() -> Config {
        Config {
            epochs: 1,
            minibatch_size: 8,
            clip: 0.2,
            learning_rate: 0.1,
            learning_rate_decay: Span::episodes(100.0),
            entropy_bonus: 0.0,
            target_kl: 0.0,
            tables: TableConfig {
                episodes_per_update: 2,
                gae_lambda: 1.0,
                value_rate: 0.01,
                value_prior: 0.0,
                stage_widths: vec![1],
            },
        }
    }

    /// Two stages, one state, two actions.
    fn agent(config: Config) -> Ppo {
        let spec = EnvSpec::new("two-step", ObservationSpace::Discrete { n: 1, ordered: false }, 2, 2);
        Ppo::new(config, &spec, 1).unwrap()
    }

    /// An episode of these actions, which earns `reward` at the horizon, and the learning after it.
    fn play(agent: &mut Ppo, actions: [usize; 2], reward: f64) {
        play_at(agent, &Clock::default(), actions, reward);
    }

    fn play_at(agent: &mut Ppo, clock: &Clock, actions: [usize; 2], reward: f64) {
        let observation = Observation::Index(0);
        let at = |stage| Input { stage, observation: &observation, collected: 0.0 };
        let mut step = |stage, reward, end| {
            let transition =
                Transition { x: at(stage), action: actions[stage], reward, next: at(stage + 1), end };
            agent.store(0, &transition).unwrap();
            agent.learn(clock).unwrap();
        };
        step(0, 0.0, End::NotYet);
        step(1, reward, End::Horizon);
    }

    #[test]
    fn an_update_on_a_two_step_problem_matches_hand_computation() {
        // Two episodes: actions (1, 0) earn 1, actions (0, 0) earn 0. V = 0, λ = 1: A = 1, 1, 0, 0; normalised +1, +1, −1, −1.
        // Uniform policy, ratio 1, one pass: the row of stage 0 gets .1·(+1)(e_1 − ½) + .1·(−1)(e_0 − ½) = (−.1, .1);
        // at stage 1 action 0 was taken twice, with +1 and −1: nothing.
        let mut agent = agent(config());
        play(&mut agent, [1, 0], 1.0);
        assert_eq!(agent.tables.logits.values(), [0.0; 4]);
        play(&mut agent, [0, 0], 0.0);
        let close = |got: &[f64], want: &[f64]| got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close(agent.tables.logits.values(), &[-0.1, 0.1, 0.0, 0.0]), "{:?}", agent.tables.logits);
        // Targets 1, 1, 0, 0 at stages 0, 1, 0, 1, steps 1/n: u_0 = 1, 1, 2/3, ½ leaves 0, 0, −2/3, −½;
        // u(0) = (0 − 2/3)/2 and u(1) = (0 − ½)/2. V(0) = ½ − 1/3, V(1) = ½ − ¼.
        assert!((agent.tables.values.read(0, 0) - 1.0 / 6.0).abs() < 1e-12);
        assert!((agent.tables.values.read(1, 0) - 0.25).abs() < 1e-12);
        assert_eq!((agent.tables.rollout.episodes(), agent.updates()), (0, 1));
    }

    #[test]
    fn clipping_stops_the_ratio_and_a_kl_limit_stops_the_passes() {
        // The same episodes, many passes of large steps. Without a limit the ratio of action 1 at stage 0 passes 1 + ε in one
        // step and then rests: a clipped term has no slope.
        let moved = |change: fn(&mut Config)| {
            let mut settings = Config { epochs: 50, learning_rate: 0.02, ..config() };
            change(&mut settings);
            let mut agent = agent(settings);
            play(&mut agent, [1, 0], 1.0);
            play(&mut agent, [0, 0], 0.0);
            (agent.tables.logits.policy(0, 0)[1], agent.updates())
        };
        let (clipped, passes) = moved(|_| {});
        // π(1) = .6 is ratio 1.2; one step of .02 more moves it by less than .01.
        assert!((0.6..0.61).contains(&clipped) && passes == 50, "{clipped}, {passes}");
        let (free, _) = moved(|c| c.clip = 10.0);
        assert!(free > 0.65, "{free}");
        // KL((½, ½) ‖ (½−x, ½+x)) ≈ 2x², averaged over two stages x²: .001 is passed near x = .032, at the seventh step of .01/2.
        let (limited, passes) = moved(|c| c.target_kl = 0.001);
        assert!(limited < 0.54 && passes < 10, "{limited}, {passes}");
    }

    #[test]
    fn gradients_match_finite_differences() {
        // On both sides of the clip, for both signs of the advantage, with entropy, with shared stages.
        let decision = |stage, action, probability| Decision {
            stage,
            state: 1,
            action,
            reward: 0.0,
            next_state: 0,
            is_final: true,
            goes_on: false,
            probability,
        };
        let mut logits = StageTable::new(&[1, 2], 3, 2, 3);
        logits.values_mut().iter_mut().enumerate().for_each(|(i, x)| *x = (i as f64 * 1.3).sin());
        let (clip, entropy_bonus) = (0.2, 0.3);
        let mut met = std::collections::BTreeSet::new();
        for (stage, action, old, advantage) in
            [(0, 0, 0.3, 1.5), (1, 2, 0.01, 1.5), (2, 1, 0.9, -2.0), (2, 0, 0.05, -2.0), (1, 1, 0.99, 1.0)]
        {
            let d = decision(stage, action, old);
            let objective = |table: &StageTable| {
                let policy = table.policy(stage, 1);
                let ratio = policy[action] / old;
                let surrogate = (ratio * advantage).min(ratio.clamp(1.0 - clip, 1.0 + clip) * advantage);
                surrogate - entropy_bonus * policy.iter().map(|p| p * p.ln()).sum::<f64>()
            };
            let row = gradient(&logits, &d, advantage, clip, entropy_bonus);
            let bare = gradient(&logits, &d, advantage, clip, 0.0);
            met.insert((advantage > 0.0, bare.iter().all(|g| *g == 0.0)));
            let mut analytic = logits.zeros();
            analytic.add(stage, 1, &row);
            for i in 0..logits.values().len() {
                let at = |sign: f64| {
                    let mut moved = logits.clone();
                    moved.values_mut()[i] += sign * 1e-6;
                    objective(&moved)
                };
                let numeric = (at(1.0) - at(-1.0)) / 2e-6;
                let got = analytic.values()[i];
                assert!((got - numeric).abs() < 1e-7, "parameter {i}: {got} and {numeric}");
            }
        }
        assert_eq!(met.len(), 4, "both signs, clipped and not: {met:?}");
    }

    #[test]
    fn the_step_size_falls_with_the_episodes() {
        // The episodes of the hand computation. After 100 episodes of a decay of 100 the step is half as long.
        let mut agent = agent(config());
        let clock = Clock { episodes: 100, steps: 0 };
        play_at(&mut agent, &clock, [1, 0], 1.0);
        play_at(&mut agent, &clock, [0, 0], 0.0);
        let logits = agent.tables.logits.values();
        assert!((logits[1] - 0.05).abs() < 1e-15 && (logits[0] + 0.05).abs() < 1e-15, "{logits:?}");
    }
}
