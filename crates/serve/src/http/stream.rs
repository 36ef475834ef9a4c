//! Server-sent events (HTML standard, section 9.2).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::Frame;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::text;

/// Sender of events to one client.
#[derive(Debug)]
pub(crate) struct EventSender(UnboundedSender<Bytes>);

impl EventSender {
    /// Sends a value; returns `false` if nobody reads any more.
    pub(crate) fn send(&self, value: &impl Serialize) -> bool {
        // JSON has no line breaks, which would end an event.
        serde_json::to_string(value).is_ok_and(|json| self.send_text(&json))
    }

    /// Waits until nobody reads any more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Sends a line of text; returns `false` if nobody reads any more.
    pub(crate) fn send_text(&self, line: &str) -> bool {
        self.0.send(Bytes::from(format!("data: {line}\n\n"))).is_ok()
    }
}

/// Makes a streamed answer, and the sender of its events. Events that a slow client has not read
/// yet are kept in memory. Their number is bounded, because an answer contains only the requested
/// text.
pub(crate) fn event_stream() -> (EventSender, Response) {
    let (sender, receiver) = unbounded_channel();
    (EventSender(sender), text(200, "text/event-stream", Body::new(Events(receiver))))
}

struct Events(UnboundedReceiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
