//! What UCB-BQRL learns, against what is exactly true.

mod common;

use bqrl_agents::ucb_bqrl::{Config, Objective, Output, Prior, UcbBqrl};
use bqrl_agents::{Agent, ServedPolicy};
use bqrl_math::buffer::Buffer;
use bqrl_mdp::env::{Env, ObservationSpace};
use bqrl_mdp::evaluate::evaluate;
use bqrl_mdp::plan::Planner;
use bqrl_mdp::problems;
use bqrl_mdp::tabular::TabularEnv;

use common::{build, find, only, train};

/// The preset with a wider ball: at 0.1 two lost gambles in a row can end the exploration of a gamble chain for good.
fn config() -> Config {
    Config {
        radius_scale: 0.3,
        delta: 0.1,
        stationary: true,
        objective: Objective::Point,
        output: Output::Nominal,
        prior: Prior::Adaptive,
        prior_strength: 0.25,
        slack: 1.0,
        replan_every: 0,
        max_returns: 4096,
    }
}

fn level(tau: f64) -> Buffer {
    Buffer::new(tau, tau).unwrap()
}

/// Q_τ of the agent's output and Q*_τ.
fn quantiles(agent: &UcbBqrl, env: &TabularEnv, tau: f64) -> (f64, f64) {
    let law = evaluate(&env.problem().model, &ServedPolicy::new(agent, &only(agent))).unwrap().law;
    let best = Planner::exact(&env.problem().model, &|_, _, _| {}).unwrap().best_quantile(tau).value;
    (law.quantile(tau), best)
}

#[test]
fn the_best_quantile_is_learned_on_small_problems_and_three_seeds() {
    // A wrong planner, a wrong count or a mistaken end of the episode leaves a gap for good on at least one of these:
    // rewards known by action, by next state, and learned with several rewards on one transition. The levels are such
    // that no attainable probability lies close to them (nine offers: (7/9)³ = .47 < .6 < (8/9)³ = .70).
    for (name, parameters, episodes, tau) in [
        ("asset-selling", &[("offers", "9"), ("horizon", "4"), ("start", "2")][..], 400, 0.6),
        ("frozen-lake", &[("horizon", "60")], 300, 0.7),
        ("gamble-chain", &[("horizon", "4")], 300, 0.5),
        ("gamblers-ruin", &[("horizon", "8")], 400, 0.9),
    ] {
        for seed in [1, 2, 3] {
            let env = build(name, parameters);
            let mut agent = UcbBqrl::new(config(), level(tau), env.spec()).unwrap();
            train(&mut agent, &env, 0..episodes, seed);
            let (got, best) = quantiles(&agent, &env, tau);
            assert!(got >= best - 1e-9, "{name}, seed {seed}: {got}, best {best}");
        }
    }
}

#[test]
fn every_built_in_problem_can_be_learned_on() {
    let mut settings = config();
    settings.max_returns = 300;
    for info in problems::names() {
        let env = build(info, if info == "asset-selling" { &[] } else { &[("horizon", "5")] });
        let mut agent = UcbBqrl::new(settings.clone(), level(0.5), env.spec()).unwrap();
        train(&mut agent, &env, 0..6, 1);
        assert!(agent.updates() > 1, "{info}");
    }
}

#[test]
fn a_buffered_agent_and_one_with_a_table_per_stage_learn_too() {
    let env = build("asset-selling", &[("offers", "5"), ("horizon", "3"), ("start", "1")]);
    for (objective, stationary) in [(Objective::Buffered, true), (Objective::Point, false)] {
        let mut settings = config();
        (settings.objective, settings.stationary) = (objective, stationary);
        let mut agent = UcbBqrl::new(settings, Buffer::new(0.5, 0.1).unwrap(), env.spec()).unwrap();
        train(&mut agent, &env, 0..400, 5);
        // Q*_.5 = 3/4: two fresh offers, (3/5)² < .5.
        let (got, best) = quantiles(&agent, &env, 0.5);
        assert!((got - 0.75).abs() < 1e-9 && (best - 0.75).abs() < 1e-9, "{objective:?}: {got}, {best}");
    }
}

#[test]
fn terminal_states_and_rewards_are_learned_where_they_are_not_named() {
    let env = build("asset-selling", &[("offers", "5"), ("horizon", "3"), ("start", "1")]);
    let mut spec = env.spec().clone();
    (spec.known_rewards, spec.terminal) = (None, None);
    let mut agent = UcbBqrl::new(config(), level(0.5), &spec).unwrap();
    train(&mut agent, &env, 0..400, 6);
    let (got, best) = quantiles(&agent, &env, 0.5);
    assert!(got >= best - 1e-9, "{got}, best {best}");
}

#[test]
fn output_never_changes_the_agent_and_saving_goes_on_bit_for_bit() {
    let env = build("frozen-lake", &[("horizon", "20")]);
    let make = |env: &TabularEnv| UcbBqrl::new(config(), level(0.5), env.spec()).unwrap();
    let mut whole = make(&env);
    train(&mut whole, &env, 0..13, 3);
    let saved = whole.save(&|_| false);
    quantiles(&whole, &env, 0.5);
    assert_eq!(whole.save(&|_| false), saved);

    let mut restored = make(&env);
    let part = |name: &str| find(&saved, name);
    restored.restore(&part).unwrap();
    train(&mut whole, &env, 13..30, 4);
    train(&mut restored, &env, 13..30, 4);
    assert_eq!(whole.save(&|_| false), restored.save(&|_| false));
    assert_eq!(whole.weights(), restored.weights());
    // What does not fit is refused.
    assert!(restored.restore(&|_| None).is_err());
    assert!(make(&build("asset-selling", &[])).restore(&part).is_err());
}

#[test]
fn wrong_settings_and_problems_are_refused() {
    let env = build("asset-selling", &[]);
    let refused = |change: fn(&mut Config)| {
        let mut settings = config();
        change(&mut settings);
        UcbBqrl::new(settings, level(0.5), env.spec()).map(drop).unwrap_err().to_string()
    };
    assert_eq!(refused(|c| c.radius_scale = -1.0), "agent.radius_scale must not be negative, got -1");
    assert_eq!(refused(|c| c.delta = 1.0), "agent.delta must lie in (0, 1), got 1");
    assert_eq!(refused(|c| c.slack = 2.0), "agent.slack must lie in [0, 1], got 2");
    assert_eq!(refused(|c| c.max_returns = 1), "agent.max_returns must lie in 2..=4194304, got 1");

    let mut spec = env.spec().clone();
    spec.reward_bounds = None;
    let error = UcbBqrl::new(config(), level(0.5), &spec).map(drop).unwrap_err().to_string();
    assert!(error.contains("rewards without bounds"), "{error}");
    spec.observations = ObservationSpace::Dense(vec![2]);
    let error = UcbBqrl::new(config(), level(0.5), &spec).map(drop).unwrap_err().to_string();
    assert!(error.contains("arrays of shape [2]"), "{error}");
}
