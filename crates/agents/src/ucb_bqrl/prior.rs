//! Q_a: what is believed of the successors of a pair before it is tried.
//!
//! ```text
//! uniform    every state alike
//! pooled     where the action led from all states together
//! shifted    how far it led, as a difference of state numbers, cut to the states that there are
//! adaptive   pooled or shifted, whichever has the larger max_κ Σ_sa ln P(N(s,a,·) | Dirichlet(κ Q_{−s}))
//! ```

use super::Prior;
use super::counts::Counts;

/// The strengths at which kinds of prior are compared.
const STRENGTHS: [f64; 5] = [0.25, 1.0, 4.0, 16.0, 64.0];

/// Q_a of every action: as set, or of the kind by which rows are better predicted from one another.
pub(super) fn priors(prior: Prior, n_states: usize, n_actions: usize, counts: &Counts) -> Vec<PriorOf> {
    let pooled = Pooled::new(n_states, n_actions, counts);
    // How strongly rows resemble one another is not known either: each kind is judged at its best.
    let evidence = |kind: Kind| {
        let at = |strength: f64| (0..n_actions).map(move |a| (a, strength));
        let sum = |strength: f64| at(strength).map(|(a, k)| pooled.evidence(counts, a, kind, k)).sum::<f64>();
        STRENGTHS.iter().map(|&strength| sum(strength)).fold(f64::NEG_INFINITY, f64::max)
    };
    let kind = match prior {
        Prior::Uniform => Kind::Uniform,
        Prior::Shifted => Kind::Shifted,
        Prior::Adaptive if evidence(Kind::Shifted) > evidence(Kind::Pooled) => Kind::Shifted,
        Prior::Pooled | Prior::Adaptive => Kind::Pooled,
    };
    (0..n_actions).map(|action| pooled.prior(action, kind)).collect()
}

/// The common part of the rows of an action.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Uniform,
    Pooled,
    Shifted,
}

/// Q_a.
pub(super) struct PriorOf {
    /// Over next states.
    pub shared: Vec<f64>,
    /// Over differences of state numbers, d at d + S − 1; empty for other kinds. It goes before `shared`.
    shifted: Vec<f64>,
}

impl PriorOf {
    /// The successors that a shifted prior gives a row; empty for other kinds, and where no shift is possible.
    pub fn moves(&self, state: usize, n_states: usize) -> Vec<(usize, f64)> {
        if self.shifted.is_empty() {
            return Vec::new();
        }
        let of = |next: usize| (next, self.shifted[next + n_states - 1 - state]);
        let mut moves: Vec<(usize, f64)> = (0..n_states).map(of).filter(|&(_, p)| p > 0.0).collect();
        let sum: f64 = moves.iter().map(|&(_, p)| p).sum();
        for (_, p) in &mut moves {
            *p /= sum;
        }
        moves
    }
}

/// Counts summed over states, per action.
struct Pooled {
    n_states: usize,
    n_actions: usize,
    total: Vec<f64>,
    /// By next state, and by difference of state numbers.
    next: Vec<Vec<f64>>,
    shift: Vec<Vec<f64>>,
}

impl Pooled {
    fn new(n_states: usize, n_actions: usize, counts: &Counts) -> Self {
        let mut pooled = Self {
            n_states,
            n_actions,
            total: vec![0.0; n_actions],
            next: vec![vec![0.0; n_states]; n_actions],
            shift: vec![vec![0.0; 2 * n_states - 1]; n_actions],
        };
        for (index, row) in counts.kernels.iter().flat_map(|rows| rows.iter().enumerate()) {
            let (state, action) = (index / n_actions, index % n_actions);
            pooled.total[action] += row.n as f64;
            for seen in &row.seen {
                pooled.next[action][seen.next as usize] += seen.count as f64;
                pooled.shift[action][seen.next as usize + n_states - 1 - state] += seen.count as f64;
            }
        }
        pooled
    }

    fn prior(&self, action: usize, kind: Kind) -> PriorOf {
        let total = self.total[action];
        let share = |counts: &[f64]| counts.iter().map(|n| n / total).collect::<Vec<f64>>();
        let uniform = vec![1.0 / self.n_states as f64; self.n_states];
        match kind {
            Kind::Pooled if total > 0.0 => PriorOf { shared: share(&self.next[action]), shifted: Vec::new() },
            Kind::Shifted if total > 0.0 => PriorOf { shared: uniform, shifted: share(&self.shift[action]) },
            _ => PriorOf { shared: uniform, shifted: Vec::new() },
        }
    }

    /// How well the rows of an action are predicted, each from all others: Σ_s ln P(N(s,a,·) | Dirichlet(κ Q_{−s})). Q is
    /// smoothed by one observation that is uniform over the states, so that nothing is impossible.
    fn evidence(&self, counts: &Counts, action: usize, kind: Kind, strength: f64) -> f64 {
        let s = self.n_states as f64;
        let mut sum = 0.0;
        for rows in &counts.kernels {
            for state in 0..self.n_states {
                let row = &rows[state * self.n_actions + action];
                if row.n == 0 {
                    continue;
                }
                sum += ln_gamma(strength) - ln_gamma(strength + row.n as f64);
                let others = self.total[action] - row.n as f64;
                for seen in &row.seen {
                    let (next, n) = (seen.next as usize, seen.count as f64);
                    let alike = match kind {
                        Kind::Uniform => others / s,
                        Kind::Pooled => self.next[action][next] - n,
                        Kind::Shifted => self.shift[action][next + self.n_states - 1 - state] - n,
                    };
                    let base = strength * (alike + 1.0 / s) / (others + 1.0);
                    sum += ln_gamma(base + n) - ln_gamma(base);
                }
            }
        }
        sum
    }
}

/// ln Γ(x) for x > 0, by Stirling's series after stepping up to x ≥ 10; the error is below 1e-10.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut steps) = (x, 1.0);
    while x < 10.0 {
        steps *= x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse / 1260.0)) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - steps.ln()
}

#[cfg(test)]
mod tests {
    use super::super::counts::{Row, Seen};
    use super::*;

    #[test]
    fn ln_gamma_is_the_logarithm_of_factorials() {
        // Γ(1) = Γ(2) = 1, Γ(5) = 24, Γ(½) = √π.
        for (x, value) in [(1.0, 0.0), (2.0, 0.0), (5.0, 24f64.ln()), (0.5, 0.5 * std::f64::consts::PI.ln())]
        {
            assert!((ln_gamma(x) - value).abs() < 1e-10, "{x}: {}", ln_gamma(x));
        }
        // Γ(x + 1) = x Γ(x) far from the step as well.
        assert!((ln_gamma(1001.0) - ln_gamma(1000.0) - 1000f64.ln()).abs() < 1e-10);
    }

    /// Four states, one action; transitions (s, s').
    fn counts(seen: &[(usize, usize)]) -> Counts {
        let mut rows = vec![Row::default(); 4];
        for &(state, next) in seen {
            rows[state].n += 1;
            rows[state].seen.push(Seen { next: next as u32, reward: 0.0, count: 1 });
        }
        Counts { kernels: vec![rows], starts: vec![0; 4], terminal: vec![false; 4], episodes: 0 }
    }

    #[test]
    fn evidence_matches_hand_computation() {
        // s = 0 → 3 and s = 1 → 3, κ = 1. Each row has one observation, so that its probability is Q(s'):
        //   pooled: the other row says 3, smoothed (1 + 1/4)/(1 + 1) = 5/8 each
        //   shifted: the other row says another distance, (0 + 1/4)/2 = 1/8 each; uniform: 1/4 each
        let counts = counts(&[(0, 3), (1, 3)]);
        let pooled = Pooled::new(4, 1, &counts);
        for (kind, p) in [(Kind::Pooled, 5.0 / 8.0), (Kind::Shifted, 1.0 / 8.0), (Kind::Uniform, 0.25)] {
            let evidence = pooled.evidence(&counts, 0, kind, 1.0);
            assert!((evidence - 2.0 * f64::ln(p)).abs() < 1e-9, "{kind:?}: {evidence}");
        }
    }

    #[test]
    fn a_shifted_prior_keeps_to_the_states_that_there_are() {
        // Steps of +1 (twice) and +2 (once): from state 1 both are possible, from 2 only +1, from 3 neither.
        let counts = counts(&[(0, 1), (1, 2), (0, 2)]);
        let prior = Pooled::new(4, 1, &counts).prior(0, Kind::Shifted);
        let moves = prior.moves(1, 4);
        assert_eq!(moves.iter().map(|m| m.0).collect::<Vec<_>>(), [2, 3]);
        assert!((moves[0].1 - 2.0 / 3.0).abs() < 1e-12 && (moves[1].1 - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(prior.moves(2, 4), [(3, 1.0)]);
        assert_eq!(prior.moves(3, 4), []);
    }
}
