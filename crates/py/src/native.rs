//! Long native work that Ctrl-C can end, on threads that survive a fork.
//!
//! Signals are delivered to the thread that Python runs on. So that thread waits and looks at signals, and another one works.
//! The work asks from time to time whether it is to stop ([`Stop::ask`]), which unwinds it: nothing in between needs to know.
//!
//! A fork copies no thread but the one that forks. The threads of rayon's global pool would be missing in the child, and
//! whoever gives them work would wait forever. The pool here belongs to one process; a child makes its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::ThreadPool;

/// The longest time without a look at signals.
const PATIENCE: Duration = Duration::from_millis(50);

/// Whether the work is to stop.
pub struct Stop(AtomicBool);

/// Unwinds work that is to stop.
struct Stopped;

impl Stop {
    /// Returns unless the work is to stop. Only work whose results are then dropped may ask.
    pub fn ask(&self) {
        if self.0.load(Ordering::Relaxed) {
            // Not `panic!`, which would print a message.
            resume_unwind(Box::new(Stopped));
        }
    }
}

/// Does some work without holding Python. The exception is that of a signal handler, such as `KeyboardInterrupt`.
#[allow(clippy::redundant_closure_for_method_calls)] // `Python::check_signals` has one lifetime, `attach` wants any.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce(&Stop) -> T + Send) -> PyResult<T> {
    let stop = Stop(AtomicBool::new(false));
    let outcome = py.detach(|| {
        let pool = pool()?;
        let (done, finished) = channel();
        std::thread::scope(|scope| {
            let stop = &stop;
            let worker = scope.spawn(move || {
                let result = pool.install(|| catch_unwind(AssertUnwindSafe(|| work(stop))));
                // Nobody listens only when the other thread is unwinding.
                let _ = done.send(());
                result
            });
            let mut signal = None;
            while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(PATIENCE) {
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    stop.0.store(true, Ordering::Relaxed);
                    signal = Some(error);
                }
            }
            // The worker catches every panic, so that joining it cannot fail.
            let result = worker.join().and_then(|result| result);
            Ok::<_, PyErr>((result, signal))
        })
    });
    match outcome? {
        (_, Some(signal)) => Err(signal),
        (Ok(result), None) => Ok(result),
        (Err(panic), None) => resume_unwind(panic as Box<dyn Any + Send>),
    }
}

/// The threads of this process.
fn pool() -> PyResult<Arc<ThreadPool>> {
    static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, pool)) = &*pool
        && *owner == process
    {
        return Ok(pool.clone());
    }
    let new = rayon::ThreadPoolBuilder::new().build();
    let new = Arc::new(new.map_err(|error| PyRuntimeError::new_err(format!("starting threads: {error}")))?);
    // Never dropped: that would wake threads that this process does not have.
    std::mem::forget(pool.replace((process, new.clone())));
    Ok(new)
}
