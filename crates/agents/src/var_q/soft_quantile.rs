//! The soft-quantile loss of VaR-Q-learning: its derivative, and that derivative summed over many targets.

/// g(δ): the derivative of the soft-quantile loss of level α with respect to δ = target − estimate, hence minus the one with
/// respect to the estimate: the direction in which the estimate moves.
///
/// ```
/// use bqrl_agents::var_q::soft_quantile_step;
///
/// assert_eq!(soft_quantile_step(0.25, 0.5, 0.25), 0.125); // α·δ/κ inside κ
/// assert_eq!(soft_quantile_step(0.25, 0.5, -1.5), -0.75 * 1.5); // −(1−α)·(1 + κ(|δ| − κ)) beyond
/// ```
pub fn soft_quantile_step(alpha: f64, kappa: f64, delta: f64) -> f64 {
    let size = delta.abs();
    let magnitude = if size <= kappa { size / kappa } else { 1.0 + kappa * (size - kappa) };
    if delta < 0.0 { (alpha - 1.0) * magnitude } else { alpha * magnitude }
}

/// Σ_i p_i m(q − y_i) over the targets below q and Σ_i p_i m(y_i − q) over those above, for rising targets and rising q, in
/// one pass: m is made of straight lines, so sums of weights and of weighted targets between three moving bounds are enough.
pub(super) struct Forces<'a> {
    targets: &'a [(f64, f64)],
    kappa: f64,
    /// First target ≥ q − κ, ≥ q, > q + κ, each with Σ p_i and Σ p_i y_i of the targets before it.
    bounds: [(usize, f64, f64); 3],
    total: (f64, f64),
}

impl<'a> Forces<'a> {
    pub(super) fn new(targets: &'a [(f64, f64)], kappa: f64) -> Self {
        let total = targets.iter().fold((0.0, 0.0), |(p, py), &(y, weight)| (p + weight, py + weight * y));
        Self { targets, kappa, bounds: [(0, 0.0, 0.0); 3], total }
    }

    /// (down, up) at q, which must not be smaller than at the last call.
    #[inline]
    pub(super) fn at(&mut self, q: f64) -> (f64, f64) {
        let Self { targets, kappa, bounds, total } = self;
        let [far, below, near] = bounds;
        advance(targets, far, |y| y < q - *kappa);
        advance(targets, below, |y| y < q);
        advance(targets, near, |y| y <= q + *kappa);
        let [(_, p_far, py_far), (_, p_below, py_below), (_, p_near, py_near)] = *bounds;
        // Σ p_i (q − y_i) of the far and the near targets on each side.
        let far_below = p_far * q - py_far;
        let near_below = (p_below - p_far) * q - (py_below - py_far);
        let near_above = (py_near - py_below) - (p_near - p_below) * q;
        let far_above = (total.1 - py_near) - (total.0 - p_near) * q;
        let beyond = 1.0 - *kappa * *kappa;
        let down = p_far * beyond + *kappa * far_below + near_below / *kappa;
        let up = (total.0 - p_near) * beyond + *kappa * far_above + near_above / *kappa;
        (down, up)
    }
}

/// Moves a bound past the targets that have passed.
#[inline]
fn advance(targets: &[(f64, f64)], bound: &mut (usize, f64, f64), passed: impl Fn(f64) -> bool) {
    let (index, p, py) = bound;
    while let Some(&(y, weight)) = targets.get(*index).filter(|(y, _)| passed(*y)) {
        *index += 1;
        *p += weight;
        *py += weight * y;
    }
}

#[cfg(test)]
mod tests {
    use bqrl_math::rng::{Purpose, stream};

    use super::*;

    #[test]
    fn forces_are_the_plain_sums_over_all_targets() {
        let rng = &mut stream(5, Purpose::Test);
        for _ in 0..200 {
            let (n, kappa) = (1 + rng.below(12), [1e-6, 0.01, 0.3, 1.0][rng.below(4)]);
            // Halves of whole numbers, so that targets meet q and q ± κ exactly now and then.
            let mut targets: Vec<(f64, f64)> =
                (0..n).map(|_| (rng.below(9) as f64 / 2.0, rng.uniform())).collect();
            targets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut q: Vec<f64> = (0..6).map(|_| rng.below(19) as f64 / 4.0 - 0.25).collect();
            q.sort_by(f64::total_cmp);
            let mut forces = Forces::new(&targets, kappa);
            for &q in &q {
                let alpha = rng.uniform();
                let (down, up) = forces.at(q);
                let plain: f64 =
                    targets.iter().map(|&(y, weight)| weight * soft_quantile_step(alpha, kappa, y - q)).sum();
                let got = alpha * up - (1.0 - alpha) * down;
                assert!((got - plain).abs() < 1e-8, "{got}, want {plain}: q {q}, kappa {kappa}, {targets:?}");
            }
        }
    }

    #[test]
    fn the_step_is_the_derivative_of_the_soft_quantile_loss() {
        // ℓ(δ) = |α − 1{δ<0}| · (δ²/2κ inside κ; (1 − κ²)(|δ| − κ) + κ(δ² − κ²)/2 + κ/2 beyond).
        let loss = |alpha: f64, kappa: f64, delta: f64| {
            let (size, side) = (delta.abs(), if delta < 0.0 { 1.0 - alpha } else { alpha });
            let inside = size * size / (2.0 * kappa);
            let linear = (1.0 - kappa * kappa) * (size - kappa);
            let beyond = linear + kappa * (size * size - kappa * kappa) / 2.0 + kappa / 2.0;
            side * if size <= kappa { inside } else { beyond }
        };
        for alpha in [0.05, 0.5, 0.9] {
            for kappa in [0.1, 0.5, 1.0] {
                for delta in [-2.0, -0.7, -0.05, 0.03, 0.2, 0.8, 3.0] {
                    let h = 1e-6;
                    let slope = (loss(alpha, kappa, delta + h) - loss(alpha, kappa, delta - h)) / (2.0 * h);
                    let got = soft_quantile_step(alpha, kappa, delta);
                    assert!((got - slope).abs() < 1e-8, "{got}, want {slope} at {alpha}, {kappa}, {delta}");
                }
            }
        }
    }
}
