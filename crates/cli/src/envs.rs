//! `bqrl envs`: the built-in problems and games, the parameters of one, and a problem as an MDP file.

use std::fmt::Write;
use std::path::PathBuf;

use bqrl_games::list::{self as games, Game};
use bqrl_mdp::csv;
use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::model::Problem;
use bqrl_mdp::problems::{self, Parameter, ProblemInfo};
use serde_json::json;

use crate::failure::Failure;
use crate::interrupt::Writes;
use crate::text;

/// Flags of `bqrl envs`.
#[derive(clap::Args)]
pub struct EnvsArgs {
    /// Show one problem or game only
    pub problem: Option<String>,
    /// A parameter of the problem, e.g. --env offers=40; may be repeated
    #[arg(long = "env", value_name = "KEY=VALUE", requires = "problem", value_parser = crate::problem::key_value)]
    pub parameters: Vec<(String, String)>,
    /// Write the problem's table as an MDP file
    #[arg(long, value_name = "FILE.csv", requires = "problem")]
    pub export: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Lists the problems, and exports one if asked.
pub fn run(args: &EnvsArgs) -> Result<String, Failure> {
    let Some(name) = &args.problem else {
        return Ok(if args.json { listing_json(problems::list()) } else { listing(problems::list()) });
    };
    let refused = |error| Failure::usage(error).hint("`bqrl envs` lists the problems and their parameters");
    if name.starts_with(games::PREFIX) {
        let game = games::build(name, &args.parameters).map_err(refused)?;
        if args.export.is_some() {
            return Err(Failure::usage(format!("{name} is a game, which has no table to export")));
        }
        return Ok(if args.json { game_json(&game) } else { game_detail(&game) });
    }
    let problem = problems::build(name, &args.parameters).map_err(refused)?;
    let info = problems::list().iter().find(|info| info.name == name).expect("it has just been built");
    if let Some(path) = &args.export {
        let mut file = Vec::new();
        csv::write(&problem, &mut file).map_err(Failure::usage)?;
        Writes::begin()?.write(path, &file)?;
    }
    Ok(if args.json { detail_json(info, &problem) } else { detail(info, &problem) })
}

fn listing(infos: &[ProblemInfo]) -> String {
    let mut out = String::new();
    let defaults = |parameters: &[Parameter]| {
        parameters.iter().map(|p| format!("{} = {}", p.name, p.default)).collect::<Vec<_>>().join(", ")
    };
    for info in infos {
        let _ = writeln!(out, "{}\n  {}\n  {}\n", info.name, info.summary, defaults(info.parameters));
    }
    for info in games::list() {
        let _ = writeln!(out, "{}\n  {}\n  {}\n", info.name, info.summary, defaults(&games::PARAMETERS));
    }
    out + "`bqrl envs NAME` explains the parameters, `bqrl plan NAME --env KEY=VALUE` solves the problem.\n\
         Games have no table: `bqrl train NAME` learns them, `bqrl play NAME` shows them.\n"
}

fn game_detail(game: &Game) -> String {
    let (info, spec) = (game.info(), game.spec());
    let mut out = format!("{}: {}\n\n", info.name, info.summary);
    for p in &games::PARAMETERS {
        let _ = writeln!(out, "  --env {}={}\n      {} ({})", p.name, p.default, p.meaning, p.allowed);
    }
    let planes: Vec<&str> = info.looks.iter().map(|look| look.name).collect();
    let _ = writeln!(
        out,
        "\n  {} planes of 10 × 10 bits ({}), {} actions ({}), horizon {}",
        planes.len(),
        planes.join(", "),
        spec.n_actions,
        game.actions().join(", "),
        spec.horizon
    );
    out
}

fn detail(info: &ProblemInfo, problem: &Problem) -> String {
    let model = &problem.model;
    let mut out = format!("{}: {}\n\n", info.name, info.summary);
    for p in info.parameters {
        let _ = writeln!(out, "  --env {}={}\n      {} ({})", p.name, p.default, p.meaning, p.allowed);
    }
    let _ = writeln!(
        out,
        "\n  {} states, start {}, {} actions ({}), horizon {}, discount {}",
        model.n_states(),
        start(problem),
        model.n_actions(),
        problem.actions.join(", "),
        model.horizon(),
        text::number(model.discount())
    );
    out
}

/// The start state, by its id in an exported file; built-in problems have one start state.
fn start(problem: &Problem) -> usize {
    problem.model.start()[0].0
}

fn info_json(info: &ProblemInfo) -> serde_json::Value {
    described(info.name, info.summary, info.parameters)
}

fn described(name: &str, summary: &str, parameters: &[Parameter]) -> serde_json::Value {
    let parameters: Vec<_> = parameters
        .iter()
        .map(|p| json!({"name": p.name, "default": p.default, "meaning": p.meaning, "allowed": p.allowed.to_string()}))
        .collect();
    json!({"name": name, "summary": summary, "parameters": parameters})
}

fn game_json(game: &Game) -> String {
    let (info, spec) = (game.info(), game.spec());
    let mut object = described(info.name, info.summary, &games::PARAMETERS);
    if let ObservationSpace::Bits(shape) = &spec.observations {
        object["shape"] = json!(shape);
    }
    object["planes"] = info.looks.iter().map(|look| look.name).collect();
    object["actions"] = json!(game.actions());
    object["horizon"] = json!(spec.horizon);
    object["discount"] = json!(spec.discount);
    format!("{object}\n")
}

fn listing_json(infos: &[ProblemInfo]) -> String {
    let problems: Vec<_> = infos.iter().map(info_json).collect();
    let games: Vec<_> =
        games::list().iter().map(|info| described(info.name, info.summary, &games::PARAMETERS)).collect();
    format!("{}\n", json!({"problems": problems, "games": games}))
}

fn detail_json(info: &ProblemInfo, problem: &Problem) -> String {
    let mut object = info_json(info);
    object["states"] = json!(problem.model.n_states());
    object["actions"] = json!(problem.actions);
    object["start"] = json!(start(problem));
    object["horizon"] = json!(problem.model.horizon());
    object["discount"] = json!(problem.model.discount());
    format!("{object}\n")
}
