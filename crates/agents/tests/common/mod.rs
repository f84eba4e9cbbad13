//! What the tests of agents share.

// Every test file uses a part of these.
#![allow(dead_code)]

use bqrl_agents::{Agent, Input, Transition};
use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::env::Env;
use bqrl_mdp::problems;
use bqrl_mdp::tabular::TabularEnv;

/// A built-in problem.
pub fn build(name: &str, parameters: &[(&str, &str)]) -> TabularEnv {
    let owned: Vec<(String, String)> = parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    TabularEnv::new(problems::build(name, &owned).unwrap())
}

/// Plays episodes, with rewards discounted as training does it.
pub fn train(agent: &mut dyn Agent, env: &mut TabularEnv, episodes: std::ops::Range<usize>, seed: u64) {
    let rng = &mut stream(seed, Purpose::Env);
    let discount = env.spec().discount;
    for episode in episodes {
        agent.begin_episode(episode);
        let mut observation = env.reset(rng);
        let (mut stage, mut collected) = (0, 0.0);
        loop {
            let x = Input { stage, observation: &observation, collected };
            let action = agent.act(&x);
            let step = env.step(action, rng);
            let reward = discount.powi(stage as i32) * step.reward;
            let next =
                Input { stage: stage + 1, observation: &step.observation, collected: collected + reward };
            agent.observe(&Transition { x, action, reward, next, end: step.end }).unwrap();
            (stage, collected) = (next.stage, next.collected);
            if step.end.is_over() {
                break;
            }
            observation = step.observation;
        }
    }
}

/// Saving and restoring must go on bit for bit, and refuse what does not fit.
pub fn goes_on_after_restoring(make: &dyn Fn(&TabularEnv) -> Box<dyn Agent>) {
    let mut env = build("frozen-lake", &[("horizon", "20")]);
    let mut whole = make(&env);
    train(&mut *whole, &mut env, 0..11, 3);
    let saved = whole.save(&|_| false);
    let mut restored = make(&env);
    let part = |name: &str| saved.iter().find(|part| part.name == name)?.bytes().map(<[u8]>::to_vec);
    restored.restore(&part).unwrap();
    train(&mut *whole, &mut env, 11..21, 4);
    train(&mut *restored, &mut env, 11..21, 4);
    assert_eq!(whole.save(&|_| false), restored.save(&|_| false));
    assert!(restored.restore(&|_| None).is_err());
    for broken in &saved {
        let part = |name: &str| if name == broken.name { Some(b"nothing".to_vec()) } else { part(name) };
        assert!(restored.restore(&part).is_err(), "{}", broken.name);
    }
    assert!(make(&build("asset-selling", &[])).restore(&part).is_err());
}
