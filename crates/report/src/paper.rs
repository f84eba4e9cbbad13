//! The paper's figures from our runs, and its numbers beside ours.
//!
//! The numbers are those of §4 of *Deep Reinforcement Learning with Buffered Quantile Objectives*, as printed in its text:
//! means over the seeds 42, 10042 and 20042 at the last episode. The paper gives no spread for them, so only our
//! interval decides whether a difference is clear.
//!
//! | figure | contents |
//! |---|---|
//! | 1 | asset selling: quantile policy gap and expected-return regret at τ = 0.1, 0.9 |
//! | 2 | asset selling: final Deep-BQRL policies at τ = 0.1, 0.5, 0.9, seeds 10042, 42, 20042 |
//! | 3 | FrozenLake: 50-episode moving-average reward at τ = 0.1, 0.5, 0.9 |
//! | 4 | FrozenLake: gap and regret at τ = 0.5 |

use std::fmt::Write as _;

use crate::axis::four_digits;
use crate::figure::Figure;
use crate::statistics::Estimate;
use crate::study::{Measure, Method, Study, Trained, display_name};
use crate::views::{self, Printed};

/// The seeds on which the paper reports.
pub const SEEDS: [u64; 3] = [42, 10042, 20042];
/// (τ, seed) of the panels of Figure 2.
pub const FIGURE_2: [(f64, u64); 3] = [(0.1, 10042), (0.5, 42), (0.9, 20042)];

/// A number of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// Name of the problem.
    pub problem: &'static str,
    /// Training episodes.
    pub episodes: usize,
    /// The measure.
    pub measure: Measure,
    /// The level.
    pub tau: f64,
    /// Name of the algorithm.
    pub algo: &'static str,
    /// The number, as a range where the paper gives one: "approximately 0.51–0.53".
    pub value: (f64, f64),
    /// Its place in the paper.
    pub source: &'static str,
}

const ALGOS: [&str; 4] = ["ucb-bqrl", "deep-bqrl", "ppo", "trpo"];

/// One line of the paper's results: a measure at a level, for UCB-BQRL, Deep-BQRL, PPO and TRPO.
const fn line(
    (problem, episodes): (&'static str, usize),
    measure: Measure,
    tau: f64,
    values: [(f64, f64); 4],
    source: &'static str,
) -> [Claim; 4] {
    let mut claims = [Claim { problem, episodes, measure, tau, algo: ALGOS[0], value: values[0], source }; 4];
    let mut k = 1;
    while k < 4 {
        claims[k].algo = ALGOS[k];
        claims[k].value = values[k];
        k += 1;
    }
    claims
}

const fn at(value: f64) -> (f64, f64) {
    (value, value)
}

const ASSET_SELLING: (&str, usize) = ("asset-selling", 2000);
const FROZEN_LAKE: (&str, usize) = ("frozen-lake", 5000);
/// "PPO reaches approximately 0.51–0.53" at all three levels.
const PPO_REWARD: (f64, f64) = (0.51, 0.53);
/// "whereas TRPO remains near zero"; its regret of 3613.28 means 0.0215 an episode.
const TRPO_REWARD: (f64, f64) = (0.0, 0.03);

/// Everything that §4 states as a number.
#[rustfmt::skip] // One line of the paper's results is one line here.
pub const CLAIMS: [[Claim; 4]; 9] = {
    use Measure::{ExpectedReturnRegret as Regret, MovingAverageReward as Reward, QuantilePolicyGap as Gap};
    const S1: &str = "§4.1, text on Figure 1";
    const S3: &str = "§4.2, text on Figure 3";
    const S4: &str = "§4.2, text on Figure 4";
    [
        line(ASSET_SELLING, Gap,    0.1, [at(28.14),  at(538.33),  at(583.63),  at(855.22)],  S1),
        line(ASSET_SELLING, Gap,    0.9, [at(0.79),   at(92.78),   at(173.51),  at(221.36)],  S1),
        line(ASSET_SELLING, Regret, 0.1, [at(229.00), at(1025.44), at(719.58),  at(685.96)],  S1),
        line(ASSET_SELLING, Regret, 0.9, [at(324.65), at(193.68),  at(719.58),  at(685.96)],  S1),
        line(FROZEN_LAKE,   Reward, 0.1, [at(0.713),  at(0.627),   PPO_REWARD,  TRPO_REWARD], S3),
        line(FROZEN_LAKE,   Reward, 0.5, [at(0.640),  at(0.687),   PPO_REWARD,  TRPO_REWARD], S3),
        line(FROZEN_LAKE,   Reward, 0.9, [at(0.680),  at(0.673),   PPO_REWARD,  TRPO_REWARD], S3),
        line(FROZEN_LAKE,   Gap,    0.5, [at(9.67),   at(400.0),   at(3313.33), at(5000.0)],  S4),
        line(FROZEN_LAKE,   Regret, 0.5, [at(404.28), at(666.28),  at(2426.62), at(3613.28)], S4),
    ]
};

/// Who is ahead in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Our mean is better.
    Ours,
    /// The paper's number is better.
    Paper,
    /// Our mean lies in the range that the paper gives, or equals its number.
    Neither,
}

/// A number of the paper and ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The paper's.
    pub claim: Claim,
    /// The name of our method.
    pub method: String,
    /// Ours, over all seeds.
    pub ours: Estimate,
    /// The mean over the paper's seeds, where others were run as well.
    pub papers_seeds: Option<f64>,
    /// Who is ahead.
    pub ahead: Ahead,
    /// Whether our whole interval is on one side of the paper's number. Never with one seed.
    pub clear: bool,
}

impl Row {
    fn new(claim: Claim, method: String, ours: Estimate) -> Self {
        let (low, high) = claim.value;
        // As a loss: less is better.
        let sign = if claim.measure.is_loss() { 1.0 } else { -1.0 };
        let side = |value: f64| {
            if value < low {
                -sign
            } else if value > high {
                sign
            } else {
                0.0
            }
        };
        let ahead = match side(ours.mean) {
            s if s < 0.0 => Ahead::Ours,
            s if s > 0.0 => Ahead::Paper,
            _ => Ahead::Neither,
        };
        let clear = ours.interval.is_some_and(|interval| {
            let (a, b) = (side(interval.low), side(interval.high));
            a == b && a != 0.0
        });
        Self { claim, method, ours, papers_seeds: None, ahead, clear }
    }

    /// In words, for a table.
    pub fn verdict(&self) -> &'static str {
        match (self.ahead, self.clear) {
            (Ahead::Ours, false) if self.ours.n == 1 => "ours, one seed",
            (Ahead::Paper, false) if self.ours.n == 1 => "the paper, one seed",
            (Ahead::Ours, true) => "ours",
            (Ahead::Ours, false) => "ours, within our interval",
            (Ahead::Paper, true) => "the paper",
            (Ahead::Paper, false) => "the paper, within our interval",
            (Ahead::Neither, _) => "even",
        }
    }
}

/// The paper's numbers beside ours, wherever a run of the same method, level and length exists.
pub fn compare(studies: &[&Study<'_>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for claim in CLAIMS.into_iter().flatten() {
        for study in studies.iter().filter(|study| study.problem_name() == claim.problem) {
            for method in study.methods.iter().filter(|method| method.algo == claim.algo) {
                let Some(level) = method.level(claim.tau) else { continue };
                let whole = |trained: &Trained<'_>| {
                    trained.run.is_finished() && trained.run.summary.episodes == claim.episodes
                };
                if level.seeds.iter().all(whole)
                    && let Some(ours) = level.estimate(claim.measure)
                {
                    let of = |seed: u64| {
                        let trained = level.seeds.iter().find(|trained| trained.record.seed == seed)?;
                        claim.measure.of(trained)
                    };
                    let samples: Option<Vec<f64>> = SEEDS.into_iter().map(of).collect();
                    let more = samples.filter(|samples| ours.n > samples.len());
                    let papers_seeds = more.map(|samples| samples.iter().sum::<f64>() / samples.len() as f64);
                    rows.push(Row { papers_seeds, ..Row::new(claim, method.name.clone(), ours) });
                }
            }
        }
    }
    rows
}

/// The comparison as a Markdown table.
pub fn markdown(rows: &[Row]) -> String {
    let more = rows.iter().any(|row| row.papers_seeds.is_some());
    let (head, rule) =
        if more { (" the paper's seeds | IQM, 95 % bootstrap |", "---|---|") } else { ("", "") };
    let mut text = format!(
        "| problem | measure | τ | method | paper | ours | 95 % interval | seeds |{head} ahead | source |\n\
         |---|---|---|---|---|---|---|---|{rule}---|---|\n",
    );
    for row in rows {
        let Claim { problem, measure, tau, value: (low, high), source, .. } = row.claim;
        let paper = if low == high {
            four_digits(low)
        } else {
            format!("{} to {}", four_digits(low), four_digits(high))
        };
        let interval = row.ours.interval.map_or("–".to_owned(), |interval| {
            format!("[{}, {}]", four_digits(interval.low), four_digits(interval.high))
        });
        let beside = if more {
            let iqm = row.ours.iqm.map_or("–".to_owned(), |(middle, interval)| {
                let [low, high] = [interval.low, interval.high].map(four_digits);
                format!("{} [{low}, {high}]", four_digits(middle))
            });
            format!(" {} | {iqm} |", row.papers_seeds.map_or("–".to_owned(), four_digits))
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "| {problem} | {} | {} | {} | {paper} | {} | {interval} | {} |{beside} {} | {source} |",
            measure.title(),
            four_digits(tau),
            row.method,
            four_digits(row.ours.mean),
            row.ours.n,
            row.verdict()
        );
    }
    for row in rows.iter().filter(|row| row.ahead == Ahead::Paper) {
        let Claim { problem, measure, tau, value: (low, high), .. } = row.claim;
        let nearest = row.ours.mean.clamp(low, high);
        let mut why = if row.clear || row.ours.n == 1 {
            String::new()
        } else {
            ". Its value lies within our interval: these seeds do not tell the two apart".to_owned()
        };
        if let Some(mean) = row.papers_seeds {
            let _ = write!(why, "; on the paper's seeds ours is {}", four_digits(mean));
        }
        if row.claim.algo == "ucb-bqrl" {
            why += ". Ours is a reconstruction of UCB-BQRL, which is not published in full";
        }
        let _ = write!(
            text,
            "\nThe paper is ahead in {problem}, {}, τ = {}, {}: by {} on average over {} seeds{why}.\n",
            measure.title(),
            four_digits(tau),
            row.method,
            four_digits((row.ours.mean - nearest).abs()),
            row.ours.n,
        );
    }
    text
}

/// The paper's Figures 1 to 4 with its methods and its numbers, and Figures 1, 3 and 4 again with the methods that it does not
/// have; as far as the runs hold what they show. File name and figure.
pub fn figures(
    asset_selling: Option<&Study<'_>>,
    frozen_lake: Option<&Study<'_>>,
) -> Vec<(&'static str, Figure)> {
    let cumulative = &[Measure::QuantilePolicyGap, Measure::ExpectedReturnRegret][..];
    let reward = &[Measure::MovingAverageReward][..];
    let mut figures = Vec::new();
    let mut learning = |study: &Study<'_>, names: [&'static str; 2], what: &str, measures, taus: &[f64]| {
        let printed = printed(study);
        for (name, of_paper) in names.into_iter().zip([true, false]) {
            let shown = |method: &Method<'_>| {
                let known = ALGOS.contains(&method.algo);
                let shown = if of_paper { known } else { !known || method.algo == "deep-bqrl" };
                shown && taus.iter().any(|&tau| method.level(tau).is_some())
            };
            let mut methods = study.methods.iter().filter(|method| shown(method));
            if methods.any(|method| of_paper || !ALGOS.contains(&method.algo)) {
                let with = if of_paper { "" } else { ", with methods that the paper does not have" };
                let title = format!("{what}{with}");
                figures.push((name, views::learning_of(study, &title, (measures, taus), shown, &printed)));
            }
        }
    };
    if let Some(study) = asset_selling {
        let title = "Figure 1: learning performance on asset selling";
        learning(study, ["figure-1", "figure-1-others"], title, cumulative, &[0.1, 0.9]);
    }
    if let Some(study) = frozen_lake {
        let title = "Figure 3: episodic reward on slippery FrozenLake";
        learning(study, ["figure-3", "figure-3-others"], title, reward, &[0.1, 0.5, 0.9]);
        let title = "Figure 4: learning performance on slippery FrozenLake";
        learning(study, ["figure-4", "figure-4-others"], title, cumulative, &[0.5]);
    }
    figures.extend(asset_selling.and_then(figure_2).map(|figure| ("figure-2", figure)));
    figures.sort_by_key(|&(name, _)| name);
    figures
}

/// The paper's numbers for runs of the same length; the middle of a range.
fn printed(study: &Study<'_>) -> Vec<Printed> {
    let of_study = |claim: &Claim| {
        claim.problem == study.problem_name()
            && study.runs.iter().all(|run| run.is_finished() && run.summary.episodes == claim.episodes)
    };
    let value = |claim: Claim| {
        let middle = f64::midpoint(claim.value.0, claim.value.1);
        (claim.measure, claim.tau, claim.algo, middle)
    };
    CLAIMS.into_iter().flatten().filter(of_study).map(value).collect()
}

/// The paper's choice of seeds; where a run lacks one, its first seed.
fn figure_2(study: &Study<'_>) -> Option<Figure> {
    let method = study.methods.iter().find(|method| method.algo == "deep-bqrl")?;
    let pick = |&(tau, seed): &(f64, u64)| {
        let seeds = &method.level(tau)?.seeds;
        seeds.iter().find(|trained| trained.record.seed == seed).or(seeds.first()).copied()
    };
    let agents: Vec<Trained<'_>> = FIGURE_2.iter().filter_map(pick).collect();
    let title = format!("Figure 2: final {} policies on asset selling", display_name("deep-bqrl"));
    views::policy_panels(&title, study.problem()?, &agents, |agent| {
        format!("τ = {} · seed {}", four_digits(agent.facts().tau), agent.record.seed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bqrl_math::Interval;

    fn claim(problem: &str, measure: Measure, tau: f64, algo: &str) -> Claim {
        let mut found = CLAIMS.into_iter().flatten().filter(|claim| {
            (claim.problem, claim.measure, claim.tau, claim.algo) == (problem, measure, tau, algo)
        });
        let one = found.next().unwrap();
        assert_eq!(found.next(), None, "stated twice");
        one
    }

    #[test]
    fn the_numbers_are_the_papers() {
        // §4.1: "At episode 2000, the mean cumulative point-quantile gap of Deep-BQRL is 538.33 for τ = 0.1".
        let gap = claim("asset-selling", Measure::QuantilePolicyGap, 0.1, "deep-bqrl");
        assert_eq!((gap.value, gap.episodes), ((538.33, 538.33), 2000));
        // §4.1: "For τ = 0.9, Deep-BQRL has the smallest regret, 193.68, compared with 324.65, 719.58, and 685.96".
        let regrets =
            ALGOS.map(|algo| claim("asset-selling", Measure::ExpectedReturnRegret, 0.9, algo).value.0);
        assert_eq!(regrets, [324.65, 193.68, 719.58, 685.96]);
        assert!(regrets.iter().all(|&regret| regret >= regrets[1]));
        // §4.2: "404.28, 666.28, 2426.62, and 3613.28".
        let regrets =
            ALGOS.map(|algo| claim("frozen-lake", Measure::ExpectedReturnRegret, 0.5, algo).value.0);
        assert_eq!(regrets, [404.28, 666.28, 2426.62, 3613.28]);
    }

    fn estimate(mean: f64, low: f64, high: f64) -> Estimate {
        Estimate { n: 3, mean, interval: Some(Interval { low, high }), iqm: None }
    }

    #[test]
    fn cells_in_which_the_paper_is_ahead_are_named_below_the_table() {
        let gap = claim("asset-selling", Measure::QuantilePolicyGap, 0.1, "ucb-bqrl");
        let page = |ours: Estimate| markdown(&[Row::new(gap, "UCB-BQRL".to_owned(), ours)]);
        assert!(!page(estimate(20.0, 10.0, 30.0)).contains("The paper is ahead"));
        let within = page(estimate(29.14, 10.0, 40.0));
        assert!(
            within.contains("τ = 0.1, UCB-BQRL: by 1 on average over 3 seeds. Its value lies within"),
            "{within}"
        );
        let clear = page(estimate(38.14, 35.0, 40.0));
        let reason = ". Ours is a reconstruction of UCB-BQRL, which is not published in full.\n";
        assert!(clear.ends_with(&format!("UCB-BQRL: by 10 on average over 3 seeds{reason}")), "{clear}");
        let row = Row::new(gap, "UCB-BQRL".to_owned(), estimate(38.14, 35.0, 40.0));
        let with = markdown(&[Row { papers_seeds: Some(30.5), ..row }]);
        assert!(with.contains("over 3 seeds; on the paper's seeds ours is 30.5."), "{with}");
    }

    #[test]
    fn less_is_better_for_a_loss_and_worse_for_a_reward() {
        let gap = claim("asset-selling", Measure::QuantilePolicyGap, 0.1, "deep-bqrl");
        let verdict = |claim: Claim, ours: Estimate| Row::new(claim, String::new(), ours).verdict();
        assert_eq!(verdict(gap, estimate(226.0, 200.0, 250.0)), "ours");
        assert_eq!(verdict(gap, estimate(226.0, 10.0, 600.0)), "ours, within our interval");
        assert_eq!(verdict(gap, estimate(700.0, 600.0, 800.0)), "the paper");
        assert_eq!(verdict(gap, estimate(538.33, 500.0, 600.0)), "even");
        let reward = claim("frozen-lake", Measure::MovingAverageReward, 0.5, "ppo");
        assert_eq!(verdict(reward, estimate(0.6, 0.55, 0.65)), "ours");
        assert_eq!(verdict(reward, estimate(0.52, 0.4, 0.6)), "even");
        assert_eq!(verdict(reward, estimate(0.4, 0.3, 0.52)), "the paper, within our interval");
        let one = Estimate { n: 1, mean: 0.9, interval: None, iqm: None };
        assert_eq!(verdict(reward, one), "ours, one seed");
    }
}
