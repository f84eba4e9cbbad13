//! Learning from vectors: the agents with networks on a problem whose observation is a number, and a noisy one.

mod common;

use bqrl_agents::play::{Play, Player};
use bqrl_agents::{
    Agent, LearnError, Memo, Objective, ServedPolicy, Transition, Waiting, deep_bqrl, qr_dqn, target_tracking,
};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::{Clock, Span};
use bqrl_mdp::env::{Env, EnvSpec, ObservationSpace, Step};
use bqrl_mdp::lanes::{EnvError, NativeLanes};
use bqrl_mdp::trajectory::{End, Observation};

use common::{critics, memo};

const HORIZON: usize = 10;

/// A point p on a line, to be brought to 0.
///
/// ```text
/// p_0     ~ U(−1, 1)
/// action  −.2, 0 or +.2, with noise U(−.05, .05)
/// seen    p + U(−.05, .05)
/// reward  max{0, 1 − |p|} after the tenth step, else 0
/// ```
#[derive(Clone)]
struct Line {
    spec: EnvSpec,
    position: f64,
    stage: usize,
}

impl Line {
    fn new() -> Self {
        let spec = EnvSpec::new("line", ObservationSpace::Dense(vec![1]), 3, HORIZON);
        let spec = EnvSpec { reward_bounds: Some((0.0, 1.0)), ..spec };
        Self { spec, position: 0.0, stage: 0 }
    }

    fn noise(rng: &mut Rng) -> f64 {
        0.1 * (rng.uniform() - 0.5)
    }

    fn look(&self, rng: &mut Rng) -> Observation {
        Observation::Dense(vec![(self.position + Self::noise(rng)) as f32])
    }
}

impl Env for Line {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, rng: &mut Rng) -> Observation {
        (self.position, self.stage) = (2.0 * rng.uniform() - 1.0, 0);
        self.look(rng)
    }

    fn step(&mut self, action: usize, rng: &mut Rng) -> Step {
        self.position += 0.2 * (action as f64 - 1.0) + Self::noise(rng);
        self.stage += 1;
        let over = self.stage == HORIZON;
        Step {
            observation: self.look(rng),
            reward: if over { (1.0 - self.position.abs()).max(0.0) } else { 0.0 },
            end: if over { End::Horizon } else { End::NotYet },
        }
    }

    fn save(&self) -> Vec<u64> {
        vec![self.position.to_bits(), self.stage as u64]
    }

    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError> {
        let [position, stage] = *state else { return Err(EnvError::new("want two numbers")) };
        (self.position, self.stage) = (f64::from_bits(position), stage as usize);
        Ok(())
    }
}

/// A player that does not learn: a served policy, or random actions.
enum Playing<'a> {
    Policy(ServedPolicy<'a>),
    Random(Box<Rng>),
}

impl Player for Playing<'_> {
    fn begin(&mut self, _: usize, _: &Observation) -> Memo {
        match self {
            Playing::Policy(policy) => policy.memo(),
            Playing::Random(_) => Memo::default(),
        }
    }

    fn act(&mut self, _: &[usize], waiting: &[Waiting]) -> Vec<usize> {
        match self {
            Playing::Policy(policy) => waiting.iter().map(|lane| policy.action(&lane.x)).collect(),
            Playing::Random(rng) => waiting.iter().map(|_| rng.below(3)).collect(),
        }
    }

    fn observe(&mut self, _: usize, _: &Transition) -> Result<(), LearnError> {
        Ok(())
    }

    fn tick_is_over(&mut self) -> Result<(), LearnError> {
        Ok(())
    }
}

fn lanes(n: usize, seed: u64, purpose: Purpose) -> Play {
    Play::new(Box::new(NativeLanes::new(n, seed, purpose, || Box::new(Line::new()))))
}

/// The mean return of 1000 episodes.
fn mean_return(player: &mut Playing) -> f64 {
    let mut play = lanes(10, 1, Purpose::Evaluation);
    let mut returns = Vec::new();
    while returns.len() < 1000 {
        returns.extend(play.tick(player).unwrap().1.iter().map(|episode| episode.episode_return));
    }
    returns.iter().sum::<f64>() / returns.len() as f64
}

/// The mean return of the policy for the median after this many episodes in two lanes.
fn learned(agent: &mut dyn Agent, episodes: u64, seed: u64) -> f64 {
    let (mut play, mut clock) = (lanes(2, seed, Purpose::Env), Clock::default());
    while clock.episodes < episodes {
        play.train(agent, &mut clock).unwrap();
    }
    let memo = memo(agent, &level(), Objective::Quantile);
    mean_return(&mut Playing::Policy(ServedPolicy::new(agent, &memo)))
}

fn level() -> Buffer {
    Buffer::new(0.5, 0.5).unwrap()
}

/// A bound far above the return of any policy that ignores its observations.
///
/// The moves of a policy that does not look are independent of p_0: the final p is p_0 + D. Over p_0 ~ U(−1, 1) the mean of
/// max{0, 1 − |p_0 + d|} is largest at d = 0, where it is ½. So no such policy earns more than .5, and chance earns less. Whoever
/// walks towards 0 is there after five steps and can stay within half a move, .1, and the noise: .9 or more. The mean of 1000
/// returns in 0..1 has a standard error of .016 at most: .8 is nineteen of them above ½.
const BOUND: f64 = 0.8;

#[test]
fn chance_earns_less_than_a_half() {
    let earned = mean_return(&mut Playing::Random(Box::new(stream(1, Purpose::Test))));
    assert!(earned < 0.5, "{earned}");
}

#[test]
fn deep_bqrl_learns_from_vectors() {
    for seed in [1, 2, 3] {
        let config = deep_bqrl::Config {
            lambda_0: 2.0,
            lambda_decay: Span::episodes(100.0),
            score: deep_bqrl::Score::Buffered,
            tie_break: 0.1,
            critics: critics(),
        };
        let mut agent = deep_bqrl::DeepBqrl::new(config, level(), Line::new().spec(), 2, seed).unwrap();
        let earned = learned(&mut agent, 300, seed);
        assert!(earned > BOUND, "seed {seed}: {earned}");
    }
}

#[test]
fn qr_dqn_learns_from_vectors() {
    for seed in [1, 2, 3] {
        let config = qr_dqn::Config { epsilon: 0.1, critic_discount: 1.0, critics: critics() };
        let mut agent = qr_dqn::QrDqn::new(config, Line::new().spec(), 2, seed).unwrap();
        let earned = learned(&mut agent, 300, seed);
        assert!(earned > BOUND, "seed {seed}: {earned}");
    }
}

#[test]
fn target_tracking_learns_from_vectors() {
    for seed in [1, 2, 3] {
        let config = target_tracking::Config { epsilon: 0.1, ramps: vec![], critics: critics() };
        let mut agent = target_tracking::TargetTracking::new(config, Line::new().spec(), 2, seed).unwrap();
        let earned = learned(&mut agent, 300, seed);
        assert!(earned > BOUND, "seed {seed}: {earned}");
    }
}
