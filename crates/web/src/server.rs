//! The server: accepts connections, checks requests, and hands the work to a few threads.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{LocalSet, spawn_blocking, spawn_local};
use tokio::time;

use crate::connection::{Clock, Connection, PATIENCE};
use crate::live::Live;
use crate::reply::{self, Body, Reply};
use crate::request::{self, Request};
use crate::site::{Answer, Site};
use crate::{files, shelf::Shelf};

/// The most connections; further ones are closed at once.
const MOST_CONNECTIONS: usize = 512;
/// The threads that read files, plan and draw.
const WORKERS: usize = 4;
/// How long a request may take to arrive, and how long a connection may be silent between two.
const HEADER_PATIENCE: Duration = Duration::from_secs(15);
/// The largest request head.
const LARGEST_HEAD: usize = 16 << 10;
/// How often the signal to stop is looked at.
const TICK: Duration = Duration::from_millis(50);

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory.
    pub directory: PathBuf,
    /// The address to listen on: this machine only, by default.
    pub host: IpAddr,
    /// The port; 0 means any free one.
    pub port: u16,
    /// How long a write waits for a client that does not read.
    pub patience: Duration,
    /// How long a request may take to arrive.
    pub header_patience: Duration,
}

impl Options {
    /// A directory, on any free port of this machine.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            patience: PATIENCE,
            header_patience: HEADER_PATIENCE,
        }
    }
}

/// A server that listens, but does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: Options,
}

impl Server {
    /// Begins to listen.
    pub fn bind(options: Options) -> io::Result<Self> {
        let naming =
            |error: io::Error, what: String| io::Error::new(error.kind(), format!("{what}: {error}"));
        let directory = options.directory.display().to_string();
        Shelf::new(&options.directory).map_err(|error| naming(error, format!("reading {directory}")))?;
        let at = SocketAddr::new(options.host, options.port);
        let listener = TcpListener::bind(at).map_err(|error| naming(error, format!("listening on {at}")))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, options })
    }

    /// The address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is set.
    pub fn run(self, stop: &AtomicBool) -> io::Result<()> {
        let shelf = Arc::new(Shelf::new(&self.options.directory)?);
        // One thread for all connections; the others work.
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()?;
        let served = LocalSet::new().block_on(&runtime, self.serve(shelf, stop));
        // Work that is under way may end by itself, or with the process.
        runtime.shutdown_background();
        served
    }

    async fn serve(self, shelf: Arc<Shelf>, stop: &AtomicBool) -> io::Result<()> {
        let host = Rc::new(Host {
            site: Arc::new(Site::new(shelf.clone())),
            live: Rc::new(Live::new()),
            local: self.options.host.is_loopback(),
        });
        let live = host.live.clone();
        spawn_local(async move { live.watch(shelf).await });
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        while !stop.load(Ordering::Relaxed) {
            let stream = match time::timeout(TICK, listener.accept()).await {
                Err(_) => continue,
                Ok(Ok((stream, _))) => stream,
                // Too many open files, or a client that is gone: the next one may fare better.
                Ok(Err(_)) => {
                    time::sleep(TICK).await;
                    continue;
                }
            };
            let Ok(place) = room.clone().try_acquire_owned() else { continue };
            let host = host.clone();
            let connection = Connection::new(stream, self.options.patience);
            let mut http = http1::Builder::new();
            http.timer(Clock).header_read_timeout(self.options.header_patience).max_buf_size(LARGEST_HEAD);
            spawn_local(async move {
                let service = service_fn(|request| host.answer(request));
                // An error here is the client's: it went away, was too slow, or does not speak HTTP.
                let _ = http.serve_connection(connection, service).await;
                drop(place);
            });
        }
        Ok(())
    }
}

struct Host {
    site: Arc<Site>,
    live: Rc<Live>,
    local: bool,
}

impl Host {
    async fn answer(
        &self,
        request: hyper::Request<Incoming>,
    ) -> Result<Response<Body>, std::convert::Infallible> {
        let checked = request::check(request.method(), request.uri(), request.headers(), self.local);
        let mut response = match checked {
            Ok(asked) => self.respond(asked).await,
            Err((status, message)) => crate::site::refusal(status, &message).response(),
        };
        if request.method() == Method::HEAD {
            *response.body_mut() = Body::Whole(hyper::body::Bytes::new());
        }
        Ok(response)
    }

    async fn respond(&self, request: Request) -> Response<Body> {
        if request.path == "events" {
            return self.live.stream().map_or_else(
                || crate::site::refusal(StatusCode::SERVICE_UNAVAILABLE, "too many open pages").response(),
                reply::events,
            );
        }
        let site = self.site.clone();
        match spawn_blocking(move || site.answer(&request)).await {
            Ok(Answer::Reply(reply)) => reply.response(),
            Ok(Answer::File(file)) => reply::file(send(file)),
            // Our own mistake. The message is on standard error; the server goes on.
            Err(_) => {
                Reply::html("internal error".to_owned()).with(StatusCode::INTERNAL_SERVER_ERROR).response()
            }
        }
    }
}

/// Sends a file as fast as the client takes it, with one piece in memory.
fn send(mut file: std::fs::File) -> mpsc::Receiver<hyper::body::Bytes> {
    let (pieces, body) = mpsc::channel(1);
    spawn_local(async move {
        loop {
            let read = spawn_blocking(move || files::piece(&mut file).map(|piece| (piece, file))).await;
            let Ok(Ok((piece, rest))) = read else { return };
            if piece.is_empty() || pieces.send(piece).await.is_err() {
                return;
            }
            file = rest;
        }
    });
    body
}
