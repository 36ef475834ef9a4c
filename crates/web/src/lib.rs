//! Translation in a browser. The WebAssembly module opens a run (the folder of a trained model),
//! whose files the page keeps in memory, and translates with it.
//!
//! The module contains the same code that translates everywhere else: [`taper_run`], compiled for
//! WASI. The page offers the files of the run as a file system, so this crate does not know where
//! they come from. There is no second implementation in JavaScript: it could tokenise texts, divide
//! long lines or search for translations in another way, and so give other translations.
//!
//! JavaScript calls the functions of [`exports`] without arguments. Requests and answers are files
//! in the same file system.

pub mod exports;
mod session;

pub use session::{Answer, Line, Request, Session};
