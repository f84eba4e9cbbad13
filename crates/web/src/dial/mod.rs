//! The risk dial: a problem, planned once for every level from .01 to .99.
//!
//! The browser gets all levels in one answer and never asks again while the dial is turned. A plan is made when it is first
//! asked for, one at a time, and a few are kept.

mod plan;
mod play;
mod source;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};

use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::outlook::Outlook;
use bqrl_mdp::plan::{PlannedPolicy, Planner};
use bqrl_mdp::trajectory::AugmentedInput;
use hyper::body::Bytes;
use serde::Serialize;

pub use self::play::Episode;
pub use self::source::Source;
use crate::shelf::Shelf;

/// Bytes of all plans that are kept, roughly; the latest is always kept.
const MOST_BYTES: usize = 256 << 20;
/// Numbers that are kept to say what each action is worth: 32 MB.
const MOST_OUTLOOK: usize = 1 << 22;
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
}

/// A policy that is best for one level or several.
struct Planned {
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
    pub fn cell(&self, stage: usize, state: usize) -> Result<Cell, String> {
        let column = self.stages.binary_search(&stage);
        let (Ok(column), Ok(row)) = (column, self.states.binary_search(&state)) else {
            return Err(format!("want a stage and a state of the map, got {stage} and {state}"));
        };
        let planner = self.planner.lock().unwrap_or_else(PoisonError::into_inner);
        let outlook =
            self.outlook(&planner).ok_or("the problem is too large to keep every action's chance")?;
        let of = |plan: &Planned| {
            let collected = plan.typical[column][row]?;
            let x = AugmentedInput { stage, state, collected };
            let actions = planner.actions_at(outlook, &x, plan.target);
            let actions: Vec<_> = actions.iter().map(|a| (a.action, a.chance, a.mean)).collect();
            (!actions.is_empty()).then(|| CellPlan { collected, action: plan.policy.action(&x), actions })
        };
        Ok(Cell { stage, state, plans: self.plans.iter().map(of).collect() })
    }

    /// An episode under the plan with this number.
    pub fn episode(&self, plan: usize, seed: u64) -> Result<Episode, String> {
        let known = self.plans.len();
        let plan = self.plans.get(plan).ok_or_else(|| format!("want a plan below {known}, got {plan}"))?;
        let planner = self.planner.lock().unwrap_or_else(PoisonError::into_inner);
        let outlook =
            self.outlook(&planner).ok_or("the problem is too large to keep every action's chance")?;
        Ok(play::episode(&self.problem, &planner, outlook, &plan.policy, plan.target, seed))
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

/// A dial, or why there is none, by the key of its source.
type Kept = (String, Result<Arc<Dial>, String>);

/// The dials that were asked for lately.
#[derive(Default)]
pub struct Dials {
    /// The latest at the end.
    kept: Mutex<Vec<Kept>>,
    planning: Mutex<()>,
}

impl Dials {
    /// The dial of a problem, from the kept ones or planned now.
    pub fn get(&self, source: &Source, shelf: &Shelf) -> Result<Arc<Dial>, DialError> {
        let key = source.key(shelf);
        if let Some(found) = self.find(&key) {
            return found.map_err(DialError::Wrong);
        }
        // A plan may take seconds. Others who want one do not wait on the threads that all share.
        let _one = match self.planning.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(DialError::Busy),
        };
        if let Some(found) = self.find(&key) {
            return found.map_err(DialError::Wrong);
        }
        let dial = source.load(shelf).and_then(plan::dial).map(Arc::new);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((key, dial.clone()));
        let size = |kept: &[Kept]| -> usize {
            kept.iter().map(|(_, dial)| dial.as_ref().map_or(0, |dial| dial.bytes)).sum()
        };
        while kept.len() > 1 && (kept.len() > MOST_DIALS || size(&kept) > MOST_BYTES) {
            drop(kept.remove(0));
        }
        dial.map_err(DialError::Wrong)
    }

    fn find(&self, key: &str) -> Option<Result<Arc<Dial>, String>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == key)?;
        let found = kept.remove(at);
        let dial = found.1.clone();
        kept.push(found);
        Some(dial)
    }
}
