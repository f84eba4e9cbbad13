//! What UCB-BQRL's plans cost as the state space grows: `cargo run --release -p bqrl-agents --example ucb_cost`.
//!
//! Plays 100 episodes of each problem and prints a row of the table in docs/agents/ucb-bqrl.md. Plans are
//! made in `learn`, so its time is the time of planning; the rest is acting, counting and the simulator.

#![allow(clippy::print_stdout, clippy::print_stderr)] // It prints what it found.

use std::time::{Duration, Instant};

use bqrl_agents::play::{Learning, Play, Player};
use bqrl_agents::ucb_bqrl::{Config, Objective, Output, Prior, UcbBqrl};
use bqrl_agents::{Agent, LearnError, Memo, Transition, Waiting};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, stream};
use bqrl_math::schedule::Clock;
use bqrl_mdp::env::Env;
use bqrl_mdp::lanes::NativeLanes;
use bqrl_mdp::problems;
use bqrl_mdp::tabular::TabularEnv;
use bqrl_mdp::trajectory::Observation;

const EPISODES: u64 = 100;

/// A learner whose time in `learn` is added up.
struct Timed<'a> {
    player: Learning<'a>,
    planning: &'a mut Duration,
}

impl Player for Timed<'_> {
    fn begin(&mut self, lane: usize, start: &Observation) -> Memo {
        self.player.begin(lane, start)
    }

    fn act(&mut self, lanes: &[usize], waiting: &[Waiting]) -> Vec<usize> {
        self.player.act(lanes, waiting)
    }

    fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.player.observe(lane, transition)
    }

    fn tick_is_over(&mut self) -> Result<(), LearnError> {
        let begun = Instant::now();
        let learned = self.player.tick_is_over();
        *self.planning += begun.elapsed();
        learned
    }
}

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
    let env = TabularEnv::new(problem);
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
    let lanes = NativeLanes::new(1, 1000, Purpose::Env, || Box::new(env.clone()));
    let (mut play, mut clock) = (Play::new(Box::new(lanes)), Clock::default());
    let (started, before) = (Instant::now(), agent.updates());
    let mut planning = Duration::ZERO;
    while clock.episodes < EPISODES {
        let player = Learning { agent: &mut agent, clock };
        let (steps, finished) =
            play.tick(&mut Timed { player, planning: &mut planning }).expect("finite rewards");
        clock.steps += steps as u64;
        clock.episodes += finished.len() as u64;
    }
    let plans = agent.updates() - before;
    println!(
        "| {name} | {n_states} | {radius_scale} | {plans} | {:.4} | {:.1} % |",
        planning.as_secs_f64() / plans.max(1) as f64,
        100.0 * planning.as_secs_f64() / started.elapsed().as_secs_f64()
    );
}
