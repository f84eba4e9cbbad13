//! The clock of a run is only recorded: it may stand still between sessions, and it may be set back.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bqrl_lab::batch::{Prepared, run_all};
use bqrl_lab::config::Layers;
use bqrl_lab::run::{Hooks, News};
use bqrl_runs::monitor;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::schema::Summary;

/// One session of a run of two seeds, on one thread. The clock advances by `per_call` seconds each time it is read; after
/// `episodes` episodes of the second seed, or never, the run is interrupted. Returns the seconds that passed, too.
fn session(dir: &RunDir, from: i64, per_call: i64, episodes: Option<u64>) -> (Option<Summary>, i64) {
    let mut layers = Layers::of("ppo", "asset-selling").unwrap();
    layers.set("run", "episodes", 20);
    layers.set("run", "seeds", vec![1, 2]);
    let config = layers.finish("test").unwrap();
    let (clock, stop) = (AtomicI64::new(from), AtomicBool::new(false));
    let watch = |news: &News| {
        stop.store(news.seed == 2 && Some(news.progress.clock.episodes) == episodes, Ordering::Relaxed);
    };
    let hooks = Hooks {
        stop: &stop,
        watch: &watch,
        warn: &|_| {},
        clock: &|| clock.fetch_add(per_call, Ordering::Relaxed) as f64,
    };
    let ready = [Prepared::new(config).unwrap().begin(dir.clone(), dir.lock().unwrap()).unwrap()];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let summary = pool.install(|| run_all(&ready, &hooks)).remove(0).ok();
    (summary, clock.into_inner() - from)
}

#[test]
fn the_seconds_of_all_sessions_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let dir = RunDir::create(folder.path(), false).unwrap().0;
    let (mut passed, mut summary) = (0, None);
    for (from, episodes) in [(1_000_000, Some(5)), (2_000_000, Some(12)), (3_000_000, None)] {
        let seconds;
        (summary, seconds) = session(&dir, from, 1, episodes);
        assert!(seconds > 10);
        passed += seconds;
    }
    // The clock is read a few times before and after the seeds are trained, and around their checkpoints.
    let seconds = summary.unwrap().seconds;
    assert!(seconds <= passed as f64 && seconds > passed as f64 - 40.0, "{seconds} of {passed}");
}

#[test]
fn a_clock_that_is_set_back_gives_no_negative_and_no_falling_times() {
    let folder = tempfile::tempdir().unwrap();
    let dir = RunDir::create(folder.path(), false).unwrap().0;
    assert!(session(&dir, 1_000_000, 1, Some(5)).0.is_none());
    assert!(session(&dir, 500_000, -3, Some(12)).0.is_none());
    let summary = session(&dir, 1_000_000, 1, None).0.unwrap();
    assert!(summary.seconds > 0.0);
    for seed in [1, 2] {
        let times: Vec<f64> =
            monitor::times(&dir.seed(seed).monitor()).unwrap().iter().map(|time| time.1).collect();
        assert_eq!(times.len(), 20);
        assert!(times[0] >= 0.0 && times.is_sorted(), "{times:?}");
    }
}
