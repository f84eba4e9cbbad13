//! Mistakes that public implementations of quantile critics have made, one test each.
//!
//! The critics here have no hidden layer and no weights, so that their outputs are their biases and every number can be
//! worked out by hand.

mod oracle;

use bqrl_math::Buffer;
use bqrl_nn::{Adam, Batch, Ensemble, Kernels, TargetRule};
use oracle::{assert_close, constant};

/// K = 2 and η = (¼, ¾). The buffer [0, ½] makes the score the lower of the two quantiles.
fn rule(tie_break: f64, kappa: f64) -> TargetRule {
    TargetRule::buffered(&Buffer::new(0.5, 0.5).unwrap(), 2, tie_break, kappa).unwrap()
}

/// Loss and gradient of the first critic (the second is there because M ≥ 2), for one transition that takes action 0.
fn step(online: &[f64], target: &[f64], rule: &TargetRule, reward: f32, done: bool) -> (f64, Vec<f64>) {
    let mut results = Kernels::available().into_iter().map(|kernels| {
        let critics = [(constant(online), constant(target)), (constant(online), constant(online))];
        let mut critics: Ensemble = oracle::ensemble(online.len() / 2, 2, &critics, kernels);
        let batch =
            Batch { inputs: &[0.0], actions: &[0], rewards: &[reward], next_inputs: &[0.0], done: &[done] };
        let losses = critics.train_step_with_loss(&batch, rule, &Adam::new(1e-3), 0.1).unwrap();
        let gradient =
            oracle::critics(&critics)[0].first[0].bias.iter().map(|m| m / 0.1).collect::<Vec<f64>>();
        (losses[0], gradient)
    });
    let first = results.next().unwrap();
    for other in results {
        assert_close(&other.1, &first.1, 1e-6, "gradient of the variants");
    }
    first
}

#[test]
fn per_quantile_max_trap_one_next_action_serves_all_quantiles() {
    // Action 0 promises (0, 10) and action 1 (4, 5). The scores are 0 and 4, so y = (4, 5).
    // A maximum per quantile would make it (4, 10), a law that no action has.
    let z = [0.0, 0.0, 0.0, 0.0];
    let (loss, gradient) = step(&z, &[0.0, 10.0, 4.0, 5.0], &rule(0.0, 100.0), 0.0, false);
    // κ = 100: ρ = |η − 1{δ<0}| ½δ²/100, all δ > 0: (¼ + ¾) · ½ (16 + 25)/100 over K² = 4.
    assert_close(&[loss], &[0.5 * 41.0 / 100.0 / 4.0], 1e-6, "loss");
    // −η_j Σδ/κ/K²: Σδ = 9.
    assert_close(&gradient, &[-0.25 * 0.09 / 4.0, -0.75 * 0.09 / 4.0, 0.0, 0.0], 1e-6, "gradient");
}

#[test]
fn target_tracking_takes_the_best_action_at_each_level() {
    // The same quantiles: (0, 10) and (4, 5). Here the maximum per level, (4, 10), is what is wanted: it is the upper
    // envelope of the two laws, P(Z ≥ 4) = 1 by action 1 and P(Z ≥ 10) = ½ by action 0.
    let rule = TargetRule::per_level(2, 100.0, 1.0).unwrap();
    let (loss, gradient) = step(&[0.0; 4], &[0.0, 10.0, 4.0, 5.0], &rule, 0.0, false);
    assert_close(&[loss], &[0.5 * 116.0 / 100.0 / 4.0], 1e-6, "loss");
    assert_close(&gradient, &[-0.25 * 0.14 / 4.0, -0.75 * 0.14 / 4.0, 0.0, 0.0], 1e-6, "gradient");
}

#[test]
fn atom_trap_the_smoothed_loss_spreads_levels_evenly_around_an_atom() {
    // y = (0, 1): an atom at each. κ = ½. The level ¼ rests at 0 and the level ¾ at 1, in the middle of their atoms:
    // Σ_i (η − ½) + clamp(δ_i/κ)/2 is −½ + (0 + 1)/2 = 0 for z = 0, and ½ + (−1 + 0)/2 = 0 for z = 1.
    let rule = TargetRule::per_level(2, 0.5, 1.0).unwrap();
    let (_, smooth) = step(&[0.0, 1.0], &[0.0, 1.0], &rule.clone().smooth(), 0.0, false);
    assert_close(&smooth, &[0.0, 0.0], 1e-6, "gradient of the smoothed loss");
    // The paper's loss pulls both inwards: −¼·1/4 at 0, and ¼·1/4 at 1.
    let (_, huber) = step(&[0.0, 1.0], &[0.0, 1.0], &rule, 0.0, false);
    assert_close(&huber, &[-0.0625, 0.0625], 1e-6, "gradient of the paper's loss");
}

#[test]
fn crossing_trap_levels_are_compared_after_sorting() {
    // Raw quantiles of action 0 cross: (10, 0). Its 25 % quantile is 0, not 10.
    let rule = TargetRule::per_level(2, 100.0, 1.0).unwrap();
    let (_, crossed) = step(&[0.0; 4], &[10.0, 0.0, 4.0, 5.0], &rule, 0.0, false);
    let (_, sorted) = step(&[0.0; 4], &[0.0, 10.0, 4.0, 5.0], &rule, 0.0, false);
    assert_eq!(crossed, sorted);
}

#[test]
fn sorted_loss_trap_raw_outputs_stay_tied_to_their_levels() {
    // y = (1, 3), z = (2, 0): out of order, and it stays so. By hand in bqrl_math::huber: 2.75/4; sorted it would be 1.25/4.
    let (loss, gradient) = step(&[2.0, 0.0], &[3.0, 1.0], &rule(0.0, 1.0), 0.0, false);
    assert_close(&[loss], &[2.75 / 4.0], 1e-6, "loss");
    // j = 1, z = 2: −(¾·(−1) + ¼·1) = ½; j = 2, z = 0: −(¾ + ¾) = −1.5. Over K² = 4.
    assert_close(&gradient, &[0.125, -0.375], 1e-6, "gradient");
}

#[test]
fn tau_broadcast_trap_levels_belong_to_outputs_and_not_to_targets() {
    // y = (1, 3), z = (0, 2): 1.25/4 by hand; with η along the targets it would be 2.75/4.
    let (loss, gradient) = step(&[0.0, 2.0], &[1.0, 3.0], &rule(0.0, 1.0), 0.0, false);
    assert_close(&[loss], &[0.3125], 1e-6, "loss");
    // j = 1: −(¼ + ¼); j = 2: −(−¼ + ¾). Over 4.
    assert_close(&gradient, &[-0.125, -0.125], 1e-6, "gradient");
}

#[test]
fn loss_scale_trap_the_paper_averages_over_both_axes_and_divides_by_kappa() {
    // As above with κ = 2: ρ = w·h/2, h = (½, 4, ½, ½), w = (¼, ¼, ¼, ¾).
    let (loss, gradient) = step(&[0.0, 2.0], &[1.0, 3.0], &rule(0.0, 2.0), 0.0, false);
    assert_close(&[loss], &[(0.125 + 1.0 + 0.125 + 0.375) / 2.0 / 4.0], 1e-6, "loss");
    // clamp(δ, ±2)/2 = (½, 1, −½, ½).
    assert_close(&gradient, &[-0.375 / 4.0, -0.25 / 4.0], 1e-6, "gradient");
}

#[test]
fn horizon_trap_nothing_is_added_to_the_last_reward() {
    // d = 1: y = (1, 1), whatever the target critic says. z = 0: loss (¼ + ¾)·½·2/4, gradient −η_j·2/4.
    let (loss, gradient) = step(&[0.0, 0.0], &[50.0, 70.0], &rule(0.0, 1.0), 1.0, true);
    assert_close(&[loss], &[0.25], 1e-6, "loss");
    assert_close(&gradient, &[-0.125, -0.375], 1e-6, "gradient");
}

#[test]
fn the_lowest_action_wins_a_tie_unless_the_mean_breaks_it() {
    // Both actions score 1; their means are 2 and 4. z = 0, κ = 100: the gradient is −η_j Σy/100/4.
    let target = [1.0, 3.0, 1.0, 7.0];
    let (_, lowest) = step(&[0.0; 4], &target, &rule(0.0, 100.0), 0.0, false);
    assert_close(&lowest, &[-0.25 * 0.01, -0.75 * 0.01, 0.0, 0.0], 1e-6, "sum of y is 4");
    let (_, by_mean) = step(&[0.0; 4], &target, &rule(0.1, 100.0), 0.0, false);
    assert_close(&by_mean, &[-0.25 * 0.02, -0.75 * 0.02, 0.0, 0.0], 1e-6, "sum of y is 8");
}
