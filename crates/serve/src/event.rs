//! What a server tells whoever started it.

use std::net::SocketAddr;

use serde::Serialize;

use crate::engine::RunInfo;

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServeEvent<'a> {
    /// A run was loaded.
    Loaded {
        /// The run.
        run: &'a RunInfo,
        /// How long it took.
        seconds: f64,
    },
    /// A run is no longer answered for: it has failed, and is loaded again.
    Down {
        /// Its name.
        run: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// Work was dropped because its client had left, or had waited for too long.
    Abandoned {
        /// The run.
        run: &'a str,
        /// Its lines.
        lines: usize,
        /// Whether it was being computed.
        begun: bool,
    },
    /// Clients can connect.
    Listening {
        /// Where.
        address: SocketAddr,
    },
    /// A request was answered.
    Answered {
        /// Who asked.
        client: Option<SocketAddr>,
        /// The method.
        method: &'a str,
        /// The path, without what follows a question mark.
        path: &'a str,
        /// The status of the answer.
        status: u16,
        /// How long it took to the head of the answer.
        milliseconds: f64,
    },
    /// The server takes no more, and finishes what it took.
    Stopping {
        /// Lines that wait or are worked on.
        waiting: usize,
    },
    /// The server has ended.
    Stopped {
        /// Connections that were still open, and were cut off.
        cut_off: usize,
    },
}

/// Who is told.
pub type Observer = std::sync::Arc<dyn Fn(&ServeEvent<'_>) + Send + Sync>;
