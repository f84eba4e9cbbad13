//! The studies that the paper leaves open (§4, Discussion), as a list of runs and a table without any.
//!
//! | part | what varies |
//! |---|---|
//! | sensitivity | β, K, M, κ, λ_0, one at a time around the preset; β also at every other K |
//! | variants | the buffered score, a point quantile, the mean, no bonus |
//! | scaling | the horizon H, the number of actions |
//! | floor | nothing is trained: the paper's rule solved exactly, over τ and β |
//!
//! Every run is Deep-BQRL's preset with at most a few keys changed. Runs that are the same are made once: the preset stands
//! in every study. Seeds are the held-out ones: nothing is chosen from these runs.

mod floor;

use bqrl_mdp::env::Env as _;
use bqrl_mdp::model::Problem;
use bqrl_mdp::tabular::TabularEnv;

pub use self::floor::{FLOORS, Floor, SHARES, floor};
use crate::config::{AgentConfig, Config, ConfigError, Layers};
use crate::outcome::rule_quantile;
use crate::reproduce::{LEVELS, Planned, QUICK, seeds};

/// A part of the studies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One setting at a time.
    Sensitivity,
    /// The score that compares actions, and the bonus.
    Variants,
    /// Longer horizons, more actions.
    Scaling,
    /// The paper's rule, exactly.
    Floor,
}

/// One thing that is varied on one problem, at one or more levels.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Its part of the studies.
    pub part: Part,
    /// A short name that no other sweep has.
    pub name: &'static str,
    /// The full name of the varied setting.
    pub setting: &'static str,
    /// The problem, by name.
    pub problem: &'static str,
    /// Training episodes.
    pub episodes: usize,
    /// Its values, as tables write them.
    pub values: Vec<String>,
    /// The place of what the others are compared with: the preset, or what is nearest to it.
    pub reference: usize,
    /// τ.
    pub taus: Vec<f64>,
    /// `runs[level][value]`, places in [`Studies::runs`].
    pub runs: Vec<Vec<usize>>,
}

/// The runs of the studies.
#[derive(Clone, Debug, Default)]
pub struct Studies {
    /// Every run once.
    pub runs: Vec<Planned>,
    /// The sweeps.
    pub sweeps: Vec<Sweep>,
}

/// A sweep before its runs are known: each value with the keys that it changes, `section.key=value`, or
/// `env.parameter=value` for the problem. `TAU*` stands for the level times what follows.
struct Outline {
    part: Part,
    name: &'static str,
    setting: &'static str,
    problem: &'static str,
    episodes: usize,
    taus: &'static [f64],
    reference: usize,
    values: Vec<(String, Vec<String>)>,
}

const ASSET: &str = "asset-selling";

fn outlines(quick: bool) -> Vec<Outline> {
    let episodes = |full: usize| if quick { full / QUICK } else { full };
    let setting = |name, setting, key: &str, reference: &str, values: &[&str]| Outline {
        part: Part::Sensitivity,
        name,
        setting,
        problem: ASSET,
        episodes: episodes(2000),
        taus: &LEVELS,
        reference: values.iter().position(|value| *value == reference).expect("the reference is a value"),
        values: values.iter().map(|value| (short(value), vec![format!("{key}={value}")])).collect(),
    };
    let beta = |name, what, also: &[&str]| Outline {
        values: SHARES
            .iter()
            .map(|(label, share)| {
                // β = τ is what the preset leaves out.
                let beta = (*share < 1.0).then(|| format!("run.beta=TAU*{share}"));
                ((*label).to_owned(), also.iter().map(|key| (*key).to_owned()).chain(beta).collect())
            })
            .collect(),
        reference: SHARES.len() - 1,
        ..setting(name, what, "", "", &[""])
    };
    let named = |values: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        values.iter().map(|(label, changed)| ((*label).to_owned(), keys(changed))).collect()
    };
    let scaling = |name, what, problem, taus, full, values: Vec<(String, Vec<String>)>| Outline {
        part: Part::Scaling,
        name,
        setting: what,
        problem,
        episodes: episodes(full),
        taus,
        reference: 0,
        values,
    };
    let variants: [(&str, &[&str]); 4] = [
        ("buffered (preset)", &[]),
        ("point quantile", &["agent.score=point"]),
        ("mean", &["agent.score=mean"]),
        ("no bonus", &["agent.lambda_0=0.0"]),
    ];
    let fine: [(&str, &[&str]); 2] = [
        ("buffered, K = 32", &["agent.n_quantiles=32"]),
        ("point quantile, K = 32", &["agent.n_quantiles=32", "agent.score=point"]),
    ];
    let variant = |name, problem, taus, full, values: &[(&str, &[&str])]| Outline {
        part: Part::Variants,
        ..scaling(name, "what decides between actions", problem, taus, full, named(values))
    };
    vec![
        beta("beta", "buffer width β (K = 4)", &[]),
        beta("beta-2", "buffer width β (K = 2)", &["agent.n_quantiles=2"]),
        beta("beta-8", "buffer width β (K = 8)", &["agent.n_quantiles=8"]),
        beta("beta-16", "buffer width β (K = 16)", &["agent.n_quantiles=16"]),
        beta("beta-32", "buffer width β (K = 32)", &["agent.n_quantiles=32"]),
        setting(
            "n_quantiles",
            "number of quantiles K",
            "agent.n_quantiles",
            "4",
            &["2", "4", "8", "16", "32"],
        ),
        setting("n_critics", "number of critics M", "agent.n_critics", "4", &["2", "3", "4", "6", "10"]),
        setting("kappa", "Huber threshold κ", "agent.kappa", "0.2", &["0.01", "0.04", "0.2", "1.0", "5.0"]),
        setting(
            "lambda_0",
            "initial bonus λ₀",
            "agent.lambda_0",
            "5.0",
            &["0.0", "0.5", "1.5", "5.0", "15.0"],
        ),
        variant("variants", ASSET, &LEVELS, 2000, &[&variants[..], &fine[..]].concat()),
        variant("variants-lake", "frozen-lake", &[0.5], 5000, &variants),
        scaling(
            "horizon",
            "horizon H",
            ASSET,
            &[0.1, 0.9],
            2000,
            [10, 20, 50, 100, 200, 500, 1000]
                .map(|h| (h.to_string(), vec![format!("env.horizon={h}")]))
                .into(),
        ),
        scaling(
            "actions",
            "number of actions",
            "gamblers-ruin",
            &[0.1, 0.9],
            2000,
            // Stakes 0..max_bet; with a goal of 200 every stake up to 100 can be placed whole. The game is a good one, else the
            // rule would not play.
            [2, 4, 8, 16, 32, 64, 100]
                .map(|n: usize| {
                    let stakes = format!("env.max_bet={}", n - 1);
                    let fixed = ["env.goal=200", "env.start=100", "env.probability=0.55"].map(str::to_owned);
                    (n.to_string(), fixed.into_iter().chain([stakes]).collect())
                })
                .into(),
        ),
    ]
}

/// A number without the decimals that only TOML needs.
fn short(value: &str) -> String {
    value.strip_suffix(".0").unwrap_or(value).to_owned()
}

/// The runs of the sweeps that are wanted, by part and name.
pub fn plan(
    wanted: impl Fn(Part, &str) -> bool,
    n_seeds: usize,
    quick: bool,
) -> Result<Studies, ConfigError> {
    let mut studies = Studies::default();
    for outline in outlines(quick).into_iter().filter(|outline| wanted(outline.part, outline.name)) {
        let mut runs = Vec::new();
        for &tau in outline.taus {
            let place = |(_, changes): &(String, Vec<String>)| -> Result<usize, ConfigError> {
                let planned = planned(&outline, tau, changes, n_seeds)?;
                let known = studies.runs.iter().position(|known| known.config == planned.config);
                Ok(known.unwrap_or_else(|| {
                    studies.runs.push(planned);
                    studies.runs.len() - 1
                }))
            };
            runs.push(outline.values.iter().map(place).collect::<Result<Vec<_>, _>>()?);
        }
        let Outline { part, name, setting, problem, episodes, taus, reference, values } = outline;
        let values = values.into_iter().map(|(label, _)| label).collect();
        let taus = taus.to_vec();
        studies.sweeps.push(Sweep { part, name, setting, problem, episodes, values, reference, taus, runs });
    }
    Ok(studies)
}

fn planned(outline: &Outline, tau: f64, changes: &[String], n_seeds: usize) -> Result<Planned, ConfigError> {
    let mut layers = Layers::preset("deep-bqrl")?;
    layers.set("problem", "name", outline.problem);
    layers.set("run", "tau", vec![tau]);
    layers.set("run", "episodes", outline.episodes as i64);
    layers.set("run", "seeds", seeds(n_seeds).into_iter().map(|seed| seed as i64).collect::<Vec<_>>());
    let mut name = Vec::new();
    for change in changes {
        if let Some((key, share)) = change.split_once("=TAU*") {
            let share: f64 = share.parse().expect("a share of the level");
            layers.override_with(&format!("{key}=[{}]", tau * share))?;
            name.push(format!("beta={}", tau * share));
        } else if let Some((key, value)) = change.strip_prefix("env.").and_then(|rest| rest.split_once('=')) {
            layers.set_parameter(key, value);
            name.push(format!("{key}={value}"));
        } else {
            let key = change.split('=').next().unwrap_or_default();
            let preset = layers.value(key).cloned();
            layers.override_with(change)?;
            // A run has the same name in every sweep: the preset's own value is not in it.
            if layers.value(key) != preset.as_ref() {
                name.push(change.trim_start_matches("agent.").to_owned());
            }
        }
    }
    let name = if name.is_empty() { "preset".to_owned() } else { name.join(",") };
    let name = format!("{}-{tau}/{name}", outline.problem);
    Ok(Planned { config: layers.finish(&name)?, name })
}

/// Multiplications with an addition of the matrix products of one update: a cost that no machine changes. `None` for
/// agents other than Deep-BQRL.
pub fn multiply_adds(config: &Config, problem: &Problem) -> Option<f64> {
    let AgentConfig::DeepBqrl(agent) = &config.agent else { return None };
    let env = TabularEnv::new(problem.clone());
    let shape = agent.shape(env.spec());
    Some(shape.train_flops(agent.critics.batch_size) / 2.0)
}

/// Facts about a run of a sweep that are known before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Multiplications with an addition of the matrix products of one update; 0 for agents other than Deep-BQRL.
    pub multiply_adds: f64,
    /// Q_τ of the paper's rule on its problem, where that was asked for and few returns are possible.
    pub rule_quantile: Option<f64>,
}

impl Studies {
    /// The facts about a run, by its place. The paper's rule is slow to solve, so it is solved only on request.
    pub fn known(&self, run: usize, with_rule: bool) -> Result<Known, ConfigError> {
        let config = &self.runs[run].config;
        let problem = config.problem.load()?;
        let level = config.levels()?[0];
        Ok(Known {
            multiply_adds: multiply_adds(config, &problem).unwrap_or_default(),
            rule_quantile: if with_rule { rule_quantile(&problem, level) } else { None },
        })
    }

    /// The parameters of the problem that a sweep does not vary, ` (goal=64, …)`.
    pub fn fixed_parameters(&self, sweep: &Sweep) -> String {
        let parameters = |run: usize| &self.runs[run].config.problem.parameters;
        let runs: Vec<usize> = sweep.runs.iter().flatten().copied().collect();
        let fixed: Vec<String> = parameters(runs[0])
            .iter()
            .filter(|(key, value)| runs.iter().all(|&run| parameters(run).get(*key) == Some(*value)))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if fixed.is_empty() { String::new() } else { format!(" ({})", fixed.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::HELD_OUT;

    fn all() -> Studies {
        plan(|_, _| true, 3, false).unwrap()
    }

    #[test]
    fn every_sweep_holds_its_reference_and_sensitivities_the_preset_itself() {
        let studies = all();
        for sweep in &studies.sweeps {
            assert!(sweep.values.len() > sweep.reference, "{}", sweep.name);
            assert_eq!(sweep.runs.len(), sweep.taus.len(), "{}", sweep.name);
            for (runs, tau) in sweep.runs.iter().zip(&sweep.taus) {
                assert_eq!(runs.len(), sweep.values.len(), "{}", sweep.name);
                let reference = &studies.runs[runs[sweep.reference]];
                // The narrow windows need more quantiles, and a scaled problem is another problem.
                if !sweep.name.starts_with("beta-") && sweep.part != Part::Scaling {
                    assert_eq!(reference.name, format!("{}-{tau}/preset", sweep.problem), "{}", sweep.name);
                }
            }
        }
        let names: Vec<&str> = studies.sweeps.iter().map(|sweep| sweep.name).collect();
        for name in
            ["beta", "n_quantiles", "n_critics", "kappa", "lambda_0", "variants", "horizon", "actions"]
        {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_run_differs_from_its_reference_in_what_is_varied_and_in_nothing_else() {
        let studies = all();
        for sweep in studies.sweeps.iter().filter(|sweep| sweep.part == Part::Sensitivity) {
            let key = if sweep.name.starts_with("beta") {
                "run.beta".to_owned()
            } else {
                format!("agent.{}", sweep.name)
            };
            for runs in &sweep.runs {
                let reference = &studies.runs[runs[sweep.reference]].config;
                for (place, &run) in runs.iter().enumerate() {
                    let differences = studies.runs[run].config.differences(reference);
                    let expected = if place == sweep.reference { vec![] } else { vec![key.clone()] };
                    assert_eq!(differences, expected, "{}", studies.runs[run].name);
                }
            }
        }
    }

    #[test]
    fn no_run_is_made_twice_and_all_report_on_the_held_out_seeds() {
        let studies = all();
        for (index, run) in studies.runs.iter().enumerate() {
            assert_eq!(run.config.run.seeds, HELD_OUT, "{}", run.name);
            for other in &studies.runs[..index] {
                assert_ne!(run.name, other.name);
                assert_ne!(run.config, other.config, "{} and {}", run.name, other.name);
            }
        }
        let preset = |run: &&Planned| run.name == "asset-selling-0.1/preset";
        assert_eq!(studies.runs.iter().filter(preset).count(), 1);
        let quick = plan(|part, _| part == Part::Variants, 2, true).unwrap();
        assert!(quick.sweeps.iter().all(|sweep| sweep.part == Part::Variants));
        assert_eq!(quick.runs[0].config.run.episodes, Some(200));
        assert_eq!(quick.runs[0].config.run.seeds, HELD_OUT[..2]);
        // Asked for alone, a sweep has the runs that it has among all: they are found again.
        for sweep in &studies.sweeps {
            let alone = plan(|_, name| name == sweep.name, 3, false).unwrap();
            for run in &alone.runs {
                let known = studies.runs.iter().find(|known| known.name == run.name);
                assert_eq!(known.map(|known| &known.config), Some(&run.config), "{}", run.name);
            }
        }
        let kappa = plan(|_, name| name == "kappa", 3, false).unwrap();
        assert_eq!((kappa.sweeps.len(), kappa.runs.len()), (1, 15));
    }

    #[test]
    fn the_problems_of_the_scaling_study_have_what_is_varied() {
        let studies = all();
        for (name, size) in [
            ("horizon", (|problem| problem.model.horizon()) as fn(&Problem) -> usize),
            ("actions", |problem| problem.model.n_actions()),
        ] {
            let sweep = studies.sweeps.iter().find(|sweep| sweep.name == name).unwrap();
            for (&run, value) in sweep.runs[0].iter().zip(&sweep.values) {
                let problem = studies.runs[run].config.problem.load().unwrap();
                assert_eq!(size(&problem).to_string(), *value, "{name}");
            }
        }
    }

    #[test]
    fn the_cost_of_an_update_matches_hand_computation() {
        // D = 26 + 6 inputs, 64 hidden, 2·4 outputs: products 2048 and 512, or 256 for the action taken. One pass over all, two
        // with that action alone, and one over its second product, for 4 critics and 24 samples.
        let studies = all();
        let preset = &studies.runs[0];
        assert_eq!(preset.name, "asset-selling-0.1/beta=0.00625");
        let problem = preset.config.problem.load().unwrap();
        let cost = (2560.0 + 2.0 * 2304.0 + 256.0) * 96.0;
        assert_eq!(multiply_adds(&preset.config, &problem), Some(cost));
        let known = Known { multiply_adds: cost, rule_quantile: None };
        assert_eq!(studies.known(0, false).unwrap(), known);
    }

    #[test]
    fn what_a_sweep_holds_fixed_is_named() {
        let studies = all();
        let fixed = |name: &str| {
            studies.fixed_parameters(studies.sweeps.iter().find(|sweep| sweep.name == name).unwrap())
        };
        assert_eq!(fixed("actions"), " (goal=200, probability=0.55, start=100)");
        assert_eq!(fixed("horizon"), "");
    }
}
