//! A real server over a directory, and requests as bytes.

// Every test file uses a part of these.
#![allow(dead_code)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bqrl_lab::batch::{Prepared, run_all};
use bqrl_lab::config::Layers;
use bqrl_lab::run::Hooks;
use bqrl_runs::lock::Lock;
use bqrl_runs::run_dir::RunDir;
use bqrl_web::{Options, Server};

/// A server that stops when it is dropped.
pub struct Running {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn over(directory: &Path) -> Self {
        Self::with(Options::new(directory))
    }

    pub fn with(options: Options) -> Self {
        let server = Server::bind(options).unwrap();
        let address = server.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let signal = stop.clone();
        let thread = thread::spawn(move || server.run(&signal).unwrap());
        Self { address, stop, thread: Some(thread) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes.
    pub fn send(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The status, the headers and the body of a GET.
    pub fn get(&self, target: &str) -> Answer {
        let host = self.address;
        let text = self.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        Answer::of(&text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status, head: head.to_lowercase(), body }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole += &rest[..size];
        text = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// A run that is being written: 100 episodes at two levels, of which so many are done.
pub fn unfinished(path: &Path, episodes: usize) -> (RunDir, Lock) {
    let (dir, lock) = RunDir::create(path, false).unwrap();
    let config = "[problem]\nname = \"asset-selling\"\n[agent]\nkind = \"target-tracking\"\n\
                  [run]\ntau = [0.1, 0.5]\nbeta = []\nseeds = [1]\nepisodes = 100\nlanes = 1\n";
    fs::write(dir.config(), config).unwrap();
    fs::create_dir(dir.seed(1).path()).unwrap();
    write_rows(&dir, episodes);
    (dir, lock)
}

pub fn write_rows(dir: &RunDir, episodes: usize) {
    let mut rows = String::from("episode,episode_return,length\n");
    for episode in 1..=episodes {
        let _ = writeln!(rows, "{episode},0.{},3", episode % 7);
    }
    fs::write(dir.seed(1).episodes(), rows).unwrap();
    let mut rows = String::from("episode,tau,quantile,buffered_quantile,mean\n");
    for episode in (0..=episodes).step_by(10) {
        for tau in [0.1, 0.5] {
            let _ = writeln!(rows, "{episode},{tau},{},0.4,0.6", 0.5 + episode as f64 / 1000.0);
        }
    }
    fs::write(dir.seed(1).evaluations(), rows).unwrap();
    let progress = format!(
        "{{\"episodes\":{episodes},\"steps\":{},\"updates\":5,\"of_episodes\":100,\"done\":false,\"time\":{}}}",
        3 * episodes,
        1000 + episodes
    );
    fs::write(dir.seed(1).progress(), progress).unwrap();
}

/// A run with seed 1 that was trained for so many episodes.
pub fn trained(path: &Path, problem: &str, algo: &str, episodes: i64) {
    let mut layers = Layers::of(algo, problem).unwrap();
    layers.set("run", "episodes", episodes);
    layers.set("run", "evaluation_episodes", 20);
    layers.set("run", "seeds", vec![1_i64]);
    let prepared = Prepared::new(layers.finish("test").unwrap()).unwrap();
    let (dir, lock) = RunDir::create(path, false).unwrap();
    let ready = prepared.begin(dir, lock).unwrap();
    let hooks = Hooks { stop: &AtomicBool::new(false), watch: &|_| {}, warn: &|_| {}, clock: &|| 0.0 };
    for run in run_all(&[ready], &hooks) {
        run.unwrap();
    }
}
