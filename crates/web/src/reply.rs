//! Answers: a status, a kind, a body, and the headers that keep a hostile page or file harmless.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

/// Only our own scripts, styles and pictures, no other site in either direction, no frames, no forms to elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A file of the user is shown as text and may do nothing at all.
const SANDBOX: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// The contents of an answer.
pub enum Body {
    /// Everything at once.
    Whole(Bytes),
    /// Piece by piece, as the client takes them.
    Pieces(mpsc::Receiver<Bytes>),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Pieces(pieces) => {
                pieces.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

/// An answer that is made at once.
#[derive(Debug)]
pub struct Reply {
    /// 200, 404, …
    pub status: StatusCode,
    /// `text/html; charset=utf-8`, …
    pub kind: &'static str,
    /// The contents.
    pub body: Bytes,
}

/// Kinds of contents.
pub const HTML: &str = "text/html; charset=utf-8";
/// JSON.
pub const JSON: &str = "application/json";
/// Tables.
pub const CSV: &str = "text/csv; charset=utf-8";

impl Reply {
    /// A page.
    pub fn html(html: String) -> Self {
        Self { status: StatusCode::OK, kind: HTML, body: html.into() }
    }

    /// A table.
    pub fn csv(csv: String) -> Self {
        Self { status: StatusCode::OK, kind: CSV, body: csv.into() }
    }

    /// An asset.
    pub fn asset(kind: &'static str, text: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, kind, body: text.into() }
    }

    /// Data.
    pub fn json(data: &impl Serialize) -> Self {
        let body = serde_json::to_vec(data).expect("plain numbers and text serialise");
        Self { status: StatusCode::OK, kind: JSON, body: body.into() }
    }

    /// The same with another status.
    pub fn with(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The answer with its headers.
    pub fn response(self) -> Response<Body> {
        let is_busy = self.status == StatusCode::SERVICE_UNAVAILABLE;
        let mut response = response(self.status, self.kind, POLICY, Body::Whole(self.body));
        if is_busy {
            // The browser asks again by itself, with or without JavaScript.
            response.headers_mut().insert(header::REFRESH, HeaderValue::from_static("2"));
        }
        response
    }
}

/// A file of the user, as text to look at or to save.
pub fn file(pieces: mpsc::Receiver<Bytes>) -> Response<Body> {
    let mut response = response(StatusCode::OK, "text/plain; charset=utf-8", SANDBOX, Body::Pieces(pieces));
    response.headers_mut().insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    response
}

/// Server-sent events.
pub fn events(pieces: mpsc::Receiver<Bytes>) -> Response<Body> {
    response(StatusCode::OK, "text/event-stream", POLICY, Body::Pieces(pieces))
}

fn response(status: StatusCode, kind: &'static str, policy: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let resource_policy = HeaderName::from_static("cross-origin-resource-policy");
    let opener_policy = HeaderName::from_static("cross-origin-opener-policy");
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (resource_policy, "same-origin"),
        (opener_policy, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_has_to_wait_is_asked_for_again() {
        let refresh = |status| {
            let response = Reply::html(String::new()).with(status).response();
            response.headers().get(header::REFRESH).cloned()
        };
        assert_eq!(refresh(StatusCode::SERVICE_UNAVAILABLE).unwrap(), "2");
        assert_eq!(refresh(StatusCode::OK), None);
    }
}
