//! The Rust half of the Python package: converts and forwards, and holds no formula.
//!
//! | module | what Python sees |
//! |---|---|
//! | [`described`] | `algos`, `preset`: the algorithms for Python; Python's description of an environment; `replay_memory` |
//! | [`learner`] | `Learner`: an agent in the hands of Python |
//! | [`lanes`] | environments of Python as lanes of the one play loop |
//! | [`native`] | long native work that Ctrl-C can end |
//! | [`run`] | training with or without a run directory; opening one |
//! | [`saved`] | `model.json`: what a model keeps beside its agent |
//! | [`shared`] | an agent that is asked in one place while it learns in another |
//! | [`observation`] | what an environment shows, as the agent wants it |
//! | [`problem`] | `Problem`: a table, from a name, a file or arrays; `Simulator`: the same, to be played |
//! | [`planning`] | `plan`: the report of `bqrl plan`, and policies to follow, to explain and to write |
//! | [`law`] | `Law`: the law of a return |
//! | [`given`] | `evaluate`, `compare`: policies of users, functions of Python among them |
//! | [`fitting`] | `fit_file`, `fit_arrays`, `simulate`: tables with counts |
//! | [`game`] | `Game`: a game being played; `replay_game`: with given draws |
//! | [`record`] | `sample_law`, `quantile_interval`: statistics of returns that were played |
//! | [`serve`] | `PageServer`: the live page in a thread |
//! | [`sweep`] | `Sweep`: a sweep file, and its runs one at a time |
//!
//! The Python half (`python/bqrl`) talks to environments; it is where exceptions of theirs pass through unchanged.

// PyO3's macros name things in full; the limits below are those of Python's calling convention.
#![allow(unused_qualifications, clippy::needless_pass_by_value, clippy::too_many_arguments)]

mod convert;
mod described;
mod fitting;
mod game;
mod given;
mod lanes;
mod law;
mod learner;
mod native;
mod observation;
mod planning;
mod problem;
mod record;
mod run;
mod saved;
mod serve;
mod shared;
mod sweep;

use pyo3::prelude::*;

#[pymodule]
mod _bqrl {
    #[pymodule_export]
    use crate::described::{algos, preset, read_settings, replay_memory};
    #[pymodule_export]
    use crate::fitting::{fit_arrays, fit_file, log_columns, simulate};
    #[pymodule_export]
    use crate::game::{Game, games, replay_game};
    #[pymodule_export]
    use crate::given::{compare, evaluate, law_svg};
    #[pymodule_export]
    use crate::law::Law;
    #[pymodule_export]
    use crate::learner::Learner;
    #[pymodule_export]
    use crate::planning::{PlannedPolicy, plan};
    #[pymodule_export]
    use crate::problem::{Problem, Simulator, problems};
    #[pymodule_export]
    use crate::record::{often, quantile_interval, sample_law};
    #[pymodule_export]
    use crate::serve::PageServer;
    #[pymodule_export]
    use crate::sweep::Sweep;

    use pyo3::prelude::*;

    /// The `bqrl` command: its arguments, the program's name first; the exit code.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
        py.detach(|| bqrl_cli::run(&arguments))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // NumPy is found now: later, a signal could come in between, and there would be no way to report it.
        numpy::PyArray1::<f64>::zeros(module.py(), 0, false);
        let end = wrap_pyfunction!(crate::native::end, module)?;
        module.py().import("atexit")?.call_method1("register", (end,))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
