//! Events that a server reports to its caller.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Serialize, Serializer};

use crate::run_info::RunInfo;

/// Serializes an error as one line of text.
fn one_line<S: Serializer>(error: &&anyhow::Error, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&taper_run::one_line(error))
}

/// Event of a server.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServeEvent<'a> {
    /// A run, which is the folder of a trained model, was loaded.
    Loaded {
        /// Description of the run.
        run: &'a RunInfo,
        /// Time of loading, in seconds.
        seconds: f64,
    },
    /// A run has failed, and is loaded again.
    Down {
        /// Name of the run.
        run: &'a str,
        /// Reason, with advice for whoever runs the server.
        #[serde(serialize_with = "one_line")]
        reason: &'a anyhow::Error,
    },
    /// A request to a run was dropped because its client had left or its time limit had passed.
    Abandoned {
        /// Name of the run.
        run: &'a str,
        /// Number of lines or texts of the request.
        lines: usize,
        /// Whether the computation had begun.
        begun: bool,
    },
    /// Clients can connect.
    Listening {
        /// Address.
        address: SocketAddr,
    },
    /// A request was answered.
    Answered {
        /// Address of the client.
        client: Option<SocketAddr>,
        /// Method of the request.
        method: &'a str,
        /// Path, without the query.
        path: &'a str,
        /// Status of the answer.
        status: u16,
        /// Time from the request to the head of the answer, in milliseconds.
        milliseconds: f64,
    },
    /// The server accepts no more work, and finishes accepted work.
    Stopping {
        /// Number of lines that wait or are being processed.
        waiting: usize,
    },
    /// The server has ended.
    Stopped {
        /// Number of connections that were still open, and were cut off.
        cut_off: usize,
    },
}

/// Receiver of events. A panic in it affects neither the server nor its clients.
pub type Observer = std::sync::Arc<dyn Fn(&ServeEvent<'_>) + Send + Sync>;

/// Reports an event to `observer`, and ignores a panic in it.
pub(crate) fn tell(observer: &Observer, event: &ServeEvent<'_>) {
    let _ = catch_unwind(AssertUnwindSafe(|| observer(event)));
}
