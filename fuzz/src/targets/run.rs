//! Run directories, turned into a report page.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

use bqrl_report::document::document;
use bqrl_report::progress;
use bqrl_report::study::Study;
use bqrl_runs::reader::Run;

use super::TARGETS;
use super::scratch::with_files;
use crate::Input;

/// Pages of which one is also drawn as pixels, which takes a hundred times as long.
const PER_PNG: u64 = 64;

pub(super) fn run(input: &Input) -> bool {
    with_files(input, |directory| {
        let Ok(run) = Run::read(directory) else { return false };
        let _ = (progress::headline(&run), progress::seeds(&run), run.counts_steps());
        let runs = [run];
        let Ok(study) = Study::new(&runs) else { return false };
        let page = document(&study, "0");
        assert!(!page.html.contains('\u{1b}'), "an escape reached the page");
        let mut hasher = DefaultHasher::new();
        page.html.hash(&mut hasher);
        if hasher.finish().is_multiple_of(PER_PNG) {
            for (_, figure) in &page.figures {
                let _ = figure.png(0.25);
            }
        }
        true
    })
}

/// The table of a policy in the run directory that is the first seed of [`run`].
pub(super) fn policy(input: &Input) -> bool {
    static GOOD: OnceLock<Input> = OnceLock::new();
    let good = GOOD.get_or_init(|| {
        let target = TARGETS.iter().find(|target| target.name == "run").expect("a target");
        target.seeds().expect("its seeds").swap_remove(0)
    });
    let mut files = good.clone();
    let table = input.get("policy.csv").unwrap_or_default();
    for (_, bytes) in files.files.iter_mut().filter(|(name, _)| name.ends_with("policy.csv")) {
        *bytes = table.to_vec();
    }
    run(&files)
}
