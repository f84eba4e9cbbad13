//! What QPPO learns, against what is exactly true.

mod common;

use bqrl_agents::qppo::{Config, Qppo};
use bqrl_agents::{Agent, ServedPolicy};
use bqrl_math::buffer::Buffer;
use bqrl_math::schedule::Span;
use bqrl_mdp::env::{Env, ObservationSpace};
use bqrl_mdp::evaluate::evaluate;
use bqrl_mdp::tabular::TabularEnv;

use common::{build, failure, goes_on_after_restoring, only, train};

fn config() -> Config {
    Config {
        stage_bins: 1,
        collected_bins: 1,
        batch_episodes: 10,
        epochs: 4,
        clip: 0.2,
        learning_rate: 0.3,
        learning_rate_decay: Span::episodes(1000.0),
        quantile_step: 0.05,
        quantile_decay: Span::episodes(200.0),
        slack: 0.0,
        gae_lambda: 0.95,
        value_step: 0.3,
        entropy: 0.01,
        reward_scale: 0.0,
    }
}

fn agent(config: Config, env: &TabularEnv, tau: f64, seed: u64) -> Qppo {
    Qppo::new(config, Buffer::new(tau, tau).unwrap(), env.spec(), seed).unwrap()
}

#[test]
fn a_small_selling_problem_is_nearly_solved_on_three_seeds() {
    // Nine offers k/8, three fresh ones after the first: Q*_.5 = 7/8, since (7/9)³ = .47 < .5. The untrained policy has 3/8 or less.
    for seed in [1, 2, 3] {
        let env = build("asset-selling", &[("offers", "9"), ("horizon", "4"), ("start", "2")]);
        let mut agent = agent(config(), &env, 0.5, seed);
        train(&mut agent, &env, 0..3000, seed);
        let memo = only(&agent);
        let law = evaluate(&env.problem().model, &ServedPolicy::mode(&agent, &memo)).unwrap().law;
        assert!(law.quantile(0.5) >= 6.0 / 8.0 - 1e-9, "seed {seed}: {}", law.quantile(0.5));
        let drawn = evaluate(&env.problem().model, &ServedPolicy::new(&agent, &memo)).unwrap().law;
        // The tracker follows the drawn policy's quantile: atoms are 1/8 apart.
        let tracked = agent.tracked_quantile().unwrap();
        assert!(
            (tracked - drawn.quantile(0.5)).abs() < 0.13,
            "seed {seed}: {tracked}, {}",
            drawn.quantile(0.5)
        );
    }
}

#[test]
fn steps_that_lose_all_bounds_are_an_error_and_not_a_panic() {
    let env = build("asset-selling", &[]);
    let settings = Config { learning_rate: f64::MAX, batch_episodes: 5, ..config() };
    let message = failure(&mut agent(settings, &env, 0.5, 3), &env);
    assert!(message.contains("logits is no longer finite"), "{message}");
}

#[test]
fn greedy_never_changes_the_agent() {
    let env = build("asset-selling", &[("offers", "5"), ("horizon", "3"), ("start", "1")]);
    let mut agent = agent(config(), &env, 0.5, 3);
    train(&mut agent, &env, 0..25, 3);
    let before = agent.save(&|_| false);
    evaluate(&env.problem().model, &ServedPolicy::new(&agent, &only(&agent))).unwrap();
    assert_eq!(agent.save(&|_| false), before);
}

#[test]
fn saving_and_restoring_goes_on_bit_for_bit_within_a_batch() {
    // Eleven episodes: one batch is learned from, one episode waits for the next.
    goes_on_after_restoring(&|env| Box::new(agent(config(), env, 0.5, 3)));
}

#[test]
fn wrong_settings_and_problems_without_a_table_are_refused() {
    let env = build("asset-selling", &[]);
    let refused = |change: fn(&mut Config)| {
        let mut settings = config();
        change(&mut settings);
        Qppo::new(settings, Buffer::new(0.5, 0.2).unwrap(), env.spec(), 3).map(drop).unwrap_err().to_string()
    };
    assert_eq!(refused(|c| c.batch_episodes = 0), "agent.batch_episodes must lie in 1..=1000000, got 0");
    assert!(refused(|c| c.collected_bins = usize::MAX).contains("must lie in 1..=1000000"));
    // 10 stages × 26 states × 10^6 bins × 2 actions.
    assert!(refused(|c| (c.stage_bins, c.collected_bins) = (0, 1_000_000)).contains("within 2^27"));
    assert_eq!(refused(|c| c.gae_lambda = 1.5), "agent.gae_lambda must lie in [0, 1], got 1.5");
    assert_eq!(refused(|c| c.value_step = 0.0), "agent.value_step must lie in (0, 1], got 0");
    let mut unbounded = env.spec().clone();
    unbounded.reward_bounds = None;
    let settings = Config { collected_bins: 2, ..config() };
    let error = Qppo::new(settings, Buffer::new(0.5, 0.2).unwrap(), &unbounded, 3).map(drop).unwrap_err();
    assert!(error.to_string().contains("collected_bins must be 1"), "{error}");
    unbounded.observations = ObservationSpace::Dense(vec![4]);
    let error = Qppo::new(config(), Buffer::new(0.5, 0.2).unwrap(), &unbounded, 3).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("qppo keeps tables"), "{error}");
}
