//! A game, played at random or by a run, position by position.
//!
//! The server plays the whole game; the browser uncovers it. For an agent with a target, every position has the chance to reach it
//! as the agent sees it: the share of its predicted quantiles that reach the target, with the best action.

use bqrl_agents::{Input, Objective};
use bqrl_games::list::{Game, build, names};
use bqrl_games::picture::text;
use bqrl_lab::task::{Simulator, Task};
use bqrl_lab::train::Training;
use bqrl_lab::watch::{Sight, Watched, watch};
use bqrl_math::buffer::Buffer;
use bqrl_mdp::trajectory::Observation;
use hyper::body::Bytes;
use serde::Serialize;

use crate::request::Query;

/// The longest game that is shown; a longer one ends here.
const MOST_STEPS: usize = 2_000;

/// The answer to `GET /api/game`.
#[derive(Serialize)]
struct Played {
    name: String,
    actions: Vec<String>,
    looks: Vec<LookAnswer>,
    /// Episodes and steps that the agent was trained for; absent for random play.
    trained: Option<(u64, u64)>,
    /// Whether the level changes the policy.
    every_level: bool,
    /// The total that the agent aims at, if it has a target.
    target: Option<f64>,
    positions: Vec<Position>,
    /// Whether the game ended, or only what is shown of it.
    over: bool,
}

/// How a thing on the board is drawn.
#[derive(Serialize)]
struct LookAnswer {
    glyph: char,
    name: &'static str,
    colour: String,
    faint: bool,
}

#[derive(Serialize)]
struct Position {
    /// The glyph of every cell, row by row.
    cells: String,
    /// The action that led here.
    action: Option<usize>,
    /// The points so far.
    score: f64,
    /// The same discounted, which is what a target is about.
    collected: f64,
    /// The chance to reach the target.
    chance: Option<f64>,
}

/// The game that a query names, with its parameters.
pub fn named(query: &Query) -> Result<Game, String> {
    let name = query.get("game").unwrap_or_default();
    if !names().any(|known| known == name) {
        return Err(format!("there is no game {name:?}"));
    }
    build(name, &query.parameters()).map_err(|error| error.to_string())
}

/// Plays at random.
pub fn random(game: Game, seed: u64) -> Result<Bytes, String> {
    let task = Simulator::new(game.actions(), move || game.env());
    play(&game, &task, None, seed)
}

/// Plays as a run would at a level.
pub fn trained(game: Game, training: &Training, tau: f64, seed: u64) -> Result<Bytes, String> {
    let level = Buffer::new(tau, tau).map_err(|error| error.to_string())?;
    play(&game, training.task(), Some((training, level)), seed)
}

fn play(
    game: &Game,
    task: &dyn Task,
    player: Option<(&Training, Buffer)>,
    seed: u64,
) -> Result<Bytes, String> {
    let looks = game.info().looks;
    let served = player.map(|(training, level)| training.agent.serve(&[level], Objective::Quantile));
    let target = served.as_ref().and_then(|served| served.at(0).target);
    let discount = task.spec().discount;
    let mut positions: Vec<Position> = Vec::new();
    let mut over = false;
    let mut look = |sight: &Sight| {
        let Observation::Bits(words) = sight.observation else { return false };
        let last = positions.last();
        let reward = sight.total - last.map_or(0.0, |last| last.score);
        let before = sight.stage.saturating_sub(1) as i32;
        let collected = last.map_or(0.0, |last| last.collected) + discount.powi(before) * reward;
        over = sight.end.is_over();
        let chance = player.zip(target).map(|((training, _), target)| {
            if over {
                return f64::from(u8::from(collected >= target.u));
            }
            let x = Input { stage: sight.stage, observation: sight.observation, collected };
            chance(training, &x, target.u)
        });
        // Ten lines between two lines of the frame; each has a bar at both ends.
        let board = text(looks, words);
        let cells = board.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|')).collect();
        positions.push(Position { cells, action: sight.action, score: sight.total, collected, chance });
        positions.len() <= MOST_STEPS
    };
    let watched = player.map_or(Watched::Random, |(training, level)| Watched::Trained(training, level));
    watch(task, &watched, seed, None, &mut look).map_err(|error| error.to_string())?;
    let look = |look: &bqrl_games::rules::Look| {
        let [r, g, b] = look.colour;
        let colour = format!("#{r:02x}{g:02x}{b:02x}");
        LookAnswer { glyph: look.glyph, name: look.name, colour, faint: look.faint }
    };
    let clock = player.map(|(training, _)| training.progress.clock);
    let played = Played {
        name: game.info().name.to_owned(),
        actions: task.actions(),
        looks: looks.iter().map(look).collect(),
        trained: clock.map(|clock| (clock.episodes, clock.steps)),
        every_level: served.is_some_and(|served| served.is_per_level()),
        target: target.map(|target| target.v),
        positions,
        over,
    };
    Ok(serde_json::to_vec(&played).expect("plain numbers and text serialise").into())
}

/// The largest share, over actions, of the predicted quantiles of the whole return that reach a value.
fn chance(training: &Training, x: &Input, value: f64) -> f64 {
    let predictions = training.agent.predictions(x);
    let share = |action: usize| {
        let own = || predictions.iter().filter(move |p| p.action == action);
        own().filter(|p| p.value >= value).count() as f64 / own().count().max(1) as f64
    };
    let actions = predictions.iter().map(|p| p.action + 1).max().unwrap_or(0);
    (0..actions).map(share).fold(0.0, f64::max)
}
