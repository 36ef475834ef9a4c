//! An open run, and its answers to requests.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use taper_run::translation::{PackedModels, TranslatedLine};
use taper_run::{LineTranslator, LoadSettings, LoadedRun, TranslationSettings};

/// Lines to translate.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Lines of text.
    pub lines: Vec<String>,
    /// Number of hypotheses of the search; `None` for the number in the run's settings.
    pub beam_size: Option<usize>,
}

/// Translations of the lines of a request, in order.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// For each line, the record that `taper translate --json` prints, or the reason why the line
    /// was not translated.
    Lines(Vec<Line>),
    /// Reason why nothing was translated.
    Error {
        /// Chain of causes, the outermost first.
        error: String,
    },
}

/// Answer to one line.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Line {
    /// Translations of the line, best first.
    Translated(TranslatedLine),
    /// Reason why the line was not translated.
    Refused {
        /// Chain of causes, the outermost first.
        error: String,
    },
}

/// Chain of an error's causes, without advice: a page can follow none.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    taper_run::one_line_with(error, |_| None)
}

/// A loaded run, and its models with their weights in the layout for fast multiplication.
#[derive(Debug)]
pub struct Session {
    run: LoadedRun,
    models: PackedModels,
}

impl Session {
    /// Opens the translation run in the folder `root`.
    ///
    /// # Errors
    /// If a file is missing or damaged, or the run has another task.
    pub fn open(root: &Path) -> Result<Self> {
        let run: LoadedRun = LoadedRun::open(root, &LoadSettings::default())?;
        let models =
            LineTranslator::new(&run, &TranslationSettings::from_config(&run.config))?.models();
        Ok(Self { run, models })
    }

    /// Translates lines.
    ///
    /// # Errors
    /// If the search fails.
    pub fn translate(&self, request: &Request) -> Result<Vec<Line>> {
        let mut settings = TranslationSettings::from_config(&self.run.config);
        if let Some(beam_size) = request.beam_size {
            let decoding = &mut settings.decoding;
            decoding.beam_size = beam_size;
            // A search finds at most as many translations as it follows hypotheses.
            decoding.n_best = decoding.n_best.min(beam_size.max(1));
            decoding.validate()?;
        }
        let translator = LineTranslator::with_models(&self.run, &settings, &self.models)?;
        let lines = translator.translate(&request.lines, &[], 1, |_| {})?;
        Ok(lines
            .map(|line| match line {
                Ok(line) => Line::Translated(line),
                Err(error) => Line::Refused { error: one_line(&error) },
            })
            .collect())
    }
}
