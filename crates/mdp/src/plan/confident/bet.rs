//! The bound of one row: B_a of the module above, and the L1 ball that it is compared with.
//!
//! Costs are (cost, count) pairs whose counts sum to n; `log` is ln(1/δ').

/// The smallest stake. At a = 0 one outcome of cost 1 that was not expected would make the bound 1.
const LEAST: f64 = 1e-3;
/// The largest stake: rows of some 10⁹ outcomes.
const MOST: f64 = 1e6;
/// The step of the search for a stake. A factor √2 off costs 6 % of the width.
const STEP: f64 = 1.5;
/// Outcomes of cost 1 that are expected in addition to those that were seen: the other half may have a few that this one has not.
const SURPRISE: f64 = 0.25;

/// B_a.
pub(super) fn bet(costs: &[(f64, f64)], n: f64, log: f64, stake: f64) -> f64 {
    let logs = costs.iter().map(|(cost, count)| count * (1.0 + stake - cost).ln()).sum::<f64>();
    (1.0 + stake - ((logs - log) / n).exp()).min(1.0)
}

/// The stake with the least B_a if other data are like these, and that B_a.
pub(super) fn bets(costs: &[(f64, f64)], n: f64, log: f64) -> (f64, f64) {
    let (mean, variance) = moments(costs, n);
    if mean >= 1.0 {
        return (1.0, 1.0);
    }
    let at = |stake: f64| {
        let logs = costs.iter().map(|(cost, count)| count * (1.0 + stake - cost).ln()).sum::<f64>();
        1.0 + stake - ((logs + SURPRISE * (stake / (1.0 + stake)).ln() - log) / n).exp()
    };
    // The best one is near √(n·Var / 2 ln(1/δ')) for large n.
    let mut stake = ((variance * n / (2.0 * log)).sqrt() - (1.0 - mean)).clamp(0.05, MOST);
    let mut least = at(stake);
    for step in [STEP, 1.0 / STEP] {
        let begun = stake;
        loop {
            let next = stake * step;
            let bound = at(next);
            if bound >= least || !(LEAST..=MOST).contains(&next) {
                break;
            }
            (stake, least) = (next, bound);
        }
        if stake != begun {
            break;
        }
    }
    (stake, least.min(1.0))
}

/// Mean and variance of the costs.
pub(super) fn moments(costs: &[(f64, f64)], n: f64) -> (f64, f64) {
    let mean = costs.iter().map(|(cost, count)| cost * count).sum::<f64>() / n;
    (mean, costs.iter().map(|(cost, count)| (cost - mean).powi(2) * count).sum::<f64>() / n)
}

/// Σ p̂ F with ρ/2 of the mass moved from the smallest costs to cost 1.
pub(super) fn l1(costs: &mut [(f64, f64)], n: f64, log: f64) -> f64 {
    // 2^K − 2 events, where one more outcome stands for all that were never seen.
    let events = (costs.len() + 1) as f64 * std::f64::consts::LN_2;
    let mut moved = ((2.0 * (events + log) / n).sqrt() / 2.0).min(1.0);
    let mut bound = moments(costs, n).0 + moved;
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (cost, count) in costs {
        let taken = moved.min(*count / n);
        bound -= taken * *cost;
        moved -= taken;
    }
    bound.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_certain_success_is_that_of_outcomes_never_seen() {
        // All costs 0: B_a = (1 + a)(1 − δ'^{1/n}).
        let log = (1.0f64 / 0.01).ln();
        let want = 1.25 * (1.0 - 0.01f64.powf(1.0 / 50.0));
        assert!((bet(&[(0.0, 50.0)], 50.0, log, 0.25) - want).abs() < 1e-12);
    }

    #[test]
    fn the_bound_never_falls_if_a_cost_rises() {
        for n in [3.0, 40.0, 1000.0] {
            for stake in [1e-3, 0.3, 5.0, 400.0] {
                for low in 0..20 {
                    let costs = |high: f64| [(f64::from(low) / 20.0, n / 2.0), (high, n / 2.0)];
                    let bounds: Vec<f64> =
                        (0..=20).map(|high| bet(&costs(f64::from(high) / 20.0), n, 12.0, stake)).collect();
                    assert!(bounds.is_sorted(), "{n} {stake} {low}: {bounds:?}");
                }
            }
        }
    }

    #[test]
    fn the_stake_that_is_found_is_near_the_best_one() {
        for n in [20.0, 300.0, 5_000.0, 1e6] {
            for (none, some, all) in [(1.0, 0.0, 0.0), (0.9, 0.1, 0.0), (0.8, 0.1, 0.1), (0.98, 0.0, 0.02)] {
                let costs = [(0.0, none * n), (0.3, some * n), (1.0, all * n)];
                let (_, found) = bets(&costs, n, 7.0);
                let surprised = [costs[0], costs[1], (1.0, all * n + SURPRISE)];
                // `bet` divides by n, as the search does.
                let tried = (0..400).map(|k| bet(&surprised, n, 7.0, 1e-3 * 1.05f64.powi(k)));
                let best = tried.fold(1.0, f64::min);
                let mean = moments(&costs, n).0;
                assert!(found - mean <= 1.1 * (best - mean) + 1e-9, "{n} {none} {all}: {found} {best}");
            }
        }
    }

    #[test]
    fn more_data_make_both_bounds_tighter_and_bets_are_the_tighter_ones() {
        let costs = |n: f64| vec![(0.0, 0.8 * n), (0.3, 0.1 * n), (1.0, 0.1 * n)];
        let mut last = 1.0;
        for n in [100.0, 1000.0, 10_000.0] {
            let (bet, ball) = (bets(&costs(n), n, 12.0).1, l1(&mut costs(n), n, 8.0));
            assert!(bet > 0.13 && bet < last && bet < ball, "{n}: {bet} {ball}");
            last = bet;
        }
        assert!(last < 0.15, "{last}");
    }
}
