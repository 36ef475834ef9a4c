//! The program `taper`. Its code is the library `lib.rs`, which the Python package contains too.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use taper::Program;
use taper_ops::allocator::Explaining;

/// Global allocator. Tensors are allocated and freed at every step. The system's allocator would
/// return their pages to the system each time. The page faults of the next allocation would then
/// take up to ten times as long as the arithmetic on the tensors.
#[global_allocator]
static ALLOCATOR: Explaining<mimalloc::MiMalloc> = Explaining(mimalloc::MiMalloc);

fn main() -> ExitCode {
    ExitCode::from(taper::main(Program::of_process()))
}
