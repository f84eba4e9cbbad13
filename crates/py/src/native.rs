//! Native work without Python: it ends at Ctrl-C, survives a fork, and lets the interpreter end.
//!
//! *Ctrl-C.* Signals are delivered to the thread that Python runs on. So in [`run`] that thread waits and looks at signals, and
//! another one works. The work asks from time to time whether it is to stop ([`Stop::ask`]), which unwinds it: nothing in
//! between needs to know.
//!
//! *Fork.* A fork copies no thread but the one that forks. The threads of rayon's global pool would be missing in the child,
//! and whoever gives them work would wait forever. The pool here belongs to one process; a child makes its own.
//!
//! *The end of the interpreter.* Until Python 3.14, a thread that comes back to Python when it has ended is unwound by force,
//! which aborts the process where frames of Rust are in between. So [`end`] is called before that: it lets no new work
//! begin, and waits a little for work of daemon threads to return.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use rayon::ThreadPool;

/// The longest time without a look at signals.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// How long the interpreter waits for daemon threads.
const FAREWELL: Duration = Duration::from_secs(2);

/// Calls that are in native code.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

/// A call that is in native code.
struct Call;

impl Call {
    fn begin() -> PyResult<Self> {
        let call = Self;
        CALLS.fetch_add(1, Ordering::SeqCst);
        go_on()?;
        Ok(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An exception that ends a thread without a word when the interpreter is ending.
pub fn go_on() -> PyResult<()> {
    if ENDING.load(Ordering::SeqCst) {
        return Err(PySystemExit::new_err("the interpreter is ending"));
    }
    Ok(())
}

/// Called when the interpreter is about to end.
#[pyfunction]
pub fn end(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    let began = Instant::now();
    while CALLS.load(Ordering::SeqCst) > 0 && began.elapsed() < FAREWELL {
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
    }
}

/// Does some work while other threads may use Python.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    let _call = Call::begin()?;
    py.detach(work)
}

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

/// Does long work, on the threads of this process. Not to be called while the thread is attached to Python. The exception is
/// that of a signal handler, such as `KeyboardInterrupt`.
#[allow(clippy::redundant_closure_for_method_calls)] // `Python::check_signals` has one lifetime, `attach` wants any.
pub fn run<T: Send>(work: impl FnOnce(&Stop) -> T + Send) -> PyResult<T> {
    let pool = pool()?;
    let stop = &Stop(AtomicBool::new(false));
    let (done, finished) = channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let result = pool.install(|| catch_unwind(AssertUnwindSafe(|| work(stop))));
            // Nobody listens only when the other thread is unwinding.
            let _ = done.send(());
            result
        });
        let mut ended = Ok(());
        while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(PATIENCE) {
            if ended.is_ok() {
                ended = go_on().and_then(|()| Python::attach(|py| py.check_signals()));
                stop.0.store(ended.is_err(), Ordering::Relaxed);
            }
        }
        let result = worker.join().and_then(|result| result);
        ended?;
        Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// The threads of this process.
pub fn pool() -> PyResult<Arc<ThreadPool>> {
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
