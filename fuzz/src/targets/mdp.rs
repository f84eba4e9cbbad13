//! MDP files. A small table that is accepted is written, read back and planned.

use bqrl_math::buffer::Buffer;
use bqrl_mdp::csv;
use bqrl_mdp::plan::Planner;
use bqrl_mdp::returns::Rounding;

use crate::Input;

/// The most states and outcomes of a table that is planned.
const SMALL: usize = 64;

pub(super) fn run(input: &Input) -> bool {
    let bytes = input.get("table.csv").unwrap_or_default();
    let Ok(problem) = csv::read(bytes, "fuzz", 3, 0, 1.0) else { return false };
    let mut written = Vec::new();
    csv::write(&problem, &mut written).expect("a table that was read can be written");
    let again = csv::read(&written[..], "fuzz", 3, 0, 1.0).expect("a table that was written can be read");
    let model = &problem.model;
    // A state that only a row of probability 0 leads to has no row in the new file.
    assert!(again.model.n_states() <= model.n_states(), "states of a table that was written");
    let outcomes: usize = model.kernels().iter().map(|kernel| kernel.all_outcomes().len()).sum();
    if model.n_states() <= SMALL && outcomes <= SMALL {
        let level = Buffer::new(0.5, 0.25).expect("a level");
        let silent = &|_, _, _| {};
        if let Ok(rounded) = Planner::rounded(model, 100, Rounding::Down, silent) {
            let _ = (rounded.best_quantile(0.5), rounded.max_mean());
        }
        if let Ok(exact) = Planner::exact(model, silent) {
            let _ = (exact.best_quantile(0.5), exact.buffered(level, 50));
        }
    }
    true
}
