//! Translation in a browser: WebAssembly opens a run, whose files are in memory, and translates.
//!
//! The code that translates in a browser is the code that translates everywhere: [`taper_run`],
//! compiled for WASI. The page holds the files of a run and offers them as a file system, so this
//! crate does not know where they come from. A second implementation in JavaScript was rejected: it
//! would tokenise, divide long lines and search differently.
//!
//! JavaScript calls [`exports`] without arguments. Requests and answers are files, too.

pub mod exports;
mod session;

pub use session::{Answer, Line, Request, Session};
