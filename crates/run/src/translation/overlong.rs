//! Lines with more tokens than training saw: refused, cut, or translated in parts.

use std::borrow::Cow;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use taper_data::{EncodedText, Tokenizer};
use taper_decoding::Control;
use taper_model::ModelConfig;

use super::punctuation::{ends_phrase, ends_sentence};
use crate::items::BadItem;

/// Token limit of a line, and treatment of longer lines.
#[derive(Debug, Clone, Copy)]
pub struct LineLimit {
    /// Treatment of a longer line.
    pub rule: OverlongRule,
    /// Largest number of tokens of a line.
    pub tokens: usize,
    /// Whether the model has no more positions, so that no option allows more.
    pub by_positions: bool,
}

/// Treatment of a line with more tokens than training saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OverlongRule {
    /// Translate it in parts, divided at the end of a sentence or phrase if there is one.
    #[default]
    Split,
    /// Translate its beginning.
    Cut,
    /// Refuse it.
    Error,
}

/// Treatment that an overlong line received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overlong {
    /// Number of tokens of the line.
    pub tokens: usize,
    /// Largest number of tokens allowed.
    pub limit: usize,
    /// Rule that was applied.
    pub rule: OverlongRule,
    /// Number of parts that were translated.
    pub parts: usize,
}

impl LineLimit {
    /// Limit of `tokens` tokens, with a rule for longer lines.
    #[must_use]
    pub fn new(rule: OverlongRule, tokens: usize) -> Self {
        Self { rule, tokens, by_positions: false }
    }

    /// Lowers the limit to the positions of a model of this shape, which reads rows of `tokenizer`.
    pub fn within(self, model: &ModelConfig, tokenizer: &Tokenizer) -> Self {
        // `</s>` takes one of them, and so does the token of a language.
        let around = tokenizer.tokens_around_source();
        match model.longest_encoded().map(|(positions, _)| positions.saturating_sub(around)) {
            Some(most) if most <= self.tokens => Self { tokens: most, by_positions: true, ..self },
            _ => self,
        }
    }

    /// Parts of line `number` to translate, and the treatment if it was too long. `control` knows
    /// the line by 0, and is checked between its parts; a cancelled line has only the parts until
    /// then.
    ///
    /// # Errors
    /// [`BadItem`] for an overlong line, if the rule is to refuse; and when the tokenizer fails.
    pub(super) fn apply<'l>(
        &self,
        tokenizer: &Tokenizer,
        line: &'l EncodedText,
        number: usize,
        control: &dyn Control,
    ) -> Result<(Vec<Cow<'l, EncodedText>>, Option<Overlong>)> {
        if line.len() <= self.tokens {
            return Ok((vec![Cow::Borrowed(line)], None));
        }
        control.between_steps();
        let in_line = || format!("line {number}");
        let whole = without_blanks_around(tokenizer, line).with_context(in_line)?;
        let tokens = whole.len();
        if tokens <= self.tokens {
            return Ok((vec![whole], None));
        }
        if self.rule == OverlongRule::Error {
            let error = anyhow!(
                "line {number} has {tokens} tokens, more than {}; allow it with --overlong split \
                 or --overlong cut, or {}",
                self.tokens,
                self.more_by("raise --max-source-tokens")
            );
            return Err(BadItem::of(&error));
        }
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < whole.text().len() {
            let (part, next) = self.part_at(tokenizer, &whole, at).with_context(in_line)?;
            parts.push(Cow::Owned(part));
            at = next;
            control.between_steps();
            if control.is_cancelled(0) || self.rule == OverlongRule::Cut {
                break;
            }
        }
        let overlong = Overlong { tokens, limit: self.tokens, rule: self.rule, parts: parts.len() };
        Ok((parts, Some(overlong)))
    }

    /// Way to allow more tokens: the `option`, unless the model has no positions for them.
    pub fn more_by<'a>(&self, option: &'a str) -> &'a str {
        if self.by_positions {
            "shorten it: the model has positions for no more (model.max_positions, or the length \
             of a Linformer)"
        } else {
            option
        }
    }

    /// Part of a text that begins at byte `at`, where no blank is, and the beginning of the next.
    fn part_at(
        &self,
        tokenizer: &Tokenizer,
        whole: &EncodedText,
        at: usize,
    ) -> Result<(EncodedText, usize)> {
        // Only as much of a long text is examined as necessary, or each part would cost as much as
        // the whole rest.
        let mut most = self.tokens + self.tokens / 4 + 2;
        let ahead = loop {
            let end = whole.end_of(at, most);
            let ahead = tokenizer.encode_part(whole, at..end)?;
            if ahead.len() > self.tokens || end == whole.text().len() {
                break ahead;
            }
            most *= 2;
        };
        let (part, rest) = ahead.text().split_at(self.divide(&ahead));
        // Blanks may reach beyond what is examined.
        let behind = whole.text()[at + part.len()..].trim_start();
        let next = whole.text().len() - behind.len();
        if rest.is_empty() {
            return Ok((ahead, next));
        }
        Ok((tokenizer.encode_part(&ahead, 0..part.trim_end().len())?, next))
    }

    /// Place to divide `text`: the last end of a sentence that keeps the first part within the
    /// limit, else of a phrase, else of a word, else within a word. Ends of sentences and phrases
    /// count only in the second half of what fits, so that parts stay few.
    fn divide(&self, text: &EncodedText) -> usize {
        if text.len() <= self.tokens {
            return text.text().len();
        }
        let (text, fits) = (text.text(), self.fitting(text));
        let ends = text[..fits].char_indices();
        let within: Vec<usize> = ends.map(|(at, character)| at + character.len_utf8()).collect();
        let half = &within[within.len() / 2..];
        let last = |places: &[usize], is_end: fn(&str, char) -> bool| {
            places.iter().rev().copied().find(|&at| {
                text[at..].chars().next().is_some_and(|after| is_end(&text[..at], after))
            })
        };
        last(half, ends_sentence)
            .or_else(|| last(half, ends_phrase))
            .or_else(|| last(&within, |_, after| after.is_whitespace()))
            .unwrap_or(fits)
    }

    /// Bytes of the longest beginning of a text that is within the limit, of one that is not: at
    /// least a character.
    fn fitting(&self, text: &EncodedText) -> usize {
        let bytes = text.bytes();
        // Tokens may have parts of a character.
        let is_end = |&tokens: &usize| bytes[tokens].start >= bytes[tokens - 1].end;
        let fits = (1..=self.tokens).rev().find(is_end).map_or(0, |tokens| bytes[tokens - 1].end);
        fits.max(text.text().chars().next().map_or(0, char::len_utf8))
    }
}

/// A line without the blanks around it, which do not belong to it.
fn without_blanks_around<'l>(
    tokenizer: &Tokenizer,
    line: &'l EncodedText,
) -> Result<Cow<'l, EncodedText>> {
    let (text, inner) = (line.text(), line.text().trim());
    if inner.len() == text.len() {
        return Ok(Cow::Borrowed(line));
    }
    let start = text.len() - text.trim_start().len();
    Ok(Cow::Owned(tokenizer.encode_part(line, start..start + inner.len())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::TokenizerConfig;
    use taper_model::Positions;

    fn tokenizer() -> Tokenizer {
        let texts = ["one two three. four five, six seven", "eight nine ten"]
            .map(|text| Ok(text.to_owned()));
        let config = TokenizerConfig { vocabulary_size: 320, ..TokenizerConfig::default() };
        Tokenizer::train(&config, false, false, texts.into_iter()).expect("trains")
    }

    fn limit(rule: OverlongRule, tokens: usize) -> LineLimit {
        LineLimit::new(rule, tokens)
    }

    fn applied(limit: LineLimit, text: &str) -> (Vec<String>, Option<Overlong>) {
        let tokenizer = tokenizer();
        let line = tokenizer.encode_long_text(text).expect("encodes");
        let (parts, overlong) = limit.apply(&tokenizer, &line, 1, &()).expect("not refused");
        for part in &parts {
            assert_eq!(part.ids(), tokenizer.encode(part.text()).expect("encodes"));
        }
        (parts.into_iter().map(|part| part.text().to_owned()).collect(), overlong)
    }

    fn parts(text: &str, rule: OverlongRule, tokens: usize) -> Vec<String> {
        applied(limit(rule, tokens), text).0
    }

    #[test]
    fn parts_fit_and_hold_the_whole_text() {
        let tokenizer = tokenizer();
        let text = "one two three. four five, six seven. eight nine ten one two three four 一二三。四五六七八九十";
        for limit in 1..60 {
            let found = parts(text, OverlongRule::Split, limit);
            let kept: String = found.concat().split_whitespace().collect();
            assert_eq!(kept, text.split_whitespace().collect::<String>());
            // A single character may have more tokens than the limit, as bytes.
            for part in &found {
                assert!(
                    tokenizer.encode(part).expect("encodes").len() <= limit
                        || part.chars().count() == 1,
                    "{limit}: {found:?}"
                );
            }
            assert_eq!(parts(text, OverlongRule::Cut, limit), found[..1]);
        }
    }

    #[test]
    fn sentences_are_preferred_to_phrases_and_those_to_words() {
        let tokenizer = tokenizer();
        let tokens = |text: &str| tokenizer.encode(text).expect("encodes").len();
        let text = "one two three. four five, six seven";
        assert_eq!(
            parts(text, OverlongRule::Split, tokens("one two three. four")),
            ["one two three.", "four five, six seven"]
        );
        let text = "one two three, four five six";
        assert_eq!(
            parts(text, OverlongRule::Split, tokens("one two three, four"))[0],
            "one two three,"
        );
        let text = "one two three four";
        assert_eq!(parts(text, OverlongRule::Split, tokens("one two three"))[0], "one two three");
        assert_eq!(parts(text, OverlongRule::Split, tokens(text)), [text]);
    }

    #[test]
    fn blanks_around_a_line_do_not_make_it_long() {
        let blanks = " ".repeat(300);
        for rule in [OverlongRule::Split, OverlongRule::Cut, OverlongRule::Error] {
            for (text, expected) in [("", ""), ("one two", "one two")] {
                let line = format!("{blanks}{text}{blanks}");
                let (parts, overlong) = applied(limit(rule, 20), &line);
                assert_eq!((parts, overlong.is_some()), (vec![expected.to_owned()], false));
            }
        }
        assert_eq!(
            parts(&format!("{blanks}one two three four"), OverlongRule::Cut, 3)[0],
            parts("one two three four", OverlongRule::Cut, 3)[0]
        );
    }

    #[test]
    fn a_refusal_names_the_line() {
        let refusal = |limit: LineLimit| {
            let tokenizer = tokenizer();
            let line = tokenizer.encode_text("one two three four five six").expect("encodes");
            let refused = limit.apply(&tokenizer, &line, 7, &());
            let error = refused.expect_err("too long").to_string();
            assert!(error.starts_with("line 7 has "), "{error}");
            error
        };
        assert!(refusal(limit(OverlongRule::Error, 3)).ends_with("or raise --max-source-tokens"));
        // No option gives a model more positions.
        let positions = |max_positions| ModelConfig {
            positions: Positions::Learned,
            max_positions,
            ..ModelConfig::default()
        };
        assert!(
            refusal(limit(OverlongRule::Error, 3).within(&positions(5), &tokenizer()))
                .ends_with("or raise --max-source-tokens")
        );
        for max_positions in [3, 4] {
            let limit = limit(OverlongRule::Error, 3);
            let error = refusal(limit.within(&positions(max_positions), &tokenizer()));
            assert!(
                error.contains(&format!("more than {};", max_positions - 1))
                    && error.contains("model.max_positions"),
                "{error}"
            );
            assert!(!error.contains("--max-source-tokens"), "{error}");
        }
    }

    #[test]
    fn a_sentence_ends_behind_its_quotation_marks() {
        let tokenizer = tokenizer();
        for (first, second) in [
            ("“去公园我们今天。”", "他说。"),
            ("（去公园我们今天！）", "他说。"),
            ("「去公园我们今天，」", "他说"),
            ("去公园我们今天。", "“他说。”"),
            ("one two \"three four.\"", "five six"),
            ("one two “three four.”", "“five six"),
            ("one two „three four.“", "five six"),
            ("one two (three four,)", "five six"),
            ("one two three four.", "\"five six"),
        ] {
            let text = if first.starts_with("one") {
                format!("{first} {second}")
            } else {
                format!("{first}{second}")
            };
            let fitting = tokenizer.encode(&text).expect("encodes").len() - 1;
            assert_eq!(parts(&text, OverlongRule::Split, fitting), [first, second]);
        }
    }

    #[test]
    fn a_long_line_is_divided_in_time_that_grows_with_it() {
        let words = "one two three. four five, six seven ".repeat(1 << 13);
        // Takes half a minute if each part costs as much as the rest of the line, a moment
        // otherwise.
        for text in [
            words,
            "x".repeat(1 << 18),
            "e\u{301}".repeat(1 << 16),
            format!("a{}b", " ".repeat(1 << 18)),
        ] {
            let found = parts(&text, OverlongRule::Split, 100);
            let kept: String = found.concat().split_whitespace().collect();
            assert!(kept == text.split_whitespace().collect::<String>(), "{} parts", found.len());
        }
    }
}
