//! Exact evaluation: the law of R^π for any policy on x = (h, s, c).
//!
//! ```text
//! m_0(s, 0) = ρ(s)
//! m_{h+1}(s', c + γ^h r) += m_h(s, c) · π(a | h, s, c) · p(s', r | s, a)
//! ```
//!
//! One forward pass over the reward collected so far. The mass that reaches a terminal state or the horizon is the law.
//! Tails of a state's mass with a total below [`TAIL`] are dropped; together they are below the rounding error.

use std::sync::{Arc, OnceLock};

use bqrl_math::law::ReturnLaw;

use crate::model::Model;
use crate::returns::{Compiled, Ladder, Ladders, Rounding, Step, TooManyReturns};
use crate::trajectory::AugmentedInput;

/// A model with at most this many points (h, s, c) asks policies about all of them before the pass: many at a time instead of the
/// few of a stage. With more, only the points that a policy visits are asked about.
const SMALL: usize = 4096;
/// Questions at a time: enough for a network to be busy, few enough for the answers to stay in the cache.
const AT_ONCE: usize = 192;

/// Mass at either end of a state's distribution that is dropped.
const TAIL: f64 = 1e-18;

/// A rule for acting on x = (h, s, c), possibly at random.
pub trait Policy {
    /// Appends (action, probability) pairs to `choice`, which is empty; probabilities sum to 1.
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>);
}

/// (action, probability) pairs.
pub type Choice = Vec<(usize, f64)>;

/// Several policies that decide together, at less than the cost of each.
pub trait Policies {
    /// How many.
    fn n_policies(&self) -> usize;
    /// The choices of policies. A question names a policy by its number, and an x. Questions about a state are neighbours.
    fn decide_all(&self, asked: &[(usize, AugmentedInput)]) -> Vec<Choice>;
}

/// A policy by itself.
struct Alone<'a>(&'a dyn Policy);

impl Policies for Alone<'_> {
    fn n_policies(&self) -> usize {
        1
    }

    fn decide_all(&self, asked: &[(usize, AugmentedInput)]) -> Vec<Choice> {
        let one = |(_, x): &(usize, AugmentedInput)| {
            let mut choice = Vec::new();
            self.0.decide(x, &mut choice);
            choice
        };
        asked.iter().map(one).collect()
    }
}

/// Any function from x to an action is a deterministic policy.
impl<F: Fn(&AugmentedInput) -> usize> Policy for F {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        choice.push((self(x), 1.0));
    }
}

/// The evaluation of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The law of R^π. With rounded rewards: the law of the rounded return, a bound in the direction of the rounding.
    pub law: ReturnLaw,
    /// E[R^π], from the original rewards, so it is exact with rounded rewards too.
    pub mean: f64,
}

/// The exact law of R^π.
///
/// ```
/// use bqrl_mdp::{evaluate::evaluate, problems};
/// let asset = problems::build("asset-selling", &[]).unwrap();
/// // Accept the first offer of 19 or more; action 0 is stop.
/// let law = evaluate(&asset.model, &|x: &bqrl_mdp::trajectory::AugmentedInput| usize::from(x.state < 19)).unwrap().law;
/// assert!((law.probability_below(19.0 / 24.0) - (19.0f64 / 25.0).powi(9)).abs() < 1e-12);
/// ```
pub fn evaluate(model: &Model, policy: &dyn Policy) -> Result<Evaluation, TooManyReturns> {
    Ok(Evaluator::new(model)?.evaluate(policy))
}

/// A model prepared for the evaluation of many policies, and for questions about where they can come.
#[derive(Clone, Debug)]
pub struct Evaluator {
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) ladders: Arc<Ladders>,
    pub(crate) rounding: Rounding,
    /// The points of a small model, found when they are first needed.
    points: Arc<OnceLock<Option<Rungs>>>,
}

/// For each stage and state, the rungs of the rewards that can have been collected there, rising.
type Rungs = Vec<Vec<Vec<i64>>>;

impl Evaluator {
    /// Finds the set of possible returns once.
    pub fn new(model: &Model) -> Result<Self, TooManyReturns> {
        let compiled = Compiled::new(model);
        let ladders = Ladders::exact(&compiled)?;
        Ok(Self::new_with(&Arc::new(compiled), &Arc::new(ladders), Rounding::Exact))
    }

    /// Rounds rewards down to about `grid` values of the return: laws are then lower bounds.
    pub fn rounded_down(model: &Model, grid: usize) -> Self {
        let compiled = Compiled::new(model);
        let ladders = Ladders::rounded(&compiled, grid, Rounding::Down);
        Self::new_with(&Arc::new(compiled), &Arc::new(ladders), Rounding::Down)
    }

    pub(crate) fn new_with(compiled: &Arc<Compiled>, ladders: &Arc<Ladders>, rounding: Rounding) -> Self {
        Self { compiled: compiled.clone(), ladders: ladders.clone(), rounding, points: Arc::default() }
    }

    /// False if rewards were rounded.
    pub fn is_exact(&self) -> bool {
        self.rounding == Rounding::Exact
    }

    /// The law of R^π.
    pub fn evaluate(&self, policy: &dyn Policy) -> Evaluation {
        forward(&self.compiled, &self.ladders.collected, policy, |_, _, _| {})
    }

    /// The law of every policy's return. Policies may be asked about points that they do not visit.
    pub fn evaluate_all(&self, policies: &dyn Policies) -> Vec<Evaluation> {
        let Self { compiled, ladders, .. } = self;
        let collected = &ladders.collected;
        let points = self.points.get_or_init(|| reachable_rungs(compiled, collected, SMALL));
        match points {
            Some(points) => {
                let known = Known::ask(compiled, collected, policies, points);
                forward_all(compiled, collected, &known, |_, _, _| {})
            }
            None => forward_all(compiled, collected, &Asked { collected, policies }, |_, _, _| {}),
        }
    }

    /// For each stage and state, the rewards that can have been collected there under some policy, rising.
    pub fn reachable_collected(&self) -> Vec<Vec<Vec<f64>>> {
        reachable(&self.compiled, &self.ladders.collected)
    }

    /// For each stage and state, the rewards that can have been collected there under this policy, rising.
    pub fn visited_collected(&self, policy: &dyn Policy) -> Vec<Vec<Vec<f64>>> {
        let collected = &self.ladders.collected;
        let mut visited = vec![vec![Vec::new(); self.compiled.n_states]; self.compiled.horizon];
        forward(&self.compiled, collected, policy, |stage, state, mass| {
            let mut values: Vec<f64> = mass.atoms().map(|(rung, _)| collected.value(stage, rung)).collect();
            values.sort_unstable_by(f64::total_cmp);
            visited[stage][state] = values;
        });
        visited
    }

    /// For each stage and state, the most likely collected reward of the policy there; for states that it does not visit at
    /// that stage, the most likely collected reward at that stage. `None` if no decision can be due.
    pub fn typical_collected(&self, policy: &dyn Policy) -> Vec<Vec<Option<f64>>> {
        let collected = &self.ladders.collected;
        let mut typical = vec![vec![None; self.compiled.n_states]; self.compiled.horizon];
        let mut by_stage = vec![(0.0, 0.0); self.compiled.horizon];
        forward(&self.compiled, collected, policy, |stage, state, mass| {
            if let Some((rung, mass)) = mass.atoms().max_by(|a, b| a.1.total_cmp(&b.1)) {
                let value = collected.value(stage, rung);
                typical[stage][state] = Some(value);
                if mass > by_stage[stage].1 {
                    by_stage[stage] = (value, mass);
                }
            }
        });
        for (stage, values) in typical.iter_mut().enumerate() {
            for &state in &self.compiled.alive[stage] {
                values[state as usize].get_or_insert(by_stage[stage].0);
            }
        }
        typical
    }
}

/// Probability mass on a growing range of rungs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mass {
    first: i64,
    cells: Vec<f64>,
}

impl Mass {
    /// `len` cells from `rung` on; missing cells are added.
    fn range(&mut self, rung: i64, len: usize) -> &mut [f64] {
        if self.cells.is_empty() {
            self.first = rung;
        }
        if rung < self.first {
            // Grow by at least the present length, so that repeated growth is cheap.
            let by = ((self.first - rung) as usize).max(self.cells.len());
            self.cells.splice(0..0, std::iter::repeat_n(0.0, by));
            self.first -= by as i64;
        }
        let begin = (rung - self.first) as usize;
        if begin + len > self.cells.len() {
            self.cells.resize(begin + len, 0.0);
        }
        &mut self.cells[begin..begin + len]
    }

    /// Puts mass on one rung.
    pub fn add(&mut self, rung: i64, mass: f64) {
        self.range(rung, 1)[0] += mass;
    }

    /// Drops the tails.
    fn trim(&mut self) {
        let tail = |cells: &mut dyn Iterator<Item = &f64>| {
            let mut sum = 0.0;
            cells
                .take_while(|&&mass| {
                    sum += mass;
                    sum < TAIL
                })
                .count()
        };
        let keep = self.cells.len() - tail(&mut self.cells.iter().rev());
        self.cells.truncate(keep);
        let drop = tail(&mut self.cells.iter());
        self.cells.drain(..drop);
        self.first += drop as i64;
    }

    /// The rungs that hold mass.
    pub fn atoms(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        (self.first..).zip(self.cells.iter().copied()).filter(|&(_, mass)| mass > 0.0)
    }
}

/// The forward pass. `visit` gets the mass of every state in which a decision is due, stage by stage.
pub(crate) fn forward(
    compiled: &Compiled,
    collected: &Ladder,
    policy: &dyn Policy,
    visit: impl FnMut(usize, usize, &Mass),
) -> Evaluation {
    let asked = Asked { collected, policies: &Alone(policy) };
    forward_all(compiled, collected, &asked, visit).pop().expect("one policy was asked")
}

/// Answers for the points that a forward pass comes to.
trait Answers {
    fn n_policies(&self) -> usize;
    /// The choices of policies at (state, rung) of a stage, in the order of the questions.
    fn answer(&self, stage: usize, asked: &[(usize, usize, i64)]) -> Vec<Choice>;
}

/// Policies that are asked stage by stage.
struct Asked<'a> {
    collected: &'a Ladder,
    policies: &'a dyn Policies,
}

impl Answers for Asked<'_> {
    fn n_policies(&self) -> usize {
        self.policies.n_policies()
    }

    fn answer(&self, stage: usize, asked: &[(usize, usize, i64)]) -> Vec<Choice> {
        let x = |state, rung| AugmentedInput { stage, state, collected: self.collected.value(stage, rung) };
        let asked: Vec<_> = asked.iter().map(|&(policy, state, rung)| (policy, x(state, rung))).collect();
        self.policies.decide_all(&asked)
    }
}

/// The choices of policies at all points of a small model.
struct Known<'a> {
    points: &'a Rungs,
    n_policies: usize,
    /// For each stage and state, the place of its first choice; those of policy 0 at all rungs, of policy 1, ….
    first: Vec<Vec<usize>>,
    choices: Vec<Choice>,
}

impl<'a> Known<'a> {
    fn ask(compiled: &Compiled, collected: &Ladder, policies: &dyn Policies, points: &'a Rungs) -> Self {
        let n_policies = policies.n_policies();
        let mut asked = Vec::new();
        let mut first = vec![vec![0; compiled.n_states]; points.len()];
        for (stage, states) in points.iter().enumerate() {
            for &state in &compiled.alive[stage] {
                let state = state as usize;
                first[stage][state] = asked.len();
                for policy in 0..n_policies {
                    let values = states[state].iter().map(|&rung| collected.value(stage, rung));
                    asked
                        .extend(values.map(|collected| (policy, AugmentedInput { stage, state, collected })));
                }
            }
        }
        let choices = asked.chunks(AT_ONCE).flat_map(|asked| policies.decide_all(asked)).collect();
        Self { points, n_policies, first, choices }
    }
}

impl Answers for Known<'_> {
    fn n_policies(&self) -> usize {
        self.n_policies
    }

    fn answer(&self, stage: usize, asked: &[(usize, usize, i64)]) -> Vec<Choice> {
        let choice = |&(policy, state, rung): &(usize, usize, i64)| {
            let rungs = &self.points[stage][state];
            let place = rungs.binary_search(&rung).expect("every point was asked about");
            self.choices[self.first[stage][state] + policy * rungs.len() + place].clone()
        };
        asked.iter().map(choice).collect()
    }
}

/// The forward pass of several policies, side by side.
fn forward_all(
    compiled: &Compiled,
    collected: &Ladder,
    policies: &dyn Answers,
    mut visit: impl FnMut(usize, usize, &Mass),
) -> Vec<Evaluation> {
    let mut passes: Vec<Pass> =
        (0..policies.n_policies()).map(|_| Pass::start(compiled, collected)).collect();
    for stage in 0..compiled.horizon {
        let states = || compiled.alive[stage].iter().map(|&state| state as usize);
        let mut asked = Vec::new();
        for state in states() {
            for (policy, pass) in passes.iter_mut().enumerate() {
                let mass = &mut pass.now[state];
                mass.trim();
                visit(stage, state, mass);
                asked.extend(mass.atoms().map(|(rung, _)| (policy, state, rung)));
            }
        }
        let mut choices = policies.answer(stage, &asked).into_iter();
        for state in states() {
            for pass in &mut passes {
                pass.leave(stage, state, &mut choices);
            }
        }
        for pass in &mut passes {
            pass.end(stage);
        }
    }
    passes.into_iter().map(Pass::finish).collect()
}

/// The forward pass of one policy.
struct Pass<'a> {
    compiled: &'a Compiled,
    collected: &'a Ladder,
    now: Vec<Mass>,
    /// At the next stage; the last row collects finished episodes.
    next: Vec<Mass>,
    law: Law<'a>,
    mean: f64,
}

/// Neighbouring rungs of one state with the same choice: they move together, as one block.
struct Run {
    from: usize,
    to: usize,
    choice: Choice,
}

impl<'a> Pass<'a> {
    fn start(compiled: &'a Compiled, collected: &'a Ladder) -> Self {
        let mut now = vec![Mass::default(); compiled.n_states];
        for &(state, probability) in &compiled.start {
            now[state].range(0, 1)[0] += probability;
        }
        let next = vec![Mass::default(); compiled.n_states + 1];
        let law = Law { collected, on_lattice: Mass::default(), atoms: Vec::new() };
        Self { compiled, collected, now, next, law, mean: 0.0 }
    }

    /// The mass of a state moves on.
    fn leave(&mut self, stage: usize, state: usize, choices: &mut impl Iterator<Item = Choice>) {
        let Self { compiled, collected, now, next, mean, .. } = self;
        for run in runs(&now[state], choices) {
            let block = &now[state].cells[run.from..run.to];
            let rung = now[state].first + run.from as i64;
            let total: f64 = block.iter().sum();
            for &(action, chosen) in &run.choice {
                let transitions = compiled.transitions(stage, state, action);
                assert!(
                    !transitions.is_empty(),
                    "stage {stage}, state {state}: action {action} is not available"
                );
                for t in transitions {
                    let share = chosen * t.probability;
                    *mean += total * share * compiled.reward(stage, t.code);
                    let to = &mut next[t.next as usize];
                    move_block(block, rung, share, collected.step(stage, t.code), to);
                }
            }
        }
    }

    fn end(&mut self, stage: usize) {
        let n_states = self.compiled.n_states;
        let mut next = std::mem::replace(&mut self.next, vec![Mass::default(); n_states + 1]);
        let over = next.pop().expect("the last row collects finished episodes");
        self.law.add(&over, |rung| self.collected.ended_value(stage + 1, rung));
        self.now = next;
    }

    fn finish(mut self) -> Evaluation {
        for mass in &self.now {
            self.law.add(mass, |rung| self.collected.value(self.compiled.horizon, rung));
        }
        Evaluation { law: self.law.finish(self.compiled.tolerance), mean: self.mean }
    }
}

/// The law of the return, under construction.
struct Law<'a> {
    collected: &'a Ladder,
    /// On a lattice a rung has the same value at all stages: mass adds up cell by cell.
    on_lattice: Mass,
    atoms: Vec<(f64, f64)>,
}

impl Law<'_> {
    fn add(&mut self, mass: &Mass, value: impl Fn(i64) -> f64) {
        if self.collected.quantum().is_none() {
            self.atoms.extend(mass.atoms().map(|(rung, mass)| (value(rung), mass)));
        } else if !mass.cells.is_empty() {
            let sum = self.on_lattice.range(mass.first, mass.cells.len());
            sum.iter_mut().zip(&mass.cells).for_each(|(sum, mass)| *sum += mass);
        }
    }

    fn finish(mut self, tolerance: f64) -> ReturnLaw {
        let cells = self.on_lattice.atoms().map(|(rung, mass)| (self.collected.value(0, rung), mass));
        self.atoms.extend(cells);
        ReturnLaw::from_atoms_within(self.atoms, tolerance)
            .expect("mass is conserved: transition rows sum to 1 and every policy's choice does")
    }
}

/// Asks the policy at every rung that holds mass; empty rungs join the run before them.
fn runs(mass: &Mass, choices: &mut impl Iterator<Item = Choice>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (rung, _) in mass.atoms() {
        let choice = choices.next().expect("a choice for every question");
        let cell = (rung - mass.first) as usize;
        match runs.last_mut() {
            Some(run) if run.choice == choice => run.to = cell + 1,
            _ => runs.push(Run { from: cell, to: cell + 1, choice }),
        }
    }
    runs
}

fn move_block(block: &[f64], rung: i64, share: f64, step: &Step, to: &mut Mass) {
    match step {
        Step::Shift(by) => {
            for (cell, mass) in to.range(rung + by, block.len()).iter_mut().zip(block) {
                *cell += share * mass;
            }
        }
        Step::Table(_) => {
            for (from, mass) in (rung..).zip(block).filter(|&(_, &mass)| mass > 0.0) {
                to.range(step.apply(from), 1)[0] += share * mass;
            }
        }
    }
}

/// For each stage and state, the rewards that can have been collected there under some policy, rising.
fn reachable(compiled: &Compiled, collected: &Ladder) -> Vec<Vec<Vec<f64>>> {
    let rungs = reachable_rungs(compiled, collected, usize::MAX).expect("no number is larger");
    let of_stage = |(stage, states): (usize, Vec<Vec<i64>>)| {
        let values = |rungs: Vec<i64>| {
            let mut values: Vec<f64> = rungs.into_iter().map(|rung| collected.value(stage, rung)).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        states.into_iter().map(values).collect()
    };
    rungs.into_iter().enumerate().map(of_stage).collect()
}

/// The same as rungs; `None` if there are more than `most` of them where a decision may be due.
fn reachable_rungs(compiled: &Compiled, collected: &Ladder, most: usize) -> Option<Rungs> {
    let mut now = vec![Mass::default(); compiled.n_states];
    for &(state, _) in &compiled.start {
        now[state].range(0, 1)[0] = 1.0;
    }
    let mut stages: Rungs = Vec::with_capacity(compiled.horizon);
    let mut n = 0;
    for stage in 0..compiled.horizon {
        let rungs = |mass: &Mass| mass.atoms().map(|(rung, _)| rung).collect();
        stages.push(now.iter().map(rungs).collect());
        n += compiled.alive[stage].iter().map(|&state| stages[stage][state as usize].len()).sum::<usize>();
        if n > most {
            return None;
        }
        let mut next = vec![Mass::default(); compiled.n_states + 1];
        for &state in &compiled.alive[stage] {
            for action in 0..compiled.n_actions {
                for t in compiled.transitions(stage, state as usize, action) {
                    for &rung in &stages[stage][state as usize] {
                        next[t.next as usize].range(collected.step(stage, t.code).apply(rung), 1)[0] = 1.0;
                    }
                }
            }
        }
        next.pop();
        now = next;
    }
    Some(stages)
}
