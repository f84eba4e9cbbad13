//! A connection that does not wait forever, and hyper's view of tokio's clock.
//!
//! A client that reads nothing would hold its buffers for as long as it likes. A write that makes no progress for
//! [`PATIENCE`] ends the connection. A client that sends its request too slowly is hyper's business: it has a time limit
//! for that, which needs a clock.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{self, ReadBufCursor};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{self, Sleep};

/// How long a write may wait for the client.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that are read at a time.
const READ: usize = 4 << 10;

/// A stream to a client.
pub struct Connection {
    stream: TcpStream,
    patience: Duration,
    /// Runs while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    /// A connection whose writes wait at most this long.
    pub fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, until: None }
    }

    /// Starts the clock when a write begins to wait, and stops it when the write goes on.
    fn watch<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.until = None;
            return result;
        }
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(time::sleep(patience)));
        match until.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl rt::Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut space = [0; READ];
        let most = to.remaining().min(READ);
        let mut bytes = ReadBuf::new(&mut space[..most]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut bytes))?;
        to.put_slice(bytes.filled());
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, result)
    }
}

/// Tokio's clock, for hyper.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

struct Nap(Pin<Box<Sleep>>);

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl rt::Sleep for Nap {}

impl rt::Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Nap(Box::pin(time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Nap(Box::pin(time::sleep_until(deadline.into()))))
    }
}
