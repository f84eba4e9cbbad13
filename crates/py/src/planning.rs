//! `plan`: what `bqrl plan --json` says, and policies to follow, to explain and to write.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bqrl_cli::{outputs, pictures};
use bqrl_lab::plan::{DEFAULT_GRID, PlanError, Request, Returned, Solved, solve};
use bqrl_lab::sheet::write_xlsx;
use bqrl_math::buffer::{Buffer, BufferError, check_tau};
use bqrl_mdp::evaluate::{Evaluation, Evaluator, Policy};
use bqrl_mdp::model;
use bqrl_mdp::plan::export::{Collected, each_row, write_csv};
use bqrl_mdp::plan::outlook::following;
use bqrl_mdp::plan::points::Points;
use bqrl_mdp::returns::TooManyReturns;
use bqrl_mdp::trajectory::AugmentedInput;
use bqrl_runs::atomic;
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyFileExistsError;
use pyo3::prelude::*;

use crate::convert::{json_to_py, level_error, os_error, value_error};
use crate::law::Law;
use crate::native;
use crate::problem::Problem;

/// The report, a policy and the law of its return per level, and a note where returns were rounded unasked.
type Planning<'py> = (Bound<'py, PyAny>, Vec<PlannedPolicy>, Vec<Law>, Option<String>);
/// Stage, state, collected (or from), to, action: one entry per row.
type Rows<'py> = (Bound<'py, PyArray1<i64>>, Vec<String>, Floats<'py>, Option<Floats<'py>>, Vec<String>);
type Floats<'py> = Bound<'py, PyArray1<f64>>;
/// The target; the chosen action; each action with its chance and its expected total.
type Explained = (f64, usize, Vec<(usize, f64, f64)>);

/// τ, each with its buffer where a β is given.
pub fn levels(levels: Vec<(f64, Option<f64>)>) -> PyResult<Vec<(f64, Option<Buffer>)>> {
    let level = |(tau, beta): (f64, Option<f64>)| {
        let tau = check_tau(tau)?;
        Ok((tau, beta.map(|beta| Buffer::new(tau, beta)).transpose()?))
    };
    levels.into_iter().map(level).collect::<Result<_, BufferError>>().map_err(level_error)
}

/// Plans every level; a buffered optimum where its β is given, and a promise where there is a confidence.
#[pyfunction]
#[pyo3(signature = (problem, levels, grid=None, refine=None, passes=None, confidence=None))]
pub fn plan<'py>(
    py: Python<'py>,
    problem: &Problem,
    levels: Vec<(f64, Option<f64>)>,
    grid: Option<usize>,
    refine: Option<usize>,
    passes: Option<usize>,
    confidence: Option<f64>,
) -> PyResult<Planning<'py>> {
    if let Some(grid) = grid.filter(|grid| !(10..=10_000_000).contains(grid)) {
        return Err(value_error(format!("grid must lie in 10..=10000000, got {grid}")));
    }
    let request = Request { levels: self::levels(levels)?, grid, refine, passes, confidence };
    let work = |stop: &native::Stop| {
        let note = RefCell::new(None);
        let tell = |error: &TooManyReturns| {
            *note.borrow_mut() = Some(format!("{error}; returns were rounded to {DEFAULT_GRID} values"));
        };
        let progress = |_, _, _| stop.ask();
        let answer = solve(&problem.inner, &request, &progress, &tell)?;
        let report = answer.report(&problem.inner);
        let plan = Plan {
            problem: problem.inner.clone(),
            evaluator: answer.planner.evaluator(),
            neutral: answer.planner.mean_evaluation().clone(),
            solved: answer.solved,
            points: OnceLock::new(),
        };
        Ok((report, plan, note.into_inner()))
    };
    let found = native::detached(py, || native::run(work))?;
    let (report, plan, note) = found.map_err(plan_error)?;
    let json = serde_json::to_value(&report).expect("plain numbers and text serialise");
    let plan = Arc::new(plan);
    let laws = plan.solved.iter().map(|solved| Law::new(&solved.evaluation)).collect();
    let policies = (0..plan.solved.len()).map(|place| PlannedPolicy { plan: plan.clone(), place }).collect();
    Ok((json_to_py(py, &json)?, policies, laws, note))
}

/// Why a plan is not possible, in Python's words.
pub fn plan_error(error: PlanError) -> PyErr {
    match error {
        PlanError::TooManyReturns(error) => value_error(format!(
            "{error}; grid={DEFAULT_GRID} rounds returns to that many values and gives bounds"
        )),
        PlanError::Confidence { confidence } => {
            value_error(format!("confidence must lie in (0, 1), got {confidence}"))
        }
        PlanError::NoCounts { name } => value_error(format!(
            "a plan with a confidence needs a table with counts, {name} has none; bqrl.fit makes one of a log, bqrl.simulate of a \
             simulator"
        )),
        error @ PlanError::Confident { .. } => value_error(error),
    }
}

/// All that is kept of a plan.
struct Plan {
    problem: Arc<model::Problem>,
    evaluator: Evaluator,
    neutral: Evaluation,
    solved: Vec<Solved>,
    /// Found when an action is first asked for.
    points: OnceLock<Points>,
}

/// A planned policy on x = (h, s, c).
#[pyclass(module = "bqrl._bqrl", frozen)]
pub struct PlannedPolicy {
    plan: Arc<Plan>,
    place: usize,
}

impl PlannedPolicy {
    /// The policy itself, and the problem that it belongs to.
    pub fn parts(&self) -> (&Returned, &Arc<model::Problem>) {
        (&self.solved().policy, &self.plan.problem)
    }

    fn solved(&self) -> &Solved {
        &self.plan.solved[self.place]
    }

    fn tau(&self) -> f64 {
        self.solved().plan.best.tau
    }

    /// The point, if a decision can be due there.
    fn point(&self, stage: i64, state: &Bound<'_, PyAny>, collected: f64) -> PyResult<AugmentedInput> {
        let problem = &self.plan.problem;
        let last = problem.model.horizon() - 1;
        let stage = usize::try_from(stage).ok().filter(|&stage| stage <= last).ok_or_else(|| {
            value_error(format!("stage must be a whole number from 0 to {last}, got {stage}"))
        })?;
        let state = crate::problem::place(&problem.states, "state", state)?;
        if !collected.is_finite() {
            return Err(value_error(format!("collected must be a finite number, got {collected}")));
        }
        let x = AugmentedInput { stage, state, collected };
        let points = self.plan.points.get_or_init(|| self.plan.evaluator.points());
        points.check(problem, &x).map_err(|error| value_error(format!("not on the plan: {error}")))?;
        Ok(x)
    }
}

#[pymethods]
impl PlannedPolicy {
    /// The index of the action at stage h (from 0) in a state, with c collected so far.
    fn action(&self, stage: i64, state: &Bound<'_, PyAny>, collected: f64) -> PyResult<usize> {
        Ok(self.solved().policy.action(&self.point(stage, state, collected)?))
    }

    /// The target; the action that is chosen, and every possible one with its chance and its expected total.
    fn explain(
        &self,
        py: Python<'_>,
        stage: i64,
        state: &Bound<'_, PyAny>,
        collected: f64,
    ) -> PyResult<Explained> {
        let x = self.point(stage, state, collected)?;
        let (solved, model) = (self.solved(), &self.plan.problem.model);
        let target = solved.target();
        let work = || following(model, &solved.policy, target, &x).map_err(value_error);
        let actions = native::detached(py, work)?;
        let worth = actions.iter().map(|a| (a.action, a.chance, a.mean)).collect();
        Ok((target, solved.policy.action(&x), worth))
    }

    /// The policy as a table; with ranges of the collected reward where it is compact.
    fn rows<'py>(&self, py: Python<'py>, compact: bool) -> PyResult<Rows<'py>> {
        let problem = &self.plan.problem;
        let work = || {
            let mut rows = Vec::new();
            let policy = &self.solved().policy;
            let kept = each_row(&self.plan.evaluator, &[(self.tau(), policy)], compact, |row| {
                rows.push(row);
                Ok::<(), io::Error>(())
            });
            kept.map(|()| rows).map_err(os_error)
        };
        let rows = native::detached(py, work)?;
        let stages: Vec<i64> = rows.iter().map(|row| row.stage as i64).collect();
        let states = rows.iter().map(|row| problem.states[row.state].clone()).collect();
        let actions = rows.iter().map(|row| problem.actions[row.action].clone()).collect();
        let end = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let from = rows.iter().map(|row| match row.collected {
            Collected::At(value) => value,
            Collected::Run(from, _) => end(from),
        });
        let to = rows.iter().map(|row| match row.collected {
            Collected::At(value) => value,
            Collected::Run(_, to) => end(to),
        });
        let (from, to): (Vec<f64>, Vec<f64>) = (from.collect(), to.collect());
        let to = compact.then(|| to.into_pyarray(py));
        Ok((stages.into_pyarray(py), states, from.into_pyarray(py), to, actions))
    }

    /// Actions by stage and state, at the collected reward that is most likely there, which the text says.
    fn cells(&self, py: Python<'_>) -> PyResult<(pictures::Cells, &'static str)> {
        let policy = &self.solved().policy;
        native::detached(py, || Ok(pictures::policy_cells(&self.plan.evaluator, policy)))
    }

    /// For each state the action of most periods, and whether there are others.
    fn usual(&self, py: Python<'_>) -> PyResult<Vec<Option<(usize, bool)>>> {
        let (cells, _) = self.cells(py)?;
        Ok((0..self.plan.problem.states.len()).map(|state| pictures::usual(&cells, state)).collect())
    }

    /// The map of the policy as SVG.
    fn map_svg(&self, py: Python<'_>) -> PyResult<String> {
        let solved = self.solved();
        let draw = || {
            let headed: [(String, &dyn Policy); 1] = [(pictures::heading(solved), &solved.policy)];
            pictures::policies(&self.plan.problem, &self.plan.evaluator, &headed)
        };
        native::detached(py, || Ok(draw().svg().to_owned()))
    }

    /// The laws of the whole plan as SVG.
    fn laws_svg(&self, py: Python<'_>) -> PyResult<String> {
        let Plan { problem, evaluator, neutral, solved, .. } = &*self.plan;
        let draw = || pictures::laws(problem, evaluator.is_exact(), neutral, solved);
        native::detached(py, || Ok(draw().svg().to_owned()))
    }

    /// The law of the policy with the largest mean.
    fn neutral(&self) -> Law {
        Law::new(&self.plan.neutral)
    }

    /// Writes this policy, or those of all levels of the plan, as CSV or, if the name ends in .xlsx, as a spreadsheet.
    fn write(
        &self,
        py: Python<'_>,
        path: PathBuf,
        compact: bool,
        all: bool,
        overwrite: bool,
    ) -> PyResult<()> {
        let Plan { problem, evaluator, solved, .. } = &*self.plan;
        if !overwrite {
            free(&path, outputs::Kind::Policies)?;
        }
        let chosen = if all { &solved[..] } else { &solved[self.place..=self.place] };
        let policies: Vec<(f64, &Returned)> =
            chosen.iter().map(|solved| (solved.plan.best.tau, &solved.policy)).collect();
        native::detached(py, || {
            let policies: Vec<(f64, &dyn Policy)> =
                policies.iter().map(|&(tau, policy)| (tau, policy as _)).collect();
            let sheet = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("xlsx"));
            let write = if sheet { write_xlsx } else { write_csv };
            atomic::write_with(&path, |out| write(evaluator, problem, &policies, compact, out))
                .map_err(os_error)
        })
    }
}

/// Refuses to replace a file of another kind.
pub fn free(path: &std::path::Path, kind: outputs::Kind) -> PyResult<()> {
    if kind.may_replace(path).map_err(os_error)? {
        return Ok(());
    }
    let message = format!("{} exists and is not such a table; overwrite=True replaces it", path.display());
    Err(PyFileExistsError::new_err(crate::convert::one_line(&message)))
}
