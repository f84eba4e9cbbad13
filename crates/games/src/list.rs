//! The games by name, with their parameters.

use std::time::{Duration, Instant};

use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::env::{Env, EnvSpec};
use bqrl_mdp::problems::{Allowed, Parameter, Parameters, ProblemError, unknown};

use crate::asterix::Asterix;
use crate::breakout::Breakout;
use crate::draws::Script;
use crate::freeway::Freeway;
use crate::minatar::{MinAtar, Settings, Sticky, spec};
use crate::rules::{Action, Look, Rules};
use crate::seaquest::Seaquest;
use crate::space_invaders::SpaceInvaders;

/// The names of all games begin with this.
pub const PREFIX: &str = "minatar/";

/// A game as `bqrl envs` lists it.
#[derive(Clone, Copy)]
pub struct GameInfo {
    /// `minatar/breakout`, …
    pub name: &'static str,
    /// One line: the aim, and what gives points.
    pub summary: &'static str,
    /// How its planes are drawn.
    pub looks: &'static [Look],
    spec: fn(&str, &Settings) -> EnvSpec,
    actions: fn(&Settings) -> &'static [Action],
    make: fn(&str, Settings) -> Box<dyn Env>,
    replay: fn(&Settings, &[u8], &[f64]) -> Record,
    speed: fn(&Settings, Duration) -> f64,
}

static GAMES: [GameInfo; 5] = [
    info::<Breakout>("minatar/breakout", "Keep the ball in play with a paddle; a point for every brick."),
    info::<Asterix>("minatar/asterix", "Collect gold and avoid enemies; a point for every piece of gold."),
    info::<Freeway>(
        "minatar/freeway",
        "Lead a chicken across eight lanes of cars; a point for every crossing.",
    ),
    info::<Seaquest>(
        "minatar/seaquest",
        "Steer a submarine; a point for every enemy, and for the air left when six divers are rescued.",
    ),
    info::<SpaceInvaders>("minatar/space-invaders", "Shoot a block of aliens; a point for each."),
];

/// The parameters of every game.
pub static PARAMETERS: [Parameter; 5] = [
    Parameter {
        name: "sticky",
        default: "0.1",
        allowed: Allowed::Number(0.0, 1.0),
        meaning: "the probability with which the last action is repeated",
    },
    Parameter {
        name: "ramping",
        default: "true",
        allowed: Allowed::Flag,
        meaning: "whether the game becomes harder as it goes on",
    },
    Parameter {
        name: "actions",
        default: "all",
        allowed: Allowed::Text("all or minimal"),
        meaning: "all six actions, or only those that have an effect in the game",
    },
    Parameter {
        name: "horizon",
        default: "10000",
        allowed: Allowed::Count(1, 1_000_000),
        meaning: "the largest number of steps of a game",
    },
    Parameter {
        name: "horizon_is_task",
        default: "false",
        allowed: Allowed::Flag,
        meaning: "whether the horizon is part of the task, or only a cut-off",
    },
];

const fn info<G: Rules>(name: &'static str, summary: &'static str) -> GameInfo {
    GameInfo {
        name,
        summary,
        looks: G::LOOKS,
        spec: spec::<G>,
        actions: Settings::actions::<G>,
        make: |name, settings| Box::new(MinAtar::<G>::new(name, settings)),
        replay: replay::<G>,
        speed: speed::<G>,
    }
}

/// Every game.
pub fn list() -> &'static [GameInfo] {
    &GAMES
}

/// The names that [`build`] knows.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    GAMES.iter().map(|info| info.name)
}

/// A game and how it is played.
#[derive(Clone, Copy)]
pub struct Game {
    info: &'static GameInfo,
    /// How it is played.
    pub settings: Settings,
}

/// A game from its name and `key=value` pairs; the other parameters have their defaults.
pub fn build(name: &str, parameters: &[(String, String)]) -> Result<Game, ProblemError> {
    let info = GAMES.iter().find(|info| info.name == name).ok_or_else(|| unknown(name, names()))?;
    let parameters = Parameters::new(info.name, &PARAMETERS, parameters)?;
    let minimal = match parameters.text("actions").trim() {
        "all" => false,
        "minimal" => true,
        _ => return Err(parameters.refuse("actions", "all or minimal".to_owned())),
    };
    let settings = Settings {
        sticky: parameters.number("sticky"),
        ramping: parameters.flag("ramping"),
        minimal,
        horizon: parameters.count("horizon"),
        horizon_is_task: parameters.flag("horizon_is_task"),
        discount: 1.0,
    };
    Ok(Game { info, settings })
}

impl Game {
    /// The listed facts.
    pub fn info(&self) -> &'static GameInfo {
        self.info
    }

    /// The facts that an agent may know.
    pub fn spec(&self) -> EnvSpec {
        (self.info.spec)(self.info.name, &self.settings)
    }

    /// The names of its actions.
    pub fn actions(&self) -> Vec<String> {
        (self.info.actions)(&self.settings).iter().map(|action| action.name().to_owned()).collect()
    }

    /// The environment.
    pub fn env(&self) -> Box<dyn Env> {
        (self.info.make)(self.info.name, self.settings)
    }

    /// Plays these actions (numbers of the six) with these random draws, and starts again after every end. The horizon does
    /// not apply. For comparisons with other implementations.
    pub fn replay(&self, actions: &[u8], draws: &[f64]) -> Record {
        (self.info.replay)(&self.settings, actions, draws)
    }

    /// Steps a second on one core, with random actions, observations written as bits: the fastest of many short rounds.
    pub fn speed(&self, time: Duration) -> f64 {
        (self.info.speed)(&self.settings, time)
    }
}

/// The result of [`Game::replay`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Observations: the first of every game, and that of every step.
    pub words: Vec<u64>,
    /// Points, per step.
    pub rewards: Vec<u32>,
    /// Whether the game ended, per step.
    pub ends: Vec<bool>,
    /// How many draws were used.
    pub draws: usize,
}

fn replay<G: Rules>(settings: &Settings, actions: &[u8], draws: &[f64]) -> Record {
    let mut draws = Script::new(draws);
    let mut record = Record::default();
    let mut play: Option<Sticky<G>> = None;
    for &action in actions {
        let mut current = play.take().unwrap_or_else(|| {
            let play: Sticky<G> = Sticky::start(&mut draws);
            record.words.extend(play.words().as_ref());
            play
        });
        let action = Action::ALL[usize::from(action) % Action::ALL.len()];
        let outcome = current.step(action, settings, &mut draws);
        record.words.extend(current.words().as_ref());
        record.rewards.push(outcome.reward);
        record.ends.push(outcome.over);
        play = (!outcome.over).then_some(current);
    }
    record.draws = draws.used();
    record
}

/// Steps of a round, and so random actions that are drawn beforehand. Short, so that most rounds are not interrupted by other work.
const ROUND: usize = 1 << 12;

fn speed<G: Rules>(settings: &Settings, time: Duration) -> f64 {
    let (mut rng, mut choices) = (stream(0, Purpose::Env), stream(0, Purpose::Agent));
    let offered = settings.actions::<G>();
    let actions: Vec<Action> = (0..ROUND).map(|_| offered[choices.below(offered.len())]).collect();
    let mut play: Sticky<G> = Sticky::start(&mut rng);
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while best.is_infinite() || start.elapsed() < time {
        let round = Instant::now();
        for &action in &actions {
            let outcome = play.step(action, settings, &mut rng);
            std::hint::black_box((outcome.reward, play.words()));
            if outcome.over {
                play = Sticky::start(&mut rng);
                std::hint::black_box(play.words());
            }
        }
        best = best.min(round.elapsed().as_secs_f64());
    }
    ROUND as f64 / best
}
