//! `bqrl reproduce studies`: questions that the paper leaves open, answered with tables and figures.

use std::path::Path;

use bqrl_lab::studies::{self, FLOORS, Floor, Part, SHARES, Studies};
use bqrl_report::studies::{self as report, Cell, Entry, FloorCell};
use bqrl_runs::reader::Run;
use serde::Serialize;

use crate::failure::Failure;
use crate::progress::pool;
use crate::reproduce::{ReproduceArgs, train, write};

/// A part of the studies that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// All of the next five
    Sensitivity,
    /// The buffer width, with K from 2 to 32
    Beta,
    /// The number of quantiles
    #[value(name = "n_quantiles")]
    NQuantiles,
    /// The number of critics
    #[value(name = "n_critics")]
    NCritics,
    /// The Huber threshold
    Kappa,
    /// The initial bonus
    #[value(name = "lambda_0")]
    Lambda0,
    /// Buffered score, point quantile, mean, no bonus
    Variants,
    /// Horizon and number of actions, with their cost
    Scaling,
    /// The paper's rule solved exactly, over τ and β
    Floor,
}

impl Only {
    /// Whether a sweep belongs to it.
    fn holds(self, part: Part, sweep: &str) -> bool {
        match self {
            Only::Sensitivity => part == Part::Sensitivity,
            Only::Beta => sweep.starts_with("beta"),
            Only::NQuantiles => sweep == "n_quantiles",
            Only::NCritics => sweep == "n_critics",
            Only::Kappa => sweep == "kappa",
            Only::Lambda0 => sweep == "lambda_0",
            Only::Variants => part == Part::Variants,
            Only::Scaling => part == Part::Scaling,
            Only::Floor => part == Part::Floor,
        }
    }

    pub fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self).expect("no part is hidden");
        value.get_name().to_owned()
    }
}

#[derive(Serialize)]
struct Output<'a> {
    directory: String,
    figures: Vec<String>,
    cells: Vec<&'a Cell>,
    floor: Vec<FloorCell>,
}

/// Runs the studies, and returns what to print.
pub fn run(args: &ReproduceArgs) -> Result<String, Failure> {
    let default = if args.quick { "runs/studies-quick" } else { "runs/studies" };
    let root = args.out.clone().unwrap_or_else(|| default.into());
    let wanted = |part: Part, sweep: &str| {
        args.only.is_empty() || args.only.iter().any(|only| only.holds(part, sweep))
    };
    let studies = studies::plan(wanted, usize::from(args.seeds), args.quick).map_err(Failure::usage)?;
    let _shared = train(args, &root, &studies.runs)?;
    let sweeps = sweeps(&root, &studies)?;
    let floors: Vec<report::Floor> = if wanted(Part::Floor, "floor") {
        let solve = || FLOORS.into_iter().map(studies::floor).collect::<Result<Vec<_>, _>>();
        let solved = pool(args.threads)?.install(solve).map_err(Failure::runtime)?;
        solved.into_iter().map(shown).collect()
    } else {
        Vec::new()
    };
    let figures = report::figures(&sweeps, &floors);
    let page = report::page(&args.written_by("studies"), &sweeps, &floors, &figures);
    let written = write(args, &root.join("studies.md"), &page, &figures)?;
    if args.json {
        let output = Output {
            directory: root.display().to_string(),
            figures: written.iter().map(|path| path.display().to_string()).collect(),
            cells: sweeps.iter().flat_map(|sweep| sweep.cells.iter().flatten()).collect(),
            floor: floors.iter().flat_map(report::Floor::cells).collect(),
        };
        return Ok(serde_json::to_string(&output).expect("plain numbers and text serialise") + "\n");
    }
    Ok(format!("{page}\nEverything is in {}\n", root.display()))
}

/// The sweeps with their results, in the form of the report, which knows runs but not configurations.
fn sweeps(root: &Path, studies: &Studies) -> Result<Vec<report::Sweep>, Failure> {
    let read = |planned: &bqrl_lab::reproduce::Planned| Run::read_finished(&root.join(&planned.name));
    let runs: Vec<Run> = studies.runs.iter().map(read).collect::<Result<_, _>>().map_err(Failure::runtime)?;
    let mut sweeps = Vec::new();
    for sweep in &studies.sweeps {
        let part = match sweep.part {
            Part::Sensitivity => report::Part::Sensitivity,
            Part::Variants => report::Part::Variants,
            Part::Scaling => report::Part::Scaling,
            Part::Floor => unreachable!("the floor trains nothing, so it has no sweep"),
        };
        let entry = |&place: &usize| {
            let known = studies.known(place, part == report::Part::Scaling).map_err(Failure::runtime)?;
            Ok(Entry {
                run: &runs[place],
                name: &studies.runs[place].name,
                multiply_adds: known.multiply_adds,
                rule_quantile: known.rule_quantile,
            })
        };
        let level = |places: &Vec<usize>| places.iter().map(entry).collect();
        let entries = sweep.runs.iter().map(level).collect::<Result<Vec<_>, Failure>>()?;
        let outline = report::Outline {
            part,
            name: sweep.name.to_owned(),
            setting: sweep.setting.to_owned(),
            problem: sweep.problem.to_owned(),
            parameters: studies.fixed_parameters(sweep),
            episodes: sweep.episodes,
            values: sweep.values.clone(),
            reference: sweep.reference,
            taus: sweep.taus.clone(),
        };
        sweeps.push(report::Sweep::new(outline, &entries).map_err(Failure::runtime)?);
    }
    Ok(sweeps)
}

fn shown(floor: Floor) -> report::Floor {
    let Floor { problem, range, taus, best, rule } = floor;
    let width = |(rule, (label, share)): (Vec<f64>, (&str, f64))| (label.to_owned(), share, rule);
    let widths = rule.into_iter().zip(SHARES).map(width).collect();
    report::Floor { problem: problem.to_owned(), range, taus, best, widths }
}
