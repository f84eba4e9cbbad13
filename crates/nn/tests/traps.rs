//! Mistakes that public implementations of quantile critics have made, one test each.
//!
//! The critics here have no hidden layer and no weights, so that their outputs are their biases and every number can be
//! worked out by hand.

mod oracle;

use bqrl_math::Buffer;
use bqrl_nn::{Adam, Batch, Choice, Ensemble, Head, Kernels, Rows, Shape, TargetRule};
use oracle::{assert_close, constant};

/// K = 2 and η = (¼, ¾). The buffer [0, ½] makes the score the lower of the two quantiles.
fn rule(tie_break: f64, kappa: f64) -> TargetRule {
    TargetRule::buffered(&Buffer::new(0.5, 0.5).unwrap(), 2, tie_break, kappa).unwrap()
}

/// Loss and gradient of the first critic (the second is there because M ≥ 2), for one transition that takes action 0.
fn step(online: &[f64], target: &[f64], rule: &TargetRule, reward: f32, done: bool) -> (f64, Vec<f64>) {
    step_of_twins(1, online, target, rule, reward, done)
}

fn step_of_twins(
    n_twins: usize,
    online: &[f64],
    target: &[f64],
    rule: &TargetRule,
    reward: f32,
    done: bool,
) -> (f64, Vec<f64>) {
    let n_heads = rule.heads().len();
    let shape = Shape {
        n_inputs: 1,
        sight: None,
        hidden: vec![],
        layer_norm: false,
        n_heads,
        n_twins,
        n_actions: online.len() / (2 * n_heads * n_twins),
        n_quantiles: 2,
        n_critics: 2,
    };
    let mut results = Kernels::available().into_iter().map(|kernels| {
        let critics = [(constant(online), constant(target)), (constant(online), constant(online))];
        let mut critics: Ensemble = oracle::ensemble(&shape, &critics, kernels);
        let batch = Batch {
            inputs: Rows::floats(&[0.0]),
            actions: &[0],
            rewards: &[reward],
            next_inputs: Rows::floats(&[0.0]),
            continuation: &[f32::from(u8::from(!done))],
        };
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
    let rule = TargetRule::per_level(2, 100.0).unwrap();
    let (loss, gradient) = step(&[0.0; 4], &[0.0, 10.0, 4.0, 5.0], &rule, 0.0, false);
    assert_close(&[loss], &[0.5 * 116.0 / 100.0 / 4.0], 1e-6, "loss");
    assert_close(&gradient, &[-0.25 * 0.14 / 4.0, -0.75 * 0.14 / 4.0, 0.0, 0.0], 1e-6, "gradient");
}

#[test]
fn atom_trap_the_smoothed_loss_spreads_levels_evenly_around_an_atom() {
    // y = (0, 1): an atom at each. κ = ½. The level ¼ rests at 0 and the level ¾ at 1, in the middle of their atoms:
    // Σ_i (η − ½) + clamp(δ_i/κ)/2 is −½ + (0 + 1)/2 = 0 for z = 0, and ½ + (−1 + 0)/2 = 0 for z = 1.
    let rule = TargetRule::per_level(2, 0.5).unwrap();
    let (_, smooth) = step(&[0.0, 1.0], &[0.0, 1.0], &rule.clone().smooth(), 0.0, false);
    assert_close(&smooth, &[0.0, 0.0], 1e-6, "gradient of the smoothed loss");
    // The paper's loss pulls both inwards: −¼·1/4 at 0, and ¼·1/4 at 1.
    let (_, huber) = step(&[0.0, 1.0], &[0.0, 1.0], &rule, 0.0, false);
    assert_close(&huber, &[-0.0625, 0.0625], 1e-6, "gradient of the paper's loss");
}

#[test]
fn crossing_trap_levels_are_compared_after_sorting() {
    // Raw quantiles of action 0 cross: (10, 0). Its 25 % quantile is 0, not 10.
    let rule = TargetRule::per_level(2, 100.0).unwrap();
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

/// Heads of K = 2 with κ = 100. Where every z of the action taken is 0 and every y is from 0 to 100, the loss of a head is
/// ½ Σy²/100/4 (for Σ_j η_j = 1), and its gradient −η_j Σy/100/4.
fn heads(heads: Vec<Head>) -> TargetRule {
    TargetRule::heads_of(heads, 2, 100.0).unwrap()
}

fn per_level(ramp: f32) -> Head {
    Head { choice: Choice::PerLevel, ramp }
}

fn by(score: [f32; 2]) -> Head {
    Head { choice: Choice::One(score.to_vec()), ramp: 0.0 }
}

/// The gradient of one head with two actions, of which 0 was taken, for the sum of its y.
fn slopes(sum: f64) -> [f64; 4] {
    [-0.25 * sum / 400.0, -0.75 * sum / 400.0, 0.0, 0.0]
}

#[test]
fn ramp_trap_it_is_added_at_the_end_and_only_there() {
    // ℓ = 4. The end with reward 1: y = 1 + 4·(¼, ¾) = (2, 4), whatever the slow critic says. Added as a constant it would be
    // (5, 5) or, for its mean, (3, 3).
    let (ramped, flat) = (heads(vec![per_level(4.0)]), heads(vec![per_level(0.0)]));
    let slow = [50.0, 70.0, 60.0, 61.0];
    let (loss, gradient) = step(&[0.0; 4], &slow, &ramped, 1.0, true);
    assert_close(&[loss], &[0.5 * (4.0 + 16.0) / 400.0], 1e-6, "loss");
    assert_close(&gradient, &slopes(6.0), 1e-6, "gradient");
    // Before the end y = 1 + (60, 70): the ramp of the end is in z̃ already. A ramp in every step would grow with the horizon.
    let (loss, gradient) = step(&[0.0; 4], &slow, &ramped, 1.0, false);
    assert_close(&[loss], &[0.5 * (61.0 * 61.0 + 71.0 * 71.0) / 400.0], 1e-6, "loss");
    assert_close(&gradient, &slopes(132.0), 1e-6, "gradient");
    assert_eq!((loss, gradient), step(&[0.0; 4], &slow, &flat, 1.0, false));
}

#[test]
fn ramp_trap_one_head_has_it_and_the_other_has_not() {
    // y = (3, 3) without a ramp, and 3 + 8·(¼, ¾) = (5, 9) with ℓ = 8.
    let rule = heads(vec![per_level(0.0), per_level(8.0)]);
    let (loss, gradient) = step(&[0.0; 8], &[9.0; 8], &rule, 3.0, true);
    assert_close(&[loss], &[0.5 * (9.0 + 9.0 + 25.0 + 81.0) / 400.0], 1e-6, "loss");
    assert_close(&gradient, &[slopes(6.0), slopes(14.0)].concat(), 1e-6, "gradient");
}

#[test]
fn head_trap_every_head_follows_its_own_rule() {
    // The same quantiles for all heads: action 0 has (0, 10) and action 1 has (4, 5).
    //   per level      max(0, 4), max(10, 5)     y = (4, 10)
    //   by the mean    5 against 4.5             y = (0, 10)
    //   by the lower   0 against 4               y = (4, 5)
    let rule = heads(vec![per_level(0.0), by([0.5, 0.5]), by([1.0, 0.0])]);
    let (loss, gradient) = step(&[0.0; 12], &[0.0, 10.0, 4.0, 5.0].repeat(3), &rule, 0.0, false);
    assert_close(&[loss], &[0.5 * (116.0 + 100.0 + 41.0) / 400.0], 1e-6, "loss");
    assert_close(&gradient, &[slopes(14.0), slopes(10.0), slopes(9.0)].concat(), 1e-6, "gradient");
}

#[test]
fn head_trap_quantiles_of_one_head_do_not_reach_another() {
    // One rule for two heads. Head 0 has (0, 10) and (4, 5), head 1 has (40, 41) and (1, 50): y = (4, 10) and (40, 50).
    let rule = heads(vec![per_level(0.0), per_level(0.0)]);
    let slow = [0.0, 10.0, 4.0, 5.0, 40.0, 41.0, 1.0, 50.0];
    let (_, gradient) = step(&[0.0; 8], &slow, &rule, 0.0, false);
    assert_close(&gradient, &[slopes(14.0), slopes(90.0)].concat(), 1e-6, "gradient");
    // θ chooses. In head 0 it has (0, 0) and (1, 2): action 1 twice, y = (4, 5). In head 1 it has (0, 0) and (−2, −1): action 0
    // twice, y = (40, 41).
    let online = [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, -2.0, -1.0];
    let (_, gradient) = step(&online, &slow, &rule.double(), 0.0, false);
    assert_close(&gradient, &[slopes(9.0), slopes(81.0)].concat(), 1e-6, "gradient");
}

/// Two twins of two heads of two actions, `[twin][head][action]`: θ, then θ̄. Action 0 is at 0 in θ.
const ONLINE: [[f64; 8]; 2] =
    [[0.0, 0.0, -6.0, 3.0, 0.0, 0.0, -4.0, 2.0], [0.0, 0.0, 4.0, 5.0, 0.0, 0.0, 2.0, 4.0]];
const SLOW: [[f64; 8]; 2] =
    [[1.0, 2.0, 3.0, 11.0, 50.0, 60.0, 20.0, 30.0], [0.0, 8.0, 5.0, 6.0, 24.0, 25.0, 10.0, 40.0]];

#[test]
fn twin_trap_the_mean_chooses_and_the_least_values_in_each_head() {
    // Head 0, per level. θ's mean of action 1 is (−1, 4), against (0, 0): action 0 at the lower level, action 1 at the upper.
    //   (Twin 1 alone, (4, 5), would take action 1 twice.)
    //   The least of θ̄ is (0, 2) for action 0 and (3, 6) for action 1: y = (0, 6).
    //   (Chosen by θ̄ it would be (3, 6), and valued by the mean (½, 8½).)
    // Head 1, by the mean. θ's mean of action 1 is (−1, 3), which is 1 > 0: action 1.
    //   (By the least, (−4, 2), it would be action 0, as it would by the least of θ̄: (24, 25) against (10, 30).)
    //   The least of θ̄ is (10, 30): y = (10, 30).
    let rule = heads(vec![per_level(0.0), by([0.5, 0.5])]).double();
    let (loss, gradient) = step_of_twins(2, &ONLINE.concat(), &SLOW.concat(), &rule, 0.0, false);
    // Both twins learn the same y.
    assert_close(&[loss], &[2.0 * 0.5 * (36.0 + 100.0 + 900.0) / 400.0], 1e-6, "loss");
    assert_close(&gradient, &[slopes(6.0), slopes(40.0)].concat().repeat(2), 1e-6, "gradient");
}

#[test]
fn twin_trap_without_double_each_twin_is_a_critic_of_its_own() {
    // θ̄ chooses and values. Head 0, per level: the larger of (1, 2) and (3, 11) in twin 0, and of (0, 8) and (5, 6) in twin 1:
    // y = (3, 11) and (5, 8). Head 1, by the mean: 55 against 25 in twin 0, y = (50, 60); 24½ against 25 in twin 1,
    // y = (10, 40).
    let rule = heads(vec![per_level(0.0), by([0.5, 0.5])]);
    let (loss, gradient) = step_of_twins(2, &ONLINE.concat(), &SLOW.concat(), &rule, 0.0, false);
    let squares = [9.0 + 121.0, 2500.0 + 3600.0, 25.0 + 64.0, 100.0 + 1600.0];
    assert_close(&[loss], &[0.5 * squares.iter().sum::<f64>() / 400.0], 1e-6, "loss");
    assert_close(&gradient, &[14.0, 110.0, 13.0, 50.0].map(slopes).concat(), 1e-6, "gradient");
}

#[test]
#[should_panic(expected = "heads of the rule, want those of the critics")]
fn a_rule_for_another_number_of_heads_is_refused() {
    let shape = Shape {
        n_inputs: 1,
        sight: None,
        hidden: vec![],
        layer_norm: false,
        n_heads: 2,
        n_twins: 1,
        n_actions: 1,
        n_quantiles: 2,
        n_critics: 1,
    };
    let net = constant(&[0.0; 4]);
    let mut critics = oracle::ensemble(&shape, &[(net.clone(), net)], Kernels::scalar());
    let x = Rows::floats(&[0.0]);
    let batch = Batch { inputs: x, actions: &[0], rewards: &[0.0], next_inputs: x, continuation: &[0.0] };
    let _ = critics.train_step(&batch, &heads(vec![per_level(0.0)]), &Adam::new(1e-3), 0.1);
}
