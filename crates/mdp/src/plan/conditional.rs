//! The fixed point of the paper's rule, solved exactly.
//!
//! ```text
//! π(x) = argmax_a Q_τ^β(Z^π(x, a)),   Z^π(x, a) the remaining return when a is taken and π followed     Eq. (2)
//! ```
//!
//! The rule imposes the level τ again at every stage, so it does not always maximise Q_τ of the whole return. Its fixed
//! point gives a lower limit of the quantile policy gap, which no training removes. Since c only shifts the compared
//! values, the rule's choice depends on (h, s) alone, and backward induction over remaining-return laws solves it. Ties go
//! to the larger mean.

use bqrl_math::buffer::Buffer;
use bqrl_math::law::ReturnLaw;
use bqrl_math::score::argmax_by_mean;

use crate::model::Model;
use crate::returns::Compiled;

/// The paper's rule on a model.
#[derive(Clone, Debug)]
pub struct ConditionalGreedy {
    /// The action at (h, s); unreachable and terminal states hold 0.
    pub actions: Vec<Vec<usize>>,
    /// The law of the whole return.
    pub law: ReturnLaw,
}

/// Solves the rule. Laws are kept whole, so the cost grows with the number of distinct returns; `max_atoms` bounds it
/// (`None` is returned when a remaining-return law has more atoms).
pub fn greedy(model: &Model, buffer: Buffer, max_atoms: usize) -> Option<ConditionalGreedy> {
    let compiled = Compiled::new(model);
    let over = ReturnLaw::point(0.0);
    let mut later: Vec<ReturnLaw> = vec![over.clone(); compiled.n_states + 1];
    let mut actions = vec![vec![0; compiled.n_states]; compiled.horizon];
    // Scores are sums of about as many terms as there are atoms; anything closer than this is a tie.
    let tie = 1e-3 * compiled.tolerance;
    for stage in (0..compiled.horizon).rev() {
        let mut laws = vec![over.clone(); compiled.n_states + 1];
        for &state in &compiled.alive[stage] {
            let state = state as usize;
            let mut available = Vec::new();
            let mut candidates = Vec::new();
            for action in 0..compiled.n_actions {
                let transitions = compiled.transitions(stage, state, action);
                if transitions.is_empty() {
                    continue;
                }
                let atoms = transitions.iter().flat_map(|t| {
                    let (law, reward) = (&later[t.next as usize], compiled.reward(stage, t.code));
                    let atoms = law.values().iter().zip(law.probabilities());
                    atoms.map(move |(value, p)| (reward + value, t.probability * p))
                });
                let law = ReturnLaw::from_atoms_within(atoms, compiled.tolerance)
                    .expect("a mixture of laws is a law");
                if law.values().len() > max_atoms {
                    return None;
                }
                available.push(action);
                candidates.push(law);
            }
            let scores: Vec<f64> = candidates.iter().map(|law| law.buffered_quantile(&buffer)).collect();
            let means: Vec<f64> = candidates.iter().map(ReturnLaw::mean).collect();
            let chosen = argmax_by_mean(&scores, &means, tie);
            actions[stage][state] = available[chosen];
            laws[state] = candidates.swap_remove(chosen);
        }
        later = laws;
    }
    let starts: Vec<(f64, &ReturnLaw)> =
        compiled.start.iter().map(|&(state, p)| (p, &later[state])).collect();
    let law = ReturnLaw::mixture(&starts).expect("start probabilities sum to 1");
    Some(ConditionalGreedy { actions, law })
}
