//! The risk dial: a problem, planned once for every level from .01 to .99.
//!
//! The browser gets all levels in one answer and never asks again while the dial is turned. A plan is made when it is first
//! asked for, one at a time, and a few are kept.

mod buffered;
mod plan;
mod play;
mod served;
mod source;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::outlook::Outlook;
use bqrl_mdp::plan::{PlannedPolicy, Planner};
use bqrl_mdp::trajectory::AugmentedInput;
use hyper::body::Bytes;
use serde::Serialize;

use self::plan::Axes;
pub use self::play::Episode;
pub use self::source::Source;
use crate::game;
use crate::shelf::Shelf;
use crate::trained::{self, Agents, Key, lock};

/// Bytes of all plans that are kept, roughly; the latest is always kept.
const MOST_BYTES: usize = 256 << 20;
/// Numbers that are kept to say what each action is worth: 32 MB.
const MOST_OUTLOOK: usize = 1 << 22;
/// Why a cell or an episode is refused.
const TOO_LARGE: &str = "the problem is too large to keep every action's chance";
/// Answers about the policies of runs that are kept.
const MOST_SERVED: usize = 8;
/// How many problems that could not be planned are remembered.
const MOST_DIALS: usize = 64;

/// A problem, planned at every level.
pub struct Dial {
    /// The problem.
    pub problem: Problem,
    /// Everything that the browser needs, as JSON.
    pub json: Bytes,
    /// The levels in words, for readers without JavaScript.
    pub rows: Vec<plan::Level>,
    /// max_π `E[R]`.
    pub max_mean: f64,
    /// Roughly how many bytes it holds.
    bytes: usize,
    plans: Vec<Planned>,
    /// The columns and rows of the policy map.
    stages: Vec<usize>,
    states: Vec<usize>,
    planner: Mutex<Planner<'static>>,
    outlook: OnceLock<Option<Outlook>>,
    /// The policies for buffered quantiles, once somebody asked for them.
    buffered: OnceLock<Result<buffered::Grid, String>>,
}

/// A policy that is best for one level or several.
pub(crate) struct Planned {
    target: f64,
    policy: PlannedPolicy,
    /// The most likely collected reward in each cell of the map; `None` where no decision can be due.
    typical: Vec<Vec<Option<f64>>>,
}

/// What each action is worth in one cell of the policy map, for every plan.
#[derive(Debug, Serialize)]
pub struct Cell {
    stage: usize,
    state: usize,
    /// One per plan, in the order of the dial's plans; `null` where the plan has no decision here.
    plans: Vec<Option<CellPlan>>,
    /// The same for the plans with β > 0, if they are planned.
    buffered: Vec<Option<CellPlan>>,
}

#[derive(Debug, Serialize)]
struct CellPlan {
    collected: f64,
    action: usize,
    /// (action, chance to reach the target, expected total)
    actions: Vec<(usize, f64, f64)>,
}

impl Dial {
    /// What each action is worth at a stage and a state.
    pub fn cell(&self, stage: usize, state: usize) -> Result<Cell, DialError> {
        let column = self.stages.binary_search(&stage);
        let (Ok(column), Ok(row)) = (column, self.states.binary_search(&state)) else {
            let message = format!("want a stage and a state of the map, got {stage} and {state}");
            return Err(DialError::Wrong(message));
        };
        let planner = self.planner()?;
        let outlook = self.outlook(&planner).ok_or_else(|| DialError::Wrong(TOO_LARGE.to_owned()))?;
        let of = |plan: &Planned| {
            let collected = plan.typical[column][row]?;
            let x = AugmentedInput { stage, state, collected };
            let actions = planner.actions_at(outlook, &x, plan.target);
            let actions: Vec<_> = actions.iter().map(|a| (a.action, a.chance, a.mean)).collect();
            (!actions.is_empty()).then(|| CellPlan { collected, action: plan.policy.action(&x), actions })
        };
        let buffered = self.buffered.get().and_then(|grid| grid.as_ref().ok());
        Ok(Cell {
            stage,
            state,
            plans: self.plans.iter().map(of).collect(),
            buffered: buffered.map_or(Vec::new(), |grid| grid.plans.iter().map(of).collect()),
        })
    }

    /// An episode under the plan with this number; `buffered` says of which list.
    pub fn episode(&self, buffered: bool, plan: usize, seed: u64) -> Result<Episode, DialError> {
        let planner = self.planner()?;
        let plans = match self.buffered.get() {
            Some(Ok(grid)) if buffered => &grid.plans,
            _ if buffered => return Err(DialError::Wrong("the buffered levels are not planned".to_owned())),
            _ => &self.plans,
        };
        let plan = plans
            .get(plan)
            .ok_or_else(|| DialError::Wrong(format!("want a plan below {}, got {plan}", plans.len())))?;
        let outlook = self.outlook(&planner).ok_or_else(|| DialError::Wrong(TOO_LARGE.to_owned()))?;
        Ok(play::episode(&self.problem, &planner, outlook, &|x| plan.policy.action(x), plan.target, seed))
    }

    /// The best policies for buffered quantiles, planned when they are first asked for.
    pub fn buffered(&self) -> Result<&buffered::Grid, DialError> {
        let axes = Axes { stages: &self.stages, rows: &self.states };
        let grid = self.buffered.get_or_init(|| buffered::grid(&self.problem, axes));
        grid.as_ref().map_err(|message| DialError::Wrong(message.clone()))
    }

    /// The planner, unless it is at work: others do not wait for it on the threads that all share.
    fn planner(&self) -> Result<MutexGuard<'_, Planner<'static>>, DialError> {
        at_once(&self.planner)
    }

    fn outlook(&self, planner: &Planner<'static>) -> Option<&Outlook> {
        self.outlook.get_or_init(|| planner.outlook(MOST_OUTLOOK)).as_ref()
    }
}

/// Why there is no dial.
#[derive(Debug)]
pub enum DialError {
    /// Another problem is being planned; ask again.
    Busy,
    /// The problem cannot be planned.
    Wrong(String),
}

/// A lock that nobody holds, or busy.
fn at_once<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, DialError> {
    match mutex.try_lock() {
        Ok(held) => Ok(held),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(DialError::Busy),
    }
}

/// The collected rewards of the cells of a map.
fn kept_cells(axes: Axes<'_>, typical: &[Vec<Option<f64>>]) -> Vec<Vec<Option<f64>>> {
    let column = |&stage: &usize| axes.rows.iter().map(|&state| typical[stage][state]).collect();
    axes.stages.iter().map(column).collect()
}

/// A dial, or why there is none, by the key of its source.
type Kept = (String, Result<Arc<Dial>, String>);

/// What a seed of a run is asked to play.
pub struct Asked<'a> {
    /// The id of the run.
    pub run: &'a str,
    /// The seed of its training.
    pub who: u64,
    /// τ.
    pub tau: f64,
    /// β as a share of τ, in per cent; 0 for the point quantile.
    pub share: usize,
    /// The seed of the episode.
    pub seed: u64,
}

/// The dials that were asked for lately.
#[derive(Default)]
pub struct Dials {
    /// The latest at the end.
    kept: Mutex<Vec<Kept>>,
    planning: Mutex<()>,
    buffering: Mutex<()>,
    agents: Agents,
    /// Answers of agents, the latest at the end.
    served: Mutex<Vec<(Key, Result<Bytes, String>)>>,
}

impl Dials {
    /// The dial of a problem, from the kept ones or planned now.
    pub fn get(&self, source: &Source, shelf: &Shelf) -> Result<Arc<Dial>, DialError> {
        let key = source.key(shelf);
        if let Some(found) = self.find(&key) {
            return found.map_err(DialError::Wrong);
        }
        let _one = self.alone()?;
        if let Some(found) = self.find(&key) {
            return found.map_err(DialError::Wrong);
        }
        let dial = source.load(shelf).and_then(plan::dial).map(Arc::new);
        let mut kept = lock(&self.kept);
        kept.push((key, dial.clone()));
        let size = |kept: &[Kept]| -> usize {
            kept.iter().map(|(_, dial)| dial.as_ref().map_or(0, |dial| dial.bytes)).sum()
        };
        while kept.len() > 1 && (kept.len() > MOST_DIALS || size(&kept) > MOST_BYTES) {
            drop(kept.remove(0));
        }
        dial.map_err(DialError::Wrong)
    }

    /// A plan may take seconds. Others who want one do not wait on the threads that all share.
    fn alone(&self) -> Result<MutexGuard<'_, ()>, DialError> {
        at_once(&self.planning)
    }

    /// The best policies for buffered quantiles, as JSON.
    pub fn buffered(&self, dial: &Dial) -> Result<Bytes, DialError> {
        // Not the lock of the dials: a grid takes longer than a dial, and a reader may want another dial meanwhile.
        let _one = at_once(&self.buffering)?;
        dial.buffered().map(|grid| grid.json.clone())
    }

    /// The policy that a seed of a run would follow at every level, as JSON.
    pub fn served(&self, dial: &Dial, shelf: &Shelf, run: &str, seed: u64) -> Result<Bytes, DialError> {
        let key = Key::of(shelf, run, seed).map_err(DialError::Wrong)?;
        let find =
            || lock(&self.served).iter().find(|(known, _)| *known == key).map(|(_, found)| found.clone());
        if let Some(found) = find() {
            return found.map_err(DialError::Wrong);
        }
        let _one = self.alone()?;
        if let Some(found) = find() {
            return found.map_err(DialError::Wrong);
        }
        let agent = self.agents.get(&key, shelf);
        let made = agent.and_then(|training| served::served(dial, &lock(&training), seed));
        let mut kept = lock(&self.served);
        // An older checkpoint of the same agent is not asked for again.
        kept.retain(|(known, _)| (&known.run, known.seed) != (&key.run, key.seed));
        if kept.len() == MOST_SERVED {
            drop(kept.remove(0));
        }
        kept.push((key, made.clone()));
        made.map_err(DialError::Wrong)
    }

    /// An episode under the policy of a run.
    pub fn episode(&self, dial: &Dial, shelf: &Shelf, asked: &Asked) -> Result<Episode, DialError> {
        let _one = self.alone()?;
        let Asked { run, who, tau, share, seed } = *asked;
        let key = Key::of(shelf, run, who).map_err(DialError::Wrong)?;
        let training = self.agents.get(&key, shelf).map_err(DialError::Wrong)?;
        // The best quantile of the nearest level, for an agent without a target of its own.
        let percent = ((100.0 * tau).round() as usize).clamp(1, dial.rows.len());
        let best = dial.rows[percent - 1].best;
        served::episode(dial, &lock(&training), (tau, share), best, seed).map_err(DialError::Wrong)
    }

    /// A game that a seed of a run plays at a level, as JSON.
    pub fn game(&self, shelf: &Shelf, asked: &Asked) -> Result<Bytes, DialError> {
        let _one = self.alone()?;
        let Asked { run, who, tau, seed, .. } = *asked;
        let played = || {
            let config = trained::config(shelf, run)?;
            let game = config.problem.game().map_err(|error| error.to_string())?;
            let game = game.ok_or_else(|| format!("{run} is not on a game"))?;
            let training = self.agents.get(&Key::of(shelf, run, who)?, shelf)?;
            let training = lock(&training);
            game::trained(game, &training, tau, seed)
        };
        played().map_err(DialError::Wrong)
    }

    fn find(&self, key: &str) -> Option<Result<Arc<Dial>, String>> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|(known, _)| known == key)?;
        let found = kept.remove(at);
        let dial = found.1.clone();
        kept.push(found);
        Some(dial)
    }
}
