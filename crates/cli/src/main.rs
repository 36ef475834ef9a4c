//! `taper`: trains, resumes, translates with and evaluates Transformer translation models.
//!
//! The libraries return values, events and typed errors; only this crate prints. Arguments are
//! parsed ([`arguments`]) and resolved once to the settings of `taper_run`; each command has one
//! module ([`commands`]). Exit codes: 0 for success, 2 for a request that cannot be fulfilled as
//! given, 1 for a failed computation, 130 for an interruption; the work so far is then on disk.
#![forbid(unsafe_code)]
// These macros end the process if the reader is gone; `text::say` and `text::print_line` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod bars;
mod commands;
mod error;
mod estimate;
mod items;
mod processes;
mod progress;
mod resident;
mod signals;
mod style;
mod text;

use std::process::ExitCode;

use error::Ending;
use taper_ops::allocator::Explaining;

/// Global allocator. Tensors are allocated and freed at every step; the system's allocator returns
/// their pages each time, and faulting them in again costs up to ten times as much as the
/// arithmetic on them.
#[global_allocator]
static ALLOCATOR: Explaining<mimalloc::MiMalloc> = Explaining(mimalloc::MiMalloc);

fn main() -> ExitCode {
    taper_ops::threads::keep_candle_on_one_thread();
    taper_ops::allocator::spare_addresses();
    taper_ops::signals::survive_file_size_limit();
    commands::pipeline::end_with_parent();
    commands::complete();
    let arguments = arguments::Arguments::of_process();
    let Err(error) = commands::run(&arguments) else {
        return ExitCode::SUCCESS;
    };
    match error::ending(&error) {
        Ending::Silent => ExitCode::SUCCESS,
        Ending::Interrupted(code) => ExitCode::from(code),
        Ending::ToldElsewhere(code) => {
            processes::let_another_speak();
            ExitCode::from(code)
        }
        Ending::Fail(code) => {
            text::say(&format!("error: {}", taper_run::one_line(&error)));
            ExitCode::from(code)
        }
    }
}
