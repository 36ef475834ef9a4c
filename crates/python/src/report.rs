//! Reports of runs, and the languages of pages.

use std::path::PathBuf;

use pyo3::prelude::*;
use taper_plots::Language;
use taper_report::RunData;

use crate::engine::compute;
use crate::error::TaperError;

/// Returns an HTML page about the run in the folder `root`, in English (`en`) or Chinese (`zh`).
#[pyfunction]
pub(crate) fn report(py: Python<'_>, root: PathBuf, language: &str) -> PyResult<String> {
    let language = page_language(language)?;
    compute(py, move |_| taper_report::report(&RunData::read(&root)?, language))
}

/// Language of a page by its code.
///
/// # Errors
/// When the code is neither `en` nor `zh`.
pub(crate) fn page_language(code: &str) -> PyResult<Language> {
    match code {
        "en" => Ok(Language::English),
        "zh" => Ok(Language::Chinese),
        other => Err(TaperError::new_err(format!("language is {other:?}: it is en or zh"))),
    }
}
