//! Numbers that are known from elsewhere: closed forms, hand computation, or a second program.

use bqrl_math::buffer::Buffer;
use bqrl_math::law::ReturnLaw;
use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::env::Env;
use bqrl_mdp::evaluate::{Policy, evaluate};
use bqrl_mdp::model::{Kernel, Model, Outcome, Problem};
use bqrl_mdp::plan::{Planner, conditional};
use bqrl_mdp::problems;
use bqrl_mdp::returns::Rounding;
use bqrl_mdp::tabular::TabularEnv;
use bqrl_mdp::trajectory::{AugmentedInput, Observation};

fn silent(_: u64, _: usize, _: usize) {}

fn build(name: &str, parameters: &[(&str, &str)]) -> Problem {
    let owned: Vec<(String, String)> = parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    problems::build(name, &owned).unwrap()
}

fn planner(problem: &Problem) -> Planner<'static> {
    Planner::exact(&problem.model, &silent).unwrap()
}

#[track_caller]
fn assert_close(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "got {got}, want {want}");
}

// --- Asset selling -----------------------------------------------------------------------------------------------

/// With 25 offers and S_0 = 5, nine fresh offers follow. P(R < k/24) is least when every offer of k or more is
/// accepted and nothing else: (k/25)^9 for k > 5.
fn least_below(k: i32) -> f64 {
    (f64::from(k) / 25.0).powi(9)
}

#[test]
fn asset_selling_has_the_known_risk_neutral_plan() {
    let asset = build("asset-selling", &[]);
    let planner = planner(&asset);
    assert_close(planner.max_mean(), 0.8639848348057599, 1e-13);
    let policy = planner.mean_policy();
    // Accept from 21 21 20 20 19 19 17 16 12 0 on, h = 0..9. At h = 0 only offer 5 can occur.
    for (stage, reservation) in [21, 21, 20, 20, 19, 19, 17, 16, 12, 0].into_iter().enumerate().skip(1) {
        for state in 0..25 {
            let action = policy.action(&AugmentedInput { stage, state, collected: 0.0 });
            assert_eq!(action == 0, state >= reservation, "stage {stage}, offer {state}");
        }
    }
    let law = &planner.mean_evaluation().law;
    for (tau, offer) in [(0.1, 17.0), (0.5, 22.0), (0.9, 24.0)] {
        assert_close(law.quantile(tau), offer / 24.0, 1e-12);
    }
}

#[test]
fn asset_selling_best_quantiles_follow_the_closed_form() {
    let asset = build("asset-selling", &[]);
    let planner = planner(&asset);
    for step in 1..1000 {
        let tau = f64::from(step) / 1000.0;
        // Q*_τ ≥ k/24 ⇔ (k/25)^9 < τ for k > 5; offer 5 itself is safe.
        let offer = (6..=24).rev().find(|&k| least_below(k) < tau).unwrap_or(5);
        let best = planner.best_quantile(tau);
        assert_close(best.value, f64::from(offer) / 24.0, 1e-12);
        let below = if offer > 5 { least_below(offer) } else { 0.0 };
        assert_close(best.least_below, below, 1e-13);
        match best.next {
            Some((value, probability)) => {
                assert_close(value, f64::from(offer + 1) / 24.0, 1e-12);
                assert_close(probability, least_below(offer + 1), 1e-13);
            }
            None => assert_eq!(offer, 24),
        }
    }
}

#[test]
fn asset_selling_spends_its_slack_on_the_mean() {
    let asset = build("asset-selling", &[]);
    let planner = planner(&asset);
    // Least P(R < 19/24), the mean breaking ties: after an offer is turned down late, 19 cannot always be had.
    let tight = planner.quantile_policy(0.1, 0);
    assert_close(tight.probability_at_least, 0.9154, 5e-5);
    assert_close(tight.evaluation.mean, 0.8518, 5e-5);
    // A coarse sweep finds mean 0.8562 at P = 0.9098. Walking along the vertices ends at reservation offers
    // 20 19 19 19 19 19 18 14 0 (h = 1..9): P(R ≥ 19/24) = 0.90052, mean 0.859749, both checked by hand.
    let plan = planner.quantile_policy(0.1, 12);
    assert_close(plan.probability_at_least, 0.9005197775038054, 1e-12);
    assert_close(plan.evaluation.mean, 0.8597493798311254, 1e-12);
    assert_close(plan.evaluation.law.quantile(0.1), 19.0 / 24.0, 1e-12);
}

#[test]
fn accepting_from_19_alone_has_the_known_law() {
    let asset = build("asset-selling", &[]);
    // Never below 19, not even at the end.
    let evaluation = evaluate(&asset.model, &|x: &AugmentedInput| usize::from(x.state < 19)).unwrap();
    assert_close(evaluation.law.probability_below(19.0 / 24.0), least_below(19), 1e-13);
    assert_close(evaluation.mean, 0.820054, 5e-7);
}

#[test]
fn asset_selling_buffered_certificates_match_the_table() {
    let asset = build("asset-selling", &[]);
    let planner = planner(&asset);
    // UB2 and LB as tabulated (six digits); UB1 has the closed form below.
    let table = [
        (0.1, 0.02, 0.782007, 0.781814, 19.0),
        (0.1, 0.05, 0.748334, 0.748334, 18.0),
        (0.1, 0.1, 0.622037, 0.622037, 17.0),
        (0.5, 0.02, 0.958333, 0.958333, 23.0),
        (0.5, 0.1, 0.924287, 0.923670, 23.0),
        (0.9, 0.02, 1.0, 1.0, 24.0),
        (0.9, 0.1, 1.0, 1.0, 24.0),
    ];
    for (tau, beta, mixture, lower, offer) in table {
        let buffer = Buffer::new(tau, beta).unwrap();
        let plan = planner.buffered(buffer, 500);
        // UB1 = (1/β) ∫ Q*_u du: Q*_u is k/24 for u in ((k/25)^9, ((k+1)/25)^9], 5/24 below, 1 above.
        let upper: f64 = (5..=24)
            .map(|k| {
                let from = if k > 5 { least_below(k) } else { 0.0 };
                let to = if k < 24 { least_below(k + 1) } else { 1.0 };
                f64::from(k) / 24.0 * (to.min(tau) - from.max(tau - beta)).max(0.0) / beta
            })
            .sum();
        assert_close(plan.upper, upper, 1e-12);
        assert_close(plan.mixture_upper, mixture, 6e-7);
        assert_close(plan.lower, lower, 6e-7);
        assert_close(plan.evaluation.law.quantile(tau), offer / 24.0, 1e-12);
        // UB2 is attained: by the mixture, or by the policy itself.
        let attained = plan.mixture.map_or(plan.lower, |mixture| mixture.law.buffered_quantile(&buffer));
        assert_close(attained, plan.mixture_upper, 1e-10);
    }
}

#[test]
fn the_papers_rule_stops_short_of_the_optimum_at_low_levels() {
    let asset = build("asset-selling", &[]);
    let quantile = |tau: f64, beta: f64| {
        let rule = conditional::greedy(&asset.model, Buffer::new(tau, beta).unwrap(), 1000).unwrap();
        24.0 * rule.law.quantile(tau)
    };
    // At τ = .1 the rule attains 9 to 12 of 24 where 19 can be had; at .5 it misses one offer, at .9 none.
    for beta in [0.02, 0.05, 0.1] {
        let offer = quantile(0.1, beta).round();
        assert!((9.0..=12.0).contains(&offer), "β = {beta}: {offer}");
    }
    assert_close(quantile(0.5, 0.1), 22.0, 1e-9);
    assert_close(quantile(0.9, 0.1), 24.0, 1e-9);
    // The law that the induction carries is the law of the policy that it outputs.
    let rule = conditional::greedy(&asset.model, Buffer::new(0.1, 0.05).unwrap(), 1000).unwrap();
    let played = evaluate(&asset.model, &|x: &AugmentedInput| rule.actions[x.stage][x.state]).unwrap().law;
    for (a, b) in rule.law.atoms().zip(played.atoms()) {
        assert_close(a.0, b.0, 1e-12);
        assert_close(a.1, b.1, 1e-12);
    }
}

// --- FrozenLake and the others -----------------------------------------------------------------------------------

#[test]
fn frozen_lake_success_probabilities_are_the_known_ones() {
    for (horizon, success) in
        [("50", 0.5459086653), ("100", 0.7441902878292657), ("200", 0.8167335047), ("1000", 0.8235294117)]
    {
        let lake = build("frozen-lake", &[("horizon", horizon)]);
        let planner = planner(&lake);
        assert_close(planner.max_mean(), success, 1e-10);
        // A binary return: the best P(R ≥ 1) is the best mean.
        assert_close(1.0 - planner.best_quantile(0.999).least_below, success, 1e-10);
    }
    let lake = build("frozen-lake", &[]);
    let planner = planner(&lake);
    for (tau, best) in [(0.1, 0.0), (0.5, 1.0), (0.9, 1.0)] {
        assert_eq!(planner.best_quantile(tau).value, best);
    }
}

#[test]
fn other_problems_match_a_second_program() {
    // Dictionaries in Python over the exported tables: (mean, Q of the mean-optimal policy, Q*), at τ = .1, .5, .9.
    let table: [(&str, f64, [f64; 3], [f64; 3]); 6] = [
        ("gamble-chain", 12.0, [6.0, 12.0, 18.0], [10.0, 14.0, 19.0]),
        ("machine-replacement", 120.944448, [82.0, 130.0, 151.0], [100.0, 134.0, 153.0]),
        ("inventory", 152.111256, [116.0, 152.0, 188.0], [128.0, 162.0, 197.0]),
        ("gamblers-ruin", 0.0, [0.0, 0.0, 0.0], [0.0, 3.0, 5.0]),
        ("river-swim", 3.397264, [0.0, 3.0, 7.0], [0.1, 3.005, 7.005]),
        ("american-put", 6.162974, [0.0, 0.0, 16.504854], [0.0, 8.722139, 23.440444]),
    ];
    for (name, mean, neutral, best) in table {
        let problem = build(name, &[]);
        let planner = planner(&problem);
        assert_close(planner.max_mean(), mean, 1e-6);
        for (k, tau) in [0.1, 0.5, 0.9].into_iter().enumerate() {
            assert_close(planner.mean_evaluation().law.quantile(tau), neutral[k], 1e-6);
            assert_close(planner.best_quantile(tau).value, best[k], 1e-6);
            let plan = planner.quantile_policy(tau, 3);
            assert_close(plan.evaluation.law.quantile(tau), best[k], 1e-6);
        }
    }
    let cliff = build("cliff-walk", &[]);
    let planner = planner(&cliff);
    assert_close(planner.max_mean(), -63.013, 5e-4);
    for (tau, best) in [(0.1, -97.0), (0.5, -60.0), (0.9, -38.0)] {
        assert_eq!(planner.best_quantile(tau).value, best);
    }
}

#[test]
fn gambling_every_time_is_a_binomial_law() {
    let chain = build("gamble-chain", &[]);
    let law = evaluate(&chain.model, &|_: &AugmentedInput| 1).unwrap().law;
    // Ten gambles that pay 3 with probability 0.4: P(R = 3k) = C(10, k) 0.4^k 0.6^(10−k).
    let mut choose = 1.0;
    for (k, (value, probability)) in law.atoms().enumerate() {
        assert_close(value, 3.0 * k as f64, 1e-12);
        assert_close(probability, choose * 0.4f64.powi(k as i32) * 0.6f64.powi(10 - k as i32), 1e-14);
        choose = choose * (10 - k) as f64 / (k + 1) as f64;
    }
    assert_eq!(law.values().len(), 11);
}

#[test]
fn stage_dependent_rewards_and_discounts_are_the_same_thing() {
    // γ = 0.9 by the model's discount, and written out into one kernel per stage.
    let kernel = |scale: f64| {
        let outcome = |probability, next, reward| Outcome { probability, next, reward: scale * reward };
        Kernel::new(
            2,
            2,
            [
                (0, 0, outcome(1.0, 0, 1.0)),
                (0, 1, outcome(0.5, 1, 4.0)),
                (0, 1, outcome(0.5, 0, -1.0)),
                (1, 0, outcome(0.25, 0, 2.0)),
                (1, 0, outcome(0.75, 1, 0.0)),
            ],
        )
        .unwrap()
    };
    let discounted = Model::new(vec![kernel(1.0)], 5, 0.9, vec![(0, 1.0)]).unwrap();
    let staged =
        Model::new((0..5).map(|h| kernel(0.9f64.powi(h))).collect(), 5, 1.0, vec![(0, 1.0)]).unwrap();
    let (a, b) = (Planner::exact(&discounted, &silent).unwrap(), Planner::exact(&staged, &silent).unwrap());
    for step in 1..100 {
        let tau = f64::from(step) / 100.0;
        assert_close(a.best_quantile(tau).value, b.best_quantile(tau).value, 1e-9);
        assert_close(a.best_quantile(tau).least_below, b.best_quantile(tau).least_below, 1e-12);
    }
}

// --- The simulator and the integral agree ------------------------------------------------------------------------

/// Plays one episode and returns its discounted return.
fn play(env: &mut TabularEnv, policy: &dyn Policy, rng: &mut bqrl_math::rng::Rng) -> f64 {
    let discount = env.problem().model.discount();
    let Observation::Index(mut state) = env.reset(rng) else { panic!("tabular problems observe an index") };
    let (mut stage, mut collected, mut choice) = (0, 0.0, Vec::new());
    loop {
        choice.clear();
        policy.decide(&AugmentedInput { stage, state, collected }, &mut choice);
        let step = env.step(choice[0].0, rng);
        collected += discount.powi(stage as i32) * step.reward;
        stage += 1;
        if step.end.is_over() {
            return collected;
        }
        let Observation::Index(next) = step.observation else { panic!("tabular problems observe an index") };
        state = next;
    }
}

#[test]
fn exact_laws_agree_with_monte_carlo_on_every_problem() {
    // Dvoretzky–Kiefer–Wolfowitz: P(sup |F_n − F| > ε) ≤ 2 exp(−2nε²). n = 20 000 and ε = 0.0215 give 2e-8; nine
    // problems and two policies each: a correct build fails for fewer than one seed in a million.
    let (n, epsilon) = (20_000, 0.0215);
    for name in problems::names() {
        let problem = build(name, &[]);
        let planner = planner(&problem);
        for policy in [planner.mean_policy(), planner.quantile_policy(0.25, 2).policy] {
            let exact: ReturnLaw = planner.evaluate(&policy).law;
            let mut env = TabularEnv::new(problem.clone());
            let rng = &mut stream(42, Purpose::Test);
            let samples: Vec<f64> = (0..n).map(|_| play(&mut env, &policy, rng)).collect();
            let empirical = ReturnLaw::from_samples(&samples).unwrap();
            for &value in exact.values() {
                let gap = (empirical.cdf(value + 1e-7) - exact.cdf(value + 1e-7)).abs();
                assert!(gap < epsilon, "{name}: CDF at {value} differs by {gap}");
            }
        }
    }
}

#[test]
fn plans_are_the_same_bits_for_any_number_of_threads() {
    // Large enough that stages are shared between threads.
    let problem = build("inventory", &[("capacity", "30"), ("horizon", "20"), ("demand", "12")]);
    let solve = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let planner = planner(&problem);
            let plan = planner.quantile_policy(0.1, 1);
            (planner.best_quantile(0.1), plan.evaluation, planner.cost())
        })
    };
    let (one, three) = (solve(1), solve(3));
    assert_eq!(one, three);
    assert!(one.2.1 > 10_000_000, "the problem is too small to be shared: {} updates", one.2.1);
}

#[test]
fn a_huge_reward_that_is_never_reached_changes_nothing() {
    // State 1 cannot be reached from state 0. In quanta of the other rewards its reward is beyond 64 bits.
    let table = |reward: &str| {
        let rows = format!("0,0,2,0.5,1\n0,0,2,0.5,2\n1,0,2,1,{reward}\n");
        let file = format!("idstatefrom,idaction,idstateto,probability,reward\n{rows}");
        bqrl_mdp::csv::read(file.as_bytes(), "table", 3, 0, 1.0).unwrap().model
    };
    let silent = &|_, _, _| {};
    for reward in ["0", "9e18", "-9e18"] {
        let model = table(reward);
        let planner = Planner::rounded(&model, 100, Rounding::Down, silent).unwrap();
        assert_eq!(planner.best_quantile(0.75).value, 2.0, "{reward}");
        assert_eq!(planner.max_mean(), 1.5, "{reward}");
    }
}
