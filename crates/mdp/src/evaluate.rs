//! Exact evaluation: the law of R^π for any policy on x = (h, s, c).
//!
//! ```text
//! m_0(s, 0) = ρ(s)
//! m_{h+1}(s', c + γ^h r) += m_h(s, c) · π(a | h, s, c) · p(s', r | s, a)
//! ```
//!
//! One forward pass over the reward collected so far; mass that reaches a terminal state or the horizon is the law.

use bqrl_math::law::ReturnLaw;

use crate::model::Model;
use crate::returns::{Compiled, Ladder, Ladders, TooManyReturns};
use crate::trajectory::AugmentedInput;

/// A rule for acting on x = (h, s, c), possibly at random.
pub trait Policy {
    /// Appends (action, probability) pairs to `choice`, which is empty; probabilities sum to 1.
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>);
}

/// Any function from x to an action is a deterministic policy.
impl<F: Fn(&AugmentedInput) -> usize> Policy for F {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        choice.push((self(x), 1.0));
    }
}

/// What a policy is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The law of R^π. On a rounded ladder: of the rounded return, a bound in the direction of the rounding.
    pub law: ReturnLaw,
    /// E[R^π], from the rewards as they are, hence exact on a rounded ladder too.
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
    let compiled = Compiled::new(model);
    let ladders = Ladders::exact(&compiled)?;
    Ok(forward(&compiled, &ladders.collected, policy))
}

/// Probability mass on a growing range of rungs.
#[derive(Clone, Debug, Default)]
struct Mass {
    first: i64,
    cells: Vec<f64>,
}

impl Mass {
    fn add(&mut self, rung: i64, mass: f64) {
        if self.cells.is_empty() {
            self.first = rung;
        }
        if rung < self.first {
            // Grow by at least the present length, so that growing stays cheap.
            let by = ((self.first - rung) as usize).max(self.cells.len());
            self.cells.splice(0..0, std::iter::repeat_n(0.0, by));
            self.first -= by as i64;
        }
        let cell = (rung - self.first) as usize;
        if cell >= self.cells.len() {
            self.cells.resize(cell + 1, 0.0);
        }
        self.cells[cell] += mass;
    }

    fn atoms(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        (self.first..).zip(self.cells.iter().copied()).filter(|&(_, mass)| mass > 0.0)
    }
}

pub(crate) fn forward(compiled: &Compiled, collected: &Ladder, policy: &dyn Policy) -> Evaluation {
    let mut atoms: Vec<(f64, f64)> = Vec::new();
    let mut mean = 0.0;
    let mut now = vec![Mass::default(); compiled.n_states];
    for &(state, probability) in &compiled.start {
        now[state].add(0, probability);
    }
    let mut choice = Vec::new();
    for stage in 0..compiled.horizon {
        let mut next = vec![Mass::default(); compiled.n_states + 1];
        for &state in &compiled.alive[stage] {
            let state = state as usize;
            for (rung, mass) in now[state].atoms() {
                choice.clear();
                policy.decide(
                    &AugmentedInput { stage, state, collected: collected.value(stage, rung) },
                    &mut choice,
                );
                for &(action, chosen) in &choice {
                    let transitions = compiled.transitions(stage, state, action);
                    assert!(!transitions.is_empty(), "stage {stage}, state {state}: action {action} is not available");
                    for t in transitions {
                        let moved = mass * chosen * t.probability;
                        mean += moved * compiled.reward(stage, t.code);
                        next[t.next as usize].add(collected.step(stage, t.code).apply(rung), moved);
                    }
                }
            }
        }
        let over = next.pop().expect("the last row collects finished episodes");
        atoms.extend(over.atoms().map(|(rung, mass)| (collected.ended_value(stage + 1, rung), mass)));
        now = next;
    }
    for mass in &now {
        atoms.extend(mass.atoms().map(|(rung, mass)| (collected.value(compiled.horizon, rung), mass)));
    }
    let law = ReturnLaw::from_atoms_within(atoms, compiled.tolerance)
        .expect("mass is conserved: transition rows sum to 1 and every policy's choice does");
    Evaluation { law, mean }
}
