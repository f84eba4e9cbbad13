//! What UCB-BQRL's plans cost as the state space grows: `cargo run --release -p bqrl-agents --example ucb_cost`.
//!
//! Plays 100 episodes of each problem and prints a row of the table in docs/agents/ucb-bqrl.md. A plan is made before an
//! episode, so the time of `begin_episode` is the time of planning; the rest is acting, counting and the simulator.

use std::time::{Duration, Instant};

use bqrl_agents::ucb_bqrl::{Config, Objective, Output, Prior, UcbBqrl};
use bqrl_agents::{Agent, Input, Transition};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::env::Env;
use bqrl_mdp::problems;
use bqrl_mdp::tabular::TabularEnv;

const EPISODES: usize = 100;

fn main() {
    println!("| problem | states | radius_scale | plans | seconds a plan | share of the run |");
    println!("|---|---|---|---|---|---|");
    for radius_scale in [0.0, 0.1] {
        for offers in [25, 50, 100, 200, 400] {
            measure("asset-selling", "offers", &offers.to_string(), 0.1, radius_scale);
        }
        for map in ["4x4", "8x8", &random_map(16)] {
            measure("frozen-lake", "map", map, 0.5, radius_scale);
        }
    }
}

/// A lake of this width: a hole in every fifth cell on average.
fn random_map(width: usize) -> String {
    let rng = &mut stream(1, Purpose::Test);
    let mut cells: Vec<char> =
        (0..width * width).map(|_| if rng.uniform() < 0.2 { 'H' } else { 'F' }).collect();
    (cells[0], cells[width * width - 1]) = ('S', 'G');
    cells.chunks(width).map(|row| row.iter().collect::<String>()).collect::<Vec<_>>().join("/")
}

fn measure(name: &str, key: &str, value: &str, tau: f64, radius_scale: f64) {
    let problem = problems::build(name, &[(key.to_owned(), value.to_owned())]).expect("a built-in problem");
    let n_states = problem.model.n_states();
    let mut env = TabularEnv::new(problem);
    let config = Config {
        radius_scale,
        delta: 0.1,
        stationary: true,
        objective: Objective::Point,
        output: Output::Nominal,
        prior: Prior::Adaptive,
        prior_strength: 0.25,
        slack: 1.0,
        replan_every: 0,
        max_returns: 16_384,
    };
    let level = Buffer::new(tau, tau).expect("a level");
    let mut agent = UcbBqrl::new(config, level, env.spec()).expect("settings that are allowed");
    let rng = &mut stream(1000, Purpose::Env);
    let (started, before) = (Instant::now(), agent.updates());
    let mut planning = Duration::ZERO;
    for episode in 0..EPISODES {
        let begun = Instant::now();
        agent.begin_episode(episode);
        planning += begun.elapsed();
        let mut observation = env.reset(rng);
        let (mut stage, mut collected) = (0, 0.0);
        loop {
            let x = Input { stage, observation: &observation, collected };
            let action = agent.act(&x);
            let step = env.step(action, rng);
            let reward = step.reward;
            let next =
                Input { stage: stage + 1, observation: &step.observation, collected: collected + reward };
            agent.observe(&Transition { x, action, reward, next, end: step.end }).expect("finite rewards");
            (stage, collected) = (next.stage, next.collected);
            if step.end.is_over() {
                break;
            }
            observation = step.observation;
        }
    }
    let plans = agent.updates() - before;
    println!(
        "| {name} | {n_states} | {radius_scale} | {plans} | {:.4} | {:.1} % |",
        planning.as_secs_f64() / plans.max(1) as f64,
        100.0 * planning.as_secs_f64() / started.elapsed().as_secs_f64()
    );
}
