//! `taper`: trains, resumes, translates with and evaluates Transformer translation models.
//!
//! The libraries return values, events and typed errors; only this crate prints. Arguments are
//! parsed ([`arguments`]) and resolved once to the settings of `taper_run`; each command has one
//! module ([`commands`]). The exit code is 0 for success, 2 for a request that cannot be fulfilled
//! as it was made, and 1 for a failed computation. After an interruption, it is 128 + the number of
//! the signal (130 for Ctrl-C), and the work so far is on disk.
#![forbid(unsafe_code)]
// `println!` and `eprintln!` panic if the reader of the output is gone; `text::say` and
// `text::print_line` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod advice;
mod arguments;
mod bars;
mod commands;
mod error;
mod estimate;
mod features;
mod file_names;
mod items;
mod processes;
mod program;
mod progress;
mod resident;
mod signals;
mod style;
mod text;

use error::Ending;

pub use advice::command;
pub use program::Program;

/// Runs the command with which `program` was called, and returns the exit code. A process calls
/// this function once.
pub fn main(program: Program) -> u8 {
    program::set(program);
    taper_ops::threads::keep_candle_on_one_thread();
    taper_ops::allocator::spare_addresses();
    taper_ops::signals::survive_file_size_limit();
    commands::pipeline::end_with_parent();
    commands::complete();
    let arguments = arguments::Arguments::of_process();
    let result = arguments.and_then(|arguments| arguments.as_ref().map_or(Ok(()), commands::run));
    // The runtime of a Rust program flushes standard output at the end, but without reporting an
    // error, and this function may be called from Python.
    let flushed = text::flush();
    exit_code(result.and(flushed))
}

/// Reports the error of a command, and returns the exit code.
fn exit_code(result: anyhow::Result<()>) -> u8 {
    let Err(error) = result else { return 0 };
    match error::ending(&error) {
        Ending::Silent => 0,
        Ending::Interrupted(code) => code,
        Ending::ToldElsewhere(code) => {
            processes::let_another_speak();
            code
        }
        Ending::Fail(code) => {
            text::say(&format!("error: {}", advice::one_line(&error)));
            code
        }
    }
}
