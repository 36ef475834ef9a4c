//! The extension module of the package `taper` for Python: runs, training and metrics.
//!
//! The module makes the library `taper-run` available to Python, and adds nothing to it. It also
//! contains the command-line program `taper` as a function ([`program()`]). Results are passed to
//! Python as JSON with the same fields that the program prints with `--json`. Arrays of numbers are
//! passed as memory that NumPy views ([`array`]). The typed classes for users are written in
//! Python, in `python/taper`.
//!
//! Everything is computed on one thread ([`engine`]). Meanwhile the calling threads wait without
//! Python's global lock and react to Ctrl-C.
#![deny(unsafe_code, clippy::print_stdout, clippy::print_stderr)]

mod array;
mod attention;
mod decoding;
mod engine;
mod error;
mod metrics;
mod prediction;
mod program;
mod report;
mod run;
mod stream;
mod tokenizer;
mod training;

use pyo3::prelude::*;
use taper_ops::allocator::Explaining;

/// Allocator of all Rust code in the module. It is the allocator of the command-line program, so
/// the module is as fast as the program. Python's own objects use Python's allocator.
#[global_allocator]
static ALLOCATOR: Explaining<mimalloc::MiMalloc> = Explaining(mimalloc::MiMalloc);

/// Native part of the package `taper`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::attention::AttentionMap;
    #[pymodule_export]
    use super::error::TaperError;
    #[pymodule_export]
    use super::metrics::metric;
    #[pymodule_export]
    use super::program::program;
    #[pymodule_export]
    use super::report::report;
    #[pymodule_export]
    use super::run::{Run, choose_threads};
    #[pymodule_export]
    use super::stream::Stream;
    #[pymodule_export]
    use super::tokenizer::Tokenizer;
    #[pymodule_export]
    use super::training::{Training, resume, train};

    /// Adds the version of the program.
    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        pyo3::types::PyModuleMethods::add(module, "__version__", env!("CARGO_PKG_VERSION"))
    }
}
