//! Arguments of `translate`.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use taper_run::LoadedRun;
use taper_run::translation::{OverlongRule, Terms, TranslationDetail, TranslationSettings};

use crate::arguments::{Control, ItemRules, Loading, Search};

/// Arguments of `translate`.
#[derive(Debug, Args)]
pub(crate) struct Translate {
    /// Folder of the run
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) text: TextArguments,
    #[command(flatten)]
    pub(crate) search: Search,
    /// Print the N best translations of each line with their scores, tab-separated
    #[arg(long, value_name = "N")]
    pub(crate) n_best: Option<usize>,
    #[command(flatten)]
    pub(crate) control: Control,
    /// More runs or checkpoint folders for an ensemble with RUN; they need its tokenizer
    #[arg(long, value_name = "RUN_OR_CHECKPOINT", num_args = 1..)]
    pub(crate) ensemble: Vec<PathBuf>,
    /// Append a tab and the alignment to each translation, as source-target pairs of token
    /// positions from 0
    #[arg(long)]
    pub(crate) alignments: bool,
    /// File of terms, one per line: a term, a tab and its translation. If a line contains a term,
    /// its translation contains the term's translation
    #[arg(long, value_name = "FILE")]
    pub(crate) terms: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overlong: OverlongArguments,
    #[command(flatten)]
    pub(crate) loading: Loading,
    #[command(flatten)]
    pub(crate) items: ItemRules,
    /// Print one JSON object per line: line number, source, translations with scores, or an error
    #[arg(long)]
    pub(crate) json: bool,
}

impl Translate {
    /// Returns the settings with which `run` translates.
    ///
    /// # Errors
    /// If options do not go together, the search refuses a value, or a file of terms cannot be
    /// read.
    pub(crate) fn settings(&self, run: &LoadedRun) -> Result<TranslationSettings> {
        let mut settings = TranslationSettings::from_config(&run.config);
        self.control.apply(&mut settings.decoding, self.search.draws())?;
        self.search.apply(&mut settings.decoding, self.n_best)?;
        if self.overlong.max_source_tokens == Some(0) {
            bail!("--max-source-tokens must be at least 1");
        }
        settings.overlong = self.overlong.overlong.into();
        if let Some(tokens) = self.overlong.max_source_tokens {
            settings.max_source_tokens = tokens;
        }
        if let Some(terms) = &self.terms {
            settings.terms = Some(Arc::new(Terms::read(terms, &run.tokenizers)?));
        }
        settings.ensemble.clone_from(&self.ensemble);
        settings.detail = TranslationDetail {
            all: self.json || self.n_best.is_some(),
            alignments: self.alignments,
            weights: self.json,
        };
        Ok(settings)
    }

    /// Returns the output form of translations.
    pub(crate) fn form(&self) -> Form {
        match (self.json, self.n_best) {
            (true, _) => Form::Json,
            (false, Some(_)) => Form::NBest,
            (false, None) => Form::Best,
        }
    }
}

/// Form in which the translations of a line are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The best translation, on one line.
    Best,
    /// Each translation on one line, with the number of the source line and a score, tab-separated.
    NBest,
    /// All translations in one JSON object, on one line.
    Json,
}

/// Options of the text to translate and of the output.
#[derive(Debug, Args)]
pub(crate) struct TextArguments {
    /// Text to translate, one sentence per line [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Document to translate as a whole, to --output: .html, .md, .srt, .vtt, .po, .xlf, .docx or
    /// .txt. Sentences are translated, and everything else stays
    #[arg(
        long,
        value_name = "FILE",
        requires = "output",
        conflicts_with_all = [
            "input", "goes_on", "prefix", "window", "json", "n_best", "alignments"
        ]
    )]
    pub(crate) file: Option<PathBuf>,
    /// Output file, called FILE.part until it is complete [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Continue a stopped translation to --output after the lines in FILE.part
    #[arg(long = "continue", requires = "output")]
    pub(crate) goes_on: bool,
    /// Number of lines that are read, translated and written together; with 1, each line of a pipe
    /// is answered before the next is read [default: 128, growing to 4096]
    #[arg(long, value_name = "LINES")]
    pub(crate) window: Option<NonZero<usize>>,
    /// File of beginnings that the translations must have, one line per input line
    #[arg(long, value_name = "FILE")]
    pub(crate) prefix: Option<PathBuf>,
}

/// Treatment of a line with more tokens than the lines of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverlongChoice {
    /// Translate the line in parts, divided at the end of a sentence or phrase if there is one
    Split,
    /// Translate only its beginning
    Cut,
    /// Refuse the line
    Error,
}

impl From<OverlongChoice> for OverlongRule {
    fn from(choice: OverlongChoice) -> Self {
        match choice {
            OverlongChoice::Split => Self::Split,
            OverlongChoice::Cut => Self::Cut,
            OverlongChoice::Error => Self::Error,
        }
    }
}

/// Options for overlong lines.
#[derive(Debug, Args)]
pub(crate) struct OverlongArguments {
    /// Treatment of a line with too many tokens; standard error and --json name such lines
    #[arg(long, value_enum, default_value = "split")]
    pub(crate) overlong: OverlongChoice,
    /// Largest number of tokens of a line [default: the run's data.cleaning.max_tokens, the longest
    /// lines of training]
    #[arg(long, value_name = "N")]
    pub(crate) max_source_tokens: Option<usize>,
}
