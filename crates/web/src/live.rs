//! Server-sent events: which runs changed, a short message each time.
//!
//! ```text
//! event: change
//! data: {"version": 7, "changed": ["runs/a"]}
//! ```
//!
//! One task looks at the directory for all streams. A stream that was too slow for a change hears `"changed": null`, which
//! means: anything may have changed. So a stream holds one message at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time;

use crate::shelf::{Seen, Shelf};

/// The most open streams.
pub const MOST_STREAMS: usize = 256;
/// How often the directory is looked at while somebody watches.
const LOOK: Duration = Duration::from_millis(500);
/// How often a silent stream says that it lives; this also finds out that its client is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Everything that streams share.
pub struct Live {
    open: Arc<AtomicUsize>,
    latest: watch::Sender<Arc<Seen>>,
}

/// Counts an open stream.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Live {
    /// No streams yet.
    pub fn new() -> Self {
        Self { open: Arc::default(), latest: watch::Sender::new(Arc::default()) }
    }

    /// Looks at the directory for as long as the server runs, but only while a stream is open.
    pub async fn watch(&self, shelf: Arc<Shelf>) {
        loop {
            time::sleep(LOOK).await;
            if self.open.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let shelf = shelf.clone();
            if let Ok(seen) = tokio::task::spawn_blocking(move || shelf.look()).await {
                self.latest.send_if_modified(|latest| {
                    let newer = latest.version != seen.version;
                    *latest = seen;
                    newer
                });
            }
        }
    }

    /// A new stream, or none if there are too many.
    pub fn stream(&self) -> Option<mpsc::Receiver<Bytes>> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= MOST_STREAMS {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let open = Open(self.open.clone());
        let mut latest = self.latest.subscribe();
        let (pieces, stream) = mpsc::channel(1);
        tokio::task::spawn_local(async move {
            let _open = open;
            // The browser tries again after a second if the server was restarted.
            if pieces.send("retry: 1000\n\n".into()).await.is_err() {
                return;
            }
            let mut heard = latest.borrow_and_update().version;
            loop {
                let message = match time::timeout(SIGN_OF_LIFE, latest.changed()).await {
                    Err(_) => ": alive\n\n".to_owned(),
                    Ok(Err(_)) => return,
                    Ok(Ok(())) => {
                        let seen = latest.borrow_and_update().clone();
                        let next = seen.version == heard + 1;
                        heard = seen.version;
                        let changed = next.then_some(&seen.changed);
                        let data = json!({ "version": seen.version, "changed": changed });
                        format!("event: change\ndata: {data}\n\n")
                    }
                };
                if pieces.send(message.into()).await.is_err() {
                    return;
                }
            }
        });
        Some(stream)
    }
}
