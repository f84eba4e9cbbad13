//! What Deep-BQRL learns, against what is exactly true.

mod common;

use bqrl_agents::deep_bqrl::{Config, DeepBqrl, Score};
use bqrl_agents::experience::encode::StateEncoding;
use bqrl_agents::{Agent, Input, OnTable};
use bqrl_math::buffer::Buffer;
use bqrl_mdp::env::Env;
use bqrl_mdp::evaluate::{Evaluator, evaluate};
use bqrl_mdp::tabular::TabularEnv;
use bqrl_mdp::trajectory::Observation;

use common::{build, train};

fn config() -> Config {
    Config {
        n_quantiles: 16,
        n_critics: 2,
        hidden: vec![32],
        kappa: 0.01,
        zeta: 0.02,
        lambda_0: 1.0,
        lambda_decay: 100.0,
        score: Score::Buffered,
        tie_break: 0.0,
        output_scale: 0.1,
        output_bias: 0.5,
        learning_rate: 5e-4,
        learning_rate_extra: 2e-3,
        learning_rate_decay: 200.0,
        batch_size: 32,
        replay_capacity: 100_000,
        learning_starts: 32,
        updates_per_step: 2,
        state_encoding: StateEncoding::Auto,
        reward_scale: 0.0,
        kernels: "auto".into(),
    }
}

#[test]
fn a_small_selling_problem_is_solved_at_a_high_level_on_three_seeds() {
    // Nine offers, four decisions: at τ = .9 the risk-neutral and the best quantile policy both attain the top offer.
    for seed in [1, 2, 3] {
        let mut env = build("asset-selling", &[("offers", "9"), ("horizon", "4"), ("start", "2")]);
        let mut agent = DeepBqrl::new(config(), Buffer::new(0.9, 0.3).unwrap(), env.spec(), seed).unwrap();
        train(&mut agent, &mut env, 0..600, seed);
        let law = evaluate(&env.problem().model, &OnTable(&*agent.output(&[])[0])).unwrap().law;
        assert!(law.quantile(0.9) >= 1.0 - 1e-12, "seed {seed}: {}", law.quantile(0.9));
        assert!(law.mean() > 0.6, "seed {seed}: mean {}", law.mean());
    }
}

#[test]
fn learned_quantiles_are_close_to_the_exact_law_of_the_remaining_return() {
    // One decision that pays 0 or 1 as a coin falls, after which nothing follows: gambling pays 3 with probability .4.
    // W1 between the learned quantile function and the law: ∫ |Q̂_u − Q_u| du, the law spans 3.
    let mut env = build("gamble-chain", &[("horizon", "2")]);
    let mut settings = config();
    settings.lambda_0 = 5.0;
    let mut agent = DeepBqrl::new(settings, Buffer::new(0.5, 0.5).unwrap(), env.spec(), 7).unwrap();
    train(&mut agent, &mut env, 0..4000, 7);
    let observation = Observation::Index(0);
    let last = Input { stage: 1, observation: &observation, collected: 1.0 };
    let distance = |action: usize, exact: &dyn Fn(f64) -> f64| {
        let learned = agent.quantiles(&last, action);
        let k = learned.len() as f64;
        learned.iter().enumerate().map(|(j, z)| (z - exact((j as f64 + 0.5) / k)).abs()).sum::<f64>() / k
    };
    // Safe pays 1; the gamble pays 0 up to level .6 and 3 above.
    assert!(distance(0, &|_| 1.0) < 0.15, "safe: {}", distance(0, &|_| 1.0));
    let gamble = |u: f64| if u <= 0.6 { 0.0 } else { 3.0 };
    assert!(distance(1, &gamble) < 0.5, "gamble: {}", distance(1, &gamble));
}

#[test]
fn greedy_never_changes_the_agent() {
    let mut env = build("asset-selling", &[("offers", "5"), ("horizon", "3"), ("start", "1")]);
    let mut agent = DeepBqrl::new(config(), Buffer::new(0.5, 0.2).unwrap(), env.spec(), 3).unwrap();
    train(&mut agent, &mut env, 0..20, 3);
    let before = agent.save(&|_| false);
    Evaluator::new(&env.problem().model).unwrap().evaluate(&OnTable(&*agent.output(&[])[0]));
    assert_eq!(agent.save(&|_| false), before);
}

#[test]
fn saving_and_restoring_goes_on_bit_for_bit() {
    let mut env = build("frozen-lake", &[("horizon", "20")]);
    let make =
        |env: &TabularEnv| DeepBqrl::new(config(), Buffer::new(0.5, 0.2).unwrap(), env.spec(), 3).unwrap();
    let mut whole = make(&env);
    train(&mut whole, &mut env, 0..10, 3);
    let saved = whole.save(&|_| false);
    let mut restored = make(&env);
    let part = |name: &str| saved.iter().find(|part| part.name == name)?.bytes().map(<[u8]>::to_vec);
    restored.restore(&part).unwrap();
    train(&mut whole, &mut env, 0..10, 4);
    train(&mut restored, &mut env, 0..10, 4);
    assert_eq!(whole.save(&|_| false), restored.save(&|_| false));
    // What does not fit is refused.
    assert!(restored.restore(&|_| None).is_err());
    let mut other = make(&build("asset-selling", &[]));
    assert!(other.restore(&part).is_err());
}

#[test]
fn wrong_settings_are_refused_with_key_value_and_range() {
    let env = build("asset-selling", &[]);
    let refused = |change: fn(&mut Config)| {
        let mut settings = config();
        change(&mut settings);
        DeepBqrl::new(settings, Buffer::new(0.5, 0.2).unwrap(), env.spec(), 3)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(|c| c.n_critics = 1), "agent.n_critics must be at least 2, got 1");
    assert!(refused(|c| c.kernels = "abacus".into()).starts_with("agent.kernels must be auto"));
    assert_eq!(refused(|c| c.zeta = 1.5), "agent.zeta must lie in (0, 1], got 1.5");
    assert_eq!(refused(|c| c.kappa = f64::NAN), "agent.kappa must be positive, got NaN");
    assert_eq!(
        refused(|c| c.replay_capacity = 3),
        "agent.replay_capacity must be at least batch_size, got 3"
    );
    if cfg!(target_os = "linux") {
        let too_large = refused(|c| c.replay_capacity = 1 << 50);
        assert!(
            too_large.starts_with("a replay of 1125899906842624 transitions needs 33776997.2 GB"),
            "{too_large}"
        );
        assert!(too_large.contains("lower agent.replay_capacity to at most"), "{too_large}");
    }
}
