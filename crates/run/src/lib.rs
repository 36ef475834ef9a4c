//! What a recipe does: a run folder, a trained model, translations and scores.
//!
//! A recipe is read into a [`RunConfig`]. [`training::start`] makes of it a run on disk, which
//! [`training::resume`] continues; [`LoadedRun`] opens one to translate and score with it. What
//! happens on the way is told to a [`RunObserver`] as [`RunEvent`]s: nothing here prints, reads
//! arguments, handles signals or ends the process.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod checks;
pub mod config;
pub mod evaluation;
mod event;
pub mod folder;
pub mod training;
pub mod translation;

pub use config::RunConfig;
pub use event::{Notice, RunEvent, RunObserver};
pub use folder::RunFolder;
pub use training::{Outcome, TrainSettings};
pub use translation::{LineTranslator, LoadSettings, LoadedRun, TranslationSettings};

/// The chain of causes on one line. A cause that its parent already quotes is
/// not repeated, and line breaks become semicolons.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        let lines = text.lines().map(str::trim).filter(|part| !part.is_empty());
        // Where RUST_BACKTRACE is set, Candle's messages end with a backtrace, whose frames count
        // from 0.
        let text = lines.take_while(|line| !line.starts_with("0: ")).collect::<Vec<_>>().join("; ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn causes_are_chained_once() {
        let error = anyhow!("file a.toml is\nbroken").context("cannot train");
        assert_eq!(one_line(&error), "cannot train: file a.toml is; broken");
        let error = anyhow!(
            "no such tensor\n   0: candle_core::error::Error::bt\n             at /src/error.rs:1\n   1: main"
        );
        assert_eq!(one_line(&error), "no such tensor");
        let error = anyhow!("inner").context("outer: inner");
        assert_eq!(one_line(&error), "outer: inner");
    }
}
