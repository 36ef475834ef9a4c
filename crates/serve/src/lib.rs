//! HTTP server for trained models, with a web page and an API. A trained model is stored in a
//! folder, which is called a run.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use taper_serve::{ServeSettings, Server};
//!
//! # fn main() -> anyhow::Result<()> {
//! let settings = ServeSettings::new(vec!["runs/quickstart".into()]);
//! let server = Server::start(settings, Arc::new(|event| println!("{event:?}")))?;
//! println!("http://{}/", server.address());
//! server.serve() // until `server.stop()`, taken before, is told to
//! # }
//! ```
//!
//! **Decision.** One thread handles HTTP, and each run has one thread that computes the answers of
//! its model ([`engine`](crate::Server)). A computation uses all cores. The alternative is a pool
//! of threads, each of which answers one request. It would search one sentence on each core, which
//! is slower than one search for all sentences together.
//!
//! This crate prints nothing, reads no arguments and handles no signals: an [`Observer`] receives
//! events, and [`Stop`] ends a server.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

// Unit tests share helpers with the integration tests, which call this crate by its name.
#[cfg(test)]
extern crate self as taper_serve;

mod app;
mod engine;
mod error;
mod event;
mod files;
mod http;
mod metrics;
mod page;
mod routes;
mod run_info;
mod server;
mod settings;

pub use event::{Observer, ServeEvent};
pub use run_info::{RunInfo, TranslationInfo};
pub use server::{Server, Stop};
pub use settings::{Limits, ServeSettings};
