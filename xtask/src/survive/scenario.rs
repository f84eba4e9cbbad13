//! What is interrupted: commands that take about a second and write many checkpoints.

/// A command, or several side by side, in a directory of its own.
pub struct Scenario {
    pub name: &'static str,
    /// Files that are there at the beginning.
    pub files: Vec<(&'static str, &'static str)>,
    /// Commands that run at the same time.
    pub workers: Vec<Vec<String>>,
    /// Resumes the only worker, once `out` has this file; otherwise its command is given again.
    pub resume: Option<(&'static str, Vec<String>)>,
    /// Runs after the workers.
    pub last: Option<Vec<String>>,
    /// Commands that look at an unfinished `out` and must not change it.
    pub looks: Vec<Vec<String>>,
    /// Takes minutes: not part of the short form, and interrupted less often.
    pub is_long: bool,
}

/// Of `gamble-chain`: a sure 1, or 3 with probability 0.4.
const CHAIN: &str =
    "idstatefrom,idaction,idstateto,probability,reward\n0,0,0,1,1\n0,1,0,0.4,3\n0,1,0,0.6,0\n";

/// Eleven irregular rewards, or a sure one: too many returns for exact values, so that policies are played.
const GAMBLES: &str = "idstatefrom,idaction,idstateto,probability,reward\n0,1,0,1,0.301\n\
    0,0,0,0.1,-1.085786\n0,0,0,0.1,-0.767949\n0,0,0,0.1,-0.5\n0,0,0,0.1,-0.263932\n0,0,0,0.1,-0.05051\n\
    0,0,0,0.1,0.145751\n0,0,0,0.1,0.328427\n0,0,0,0.1,0.5\n0,0,0,0.1,0.662278\n0,0,0,0.05,0.816625\n0,0,0,0.05,0.964102\n";

const GRID: &str = r#"
[problem]
name = "asset-selling"
[problem.parameters]
offers = "6"
[run]
episodes = 150
checkpoint_every = 15
seeds = [1, 2]
[agent]
kind = "qppo"
[grid]
run.tau = [[0.1], [0.9]]
"#;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// `bqrl train`, with a checkpoint every so many episodes or steps.
fn train(name: &'static str, arguments: &str, every: &str) -> Scenario {
    let mut command = words(&format!("train {arguments} --json --out out"));
    command.extend(["--set".to_owned(), format!("run.checkpoint_every={every}")]);
    Scenario {
        name,
        files: [("chain.csv", CHAIN), ("gambles.csv", GAMBLES)]
            .into_iter()
            .filter(|(file, _)| arguments.starts_with(file))
            .collect(),
        workers: vec![command],
        resume: Some(("config.toml", words("train --resume out --json"))),
        last: None,
        looks: vec![words("eval out"), words("report out --out ../page")],
        is_long: false,
    }
}

/// All scenarios, the short ones first.
pub fn all() -> Vec<Scenario> {
    let chain = "chain.csv --horizon 4 --start 0";
    let offers = "asset-selling --env offers=8";
    let small = "--set agent.n_critics=2 --set agent.n_quantiles=12 --set agent.updates_per_step=2.0";
    let late = "--set agent.updates_per_step=0.01 --set agent.replay_capacity=20000 --set agent.hidden=[4] \
                --set agent.n_quantiles=2 --set agent.batch_size=2";
    vec![
        train("deep-bqrl", &format!("{offers} --episodes 80"), "4"),
        train(
            "deep-bqrl-lanes",
            "frozen-lake --tau 0.5 --lanes 4 --steps 1200 --seeds 42,7 --threads 2",
            "100 steps",
        ),
        train("target-tracking", &format!("{offers} --algo target-tracking --episodes 30 {small}"), "2"),
        train(
            "target-tracking-lanes",
            &format!("{chain} --algo target-tracking --lanes 4 --steps 240 {small}"),
            "16 steps",
        ),
        train("ucb-bqrl", &format!("{chain} --algo ucb-bqrl --episodes 90"), "6"),
        train("ucb-bqrl-lanes", &format!("{offers} --algo ucb-bqrl --lanes 4 --episodes 100"), "6"),
        train("ppo", "frozen-lake --algo ppo --tau 0.1,0.5 --episodes 100", "7"),
        train("ppo-lanes", &format!("{chain} --algo ppo --lanes 4 --steps 2000"), "92 steps"),
        train("trpo", &format!("{offers} --algo trpo --episodes 150"), "7"),
        train("trpo-lanes", "frozen-lake --algo trpo --tau 0.5 --lanes 4 --steps 1600", "100 steps"),
        train("qr-dqn", &format!("{chain} --algo qr-dqn --steps 800"), "50 steps"),
        train("qr-dqn-lanes", "frozen-lake --algo qr-dqn --lanes 4 --episodes 80", "6"),
        train("var-q", &format!("{offers} --algo var-q --episodes 150"), "10"),
        train("var-q-lanes", &format!("{chain} --algo var-q --lanes 4 --steps 2000"), "100 steps"),
        train("qppo", &format!("{offers} --algo qppo --episodes 200"), "9"),
        train("qppo-lanes", "frozen-lake --algo qppo --lanes 4 --steps 1600", "100 steps"),
        train(
            "many-seeds",
            &format!("{offers} --algo var-q --seeds 1,2,3,4,5,6 --threads 2 --episodes 40"),
            "8",
        ),
        train(
            "played-evaluations",
            "gambles.csv --horizon 30 --start 0 --algo qppo --tau 0.5 --lanes 4 --episodes 120 \
             --set run.evaluation_episodes=100",
            "8",
        ),
        // A replay that is long enough to be written in blocks, which are then forgotten.
        train(
            "replay-in-blocks",
            &format!(
                "frozen-lake --algo qr-dqn --tau 0.5 --steps 60000 {late} --set run.evaluate_every=2000"
            ),
            "4000 steps",
        ),
        tune(),
        sweep("sweep", &["sweep grid.toml --out out --threads 2 --json"]),
        sweep(
            "sweep-shards",
            &["sweep grid.toml --out out --shard 1/2", "sweep grid.toml --out out --shard 2/2"],
        ),
        Scenario {
            name: "reproduce",
            files: Vec::new(),
            workers: vec![words("reproduce asset-selling --quick --seeds 2 --threads 2 --json --out out")],
            resume: None,
            last: None,
            looks: Vec::new(),
            is_long: true,
        },
    ]
}

fn tune() -> Scenario {
    let search = "tune asset-selling --algo var-q --points 4 --episodes 40 --seeds 1000";
    Scenario {
        name: "tune",
        files: Vec::new(),
        workers: vec![words(&format!("{search} --set run.checkpoint_every=4 --json --out out"))],
        resume: Some(("tune.toml", words("tune --resume out --json"))),
        last: None,
        looks: Vec::new(),
        is_long: false,
    }
}

fn sweep(name: &'static str, workers: &[&str]) -> Scenario {
    Scenario {
        name,
        files: vec![("grid.toml", GRID)],
        workers: workers.iter().map(|worker| words(worker)).collect(),
        resume: None,
        last: (workers.len() > 1).then(|| words("sweep grid.toml --out out --collect --json")),
        looks: vec![words("sweep grid.toml --out out --list")],
        is_long: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_interrupted_in_one_lane_and_in_several() {
        let presets = std::fs::read_dir(crate::root().join("crates/lab/presets")).unwrap();
        let algos: Vec<String> = presets
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(algos.len(), 8, "{algos:?}");
        let trained: Vec<String> = all().iter().map(|one| one.workers[0].join(" ")).collect();
        for algo in algos {
            let is_it = |command: &&String| match command.split_once("--algo ") {
                Some((_, rest)) => rest.split(' ').next() == Some(&algo),
                None => command.starts_with("train") && algo == "deep-bqrl",
            };
            let own: Vec<&String> = trained.iter().filter(is_it).collect();
            assert!(own.iter().any(|command| command.contains("--lanes")), "{algo}");
            assert!(own.iter().any(|command| !command.contains("--lanes")), "{algo}");
        }
        let mut names: Vec<&str> = all().iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len(), "two scenarios have one name");
    }
}
