//! What target tracking learns, against what is exactly true.

mod common;

use bqrl_agents::play::Play;
use bqrl_agents::quantile_critics::CriticConfig;
use bqrl_agents::target_tracking::{Config, TargetTracking};
use bqrl_agents::{Agent, Input, LearnError, Memo, Objective, ServedPolicy, Target, Transition};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng};
use bqrl_math::schedule::Clock;
use bqrl_mdp::env::{Env, EnvSpec, ObservationSpace, Step};
use bqrl_mdp::evaluate::evaluate;
use bqrl_mdp::lanes::{EnvError, NativeLanes};
use bqrl_mdp::plan::Planner;
use bqrl_mdp::tabular::TabularEnv;
use bqrl_mdp::trajectory::{End, Observation};

use common::{build, critics, find, kernels_of_another_machine, memo, train};

fn config() -> Config {
    let critics = CriticConfig { n_quantiles: 64, n_critics: 1, zeta: 0.01, optimism: 3.0, ..critics() };
    Config { epsilon: 0.1, ramps: vec![0.3, 1.0], critics: CriticConfig { updates_per_step: 1.0, ..critics } }
}

fn levels() -> [Buffer; 3] {
    [0.1, 0.5, 0.9].map(|tau| Buffer::new(tau, tau).unwrap())
}

/// The least that each level is worth in steps of `unit`, over three seeds, one run each.
fn shortfalls(env: &TabularEnv, episodes: usize, settings: &Config) -> Vec<[f64; 3]> {
    let planner = Planner::exact(&env.problem().model, &|_, _, _| {}).unwrap();
    let best = [0.1, 0.5, 0.9].map(|tau| planner.best_quantile(tau).value);
    let one = |seed| {
        let mut agent = TargetTracking::new(settings.clone(), env.spec(), 1, seed).unwrap();
        train(&mut agent, env, 0..episodes, seed);
        let mut missing = [0.0; 3];
        for (k, memo) in agent.serve(&levels(), Objective::Quantile).memos().iter().enumerate() {
            let law = evaluate(&env.problem().model, &ServedPolicy::new(&agent, memo)).unwrap().law;
            missing[k] = best[k] - law.quantile([0.1, 0.5, 0.9][k]);
        }
        missing
    };
    [1, 2, 3].map(one).to_vec()
}

/// The backup of target tracking on a table, with exact laws in the place of networks: the K quantiles of the best law from the
/// start, the best action chosen at each level by itself.
fn envelope(env: &TabularEnv, k: usize) -> Vec<f64> {
    let model = &env.problem().model;
    let nothing = vec![0.0; k];
    let mut next = vec![nothing.clone(); model.n_states()];
    for stage in (0..model.horizon()).rev() {
        let best = |s: usize| {
            let of_action = |a: usize| {
                let mut atoms: Vec<(f64, f64)> = Vec::new();
                for outcome in model.outcomes(stage, s, a) {
                    let over = stage + 1 == model.horizon() || model.is_terminal(stage, outcome.next);
                    let after = if over { &nothing } else { &next[outcome.next] };
                    atoms.extend(after.iter().map(|z| (outcome.reward + z, outcome.probability / k as f64)));
                }
                atoms.sort_by(|x, y| x.0.total_cmp(&y.0));
                let mut quantiles = Vec::with_capacity(k);
                let mut below = 0.0;
                for (z, mass) in atoms {
                    below += mass;
                    while quantiles.len() < k && (quantiles.len() as f64 + 0.5) / k as f64 <= below + 1e-12 {
                        quantiles.push(z);
                    }
                }
                quantiles
            };
            let larger = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(x, y)| x.max(y)).collect();
            if model.is_terminal(stage, s) {
                return nothing.clone();
            }
            model.actions(stage, s).map(of_action).reduce(larger).expect("there is an action")
        };
        next = (0..model.n_states()).map(best).collect();
    }
    next.swap_remove(model.start()[0].0)
}

#[test]
fn the_fixed_point_is_the_best_quantile_at_every_level() {
    for (name, parameters) in [("asset-selling", vec![]), ("gamble-chain", vec![])] {
        let env = build(name, &parameters);
        let planner = Planner::exact(&env.problem().model, &|_, _, _| {}).unwrap();
        let curve = envelope(&env, 64);
        for tau in [0.1, 0.25, 0.5, 0.75, 0.9] {
            // The largest return that is reached with more than 1 − τ: the first quantile whose level exceeds τ − 1/2K.
            let reached = |g: f64| curve.iter().filter(|&&z| z >= g - 1e-9).count() as f64 / 64.0;
            let best = curve.iter().copied().filter(|&g| reached(g) > 1.0 - tau).fold(f64::MIN, f64::max);
            assert!((best - planner.best_quantile(tau).value).abs() < 1e-9, "{name} {tau}: {best}");
        }
    }
}

#[test]
fn one_run_reaches_the_best_quantile_at_three_levels_on_three_seeds() {
    // Nine offers k/8, five decisions from offer 2. Q*_τ ≥ k/8 exactly when (k/9)^4 < τ (k > 2), that is 5/8, 7/8 and 1.
    // The rule that imposes τ anew at every stage attains less at τ = .1, so that a time-inconsistent learner fails here.
    let env = build("asset-selling", &[("offers", "9"), ("horizon", "5"), ("start", "2")]);
    let planner = Planner::exact(&env.problem().model, &|_, _, _| {}).unwrap();
    assert_eq!([0.1, 0.5, 0.9].map(|tau| planner.best_quantile(tau).value), [0.625, 0.875, 1.0]);
    for missing in shortfalls(&env, 400, &config()) {
        // At τ = .1 P(R ≥ 5/8) ≤ .9047 leaves no slack to speak of: one offer less is allowed there.
        assert!(missing[0] <= 0.125 && missing[1] <= 0.0 && missing[2] <= 0.0, "{missing:?}");
    }
}

#[test]
fn a_level_is_served_best_by_its_own_policy_and_about_as_often_as_predicted() {
    let env = build("asset-selling", &[("offers", "9"), ("horizon", "5"), ("start", "2")]);
    let model = &env.problem().model;
    let start = Observation::Index(2);
    for seed in [1, 2, 3] {
        let mut agent = TargetTracking::new(config(), env.spec(), 1, seed).unwrap();
        train(&mut agent, &env, 0..800, seed);
        let law = |memo: &Memo| evaluate(model, &ServedPolicy::new(&agent, memo)).unwrap().law;
        let served = agent.serve(&levels(), Objective::Quantile);
        let laws: Vec<_> = served.memos().iter().map(law).collect();
        let predicted = agent.predictions(&Input { stage: 0, observation: &start, collected: 0.0 });
        for (k, (level, memo)) in levels().iter().zip(served.memos()).enumerate() {
            let tau = level.tau();
            let own = laws[k].quantile(tau);
            let others = laws.iter().map(|law| law.quantile(tau)).fold(f64::MIN, f64::max);
            assert!(own >= others, "seed {seed}, τ = {tau}: {own}, another level {others}");
            // P̂ is that of the best policy, so the mean must not decide.
            let target = memo.target.unwrap();
            let alone = Memo { target: Some(Target { weight: 1.0, ..target }), critic: None };
            let measured = law(&alone).probability_at_least(target.u);
            // The level-wise maximum over the two actions, each a column of 64 levels.
            let (sell, wait) = predicted.split_at(64);
            let reached = sell.iter().zip(wait).filter(|(a, b)| a.value.max(b.value) >= target.u).count();
            let p = reached as f64 / 64.0;
            // Measured .01 to .09 below: few episodes wait until the last offers, so that those are learned from few samples.
            assert!((p - measured).abs() <= 0.12, "seed {seed}, τ = {tau}: {p}, measured {measured}");
        }
    }
}

#[test]
fn the_same_run_serves_buffered_quantiles() {
    // As above. At τ = β = .1 the best is .381, the policy for the mean has .226 and those for the point quantile .27 to .32.
    let env = build("asset-selling", &[("offers", "9"), ("horizon", "5"), ("start", "2")]);
    let model = env.problem().model.clone();
    let planner = Planner::exact(&model, &|_, _, _| {}).unwrap();
    for seed in [1, 2, 3] {
        let mut agent = TargetTracking::new(config(), env.spec(), 1, seed).unwrap();
        train(&mut agent, &env, 0..800, seed);
        for (tau, beta) in [(0.1, 0.1), (0.5, 0.5), (0.9, 0.9), (0.5, 0.2)] {
            let level = Buffer::new(tau, beta).unwrap();
            let memo = memo(&agent, &level, Objective::Buffered);
            let worth =
                evaluate(&model, &ServedPolicy::new(&agent, &memo)).unwrap().law.buffered_quantile(&level);
            let best = planner.buffered(level, 200).mixture_upper;
            // For β < τ two widths are coarse.
            let least = if tau == beta { 0.95 } else { 0.9 };
            assert!(worth >= least * best, "seed {seed}, τ = {tau}, β = {beta}: {worth} of {best}");
        }
    }
}

#[test]
fn sums_of_rewards_are_tracked_and_their_range_is_found() {
    // Three gambles or sure ones: returns 0..9, where a step pays at most 3. Q* is 3, 4 and 7 at τ = .1, .5, .9, and the
    // best action depends on what was collected: at τ = .9 one plays safe after two wins (P(R ≥ 7) = .4², P(R ≥ 8) = .4³).
    let env = build("gamble-chain", &[("horizon", "3")]);
    let mut missing: Vec<f64> =
        shortfalls(&env, 500, &config()).iter().map(|missing| missing.iter().sum()).collect();
    missing.sort_by(f64::total_cmp);
    // An agent whose range stayed at what one step pays would end at 3 everywhere and miss by 0 + 1 + 4. One step less at one level
    // is allowed, for the last bits differ between machines; and one seed of three, because about a quarter of them (measured: 2 of 8)
    // lose their first gambles and give them up.
    assert!(missing[1] <= 1.0 && missing[0] <= 1.0, "{missing:?}");
}

#[test]
fn a_reward_far_away_is_found_in_ordered_states() {
    // Resting pays .005 a step, 0.1 in all. The mean of 3.4 is only had by swimming against the current for many steps, which pays nothing
    // until the far end. Optimism that is spent soon does not get there.
    let env = build("river-swim", &[]);
    let mut agent = TargetTracking::new(config(), env.spec(), 1, 1).unwrap();
    train(&mut agent, &env, 0..200, 1);
    let served = agent.serve(&levels(), Objective::Quantile);
    let law = evaluate(&env.problem().model, &ServedPolicy::new(&agent, &served.memos()[1])).unwrap().law;
    assert!(law.mean() > 2.0, "{}", law.mean());
}

#[test]
fn the_held_target_is_all_that_a_policy_adds_to_the_agent() {
    let env = build("asset-selling", &[("offers", "5"), ("horizon", "3"), ("start", "1")]);
    let mut agent = TargetTracking::new(config(), env.spec(), 1, 3).unwrap();
    train(&mut agent, &env, 0..40, 3);
    let before = agent.save(&|_| false);
    let served = agent.serve(&levels(), Objective::Quantile);
    assert!(served.is_per_level() && served.memos().len() == 3, "{served:?}");
    for (level, served) in levels().iter().zip(served.memos()) {
        // Each level's policy is the one that is served for it alone.
        assert_eq!(memo(&agent, level, Objective::Quantile), *served);
        let target = served.target.unwrap();
        assert!((0.0..=1.0).contains(&target.v) && target.u <= target.v && target.ramp == 0, "{target:?}");
        let holding = Memo { target: Some(target), critic: None };
        let (policy, held) = (ServedPolicy::new(&agent, served), ServedPolicy::new(&agent, &holding));
        for (stage, state) in (0..3).flat_map(|stage| (0..5).map(move |state| (stage, state))) {
            let observation = Observation::Index(state);
            let x = Input { stage, observation: &observation, collected: 0.0 };
            let (mut choice, mut of_target) = (Vec::new(), Vec::new());
            policy.decide(&x, &mut choice);
            held.decide(&x, &mut of_target);
            assert_eq!(choice, of_target);
        }
    }
    // Asking changes nothing.
    assert_eq!(agent.save(&|_| false), before);
}

#[test]
fn saving_and_restoring_goes_on_bit_for_bit() {
    // A gamble chain, so that the grid moves before and after.
    let env = build("gamble-chain", &[("horizon", "6")]);
    let make = |env: &TabularEnv| TargetTracking::new(config(), env.spec(), 1, 3).unwrap();
    let mut whole = make(&env);
    train(&mut whole, &env, 0..8, 3);
    let saved = whole.save(&|_| false);
    let mut restored = make(&env);
    let part = |name: &str| find(&saved, name);
    restored.restore(&part).unwrap();
    assert_eq!(restored.save(&|_| false), saved);
    train(&mut whole, &env, 8..60, 4);
    train(&mut restored, &env, 8..60, 4);
    assert_eq!(whole.save(&|_| false), restored.save(&|_| false));
    assert_eq!(whole.updates(), restored.updates());
    // What does not fit is refused.
    assert!(restored.restore(&|_| None).is_err());
    let mut other = make(&build("asset-selling", &[]));
    assert!(other.restore(&part).is_err());
}

/// Four steps of reward −1, then a cut-off; the stage is seen as a vector.
#[derive(Clone)]
struct Counting {
    spec: EnvSpec,
    stage: usize,
}

impl Counting {
    fn seen(stage: usize) -> Observation {
        Observation::Dense(vec![stage as f32, 0.5])
    }
}

impl Env for Counting {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _: &mut Rng) -> Observation {
        self.stage = 0;
        Self::seen(0)
    }

    fn step(&mut self, action: usize, _: &mut Rng) -> Step {
        assert!(action < 3);
        self.stage += 1;
        let end = if self.stage == 4 { End::Cutoff } else { End::NotYet };
        Step { observation: Self::seen(self.stage), reward: -1.0, end }
    }

    fn save(&self) -> Vec<u64> {
        vec![self.stage as u64]
    }

    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError> {
        self.stage = state[0] as usize;
        Ok(())
    }
}

#[test]
fn dense_observations_cut_offs_and_rewards_that_are_no_numbers() {
    // A vector in the place of an index, a time limit that is not part of the task, rewards without bounds.
    let spec = EnvSpec {
        name: "test".into(),
        observations: ObservationSpace::Dense(vec![2]),
        normalize_observations: true,
        n_actions: 3,
        horizon: 4,
        horizon_is_task: false,
        reward_bounds: None,
        discount: 1.0,
        stationary: false,
        known_rewards: None,
        terminal: None,
    };
    let mut agent = TargetTracking::new(config(), &spec, 1, 1).unwrap();
    let counting = Counting { spec, stage: 0 };
    let mut play = Play::new(Box::new(NativeLanes::new(1, 1, Purpose::Env, || Box::new(counting.clone()))));
    let mut clock = Clock::default();
    while clock.episodes < 5 {
        play.train(&mut agent, &mut clock).unwrap();
    }
    assert!(agent.updates() > 0);
    let (now, after) = (Counting::seen(0), Counting::seen(1));
    let x = Input { stage: 0, observation: &now, collected: 0.0 };
    let next = Input { stage: 1, observation: &after, collected: f64::NAN };
    let refused = agent.store(0, &Transition { x, action: 0, reward: f64::NAN, next, end: End::NotYet });
    assert!(matches!(refused, Err(LearnError::Reward { .. })));
}

#[test]
fn in_long_tasks_every_head_has_a_network_of_its_own_which_is_saved() {
    // Episodes of four steps, but up to 200 are possible.
    let spec = EnvSpec::new("long", ObservationSpace::Dense(vec![2]), 3, 200);
    let counting = Counting { spec: spec.clone(), stage: 0 };
    let lanes = || NativeLanes::new(1, 1, Purpose::Env, || Box::new(counting.clone()));
    let train = |agent: &mut TargetTracking, episodes: u64| {
        let (mut play, mut clock) = (Play::new(Box::new(lanes())), Clock::default());
        while clock.episodes < episodes {
            play.train(agent, &mut clock).unwrap();
        }
    };
    let make = || TargetTracking::new(Config { ramps: vec![], ..config() }, &spec, 1, 1).unwrap();
    let mut whole = make();
    train(&mut whole, 5);
    let saved = whole.save(&|_| false);
    let names = String::from_utf8_lossy(&whole.weights()).into_owned();
    assert!(names.contains("critic.1.layer.0.weight") && !names.contains("critic.2."), "envelope and mean");
    let mut restored = make();
    restored.restore(&|name: &str| find(&saved, name)).unwrap();
    assert_eq!(restored.save(&|_| false), saved);
    train(&mut whole, 5);
    train(&mut restored, 5);
    assert!(whole.updates() > 0);
    assert_eq!(whole.save(&|_| false), restored.save(&|_| false));
    // The units of the other trunks must be there.
    let forged = |name: &str| {
        let part = find(&saved, name)?;
        let text = String::from_utf8_lossy(&part).replace("other_units", "no_units");
        Some(if name == "agent.json" { text.into_bytes() } else { part })
    };
    let refused = restored.restore(&forged).unwrap_err().to_string();
    assert!(refused.contains("1 units, want 2"), "{refused}");
}

#[test]
fn wrong_settings_are_refused_with_key_value_and_range() {
    let env = build("asset-selling", &[]);
    let refused = |change: fn(&mut Config)| {
        let mut settings = config();
        change(&mut settings);
        TargetTracking::new(settings, env.spec(), 1, 3).map(drop).unwrap_err().to_string()
    };
    assert_eq!(refused(|c| c.critics.n_critics = 0), "agent.n_critics must lie in 1..=16, got 0");
    assert_eq!(refused(|c| c.epsilon = 1.5), "agent.epsilon must lie in [0, 1], got 1.5");
    assert_eq!(refused(|c| c.critics.zeta = 1.5), "agent.zeta must lie in (0, 1], got 1.5");
    assert_eq!(
        refused(|c| c.ramps = vec![0.0]),
        "agent.ramps must be at most 8 widths in (0, 10], got [0.0]"
    );
    assert_eq!(
        refused(|c| c.critics.updates_per_step = -1.0),
        "agent.updates_per_step must lie in [0, 1000], got -1"
    );
    assert_eq!(
        refused(|c| c.critics.optimism = f64::INFINITY),
        "agent.optimism must be a number in single precision, got inf"
    );
    assert!(
        refused(|c| c.critics.kernels = kernels_of_another_machine())
            .starts_with("agent.kernels must be auto")
    );
}
