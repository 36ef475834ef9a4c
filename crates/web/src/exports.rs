//! Functions that JavaScript calls. They have no arguments. Requests and answers are files in the
//! module's file system, which the page keeps in memory.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::session::one_line;
use crate::{Answer, Request, Session};

/// Folder of the run, that is, of the trained model.
pub const RUN: &str = "/run";
/// File with a [`Request`] in JSON.
pub const REQUEST: &str = "/request.json";
/// File with an [`Answer`] in JSON.
pub const ANSWER: &str = "/answer.json";

#[cfg(target_family = "wasm")]
unsafe extern "C" {
    /// Sets up the C library and its list of open folders. The linker generates this function.
    fn __wasm_call_ctors();
}

/// Prepares the module; to be called once, before any other function.
///
/// This function calls the module's constructors. If nothing in the module called them, the linker
/// would treat every exported function as a program of its own, which starts and ends the C
/// library. The module would then lose its state after each call.
// SAFETY: WASI prescribes this name for this function; nothing else in the module has it.
#[cfg(target_family = "wasm")]
#[unsafe(no_mangle)]
pub extern "C" fn _initialize() {
    // SAFETY: nothing of the module has run yet, as the documentation requires.
    unsafe { __wasm_call_ctors() };
}

/// Opens the run, and answers the request in [`REQUEST`]. Returns whether the answer was written.
///
/// A run that was opened stays open for later calls.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn taper_answer() -> bool {
    let answer = match lines() {
        Ok(lines) => Answer::Lines(lines),
        Err(error) => Answer::Error { error: one_line(&error) },
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
