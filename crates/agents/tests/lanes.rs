//! Every agent in several lanes: reproducible, saved in the middle of episodes, and undisturbed by episodes that are given
//! up.

mod common;

use bqrl_agents::play::{Learning, Play, Player};
use bqrl_agents::policy_gradient::TableConfig;
use bqrl_agents::quantile_critics::CriticConfig;
use bqrl_agents::{
    Agent, LearnError, Memo, Objective, ServedPolicies, ServedPolicy, Target, Transition, Waiting, deep_bqrl,
    ppo, qppo, qr_dqn, target_tracking, trpo, ucb_bqrl, var_q,
};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::Purpose;
use bqrl_math::schedule::{Clock, Span};
use bqrl_mdp::env::{Env, EnvSpec};
use bqrl_mdp::evaluate::Evaluator;
use bqrl_mdp::lanes::NativeLanes;
use bqrl_mdp::model::{Data, Kernel, Model, Outcome, Problem};
use bqrl_mdp::tabular::TabularEnv;
use bqrl_mdp::trajectory::Observation;

use common::{build, critics, find};

const LANES: usize = 3;

/// Five states in a row, of which the last ends the episode. Three of them can be the first, rewards come on the way and
/// are discounted, and episodes are one to twelve steps long: whatever an agent keeps per episode differs between lanes.
fn ladder() -> TabularEnv {
    let outcome = |probability, next, reward| Outcome { probability, next, reward };
    let rows = (0..4).flat_map(|s| {
        [
            (s, 0, outcome(0.7, s, 0.5)),
            (s, 0, outcome(0.3, s + 1, 0.0)),
            (s, 1, outcome(0.6, s + 1, 1.0)),
            (s, 1, outcome(0.3, s, 0.0)),
            (s, 1, outcome(0.1, 4, -1.0)),
        ]
    });
    let kernel = Kernel::new(5, 2, rows).unwrap();
    let model = Model::new(vec![kernel], 12, 0.9, vec![(0, 0.5), (1, 0.3), (2, 0.2)]).unwrap();
    let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    TabularEnv::new(Problem {
        name: "ladder".into(),
        model,
        states: labels(&["0", "1", "2", "3", "top"]),
        actions: labels(&["wait", "climb"]),
        ordered: false,
        data: Data::default(),
    })
}

fn play(env: &TabularEnv, seed: u64) -> Play {
    Play::new(Box::new(NativeLanes::new(LANES, seed, Purpose::Env, || Box::new(env.clone()))))
}

fn level() -> Buffer {
    Buffer::new(0.5, 0.2).unwrap()
}

fn deep_bqrl(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = deep_bqrl::Config {
        lambda_0: 1.0,
        lambda_decay: Span::episodes(100.0),
        score: deep_bqrl::Score::Buffered,
        tie_break: 0.1,
        critics: critics(),
    };
    Box::new(deep_bqrl::DeepBqrl::new(config, level(), spec, LANES, 3).unwrap())
}

fn qr_dqn(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = qr_dqn::Config { epsilon: 0.1, critic_discount: 1.0, critics: critics() };
    Box::new(qr_dqn::QrDqn::new(config, spec, LANES, 3).unwrap())
}

fn target_tracking(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = target_tracking::Config {
        epsilon: 0.0,
        ramps: vec![0.5],
        critics: CriticConfig { hidden: vec![8], batch_size: 16, replay_capacity: 10_000, ..critics() },
    };
    Box::new(target_tracking::TargetTracking::new(config, spec, LANES, 3).unwrap())
}

fn ucb_bqrl(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = ucb_bqrl::Config {
        radius_scale: 0.3,
        delta: 0.1,
        stationary: true,
        objective: ucb_bqrl::Objective::Point,
        output: ucb_bqrl::Output::Nominal,
        prior: ucb_bqrl::Prior::Adaptive,
        prior_strength: 0.25,
        slack: 1.0,
        replan_every: 5,
        max_returns: 200,
    };
    Box::new(ucb_bqrl::UcbBqrl::new(config, level(), spec).unwrap())
}

fn ppo(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = ppo::Config {
        epochs: 3,
        minibatch_size: 16,
        clip: 0.2,
        learning_rate: 0.2,
        learning_rate_decay: Span::episodes(1000.0),
        entropy_bonus: 0.01,
        target_kl: 0.0,
        tables: TableConfig {
            episodes_per_update: 5,
            gae_lambda: 0.5,
            value_rate: 0.01,
            value_prior: 1.0,
            stage_widths: vec![1, 128],
        },
    };
    Box::new(ppo::Ppo::new(config, spec, 3).unwrap())
}

fn trpo(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = trpo::Config {
        max_kl: 0.06,
        max_kl_decay: Span::episodes(1000.0),
        damping: 0.1,
        cg_iterations: 20,
        line_search_steps: 10,
        backtrack_factor: 0.7,
        tables: TableConfig {
            episodes_per_update: 5,
            gae_lambda: 0.5,
            value_rate: 0.01,
            value_prior: 1.0,
            stage_widths: vec![1, 128],
        },
    };
    Box::new(trpo::Trpo::new(config, spec, 3).unwrap())
}

fn qppo(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = qppo::Config {
        stage_bins: 3,
        collected_bins: 2,
        batch_episodes: 5,
        epochs: 2,
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
    };
    Box::new(qppo::Qppo::new(config, level(), spec, 3).unwrap())
}

fn var_q(spec: &EnvSpec) -> Box<dyn Agent> {
    let config = var_q::Config {
        n_levels: 10,
        kappa: 0.01,
        initial_value: 1.0,
        step_0: 1.0,
        step_decay: 30.0,
        epsilon_0: 0.3,
        epsilon_decay: Span::episodes(300.0),
        replay_episodes: 2,
        share_stages: false,
        tie_tolerance: 0.01,
        reward_scale: 0.0,
    };
    Box::new(var_q::VarQ::new(config, level(), spec, 3).unwrap())
}

type Make = fn(&EnvSpec) -> Box<dyn Agent>;

/// The agents that learn from whole episodes.
const WHOLE_EPISODES: [(&str, Make); 4] = [("ppo", ppo), ("trpo", trpo), ("qppo", qppo), ("var-q", var_q)];
/// The others.
const STEP_BY_STEP: [(&str, Make); 4] = [
    ("deep-bqrl", deep_bqrl),
    ("qr-dqn", qr_dqn),
    ("target-tracking", target_tracking),
    ("ucb-bqrl", ucb_bqrl),
];

fn all() -> impl Iterator<Item = (&'static str, Make)> {
    STEP_BY_STEP.into_iter().chain(WHOLE_EPISODES)
}

fn train(play: &mut Play, agent: &mut dyn Agent, clock: &mut Clock, ticks: usize) {
    (0..ticks).for_each(|_| drop(play.train(agent, clock).unwrap()));
}

/// Two agents must keep the same.
fn same(one: &dyn Agent, other: &dyn Agent, when: &str) {
    let (parts, others) = (one.save(&|_| false), other.save(&|_| false));
    assert_eq!(parts.len(), others.len(), "{when}: parts");
    for (part, other) in parts.iter().zip(&others) {
        assert!(part == other, "{when}: {} differs", part.name);
    }
    assert!(one.weights() == other.weights(), "{when}: weights differ");
}

#[test]
fn training_in_three_lanes_is_a_function_of_the_seed() {
    let env = ladder();
    for (name, make) in all() {
        let run = |seed| {
            let (mut agent, mut clock) = (make(env.spec()), Clock::default());
            train(&mut play(&env, seed), &mut *agent, &mut clock, 200);
            assert!(agent.updates() > 5 && clock.steps == 600, "{name}: {}, {clock:?}", agent.updates());
            (agent.save(&|_| false), agent.weights())
        };
        assert!(run(1) == run(1), "{name}");
        assert!(run(1) != run(2), "{name}: the seed has no effect");
    }
}

#[test]
fn saved_in_the_middle_of_episodes_training_continues_bit_for_bit() {
    let env = ladder();
    for (name, make) in all() {
        // After several numbers of ticks, so that lanes are caught at different stages, and batches half full.
        for ticks in [1, 2, 6, 30, 62] {
            let (mut whole, mut whole_play, mut clock) = (make(env.spec()), play(&env, 7), Clock::default());
            train(&mut whole_play, &mut *whole, &mut clock, ticks);
            assert!(whole_play.is_open(), "{name}: want an open episode after {ticks} ticks");
            let saved = whole.save(&|_| false);
            // As a checkpoint would: in JSON.
            let saved_play = serde_json::to_vec(&whole_play.save()).unwrap();

            let (mut again, mut again_play, mut again_clock) = (make(env.spec()), play(&env, 8), clock);
            let part = |name: &str| find(&saved, name);
            again.restore(&part).unwrap();
            again_play.restore(serde_json::from_slice(&saved_play).unwrap()).unwrap();
            assert!(again.save(&|_| false) == saved, "{name}: what is restored is not what was saved");

            train(&mut whole_play, &mut *whole, &mut clock, 200);
            train(&mut again_play, &mut *again, &mut again_clock, 200);
            same(&*whole, &*again, &format!("{name}, saved after {ticks} ticks"));
            assert_eq!((clock, whole_play.save()), (again_clock, again_play.save()), "{name}");
        }
    }
}

#[test]
fn policies_that_are_evaluated_together_are_those_that_decide_alone() {
    let env = ladder();
    let evaluator = Evaluator::rounded_down(&env.problem().model, 200);
    let levels = [0.1, 0.5, 0.9].map(|tau| Buffer::new(tau, tau).unwrap());
    for (name, make) in all() {
        let (mut agent, mut clock) = (make(env.spec()), Clock::default());
        train(&mut play(&env, 5), &mut *agent, &mut clock, 200);
        let served = agent.serve(&levels, Objective::Quantile);
        for mode in [false, true] {
            let together = evaluator.evaluate_all(&ServedPolicies::new(&*agent, served.memos(), mode));
            assert_eq!(together.len(), served.memos().len(), "{name}");
            for (memo, together) in served.memos().iter().zip(together) {
                let policy = ServedPolicy::new(&*agent, memo);
                let alone = if mode { ServedPolicy::mode(&*agent, memo) } else { policy };
                assert_eq!(evaluator.evaluate(&alone), together, "{name}, mode {mode}");
            }
        }
    }
}

/// An agent that learns from actions that it did not choose: its own random streams stay where they are.
struct Watching<'a>(&'a mut dyn Agent);

impl Player for Watching<'_> {
    fn begin(&mut self, lane: usize, start: &Observation) -> Memo {
        self.0.begin(&Clock::default(), lane, start)
    }

    fn act(&mut self, lanes: &[usize], waiting: &[Waiting]) -> Vec<usize> {
        lanes.iter().zip(waiting).map(|(lane, waiting)| (lane + waiting.x.stage) % 2).collect()
    }

    fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.0.store(lane, transition)
    }

    fn tick_is_over(&mut self) -> Result<(), LearnError> {
        self.0.learn(&Clock::default())
    }
}

#[test]
fn episodes_that_are_given_up_leave_no_trace_in_agents_that_learn_from_whole_ones() {
    // One agent watches 1 to 5 of the 6 steps of an episode in every lane, which is then given up. Another starts there.
    // All that follows is the same for both, and so must be everything that they keep.
    let env = build("gamble-chain", &[("horizon", "6")]);
    for (name, make) in WHOLE_EPISODES {
        for half in 1..6 {
            let (mut disturbed, mut disturbed_play) = (make(env.spec()), play(&env, 5));
            for _ in 0..half {
                let (_, finished) = disturbed_play.tick(&mut Watching(&mut *disturbed)).unwrap();
                assert!(finished.is_empty(), "{name}: the episode was to be half of one");
            }
            assert!(disturbed_play.is_open());
            disturbed_play.abandon();
            assert!(!disturbed_play.is_open());

            let (mut fresh, mut fresh_play) = (make(env.spec()), play(&env, 5));
            fresh_play.restore(disturbed_play.save()).unwrap();
            let mut episodes = 0;
            for _ in 0..6 * 4 {
                let (_, finished) = disturbed_play.tick(&mut Watching(&mut *disturbed)).unwrap();
                assert_eq!(fresh_play.tick(&mut Watching(&mut *fresh)).unwrap().1, finished);
                episodes += finished.len();
            }
            assert!(episodes == 4 * LANES && fresh.updates() > 0, "{name}: {episodes} episodes");
            same(&*disturbed, &*fresh, &format!("{name}, after {half} steps that were given up"));
        }
    }
}

/// A learner that is watched: every decision must be made with the memo that the lane's episode began with.
struct Holding<'a> {
    learner: Learning<'a>,
    held: &'a mut Vec<Option<Memo>>,
    /// How often two lanes waited with different targets.
    different: &'a mut usize,
}

impl Player for Holding<'_> {
    fn begin(&mut self, lane: usize, start: &Observation) -> Memo {
        let memo = self.learner.begin(lane, start);
        assert!(memo.target.is_some(), "an episode holds a target");
        self.held[lane] = Some(memo);
        memo
    }

    fn act(&mut self, lanes: &[usize], waiting: &[Waiting]) -> Vec<usize> {
        let actions = self.learner.act(lanes, waiting);
        for ((&lane, waiting), &action) in lanes.iter().zip(waiting).zip(&actions) {
            let held = self.held[lane].expect("the lane is in an episode");
            assert_eq!(*waiting.memo, held, "lane {lane}, stage {}", waiting.x.stage);
            // The action is the one for this lane's target, not for that of the episode that began last.
            let mut choice = Vec::new();
            self.learner.agent.decide(&held, &waiting.x, &mut choice);
            assert_eq!(choice, [(action, 1.0)], "lane {lane}, stage {}", waiting.x.stage);
        }
        let targets: Vec<Option<Target>> = waiting.iter().map(|waiting| waiting.memo.target).collect();
        *self.different += usize::from(targets.windows(2).any(|pair| pair[0] != pair[1]));
        actions
    }

    fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        if transition.end.is_over() {
            self.held[lane] = None;
        }
        self.learner.observe(lane, transition)
    }

    fn tick_is_over(&mut self) -> Result<(), LearnError> {
        self.learner.tick_is_over()
    }
}

#[test]
fn every_lane_holds_its_own_target_for_its_whole_episode() {
    let env = ladder();
    let (mut agent, mut play) = (target_tracking(env.spec()), play(&env, 1));
    let (mut held, mut different, mut clock) = (vec![None; LANES], 0, Clock::default());
    let mut lengths = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let learner = Learning { agent: &mut *agent, clock };
        let mut player = Holding { learner, held: &mut held, different: &mut different };
        let (steps, finished) = play.tick(&mut player).unwrap();
        lengths.extend(finished.iter().map(|episode| episode.length));
        clock.steps += steps as u64;
        clock.episodes += finished.len() as u64;
    }
    // The test would see nothing if lanes took turns in step or all had the same target.
    assert!(lengths.len() > 5, "{lengths:?}");
    assert!(different > 100, "{different} ticks with different targets");
}
