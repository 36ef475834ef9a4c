//! Work of one connection, which uses HTTP/1.1 until the client leaves or is too slow, or the
//! server stops.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

/// Largest number of headers of a request.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 32 << 10;

/// Time for which the server still reads from a connection after it has refused a request. If the
/// server closed the connection while there are unread bytes, the client's operating system would
/// discard the answer, which has the reason of the refusal.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;

/// Address of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// Answers the requests of one connection. Once `stop` is true, the current request is the last.
pub(crate) async fn serve_connection(
    stream: TcpStream,
    client: SocketAddr,
    router: Router,
    transfer: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let is_refused = Arc::new(AtomicBool::new(false));
    let stream = Patient::new(stream, transfer, Arc::clone(&is_refused));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Client(client));
        let has_body = !hyper::body::Body::is_end_stream(request.body());
        let (answer, is_refused) =
            (router.call(request.map(axum::body::Body::new) as Request), Arc::clone(&is_refused));
        async move {
            let response = answer.await;
            let status = response.as_ref().map(|response| response.status());
            let is_error = status.is_ok_and(|status| status.as_u16() >= 400);
            is_refused.store(has_body && is_error, Ordering::Relaxed);
            response
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(transfer)
        .max_headers(HEADERS)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // The result is ignored: the client knows why its connection ends, and nobody else needs to
    // know.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// TCP stream on which a write fails if the client reads nothing for too long. Without this time
/// limit, the answer to a client that requests much but reads nothing would stay in memory forever.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Timer that runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Whether the last request was refused, perhaps before its whole body had been read.
    is_refused: Arc<AtomicBool>,
    /// Timer of [`LINGER`]; it starts when the answer has been written.
    lingering: Option<Pin<Box<Sleep>>>,
    /// Number of bytes received since the refusal.
    unread: usize,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration, is_refused: Arc<AtomicBool>) -> Self {
        // Small answers and events are sent at once. An error is ignored, because it only means
        // that they are sent a little later.
        let _ = stream.set_nodelay(true);
        Self { stream, patience, waiting: None, is_refused, lingering: None, unread: 0 }
    }

    /// Reads and discards input, until the client closes the connection or a limit is reached.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let lingering = self.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut bytes = [0; 8192];
        while self.unread < LINGER_BYTES && lingering.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.unread += buffer.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns `written`, the result of a write, or an error if the write has been pending for
    /// longer than the limit.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        debug_assert!(waiting.deadline() <= Instant::now() + patience);
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        match self.is_refused.load(Ordering::Relaxed) {
            true => self.poll_linger(context),
            false => Poll::Ready(Ok(())),
        }
    }
}
