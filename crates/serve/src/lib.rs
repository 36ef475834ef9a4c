//! HTTP server for trained runs, with a page and an API.
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
//! **Decision.** One thread speaks HTTP, and one thread for each run computes
//! ([`engine`](crate::Server)): the only parallel computation is the search itself, which uses all
//! cores. The alternative, a pool of threads that each answer a request, would search one sentence
//! on each core, which is slower than one search for all sentences together.
//!
//! Nothing here prints, reads arguments or handles signals: an [`Observer`] receives events, and
//! [`Stop`] ends a server.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

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
