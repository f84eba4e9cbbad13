use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::End;

use super::*;
use crate::Kernels;
use crate::experience::encode::StateEncoding;

fn config() -> Config {
    Config {
        n_critics: 2,
        hidden: vec![8],
        n_targets: 4,
        ramps: vec![],
        weights: vec![0.25, 1.0],
        return_low: 0.0,
        return_high: 4.0,
        behaviour_tau: vec![0.1, 0.9],
        thompson_decay: Span::episodes(100.0),
        prior_scale: 1.0,
        prior_decay: Span::episodes(100.0),
        root_margin: 0.0,
        zeta: 0.1,
        output_scale: 1.0,
        output_bias: 0.0,
        learning_rate: 1e-3,
        learning_rate_extra: 0.0,
        learning_rate_decay: Span::episodes(100.0),
        weight_decay: 0.0,
        weight_decay_decay: Span::episodes(100.0),
        batch_size: 64,
        replay_capacity: 100,
        learning_starts: 1,
        updates_per_root: 1.0,
        updates_per_step: 1.0,
        bootstrap: 1.0,
        imagined: 0.0,
        imagined_decay: 100.0,
        state_encoding: StateEncoding::OneHot,
        stage_thermometer: 0,
        kernels: Kernels::Scalar,
    }
}

fn spec() -> EnvSpec {
    EnvSpec {
        name: "test".into(),
        observations: ObservationSpace::Discrete { n: 3, ordered: false },
        n_actions: 2,
        horizon: 5,
        horizon_is_task: true,
        reward_bounds: Some((0.0, 2.0)),
        discount: 1.0,
        stationary: false,
        known_rewards: None,
        terminal: None,
    }
}

#[test]
fn a_minibatch_is_sorted_by_action_and_keeps_rewards_ends_and_next_inputs_together() {
    // Five transitions in stages 0..4 with reward k = stage; the last ends.
    let spec = spec();
    let mut replay = Replay::new(100, 1, &spec.observations);
    let observation = Observation::Index(1);
    for k in 0..5 {
        let x = Input { stage: k, observation: &observation, collected: 0.0 };
        let next = Input { stage: k + 1, observation: &observation, collected: 0.0 };
        let end = if k == 4 { End::Terminated } else { End::Cutoff };
        replay.store(0, &Transition { x, action: k % 2, reward: k as f64, next, end });
    }
    let encoder = Encoder::new(&spec, StateEncoding::OneHot, 1.0).without_collected();
    let mut batch = Minibatch::default();
    batch.draw(&config(), 2, &replay, &encoder, &mut stream(1, Purpose::Test));
    let (width, stage) = (encoder.width(), 3);
    let rows = batch.rows.concat();
    for s in 0..batch.len() {
        let k = (rows[s * width + stage] * 5.0).round();
        assert_eq!(batch.rewards[s], f64::from(k));
        assert!(batch.of_action(k as usize % 2).contains(&s));
        assert_eq!(batch.done[s], k == 4.0);
        if !batch.done[s] {
            assert_eq!((batch.next_rows[s * width + stage] * 5.0).round(), k + 1.0);
        }
    }
}

#[test]
fn imagined_trials_keep_an_action_attractive_where_it_was_never_tried() {
    // One step each: action 1 fails in states 0 and 1 and is never tried in state 2, where action 0 earns half of the range.
    let untried = |imagined: f64| {
        let settings =
            Config { imagined, imagined_decay: 1e6, output_scale: 0.01, output_bias: 3.0, ..config() };
        let settings = Config { learning_rate: 1e-2, updates_per_root: 1e3, prior_scale: 0.0, ..settings };
        let mut agent = TargetTracking::new(settings, &spec(), 1, 3).unwrap();
        for episode in 0..300 {
            let state = Observation::Index(episode % 3);
            let (action, reward) = if episode % 3 == 2 { (0, 2.0) } else { (1, 0.0) };
            let x = Input { stage: 0, observation: &state, collected: 0.0 };
            let next = Input { stage: 1, observation: &state, collected: reward };
            agent.store(0, &Transition { x, action, reward, next, end: End::Terminated }).unwrap();
            agent.learn(&Clock::default()).unwrap();
        }
        let x = Input { stage: 0, observation: &Observation::Index(2), collected: 0.0 };
        // P of the target 2, the third of five, weight 1.
        agent.values(&x, 0..20, None)[1][2 * 5]
    };
    let (without, with) = (untried(0.0), untried(0.01));
    assert!(without < 0.5 && with > 0.8, "{without} {with}");
}

#[test]
fn a_target_is_chosen_for_all_starts_together() {
    let mut agent = TargetTracking::new(config(), &spec(), 1, 3).unwrap();
    let starts = [Observation::Index(0), Observation::Index(2)];
    let mut alone = Vec::new();
    for start in &starts {
        agent.starts = vec![start.clone()];
        alone.push(agent.root(None));
    }
    // Three episodes from 0, one from 2.
    agent.starts = [0, 0, 1, 0].map(|k: usize| starts[k].clone()).to_vec();
    for (output, value) in agent.root(None).into_iter().enumerate() {
        assert!((value - 0.75 * alone[0][output] - 0.25 * alone[1][output]).abs() < 1e-9);
    }
}

#[test]
fn a_new_grid_keeps_what_was_known_of_targets_that_both_grids_have() {
    // Targets 0, 1, 2, 3, 4 become 0, 2, 4, 6, 8. P of 0, 2 and 4 is kept; beyond 4 it is that of 4.
    let settings = Config { return_low: 0.0, return_high: 0.0, prior_scale: 0.0, ..config() };
    let mut agent = TargetTracking::new(settings, &EnvSpec { reward_bounds: None, ..spec() }, 1, 3).unwrap();
    let from = Grid { low: 0.0, high: 4.0, n: 4 };
    let observation = Observation::Index(1);
    let x = Input { stage: 2, observation: &observation, collected: 1.5 };
    let before = agent.values(&x, 0..20, Some(1));
    while agent.grid.grid().high < 8.0 {
        agent.grid.observe(0, 0.0, 8.0, true);
    }
    assert_eq!(agent.grid.grid(), Grid { low: 0.0, high: 8.0, n: 4 });
    agent.regrid(&from);
    let after = agent.values(&x, 0..20, Some(1));
    for a in 0..2 {
        for weight in 0..2 {
            let p = |values: &[Vec<f64>], i: usize| values[a][2 * (2 * i + weight)];
            for (new, old) in [(0, 0), (1, 2), (2, 4), (3, 4), (4, 4)] {
                assert!((p(&after, new) - p(&before, old)).abs() < 1e-5, "target {new}");
            }
            // The mean is halved on the new scale: exactly at .2 and .8 of the old, nearly between.
            let e = |values: &[Vec<f64>], i: usize| values[a][2 * (2 * i + weight) + 1];
            let (new, old) = (e(&after, 2), e(&before, 4));
            assert!((new - 0.5 * old).abs() < 0.05, "{new} {old}");
        }
    }
}
