//! Translation in a browser: a run that WebAssembly opens and asks, on files in memory.
//!
//! The program that translates there is the one that translates everywhere: [`taper_run`], compiled
//! for WASI. The page holds the files of a run and offers them as a file system, so that nothing
//! here knows how they came. A second implementation in JavaScript was rejected: it would tokenise,
//! divide long lines and search differently.
//!
//! JavaScript calls [`exports`] without arguments. Requests and answers are files, too.

pub mod exports;
mod session;

pub use session::{Answer, Line, Request, Session};
