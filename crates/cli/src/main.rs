//! The program `taper`; its library, which the package for Python has too, is `lib.rs`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use taper::Program;
use taper_ops::allocator::Explaining;

/// Global allocator. Tensors are allocated and freed at every step; the system's allocator returns
/// their pages each time, and faulting them in again costs up to ten times as much as the
/// arithmetic on them.
#[global_allocator]
static ALLOCATOR: Explaining<mimalloc::MiMalloc> = Explaining(mimalloc::MiMalloc);

fn main() -> ExitCode {
    ExitCode::from(taper::main(Program::of_process()))
}
