//! `taper serve`: serves runs to browsers and programs.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::{Value, json};
use taper_serve::{ServeEvent, Server};

use crate::advice::one_line;
use crate::arguments::Serve;
use crate::signals::{Received, Request, on_signal};
use crate::text::{print_line, say, visible, visible_json};

/// Runs the command. The first signal asks the server to finish accepted requests; a second order
/// ends the program at once.
pub(crate) fn run(arguments: &Serve) -> Result<()> {
    let settings = arguments.settings()?;
    if settings.api_key.is_none() && !settings.address.ip().is_loopback() {
        say("warning: whoever reaches this machine may use the server: --api-key-file FILE asks \
             for a key");
    }
    let is_json = arguments.json;
    let server = Server::start(settings, Arc::new(move |event| report(event, is_json)))?;
    let (stop, mut received) = (server.stop(), Received::default());
    on_signal(move |signal| match received.request(signal, Instant::now()) {
        Request::Nothing | Request::StopStill => {}
        Request::Stop => stop.stop(),
        Request::End => signal.end(),
    })?;
    server.serve()
}

/// Prints an event on a line.
fn report(event: &ServeEvent<'_>, is_json: bool) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if is_json {
        let mut record = json!(event);
        record["time"] = Value::from((now.as_secs_f64() * 1e3).round() / 1e3);
        return print(&visible_json(&record.to_string()));
    }
    print(&visible(&match event {
        ServeEvent::Loaded { run, seconds } => format!(
            "loaded {} ({}, {} parameters) in {seconds:.1} s",
            run.name, run.task, run.parameters
        ),
        ServeEvent::Down { run, reason } => {
            format!("{run} has failed and is loaded again: {}", one_line(reason))
        }
        ServeEvent::Abandoned { run, lines, begun } => {
            let when = if *begun { "in the middle" } else { "before they were begun" };
            format!("dropped {lines} lines of {run} {when}: nobody waits for them")
        }
        ServeEvent::Listening { address } => {
            format!("open http://{address}/ in a browser; Ctrl-C ends the server")
        }
        ServeEvent::Answered { client, method, path, status, milliseconds } => {
            let client = client.map_or_else(|| "-".to_owned(), |client| client.to_string());
            format!("{client} {method} {path} {status} {milliseconds:.1} ms")
        }
        ServeEvent::Stopping { waiting } => {
            format!("stopping, with {waiting} lines in hand; again to stop at once")
        }
        ServeEvent::Stopped { cut_off: 0 } => "stopped".to_owned(),
        ServeEvent::Stopped { cut_off } => format!("stopped; {cut_off} connections were cut off"),
    }));
}

/// Prints a line; the server continues even if nobody reads it.
fn print(line: &str) {
    let _ = print_line(line);
}
