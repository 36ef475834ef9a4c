//! Functions that JavaScript calls. None has an argument: what they read and write are files.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::{Answer, Request, Session};

/// Folder of the run.
pub const RUN: &str = "/run";
/// File with a [`Request`] in JSON.
pub const REQUEST: &str = "/request.json";
/// File with an [`Answer`] in JSON.
pub const ANSWER: &str = "/answer.json";

#[cfg(target_family = "wasm")]
unsafe extern "C" {
    /// Sets up the C library and its list of folders; the linker makes it.
    fn __wasm_call_ctors();
}

/// Prepares the module; to be called once, before any other function.
///
/// A module that calls its constructors itself keeps its state from one call to the next; for
/// others, the linker has every call begin and end like a program.
// SAFETY: the name is that which WASI gives to this function; nothing else has it.
#[cfg(target_family = "wasm")]
#[unsafe(no_mangle)]
pub extern "C" fn _initialize() {
    // SAFETY: nothing of the module has run yet, as documented.
    unsafe { __wasm_call_ctors() };
}

/// Opens the run, and answers the request. Returns whether the answer was written.
///
/// The run is opened by the first call that can.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn taper_answer() -> bool {
    let answer = match lines() {
        Ok(lines) => Answer::Lines(lines),
        Err(error) => Answer::Error { error: format!("{error:#}") },
    };
    let written = serde_json::to_vec(&answer).map(|json| std::fs::write(ANSWER, json));
    matches!(written, Ok(Ok(())))
}

fn lines() -> Result<Vec<crate::session::Line>> {
    let json = std::fs::read(REQUEST).context(REQUEST)?;
    let request: Request = serde_json::from_slice(&json).context(REQUEST)?;
    session()?.translate(&request)
}

fn session() -> Result<&'static Session> {
    static SESSION: OnceLock<Session> = OnceLock::new();
    if let Some(session) = SESSION.get() {
        return Ok(session);
    }
    let session = Session::open(Path::new(RUN))?;
    Ok(SESSION.get_or_init(|| session))
}
