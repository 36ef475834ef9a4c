//! Sentences of test sets that a user has chosen, with the model's attention on them.

use std::str::FromStr;

use anyhow::{Context, Result, bail};
use taper_plots::parts::note;
use taper_plots::{Language, escape};
use taper_run::attention::{AttentionMap, attention_figures, attention_note, attention_view};
use taper_run::{LoadSettings, LoadedRun};

use crate::figures::NamedFigure;
use crate::run_data::RunData;

/// Address of a sentence. It is written `LINE` for a line of the first test set, or `SPLIT:LINE`
/// for a line of the test set `SPLIT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentenceAddress {
    /// Test set of the sentence; `None` for the first test set that was translated.
    pub split: Option<String>,
    /// Line of the sentence, from 1.
    pub line: usize,
}

impl FromStr for SentenceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Names of splits may contain colons; line numbers do not.
        let (split, line) = match text.rsplit_once(':') {
            Some((split, line)) => (Some(split.to_owned()), line),
            None => (None, text),
        };
        match line.parse() {
            Ok(line @ 1..) => Ok(Self { split, line }),
            _ => Err(format!("`{line}` is not a line number: lines are counted from 1")),
        }
    }
}

/// A sentence of a test set, with the attention of the model on the stored translation.
#[derive(Debug, Clone)]
pub struct ChosenSentence {
    /// Name of the split.
    pub split: String,
    /// Line of the sentence, from 1.
    pub line: usize,
    /// Attention weights.
    pub attention: AttentionMap,
}

impl RunData {
    /// Loads the model, and stores its attention on the sentences at `addresses`.
    ///
    /// # Errors
    /// When the run has no translation at an address, or the model cannot be loaded or has no
    /// attention.
    pub fn look(&mut self, addresses: &[SentenceAddress], load: &LoadSettings) -> Result<()> {
        let mut sentences = Vec::with_capacity(addresses.len());
        for SentenceAddress { split, line } in addresses {
            let set = match split {
                None => self.sets.first(),
                Some(name) => self.sets.iter().find(|set| set.split == *name),
            };
            let Some(set) = set else {
                let names: Vec<&str> = self.sets.iter().map(|set| set.split.as_str()).collect();
                let have = match names.is_empty() {
                    true => format!("none is kept. {}", self.missing.join("; ")),
                    false => format!("translations are kept of {}", names.join(", ")),
                };
                bail!("attention is shown of translations of a test set, and {}", have.trim_end());
            };
            let index = line.checked_sub(1);
            let sentence = index.and_then(|index| set.sentences.get(index)).with_context(|| {
                format!("split `{}` has lines 1 to {}, not {line}", set.split, set.sentences.len())
            })?;
            sentences.push((set.split.clone(), sentence));
        }
        let run = LoadedRun::open(self.folder.root(), load)?;
        let mut chosen = Vec::with_capacity(sentences.len());
        for (split, sentence) in sentences {
            let line = sentence.line;
            let told = Some(sentence.translation.as_str());
            let attention = AttentionMap::of_translation(&run, &sentence.source, told)
                .with_context(|| format!("line {line} of split `{split}`"))?;
            chosen.push(ChosenSentence { split, line, attention });
        }
        self.chosen = chosen;
        Ok(())
    }
}

/// Returns HTML that shows the attention weights of each sentence.
pub(crate) fn views(chosen: &[ChosenSentence], language: Language) -> String {
    let mut html = note(attention_note(language));
    for ChosenSentence { split, line, attention } in chosen {
        let split = escape(split);
        html += &match language {
            Language::English => format!("<h3>{split}, line {line}</h3>\n"),
            Language::Chinese => format!("<h3>{split}，第 {line} 行</h3>\n"),
        };
        html += &attention_view(attention, language);
    }
    html
}

/// Returns every figure of the attention on each sentence.
pub(crate) fn figures(chosen: &[ChosenSentence], language: Language) -> Vec<NamedFigure> {
    let of_one = |ChosenSentence { split, line, attention }: &ChosenSentence| {
        let file = split.replace(['/', '\\'], "-");
        let named =
            move |(name, figure)| NamedFigure::new(format!("{file}-line-{line}-{name}"), figure);
        attention_figures(attention, language).into_iter().map(named).collect::<Vec<_>>()
    };
    chosen.iter().flat_map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_lines_with_or_without_a_split() {
        let of = |text: &str| text.parse::<SentenceAddress>();
        assert_eq!(of("12"), Ok(SentenceAddress { split: None, line: 12 }));
        let split = Some("a:b".to_owned());
        assert_eq!(of("a:b:3"), Ok(SentenceAddress { split, line: 3 }));
        for wrong in ["0", "", "test", "test:", "test:-1", "1.5"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
