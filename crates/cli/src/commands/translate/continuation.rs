//! What a translation to a file was begun with, beside the part of it that is there: it can go on
//! only as it began, or the file would be of two minds.

use std::fs;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use taper_data::SpelledSpecial;
use taper_run::folder::files::write_atomically;
use taper_run::translation::TranslationSettings;
use taper_run::{LoadedRun, RunFolder};
use taper_trainer::read_state;

use crate::arguments::Form;

/// What a translation was begun with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// The checksum of each checkpoint.
    weights: Vec<String>,
    /// The search and what is shown of it.
    settings: String,
    /// The SHA-256 of the text, and of the prefixes, where they are files.
    texts: Vec<String>,
}

impl Order {
    /// Of a translation of `texts` by `run` under `settings`.
    ///
    /// # Errors
    /// When a member of the ensemble cannot be read.
    pub(super) fn new(
        run: &LoadedRun,
        settings: &TranslationSettings,
        form: Form,
        texts: &[String],
    ) -> Result<Self> {
        let mut weights = vec![run.state.checksum.clone()];
        for member in &settings.ensemble {
            let (_, checkpoint) = RunFolder::of_weights(member)?;
            weights.push(read_state(&checkpoint)?.checksum);
        }
        let mut same = settings.clone();
        // How much is searched at once changes no translation.
        same.decoding.batch_rows = 0;
        same.decoding.batch_tokens = 0;
        let mut settings = format!("{form:?} {same:?} {}", run.weights());
        match run.tokenizers.source().spelled_rule() {
            SpelledSpecial::Text => {}
            rule => settings.push_str(&format!(" special tokens: {rule:?}")),
        }
        Ok(Self { weights, settings, texts: texts.to_vec() })
    }

    /// Writes it to `path`.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        write_atomically(path, &serde_json::to_vec_pretty(self)?)
    }

    /// Refuses to go on with what was begun otherwise, as `path` says.
    ///
    /// # Errors
    /// When it cannot be read or says something else.
    pub(super) fn require(&self, path: &Path) -> Result<()> {
        let text = taper_data::read_regular(path, 1 << 20).with_context(|| {
            format!("--continue: cannot read {}, which says what was begun", path.display())
        })?;
        let begun: Self = serde_json::from_slice(&text)
            .with_context(|| format!("--continue: {} is damaged", path.display()))?;
        let other = if begun.weights != self.weights {
            "with other weights"
        } else if begun.settings != self.settings {
            "with other settings"
        } else if begun.texts != self.texts {
            "of another text"
        } else {
            return Ok(());
        };
        bail!(
            "--continue: what {} belongs to is a translation {other}; repeat it as it was, or \
             begin anew with another --output",
            path.display()
        )
    }
}

/// How far a translation has come that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Lines of the text whose translations are whole.
    pub(super) lines: usize,
    /// The bytes of those.
    pub(super) bytes: u64,
}

impl Progress {
    /// How far `file` has come, whose lines are of this form.
    ///
    /// # Errors
    /// When it cannot be read, or its lines are of another form.
    pub(super) fn of(file: &mut fs::File, form: Form) -> Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::new(file);
        let mut whole = Self { lines: 0, bytes: 0 };
        let (mut before, mut bytes, mut line) = (whole, 0, Vec::new());
        let mut number = 0;
        while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            bytes += line.len() as u64;
            match form {
                Form::Best | Form::Json => whole = Self { lines: whole.lines + 1, bytes },
                Form::NBest => {
                    let of = line_number(&line).context("its lines are no n-best lists")?;
                    if of != number {
                        // Of the last line some translations may be missing: it is made again.
                        before = whole;
                        number = of;
                    }
                    whole = Self { lines: of, bytes };
                }
            }
            line.clear();
        }
        Ok(if form == Form::NBest { before } else { whole })
    }
}

/// The number of the source line that a line of an n-best list begins with.
fn line_number(line: &[u8]) -> Option<usize> {
    let number = line.split(|&byte| byte == b'\t').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_whole_lines_count() {
        let of = |text: &str, form: Form| {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(text.as_bytes()).expect("write");
            Progress::of(&mut file, form).map(|progress| (progress.lines, progress.bytes)).ok()
        };
        assert_eq!(of("", Form::Best), Some((0, 0)));
        assert_eq!(of("eins\n\nzw", Form::Best), Some((2, 6)));
        assert_eq!(of("{}\n{}\n", Form::Json), Some((2, 6)));
        // The second line may have had more.
        assert_eq!(of("1\t-1\ta\n1\t-2\tb\n2\t-1\tc\n2\t-3", Form::NBest), Some((1, 14)));
        assert_eq!(of("1\t-1\ta\n", Form::NBest), Some((0, 0)));
        assert_eq!(of("eins\n", Form::NBest), None);
    }
}
