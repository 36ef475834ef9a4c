//! Division of lines into the parts that are translated. Each line is tokenised only once.

use std::borrow::Borrow;

use anyhow::{Result, bail};
use rayon::prelude::*;
use taper_data::{EncodedText, Tokenizer, TokenizerPair};
use taper_decoding::{Control, DecodingError, Renumbered, Sentence};

use super::alignment::WholeLine;
use super::overlong::{LineLimit, Overlong};
use super::places::{LineNumbers, Place};
use super::punctuation::join;
use super::{Terms, Translation};
use crate::items::BadItem;

/// Number of lines that are tokenised together, in parallel.
const AT_ONCE: usize = 1024;

/// Text to translate: a line, or a part of a line that is too long.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextPart {
    /// Text of the line or part.
    pub(super) text: String,
    /// Tokens that the encoder reads for the text.
    pub(crate) source: Vec<u32>,
    /// Tokens with which all translations of the text must begin; can be empty.
    pub(crate) prefix: Vec<u32>,
    /// Indices of the terms (words with prescribed translations) that occur in the text.
    pub(super) terms: Vec<usize>,
    /// Phrases, as tokens, that all translations of the text must contain; can be empty.
    pub(super) phrases: Vec<Vec<u32>>,
    /// Number of the line in messages; the first line usually has the number 1.
    pub(crate) line: usize,
    /// Index of the line among the lines that are translated together.
    pub(crate) index: usize,
    /// Index of the part in its line.
    pub(crate) part: u64,
}

impl TextPart {
    /// Input of the search for this text. Its `number` determines the random draws for the text,
    /// and does not depend on the number of parts of earlier lines.
    pub(super) fn sentence(&self) -> Sentence<'_> {
        let number = self.line as u64 | self.part << 40;
        let Self { source, prefix, phrases, .. } = self;
        Sentence { source, prefix, phrases, candidates: None, number }
    }
}

/// Division of a line into parts.
pub(super) struct DividedLine {
    pub(super) parts: usize,
    /// Tokens of the whole line, if it has several parts; otherwise empty.
    pub(super) whole: WholeLine,
    /// Indices of the terms that occur in the line, each once.
    pub(super) terms: Vec<usize>,
    /// Treatment of the line if it has too many tokens, or the error if it is not translated.
    pub(super) overlong: Result<Option<Overlong>>,
}

/// Lines, and all texts to translate for them: the parts of the first line, then those of the
/// second line, and so on.
#[derive(Default)]
pub(super) struct DividedLines {
    pub(super) texts: Vec<TextPart>,
    pub(super) lines: Vec<DividedLine>,
}

/// Tokens that the encoder of a translation model reads for `text`: `ids`, the tokens of the text,
/// with special tokens. A text with only spaces counts as empty.
pub(super) fn source_row(tokenizer: &Tokenizer, text: &str, ids: &[u32]) -> Vec<u32> {
    match text.trim().is_empty() {
        true => vec![tokenizer.end()],
        false => tokenizer.source_row(ids.iter().copied()),
    }
}

/// Divider of lines: tokenises lines, and divides those with too many tokens.
pub(super) struct LineDivider<'a> {
    pub(super) tokenizers: &'a TokenizerPair,
    pub(super) limit: LineLimit,
    pub(super) terms: Option<&'a Terms>,
    /// Largest number of tokens of a translation, if the models have a limit.
    pub(super) longest_output: Option<usize>,
    /// Control that can interrupt the work, or cancel single lines, which it names by their
    /// indices.
    pub(super) control: &'a dyn Control,
}

impl LineDivider<'_> {
    /// Tokenises and divides lines. If `prefixes` is not empty, the translations of each line must
    /// begin with the prefix at the same index.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub(super) fn divide(
        &self,
        lines: &[String],
        prefixes: &[String],
        numbers: LineNumbers<'_>,
    ) -> Result<DividedLines> {
        let mut divided = DividedLines::default();
        for lines in lines.chunks(AT_ONCE) {
            let begun = divided.lines.len();
            let encode =
                |(index, line): (usize, &String)| self.encode(line, numbers.place(begun + index));
            let encoded: Vec<Result<EncodedText>> =
                lines.par_iter().enumerate().map(encode).collect();
            for line in encoded {
                self.push(&mut divided, line, prefixes, numbers)?;
            }
        }
        Ok(divided)
    }

    /// Divides lines that are already tokenised, in the same way as [`Self::divide`].
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub(super) fn divide_encoded(
        &self,
        lines: &[&EncodedText],
        prefixes: &[String],
        numbers: LineNumbers<'_>,
    ) -> Result<DividedLines> {
        let mut divided = DividedLines::default();
        for &line in lines {
            self.push(&mut divided, Ok(line), prefixes, numbers)?;
        }
        Ok(divided)
    }

    /// Tokenises a line.
    ///
    /// # Errors
    /// [`BadItem`] if the line has names of special tokens, and the tokenizer refuses them. Other
    /// errors if the tokenizer fails.
    fn encode(&self, line: &str, place: Place) -> Result<EncodedText> {
        let of_line = |error| anyhow::Error::new(error).context(place);
        let source = self.tokenizers.source();
        source.check_spelled(line).map_err(|error| BadItem::from_error(&of_line(error)))?;
        source.encode_long_text(line).map_err(of_line)
    }

    /// Divides the next line, and adds it and its parts to `divided`. A line that cannot be
    /// translated gets no parts.
    fn push(
        &self,
        divided: &mut DividedLines,
        line: Result<impl Borrow<EncodedText>>,
        prefixes: &[String],
        numbers: LineNumbers<'_>,
    ) -> Result<()> {
        let index = divided.lines.len();
        let prefix = prefixes.get(index).map_or("", |prefix| prefix.trim());
        let at = (numbers.place(index), index);
        let control = Renumbered::new(self.control, std::slice::from_ref(&index));
        let texts = &mut divided.texts;
        let line = line.and_then(|line| self.parts_of(line.borrow(), prefix, at, &control, texts));
        divided.lines.push(match line {
            Err(error) if error.is::<BadItem>() => {
                let (whole, terms) = (WholeLine::default(), Vec::new());
                DividedLine { parts: 0, whole, terms, overlong: Err(error) }
            }
            line => line?,
        });
        Ok(())
    }

    /// Adds the parts of one line, given its place and its index, to `texts`.
    fn parts_of(
        &self,
        line: &EncodedText,
        prefix: &str,
        (place, line_index): (Place, usize),
        control: &dyn Control,
        texts: &mut Vec<TextPart>,
    ) -> Result<DividedLine> {
        let (source, target) = (self.tokenizers.source(), self.tokenizers.target());
        let mut prefix = self.prefix(prefix, place)?;
        let (parts, overlong) = self.limit.apply(source, line, place, control)?;
        let mut terms = Vec::new();
        for (part, index) in parts.iter().zip(0..) {
            let of_part = self.terms.map_or_else(Vec::new, |terms| terms.in_text(part.text()));
            for &term in &of_part {
                if !terms.contains(&term) {
                    terms.push(term);
                }
            }
            let mut prefix = std::mem::take(&mut prefix);
            // The translation of a line with only spaces is empty, so it needs no prefix.
            if !prefix.is_empty() || !part.is_blank() {
                prefix.splice(0..0, target.before_target());
            }
            let source = source_row(source, part.text(), part.ids());
            texts.push(TextPart {
                text: part.text().to_owned(),
                source,
                prefix,
                terms: of_part,
                phrases: Vec::new(),
                line: place.number,
                index: line_index,
                part: index,
            });
        }
        let whole = match parts.len() {
            0 | 1 => WholeLine::default(),
            _ => WholeLine::new(line, parts.iter().map(|part| part.text())),
        };
        Ok(DividedLine { parts: parts.len(), whole, terms, overlong: Ok(overlong) })
    }

    /// Tokens of a prefix. The prefix must not begin or end with a space: a space at its end would
    /// be a token of its own, and such a token does not occur before a word in translations.
    ///
    /// # Errors
    /// [`BadItem`] if no translation of the line at `place` can have this prefix.
    pub(super) fn prefix(&self, prefix: &str, place: Place) -> Result<Vec<u32>> {
        if prefix.is_empty() {
            return Ok(Vec::new());
        }
        let target = self.tokenizers.target();
        let encode = || -> Result<Vec<u32>> {
            let ids = target.encode(prefix)?;
            // Tokens that the tokenizer puts before every target take positions, too.
            let before = target.before_target().len();
            let longest = self.longest_output.map(|longest| longest.saturating_sub(before));
            check_prefix(target, &ids, place, longest)?;
            Ok(ids)
        };
        let of_line = |error| anyhow::Error::new(error).context(place);
        target
            .check_spelled(prefix)
            .map_err(of_line)
            .and_then(|()| encode())
            .map_err(|error| BadItem::from_error(&error))
    }
}

/// Returns an error if no translation can begin with the prefix whose tokens are `ids`. `longest`:
/// largest number of tokens of a prefix, if the models have a limit.
///
/// # Errors
/// If no translation can have the prefix. The message has the place of the line.
fn check_prefix(
    tokenizer: &Tokenizer,
    ids: &[u32],
    place: Place,
    longest: Option<usize>,
) -> Result<()> {
    if ids.iter().any(|&id| tokenizer.is_unknown(id)) {
        bail!(
            "{place}: its prefix has characters that the target vocabulary cannot spell; leave them \
             out"
        );
    }
    if ids.iter().any(|&id| tokenizer.is_special(id)) {
        bail!("{place}: its prefix has special tokens, which a translation gets automatically");
    }
    match longest {
        Some(longest) if ids.len() > longest => {
            let (sentence, tokens) = (place.number, ids.len());
            let error = DecodingError::LongPrefix { sentence, tokens, longest };
            Err(anyhow::Error::new(error).context(place))
        }
        _ => Ok(()),
    }
}

/// Joins the translations of a line's parts to translations of the line: the first one from the
/// first translation of each part, the second one from the second translations, and so on.
/// Log-probabilities and totals are added; scores are averaged.
pub(super) fn merge(mut parts: Vec<Vec<Translation>>) -> Vec<Translation> {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let ranks = parts.iter().map(Vec::len).min().unwrap_or(0);
    (0..ranks)
        .map(|rank| {
            let chosen: Vec<&Translation> = parts.iter().map(|part| &part[rank]).collect();
            let texts: Vec<&str> = chosen.iter().map(|part| part.text.as_str()).collect();
            Translation {
                text: join(&texts),
                score: chosen.iter().map(|part| part.score).sum::<f64>() / chosen.len() as f64,
                total: chosen.iter().map(|part| part.total).sum(),
                log_probability: chosen.iter().map(|part| part.log_probability).sum(),
                length: chosen.iter().map(|part| part.length).sum(),
                truncated: chosen.iter().any(|part| part.truncated),
                tokens: chosen.iter().flat_map(|part| part.tokens.iter().copied()).collect(),
                token_log_probabilities: chosen
                    .iter()
                    .flat_map(|part| part.token_log_probabilities.iter().copied())
                    .collect(),
                alignment: None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use taper_data::{DataConfig, Direction, Task};

    use crate::translation::OverlongRule;

    /// Tokenizers of a run of two directions that put the token of a language before each target.
    fn marked() -> TokenizerPair {
        let folder = tempfile::tempdir().expect("temporary folder");
        for language in ["en", "de"] {
            let text = "one two three four five six\n".repeat(20);
            std::fs::write(folder.path().join(format!("t.{language}")), text).expect("written");
        }
        let config: DataConfig = serde_json::from_value(json!({
            "dir": folder.path(),
            "train": [
                { "stem": "t", "from": "en", "to": "de" },
                { "stem": "t", "from": "de", "to": "en" },
            ],
            "validation": "",
            "test": "",
            "languages": { "tag": "target" },
            "tokenizer": { "vocabulary_size": 300 },
        }))
        .expect("a configuration");
        let tokenizers = Task::Translation.train_tokenizers(&config).expect("trained");
        let direction = Direction { from: "en".to_owned(), to: "de".to_owned() };
        tokenizers.toward(&config, &direction).expect("marked")
    }

    #[test]
    fn the_token_of_a_language_leaves_a_prefix_one_position_less() {
        let tokenizers = marked();
        let target = tokenizers.target();
        assert_eq!(target.before_target().len(), 1);
        let prefixes = ["", "one two", "one two three"].map(str::to_owned);
        let longest = target.encode("one two").expect("tokens").len() + 1;
        assert_eq!(target.encode("one two three").expect("tokens").len(), longest);
        let divider = LineDivider {
            tokenizers: &tokenizers,
            limit: LineLimit::new(OverlongRule::Error, 100),
            terms: None,
            longest_output: Some(longest),
            control: &(),
        };
        let lines = vec!["one".to_owned(); 3];
        let divided = divider.divide(&lines, &prefixes, LineNumbers::From(5)).expect("divided");
        let longest_prefix = divided.texts.iter().map(|text| text.prefix.len()).max();
        assert_eq!((divided.texts.len(), longest_prefix), (2, Some(longest)));
        let error = divided.lines[2].overlong.as_ref().expect_err("too long");
        assert!(error.is::<BadItem>() && error.to_string().starts_with("line 7: "), "{error}");
    }
}
