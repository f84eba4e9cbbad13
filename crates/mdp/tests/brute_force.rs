//! The planners against an oracle that knows nothing of them: every deterministic history-dependent policy of a small
//! random problem, one by one.
//!
//! From a decision at stage h the oracle lists the laws of the remaining return of *all* policies: an action, and an
//! independent choice of a remaining policy after each of its outcomes. That is what history dependence means.

use bqrl_math::buffer::Buffer;
use bqrl_math::law::ReturnLaw;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_mdp::evaluate::evaluate;
use bqrl_mdp::model::{Kernel, Model, Outcome};
use bqrl_mdp::plan::Planner;
use bqrl_mdp::returns::Rounding;
use bqrl_mdp::trajectory::AugmentedInput;

const TAUS: [f64; 7] = [0.05, 0.1, 0.25, 0.5, 0.625, 0.75, 0.9];

fn silent(_: u64, _: usize, _: usize) {}

/// How the rewards of a random problem are drawn.
#[derive(Clone, Copy, Debug)]
enum Rewards {
    /// −2..=3: a lattice.
    Whole,
    /// Few values, irregular: listed ladders.
    Irregular,
    /// Whole multiples of 1/24 with noise in the last digits.
    Noisy,
}

fn reward(kind: Rewards, rng: &mut Rng) -> f64 {
    match kind {
        Rewards::Whole => rng.below(6) as f64 - 2.0,
        Rewards::Irregular => [-1.2020569, 0.0, 0.5772157, 2.6854520][rng.below(4)],
        Rewards::Noisy => (rng.below(25) as f64 / 24.0) * (1.0 + 1e-14 * (rng.uniform() - 0.5)),
    }
}

/// Two or three states, two actions, rows of at most two outcomes; sometimes a terminal state, sometimes one kernel per
/// stage, sometimes a random start, sometimes a discount. Probabilities are eighths, so that exact ties with τ occur.
fn random_model(kind: Rewards, seed: u64) -> Model {
    let rng = &mut stream(seed, Purpose::Test);
    let n_states = 2 + rng.below(2);
    let horizon = 2 + rng.below(2);
    let terminal = rng.below(2) == 0;
    let kernels = if rng.below(3) == 0 { horizon } else { 1 };
    let kernel = |rng: &mut Rng| {
        let mut rows = Vec::new();
        for state in 0..n_states {
            if terminal && state == n_states - 1 {
                continue;
            }
            for action in 0..2 {
                // Now and then an action is not available.
                if action == 1 && rng.below(8) == 0 {
                    continue;
                }
                let first = (1 + rng.below(8)) as f64 / 8.0;
                for probability in [first, 1.0 - first] {
                    let next = rng.below(n_states);
                    rows.push((state, action, Outcome { probability, next, reward: reward(kind, rng) }));
                }
            }
        }
        Kernel::new(n_states, 2, rows).unwrap()
    };
    let kernels = (0..kernels).map(|_| kernel(rng)).collect();
    let discount = if rng.below(4) == 0 { 0.9 } else { 1.0 };
    let start =
        if rng.below(3) == 0 && n_states == 3 { vec![(0, 0.375), (1, 0.625)] } else { vec![(0, 1.0)] };
    Model::new(kernels, horizon, discount, start).unwrap()
}

type Atoms = Vec<(f64, f64)>;

/// The remaining-return laws of all deterministic history-dependent policies from (h, s).
fn all_laws(model: &Model, stage: usize, state: usize) -> Vec<Atoms> {
    if stage == model.horizon() || model.is_terminal(stage, state) {
        return vec![vec![(0.0, 1.0)]];
    }
    let mut laws = Vec::new();
    for action in model.actions(stage, state) {
        let mut partial: Vec<Atoms> = vec![Vec::new()];
        for outcome in model.outcomes(stage, state, action) {
            let gain = model.discount_at(stage) * outcome.reward;
            let rest = all_laws(model, stage + 1, outcome.next);
            partial = partial
                .iter()
                .flat_map(|so_far| {
                    rest.iter().map(move |law| {
                        let moved = law.iter().map(|(value, p)| (gain + value, outcome.probability * p));
                        so_far.iter().copied().chain(moved).collect()
                    })
                })
                .collect();
        }
        laws.extend(partial);
    }
    laws
}

/// The laws of R^π for every deterministic policy π.
fn every_policy(model: &Model) -> Vec<ReturnLaw> {
    let mut joint: Vec<Atoms> = vec![Vec::new()];
    for &(state, probability) in model.start() {
        let laws = all_laws(model, 0, state);
        joint = joint
            .iter()
            .flat_map(|so_far| {
                laws.iter().map(move |law| {
                    let scaled = law.iter().map(|(value, p)| (*value, probability * p));
                    so_far.iter().copied().chain(scaled).collect()
                })
            })
            .collect();
    }
    let mut laws: Vec<ReturnLaw> =
        joint.into_iter().map(|atoms| ReturnLaw::from_atoms_within(atoms, 1e-9).unwrap()).collect();
    // Most policies differ only where they never come; one of each law is enough.
    laws.sort_by(|a, b| {
        let key = |law: &ReturnLaw| law.atoms().flat_map(|(v, p)| [v, p]).collect::<Vec<f64>>();
        key(a).partial_cmp(&key(b)).unwrap()
    });
    laws.dedup();
    laws
}

/// max_v min_w max_π f_π(v, w) over the enumerated laws: what a coin at the start can reach. The inner minimum of a
/// piecewise linear convex function is at a breakpoint or where two policies' pieces cross.
fn best_mixture(laws: &[ReturnLaw], buffer: Buffer) -> f64 {
    let (tau, beta) = (buffer.tau(), buffer.beta());
    let mut values: Vec<f64> = laws.iter().flat_map(|law| law.values().to_vec()).collect();
    values.sort_by(f64::total_cmp);
    values.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
    let f = |law: &ReturnLaw, v: f64, w: f64| {
        v - (law.expected_shortfall(v) - law.expected_shortfall(v - w) - (tau - beta) * w) / beta
    };
    let mut best = f64::NEG_INFINITY;
    for &v in &values {
        let top = |w: f64| laws.iter().map(|law| f(law, v, w)).fold(f64::NEG_INFINITY, f64::max);
        // Ternary search on a convex function, to 1e-13: no structure is assumed.
        let (mut a, mut b) = (0.0, v - values[0] + 1.0);
        for _ in 0..80 {
            let (c, d) = (a + (b - a) / 3.0, b - (b - a) / 3.0);
            if top(c) <= top(d) { b = d } else { a = c }
        }
        best = best.max(top(f64::midpoint(a, b)));
    }
    best
}

/// The law of a planned policy by brute force as well: follow every path.
fn law_by_paths(model: &Model, act: &dyn Fn(&AugmentedInput) -> usize) -> ReturnLaw {
    fn follow(
        model: &Model,
        act: &dyn Fn(&AugmentedInput) -> usize,
        x: AugmentedInput,
        mass: f64,
        atoms: &mut Atoms,
    ) {
        if x.stage == model.horizon() || model.is_terminal(x.stage, x.state) {
            atoms.push((x.collected, mass));
            return;
        }
        for outcome in model.outcomes(x.stage, x.state, act(&x)) {
            let collected = x.collected + model.discount_at(x.stage) * outcome.reward;
            let next = AugmentedInput { stage: x.stage + 1, state: outcome.next, collected };
            follow(model, act, next, mass * outcome.probability, atoms);
        }
    }
    let mut atoms = Vec::new();
    for &(state, p) in model.start() {
        follow(model, act, AugmentedInput { stage: 0, state, collected: 0.0 }, p, &mut atoms);
    }
    ReturnLaw::from_atoms_within(atoms, 1e-9).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-8
}

#[test]
fn best_quantile_and_its_policy_equal_enumeration() {
    for kind in [Rewards::Whole, Rewards::Irregular, Rewards::Noisy] {
        for seed in 0..120 {
            let model = random_model(kind, seed);
            let laws = every_policy(&model);
            let planner = Planner::exact(&model, &silent).unwrap();
            let best_mean = laws.iter().map(ReturnLaw::mean).fold(f64::NEG_INFINITY, f64::max);
            assert!(close(planner.max_mean(), best_mean), "{kind:?} {seed}: mean");
            for tau in TAUS {
                let want = laws.iter().map(|law| law.quantile(tau)).fold(f64::NEG_INFINITY, f64::max);
                let plan = planner.quantile_policy(tau, 12);
                let got = plan.best;
                assert!(close(got.value, want), "{kind:?} {seed} τ={tau}: {} is not {want}", got.value);
                let law = &plan.evaluation.law;
                assert!(close(law.quantile(tau), want), "{kind:?} {seed} τ={tau}: the policy attains {want}");
                // Enumeration agrees with both numbers of the certificate.
                let least = |g: f64| {
                    laws.iter().map(|law| law.probability_below(g - 1e-7)).fold(f64::INFINITY, f64::min)
                };
                assert!(close(got.least_below, least(got.value)), "{kind:?} {seed} τ={tau}");
                assert!(got.least_below < tau);
                if let Some((value, probability)) = got.next {
                    assert!(value > got.value && probability >= tau - 1e-9);
                    assert!(close(probability, least(value)), "{kind:?} {seed} τ={tau}");
                }
                // No policy that attains Q* has a larger mean, but for those off the convex hull; none exceeds ours by
                // a mixture.
                assert!(law.mean() <= best_mean + 1e-9);
                assert!(close(plan.evaluation.mean, law.mean()));
                // The evaluation is right: follow every path.
                let by_paths = law_by_paths(&model, &|x| plan.policy.action(x));
                for (a, b) in law.values().iter().zip(by_paths.values()) {
                    assert!(close(*a, *b));
                }
                for (a, b) in law.probabilities().iter().zip(by_paths.probabilities()) {
                    assert!(close(*a, *b));
                }
            }
        }
    }
}

#[test]
fn the_reported_mean_is_that_of_the_last_hull_vertex_before_tau() {
    // Every policy is a point (P(R < Q*), E[R]); a Lagrangian sweep can find the vertices of the upper left hull, and the
    // one to report is the last whose P is below τ.
    for seed in 0..150 {
        let model = random_model(Rewards::Whole, 1000 + seed);
        let laws = every_policy(&model);
        let planner = Planner::exact(&model, &silent).unwrap();
        for tau in TAUS {
            let plan = planner.quantile_policy(tau, 30);
            let point = |law: &ReturnLaw| (law.probability_below(plan.best.value - 1e-7), law.mean());
            let mut points: Vec<(f64, f64)> = laws.iter().map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
            let mut hull: Vec<(f64, f64)> = Vec::new();
            for p in points {
                if hull.last().is_some_and(|last| p.1 <= last.1 + 1e-12) {
                    continue; // Riskier and no better.
                }
                while let [.., a, b] = hull[..]
                    && (b.1 - a.1) * (p.0 - a.0) <= (p.1 - a.1) * (b.0 - a.0) + 1e-12
                {
                    hull.pop();
                }
                hull.push(p);
            }
            let vertex = hull.iter().rfind(|(p, _)| *p < tau - 1e-9).expect("Q* is attained");
            let mean = plan.evaluation.law.mean();
            assert!(mean >= vertex.1 - 1e-8, "{seed} τ={tau}: mean {mean}, the vertex has {vertex:?}");
        }
    }
}

#[test]
fn buffered_certificate_encloses_enumeration() {
    for kind in [Rewards::Whole, Rewards::Irregular, Rewards::Noisy] {
        for seed in 0..60 {
            let model = random_model(kind, 5000 + seed);
            let laws = every_policy(&model);
            let planner = Planner::exact(&model, &silent).unwrap();
            for (tau, beta) in [(0.1, 0.05), (0.25, 0.25), (0.5, 0.1), (0.5, 0.5), (0.75, 0.3), (0.9, 0.6)] {
                let buffer = Buffer::new(tau, beta).unwrap();
                let case = format!("{kind:?} {seed} τ={tau} β={beta}");
                let best =
                    laws.iter().map(|law| law.buffered_quantile(&buffer)).fold(f64::NEG_INFINITY, f64::max);
                let plan = planner.buffered(buffer, 1000);
                assert!(plan.upper >= plan.mixture_upper - 1e-9, "{case}: UB1 ≥ UB2");
                assert!(plan.mixture_upper >= best - 1e-9, "{case}: UB2 {} ≥ {best}", plan.mixture_upper);
                assert!(best >= plan.lower - 1e-9, "{case}: best ≥ LB");
                assert!(
                    close(plan.evaluation.law.buffered_quantile(&buffer), plan.lower),
                    "{case}: LB is attained"
                );
                let mixed = best_mixture(&laws, buffer);
                assert!(
                    close(plan.mixture_upper, mixed),
                    "{case}: UB2 {} is not {mixed}",
                    plan.mixture_upper
                );
                // UB2 is attained: by the mixture where there is one, else by the deterministic policy.
                let attained = plan.mixture.as_ref().map_or(plan.lower, |m| m.law.buffered_quantile(&buffer));
                assert!(close(attained, mixed), "{case}: attained {attained}, best {mixed}");
                // Deterministic is already exact for the CVaR.
                if tau == beta {
                    assert!(close(plan.lower, best), "{case}: CVaR");
                }
            }
        }
    }
}

#[test]
fn rounding_encloses_the_exact_answers() {
    for seed in 0..60 {
        let model = random_model(Rewards::Irregular, 9000 + seed);
        let exact = Planner::exact(&model, &silent).unwrap();
        let down = Planner::rounded(&model, 500, Rounding::Down, &silent).unwrap();
        let up = Planner::rounded(&model, 500, Rounding::Up, &silent).unwrap();
        for tau in TAUS {
            let (low, value, high) =
                (down.best_quantile(tau).value, exact.best_quantile(tau).value, up.best_quantile(tau).value);
            assert!(low <= value + 1e-9 && value <= high + 1e-9, "{seed} τ={tau}: {low} {value} {high}");
            // At most one quantum per stage is lost.
            let quantum = 8.0 * model.horizon() as f64 / 500.0;
            assert!(high - low <= 2.0 * quantum * model.horizon() as f64, "{seed} τ={tau}: {low} {high}");
            // The policy planned on rounded rewards, played on the true ones, attains the lower bound when it is told
            // the rounded collected reward; its mean is exact.
            let plan = down.quantile_policy(tau, 4);
            assert!(plan.evaluation.mean >= plan.evaluation.law.mean() - 1e-12);
            let buffer = Buffer::new(tau, tau / 2.0).unwrap();
            let (b_low, b_high) = (down.buffered(buffer, 200).lower, up.buffered(buffer, 200).mixture_upper);
            let b = exact.buffered(buffer, 200);
            assert!(b_low <= b.mixture_upper + 1e-9 && b.lower <= b_high + 1e-9, "{seed} τ={tau}");
        }
    }
}

#[test]
fn exact_evaluation_agrees_with_following_every_path_for_a_random_policy() {
    for seed in 0..100 {
        let model = random_model(Rewards::Irregular, 20_000 + seed);
        // An arbitrary but fixed function of (h, s, c).
        let act = |x: &AugmentedInput| {
            let available: Vec<usize> = model.actions(x.stage, x.state).collect();
            let hash = x.stage * 7 + x.state * 13 + (x.collected * 10.0).round().abs() as usize;
            available[hash % available.len()]
        };
        let law = evaluate(&model, &act).unwrap().law;
        let by_paths = law_by_paths(&model, &act);
        assert_eq!(law.values().len(), by_paths.values().len());
        for q in [0.01, 0.2, 0.5, 0.8, 0.99] {
            assert!(close(law.quantile(q), by_paths.quantile(q)), "{seed} q={q}");
        }
        assert!(close(law.mean(), by_paths.mean()) && close(law.sd(), by_paths.sd()));
    }
}
