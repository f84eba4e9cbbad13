//! What the tests of agents share.

// Every test file uses a part of these.
#![allow(dead_code)]

use bqrl_agents::play::Play;
use bqrl_agents::quantile_critics::CriticConfig;
use bqrl_agents::{Agent, Kernels, Memo, Objective, Part, ServedPolicy};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::Purpose;
use bqrl_math::schedule::Clock;
use bqrl_mdp::lanes::NativeLanes;
use bqrl_mdp::problems;
use bqrl_mdp::tabular::TabularEnv;

/// A built-in problem.
pub fn build(name: &str, parameters: &[(&str, &str)]) -> TabularEnv {
    let owned: Vec<(String, String)> = parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    TabularEnv::new(problems::build(name, &owned).unwrap())
}

/// Trains for some episodes, in one lane.
pub fn train(agent: &mut dyn Agent, env: &TabularEnv, episodes: std::ops::Range<usize>, seed: u64) {
    train_lanes(agent, env, episodes, seed, 1);
}

/// Trains until the last of these episodes has ended, in several lanes.
pub fn train_lanes(
    agent: &mut dyn Agent,
    env: &TabularEnv,
    episodes: std::ops::Range<usize>,
    seed: u64,
    lanes: usize,
) {
    let mut play = Play::new(Box::new(NativeLanes::new(lanes, seed, Purpose::Env, || Box::new(env.clone()))));
    let mut clock = Clock { episodes: episodes.start as u64, steps: 0 };
    while clock.episodes < episodes.end as u64 {
        play.train(agent, &mut clock).unwrap();
    }
}

/// Small critics for small problems.
pub fn critics() -> CriticConfig {
    CriticConfig {
        convolutions: Vec::new(),
        n_quantiles: 16,
        n_critics: 2,
        hidden: vec![32],
        kappa: 0.01,
        zeta: 0.02,
        learning_rate: 2e-3,
        batch_size: 32,
        replay_capacity: 100_000,
        updates_per_step: 2.0,
        optimism: 2.0,
        optimistic_tries: 3,
        reward_scale: 0.0,
        kernels: Kernels::Auto,
    }
}

/// Instructions that this machine does not have.
pub fn kernels_of_another_machine() -> Kernels {
    if cfg!(target_arch = "aarch64") { Kernels::Avx2 } else { Kernels::Neon }
}

/// The only policy of an agent that serves one for every level.
pub fn only(agent: &dyn Agent) -> Memo {
    let served = agent.serve(&[], Objective::Quantile);
    assert!(!served.is_per_level(), "want one policy for all levels, got {served:?}");
    *served.at(0)
}

/// The memo of the policy for one level.
pub fn memo(agent: &dyn Agent, level: &Buffer, objective: Objective) -> Memo {
    *agent.serve(&[*level], objective).at(0)
}

/// The greedy policy of an agent that serves one.
pub fn greedy<'a>(agent: &'a dyn Agent, memo: &'a Memo) -> ServedPolicy<'a> {
    ServedPolicy::mode(agent, memo)
}

/// Trains until learning fails, in five episodes at most, and says why.
pub fn failure(agent: &mut dyn Agent, env: &TabularEnv) -> String {
    let mut play = Play::new(Box::new(NativeLanes::new(1, 3, Purpose::Env, || Box::new(env.clone()))));
    let mut clock = Clock::default();
    loop {
        if let Err(error) = play.train(agent, &mut clock) {
            return error.to_string();
        }
        assert!(clock.episodes < 5, "the fifth episode brings an update at last");
    }
}

/// The contents of a part that was saved whole.
pub fn find(saved: &[Part], name: &str) -> Option<Vec<u8>> {
    let part = saved.iter().find(|part| part.name == name)?;
    Some(part.bytes().expect("nothing is in a store yet").to_vec())
}

/// Saving and restoring must go on bit for bit, and refuse what does not fit.
pub fn goes_on_after_restoring(make: &dyn Fn(&TabularEnv) -> Box<dyn Agent>) {
    let env = build("frozen-lake", &[("horizon", "20")]);
    let mut whole = make(&env);
    train(&mut *whole, &env, 0..11, 3);
    let saved = whole.save(&|_| false);
    let mut restored = make(&env);
    let part = |name: &str| find(&saved, name);
    restored.restore(&part).unwrap();
    train(&mut *whole, &env, 11..21, 4);
    train(&mut *restored, &env, 11..21, 4);
    assert_eq!(whole.save(&|_| false), restored.save(&|_| false));
    assert!(restored.restore(&|_| None).is_err());
    for Part { name: broken, .. } in &saved {
        let part = |name: &str| if name == broken { Some(b"nothing".to_vec()) } else { part(name) };
        assert!(restored.restore(&part).is_err(), "{broken}");
    }
    assert!(make(&build("asset-selling", &[])).restore(&part).is_err());
}
