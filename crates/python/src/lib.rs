//! The extension module of the package `taper` for Python: runs, training and metrics.
//!
//! It adds no abilities to `taper-run`, and has the program `taper` as a function ([`program()`]).
//! Records are passed as JSON with the fields that the program's `--json` prints, and arrays of
//! numbers as memory that NumPy views ([`array`]); the typed classes for users are written in
//! Python, next to this crate (`python/taper`). Everything is computed on one thread ([`engine`]),
//! while callers wait without Python's lock and obey Ctrl-C.
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

/// Allocator of the program, for the same speed; Python's own objects keep Python's allocator.
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
