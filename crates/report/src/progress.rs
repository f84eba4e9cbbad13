//! How far an unfinished run is, in words.

use bqrl_runs::reader::{Run, SeedState, State};

/// "runs/a is still running: 60 % is done"; empty for a finished run.
pub fn headline(run: &Run) -> String {
    let path = run.path.display();
    let done = percent(run.state.fraction());
    match run.state {
        State::Finished => String::new(),
        State::Unfinished { running: true, .. } => {
            format!("{path} is still running: {done} is done. The numbers are those so far.")
        }
        State::Unfinished { running: false, .. } => {
            format!("{path} was interrupted: {done} is done. The numbers are those so far.")
        }
    }
}

/// "seed 42: 1200 of 2000 episodes, 60 %; still running", a line per seed; none for a finished run.
pub fn seeds(run: &Run) -> Vec<String> {
    match &run.state {
        State::Finished => Vec::new(),
        State::Unfinished { running, seeds, .. } => seeds.iter().map(|seed| line(seed, *running)).collect(),
    }
}

fn line(state: &SeedState, running: bool) -> String {
    let SeedState { seed, progress } = state;
    let part = match (progress.of_episodes, progress.of_steps) {
        (Some(of), _) => format!("{} of {of} episodes", progress.episodes),
        (None, Some(of)) => format!("{} of {of} steps", progress.steps),
        (None, None) => format!("{} episodes", progress.episodes),
    };
    let started = progress.episodes > 0 || progress.steps > 0;
    let ends = match (progress.fraction() >= 1.0, started, running) {
        (true, ..) => "done",
        (false, false, _) => "not started",
        (false, true, true) => "still running",
        (false, true, false) => "interrupted",
    };
    format!("seed {seed}: {part}, {}; {ends}", percent(progress.fraction()))
}

/// Rounded down: 100 % is for what is done.
fn percent(fraction: f64) -> String {
    format!("{} %", (100.0 * fraction + 1e-9).floor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bqrl_runs::schema::SeedProgress;

    #[test]
    fn a_seed_is_described_by_what_it_counts() {
        let episodes = SeedProgress { episodes: 1200, of_episodes: Some(2000), ..SeedProgress::default() };
        let of = |progress, running| line(&SeedState { seed: 42, progress }, running);
        assert_eq!(of(episodes, true), "seed 42: 1200 of 2000 episodes, 60 %; still running");
        assert_eq!(of(episodes, false), "seed 42: 1200 of 2000 episodes, 60 %; interrupted");
        let steps = SeedProgress { steps: 1999, of_steps: Some(2000), ..SeedProgress::default() };
        assert_eq!(of(steps, true), "seed 42: 1999 of 2000 steps, 99 %; still running");
        assert_eq!(
            of(SeedProgress { done: true, ..steps }, true),
            "seed 42: 1999 of 2000 steps, 100 %; done"
        );
        assert_eq!(
            of(SeedProgress { of_episodes: Some(9), ..SeedProgress::default() }, true),
            "seed 42: 0 of 9 episodes, 0 %; not started"
        );
    }
}
