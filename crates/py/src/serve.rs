//! `serve`: the live page, in a thread of its own.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bqrl_web::{Options, Server};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// A server that answers until it is closed.
#[pyclass(frozen)]
pub struct PageServer {
    url: String,
    stop: Arc<AtomicBool>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl PageServer {
    #[new]
    fn new(directory: PathBuf, port: u16, host: &str) -> PyResult<Self> {
        let host: IpAddr = host
            .parse()
            .map_err(|_| PyValueError::new_err(format!("host must be an IP address, got {host:?}")))?;
        let server = Server::bind(Options { host, port, ..Options::new(directory) })
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        let url = format!("http://{}", server.address()?);
        let stop = Arc::new(AtomicBool::new(false));
        let signal = stop.clone();
        // It holds no Python object, so it needs no lock of Python's and cannot keep the interpreter alive.
        let thread = std::thread::spawn(move || {
            let _ = server.run(&signal);
        });
        Ok(Self { url, stop, thread: std::sync::Mutex::new(Some(thread)) })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    fn close(&self, py: Python<'_>) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        py.detach(|| thread.map(JoinHandle::join));
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
