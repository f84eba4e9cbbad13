//! Optimistic planning against what can be enumerated.

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_mdp::evaluate::evaluate;
use bqrl_mdp::model::{Kernel, Model, Outcome, Problem};
use bqrl_mdp::plan::Planner;
use bqrl_mdp::plan::robust::{RobustMean, RobustModel, RobustPlanner, RobustRow};
use bqrl_mdp::problems;
use bqrl_mdp::trajectory::AugmentedInput;

fn silent(_: u64, _: usize, _: usize) {}

/// A table that is known exactly.
fn certain(model: &Model) -> RobustModel {
    let rows = |kernel: &Kernel| -> Vec<RobustRow> {
        (0..model.n_states() * model.n_actions())
            .map(|row| {
                let outcomes = kernel.outcomes(row / model.n_actions(), row % model.n_actions()).to_vec();
                // Rows of terminal states are never looked at; they still have to sum to 1.
                let shared = if outcomes.is_empty() { 1.0 } else { 0.0 };
                RobustRow { outcomes, shared, elsewhere: 0.0, radius: 0.0 }
            })
            .collect()
    };
    RobustModel {
        n_states: model.n_states(),
        n_actions: model.n_actions(),
        horizon: model.horizon(),
        discount: model.discount(),
        start: model.start().to_vec(),
        terminal: (0..model.n_states()).map(|s| model.is_terminal(0, s)).collect(),
        arrival: vec![0.0; model.n_states()],
        shared: vec![vec![1.0 / model.n_states() as f64; model.n_states()]],
        kernels: model.kernels().iter().map(rows).collect(),
    }
}

fn built(name: &str, parameters: &[(&str, &str)]) -> Problem {
    let owned: Vec<(String, String)> = parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    problems::build(name, &owned).unwrap()
}

#[test]
fn with_radius_zero_it_is_the_exact_planner() {
    for (name, parameters) in [
        ("asset-selling", &[][..]),
        ("frozen-lake", &[]),
        ("gamble-chain", &[]),
        ("machine-replacement", &[("horizon", "8")]),
        ("inventory", &[("horizon", "4")]),
        ("gamblers-ruin", &[]),
        ("river-swim", &[]),
        ("cliff-walk", &[("width", "4"), ("height", "3"), ("horizon", "12")]),
    ] {
        let problem = built(name, parameters);
        let robust = certain(&problem.model);
        let planner = RobustPlanner::new(&robust, true, 1 << 20, 1 << 10);
        assert!(planner.is_exact(), "{name}");
        let exact = Planner::exact(&problem.model, &silent).unwrap();
        let start = problem.model.start()[0].0;
        assert!(
            (planner.mean().value(0, start) - exact.max_mean()).abs() < 1e-9 * (1.0 + exact.max_mean().abs())
        );
        for tau in [0.05, 0.1, 0.3, 0.5, 0.75, 0.9] {
            let plan = planner.quantile_policy(tau, 0.0, 0);
            let best = exact.best_quantile(tau);
            assert!((plan.best_quantile - best.value).abs() < 1e-9, "{name}, tau {tau}: {plan:?}, {best:?}");
            // What the pass says of its policy is what the policy does.
            let evaluation = evaluate(&problem.model, &plan.policy).unwrap();
            let below = evaluation.law.probability_below(best.value - 1e-9);
            assert!((below - plan.below).abs() < 1e-7, "{name}, tau {tau}: {below}, {}", plan.below);
            assert!(evaluation.law.quantile(tau) >= best.value - 1e-9, "{name}, tau {tau}");
            let span = 1.0 + exact.range().1 - exact.range().0;
            assert!((evaluation.mean - plan.mean).abs() < 1e-4 * span, "{name}, tau {tau}: {}", plan.mean);
            // The forward pass of the planner agrees with that of the model.
            let own = planner.evaluate(&plan.policy);
            assert!((own.mean - evaluation.mean).abs() < 1e-9 * span);
            assert!((own.law.quantile(tau) - evaluation.law.quantile(tau)).abs() < 1e-9, "{name}, tau {tau}");
        }
    }
}

#[test]
fn slack_buys_mean_and_keeps_the_quantile() {
    // Asset selling, τ = .1: the most timid policy that attains 19/24 has a mean of about .820, the best has .8562.
    let problem = built("asset-selling", &[]);
    let robust = certain(&problem.model);
    let planner = RobustPlanner::new(&robust, true, 1 << 20, 1 << 10);
    let means = [0.0, 0.5, 1.0].map(|slack| {
        let plan = planner.quantile_policy(0.1, slack, 8);
        let evaluation = evaluate(&problem.model, &plan.policy).unwrap();
        assert!((evaluation.law.quantile(0.1) - 19.0 / 24.0).abs() < 1e-9);
        assert!((evaluation.mean - plan.mean).abs() < 1e-4);
        evaluation.mean
    });
    assert!(means[0] <= means[1] && means[1] <= means[2], "{means:?}");
    assert!(means[2] > 0.856, "{means:?}");
}

#[test]
fn a_buffered_plan_attains_the_certified_lower_bound_where_the_widths_are_fine() {
    // The golden table: UB2 = .748334 is attained by a deterministic policy at τ = .1, β = .05.
    let problem = built("asset-selling", &[]);
    let robust = certain(&problem.model);
    let planner = RobustPlanner::new(&robust, true, 1 << 20, 1 << 10);
    let buffer = Buffer::new(0.1, 0.05).unwrap();
    let policy = planner.buffered_policy(&buffer, 25);
    let value = evaluate(&problem.model, &policy).unwrap().law.buffered_quantile(&buffer);
    assert!(value > 0.748334 - 0.005 && value < 0.748335, "{value}");
    let point = planner.quantile_policy(0.1, 0.0, 0).policy;
    let of_point = evaluate(&problem.model, &point).unwrap().law.buffered_quantile(&buffer);
    assert!(value > of_point + 1e-3, "{value} against {of_point} of the point plan");
}

/// min Σ p f over { p ≥ 0, Σ p = 1, ‖p − q‖₁ ≤ ρ } by the vertices of the polytope: at a vertex all but two coordinates
/// sit at 0 or at q. (n coordinates; one equation and the ball leave two free.)
fn vertex_minimum(q: &[f64], f: &[f64], radius: f64) -> f64 {
    let n = q.len();
    let mut best = f64::INFINITY;
    let mut consider = |p: &[f64]| {
        let distance: f64 = p.iter().zip(q).map(|(p, q)| (p - q).abs()).sum();
        let sum: f64 = p.iter().sum();
        if p.iter().all(|&p| p >= -1e-12) && (sum - 1.0).abs() < 1e-9 && distance <= radius + 1e-9 {
            best = best.min(p.iter().zip(f).map(|(p, f)| p * f).sum());
        }
    };
    for i in 0..n {
        for j in 0..n {
            for corner in 0..1 << n {
                let mut p: Vec<f64> = (0..n).map(|k| if corner >> k & 1 == 1 { q[k] } else { 0.0 }).collect();
                // Both free: i gains and j loses by the ball; or i alone is free and takes what is left.
                let fixed: f64 = (0..n).filter(|&k| k != i && k != j).map(|k| p[k]).sum();
                let spent: f64 = (0..n).filter(|&k| k != i && k != j).map(|k| q[k] - p[k]).sum();
                if i != j {
                    // p_i = q_i + u, p_j = q_j − v, u = v + spent, u + v + spent = ρ.
                    let v = (radius - 2.0 * spent) / 2.0;
                    (p[i], p[j]) = (q[i] + v + spent, q[j] - v);
                    consider(&p);
                    for lost in [0.0, q[j]] {
                        p[j] = lost;
                        p[i] = 1.0 - fixed - lost;
                        consider(&p);
                    }
                }
            }
        }
    }
    best
}

/// One decision, then the horizon: min over the ball of P(R < y), with rewards that depend on the next state.
#[test]
fn the_inner_step_is_the_linear_program_over_the_ball() {
    let rng = &mut stream(11, Purpose::Test);
    for case in 0..200 {
        let n = 2 + rng.below(3);
        let rewards: Vec<f64> = (0..n).map(|_| rng.below(4) as f64).collect();
        let weights: Vec<f64> =
            (0..n).map(|_| if rng.below(3) == 0 { 0.0 } else { 0.1 + rng.uniform() }).collect();
        let sum: f64 = weights.iter().sum();
        let q: Vec<f64> =
            if sum > 0.0 { weights.iter().map(|w| w / sum).collect() } else { vec![1.0 / n as f64; n] };
        let radius = 2.2 * rng.uniform();
        for form in 0..3 {
            let model = one_decision(&q, &rewards, radius, form, rng);
            let planner = RobustPlanner::new(&model, true, 1 << 20, 1 << 10);
            // V: the same program for the mean, as a minimum of −r.
            let costs: Vec<f64> = rewards.iter().map(|r| -r).collect();
            let mean = -vertex_minimum(&q, &costs, radius);
            assert!((planner.mean().value(0, 0) - mean).abs() < 1e-9, "case {case}, form {form}");
            for target in 1..4 {
                let target = f64::from(target);
                let costs: Vec<f64> = rewards.iter().map(|&r| f64::from(u8::from(r < target))).collect();
                let below = vertex_minimum(&q, &costs, radius);
                // F(y) < τ decides whether y is attained: τ on either side of it.
                let attained = |tau: f64| planner.quantile_policy(tau, 0.0, 0).best_quantile >= target - 1e-9;
                if below < 0.999 {
                    assert!(attained(below + 1e-6), "case {case}, form {form}: {target} at {below}");
                }
                if below > 0.001 {
                    assert!(!attained(below - 1e-6), "case {case}, form {form}: {target} at {below}");
                }
            }
        }
    }
}

/// The same ball written three ways: all mass in outcomes, all of it shared, or some of each.
fn one_decision(q: &[f64], rewards: &[f64], radius: f64, form: usize, rng: &mut Rng) -> RobustModel {
    let n = q.len();
    let weight = match form {
        0 => 1.0,
        1 => 0.0,
        _ => rng.uniform(),
    };
    let outcomes = (0..n)
        .filter(|&next| weight * q[next] > 0.0)
        .map(|next| Outcome { probability: weight * q[next], next, reward: rewards[next] })
        .collect();
    let row = RobustRow { outcomes, shared: 1.0 - weight, elsewhere: 0.0, radius };
    RobustModel {
        n_states: n,
        n_actions: 1,
        horizon: 1,
        discount: 1.0,
        start: vec![(0, 1.0)],
        terminal: vec![false; n],
        arrival: rewards.to_vec(),
        shared: vec![q.to_vec()],
        kernels: vec![vec![row; n]],
    }
}

/// A few states, actions and stages with random rows, some of them shared.
fn random(rng: &mut Rng, radius: f64) -> RobustModel {
    let (n_states, n_actions, horizon) = (3, 2, 3);
    let distribution = |rng: &mut Rng| {
        let weights: Vec<f64> = (0..n_states).map(|_| rng.uniform()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|w| w / sum).collect::<Vec<f64>>()
    };
    let arrival: Vec<f64> = (0..n_states).map(|_| rng.below(3) as f64).collect();
    let shared = vec![distribution(rng), distribution(rng)];
    let rows = (0..n_states * n_actions)
        .map(|_| {
            let (weight, elsewhere) = ([0.0, 0.4, 1.0][rng.below(3)], rng.below(3) as f64);
            let q = distribution(rng);
            let outcome = |next: usize| Outcome {
                probability: weight * q[next],
                next,
                reward: elsewhere + arrival[next],
            };
            let outcomes = if weight > 0.0 { (0..n_states).map(outcome).collect() } else { Vec::new() };
            RobustRow { outcomes, shared: 1.0 - weight, elsewhere, radius }
        })
        .collect();
    let terminal = vec![false, false, rng.below(2) == 0];
    RobustModel {
        n_states,
        n_actions,
        horizon,
        discount: 1.0,
        start: vec![(0, 1.0)],
        terminal,
        arrival,
        shared,
        kernels: vec![rows],
    }
}

/// F_h(s, y) by recursion over the definition, with the vertices of the ball.
fn least_below(model: &RobustModel, stage: usize, state: usize, y: f64) -> f64 {
    if stage == model.horizon || model.terminal[state] {
        return f64::from(u8::from(y > 1e-9));
    }
    (0..model.n_actions)
        .map(|action| {
            let row = &model.kernels[0][state * model.n_actions + action];
            let mut q: Vec<f64> = model.shared[action].iter().map(|p| row.shared * p).collect();
            row.outcomes.iter().for_each(|o| q[o.next] += o.probability);
            let later =
                |next: usize| least_below(model, stage + 1, next, y - row.elsewhere - model.arrival[next]);
            let f: Vec<f64> = (0..model.n_states).map(later).collect();
            vertex_minimum(&q, &f, row.radius)
        })
        .fold(f64::INFINITY, f64::min)
}

#[test]
fn the_whole_pass_is_the_recursion_over_vertices() {
    let rng = &mut stream(12, Purpose::Test);
    for case in 0..60 {
        let radius = [0.0, 0.1, 0.5, 1.0, 2.0][case % 5];
        let model = random(rng, radius);
        let planner = RobustPlanner::new(&model, true, 1 << 20, 1 << 10);
        for target in 1..=9 {
            let target = f64::from(target);
            let least = least_below(&model, 0, 0, target);
            let attained = |tau: f64| planner.quantile_policy(tau, 0.0, 0).best_quantile >= target - 1e-9;
            if least < 0.999 {
                assert!(attained(least + 1e-6), "case {case}: {target} at {least}");
            }
            if least > 0.001 {
                assert!(!attained(least - 1e-6), "case {case}: {target} at {least}");
            }
        }
    }
}

#[test]
fn a_larger_ball_is_more_optimistic_and_the_largest_knows_no_failure() {
    let problem = built("frozen-lake", &[("horizon", "20")]);
    let success = |radius: f64| {
        let mut model = certain(&problem.model);
        model.kernels[0].iter_mut().for_each(|row| row.radius = radius);
        model.arrival = (0..16).map(|s| f64::from(u8::from(s == 15))).collect();
        RobustMean::new(&model, true).value(0, 0)
    };
    let values = [0.0, 0.02, 0.1, 0.5, 2.0].map(success);
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
    assert!((values[4] - 1.0).abs() < 1e-12, "{values:?}");
}

#[test]
fn rounded_rewards_give_a_lower_bound_close_to_the_exact_value() {
    let problem = built("american-put", &[("horizon", "8")]);
    let robust = certain(&problem.model);
    let planner = RobustPlanner::new(&robust, true, 20_000, 20_000);
    assert!(!planner.is_exact());
    let exact = Planner::exact(&problem.model, &silent).unwrap();
    for tau in [0.5, 0.9] {
        let (got, best) = (planner.quantile_policy(tau, 0.0, 0), exact.best_quantile(tau).value);
        // Eight rewards, each rounded down by less than a rung.
        let rung = (planner.n_returns() as f64).recip() * 8.0 * 100.0;
        assert!(got.best_quantile <= best + 1e-9 && got.best_quantile > best - 8.0 * rung, "{got:?}, {best}");
    }
    let x = AugmentedInput { stage: 0, state: 0, collected: 0.0 };
    assert!(planner.quantile_policy(0.5, 0.0, 0).policy.action(&x) < 2);
}
