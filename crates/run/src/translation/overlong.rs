//! Lines with more tokens than a limit, which is usually the limit in training. They are refused,
//! cut, or translated in parts.

use std::borrow::Cow;

use anyhow::{Context, Error, Result, anyhow};
use serde::Serialize;
use taper_data::{EncodedText, Tokenizer};
use taper_decoding::Control;
use taper_model::ModelConfig;

use super::places::Place;
use super::punctuation::{ends_phrase, ends_sentence};
use crate::advice::{Action, Advice, Setting};
use crate::items::BadItem;

/// Largest number of tokens of a line, and treatment of lines with more tokens.
#[derive(Debug, Clone, Copy)]
pub struct LineLimit {
    /// Treatment of a line with more tokens.
    pub rule: OverlongRule,
    /// Largest number of tokens of a line.
    pub tokens: usize,
    /// Whether the limit is the number of the model's positions, so that no option can raise it.
    pub by_positions: bool,
}

/// Treatment of a line that has more tokens than the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OverlongRule {
    /// Translate the line in parts. If possible, a part ends where a sentence or phrase ends.
    #[default]
    Split,
    /// Translate only the beginning of the line.
    Cut,
    /// Do not translate the line, but return an error for it.
    Error,
}

/// Treatment that an overlong line has had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overlong {
    /// Number of tokens of the line.
    pub tokens: usize,
    /// Largest number of tokens that was allowed.
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

    /// Returns this limit, lowered if needed to the number of tokens for which a model of this
    /// shape has positions. `tokenizer`: its source tokenizer.
    pub fn within(self, model: &ModelConfig, tokenizer: &Tokenizer) -> Self {
        // `</s>` and the token of a language need positions, too.
        let around = tokenizer.tokens_around_source();
        match model.longest_encoded().map(|(positions, _)| positions.saturating_sub(around)) {
            Some(most) if most <= self.tokens => Self { tokens: most, by_positions: true, ..self },
            _ => self,
        }
    }

    /// Divides a line into the parts to translate. Returns the parts, and the treatment of the line
    /// if it is overlong. `place`: place of the line, for messages. Between parts, `control` is
    /// asked whether line 0, which is this line, is cancelled. If it is, only the parts so far are
    /// returned.
    ///
    /// # Errors
    /// [`BadItem`] if the line is overlong and the rule refuses such lines. Other errors if the
    /// tokenizer fails.
    pub(super) fn apply<'l>(
        &self,
        tokenizer: &Tokenizer,
        line: &'l EncodedText,
        place: Place,
        control: &dyn Control,
    ) -> Result<(Vec<Cow<'l, EncodedText>>, Option<Overlong>)> {
        if line.len() <= self.tokens {
            return Ok((vec![Cow::Borrowed(line)], None));
        }
        control.between_steps();
        let in_line = || place;
        let whole = without_blanks_around(tokenizer, line).with_context(in_line)?;
        let tokens = whole.len();
        if tokens <= self.tokens {
            return Ok((vec![whole], None));
        }
        if self.rule == OverlongRule::Error {
            let message = format!("{place} has {tokens} tokens, more than {}", self.tokens);
            let error = self.exceeded(message, Setting::MostSourceTokens);
            let divide = Action::Choose(Setting::DivideLines);
            let error = Advice::new(divide, "translates such lines in parts").about(error);
            return Err(BadItem::from_error(&error));
        }
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < whole.text().len() {
            let (part, end) = self.next_part(tokenizer, &whole, at).with_context(in_line)?;
            parts.push(Cow::Owned(part));
            at = whole.text().len() - whole.text()[end..].trim_start().len();
            control.between_steps();
            if control.is_cancelled(0) || self.rule == OverlongRule::Cut {
                break;
            }
        }
        let overlong = Overlong { tokens, limit: self.tokens, rule: self.rule, parts: parts.len() };
        Ok((parts, Some(overlong)))
    }

    /// Error with the text `message`, for a text with more tokens than the limit. It has the advice
    /// to set `setting`, which raises the limit, unless the model has no positions for more.
    pub fn exceeded(&self, message: String, setting: Setting) -> Error {
        if self.by_positions {
            return anyhow!(
                "{message}; shorten it: the model has positions for no more (model.max_positions, \
                 or the length of a Linformer)"
            );
        }
        Advice::new(Action::Choose(setting), "allows more").about(Error::msg(message))
    }

    /// Returns the next part of the text `whole`, which begins at byte `at`, without spaces at its
    /// end. Also returns the byte at which the rest of the text begins.
    ///
    /// The part is chosen from the longest beginning of the rest that fits the limit. If a sentence
    /// ends in the second half of this beginning, the part ends with the last such sentence.
    /// Otherwise, it ends with the last phrase that ends there, or else with the last word, or else
    /// within a word. Ends in the first half are ignored, so that there are few parts.
    fn next_part(
        &self,
        tokenizer: &Tokenizer,
        whole: &EncodedText,
        at: usize,
    ) -> Result<(EncodedText, usize)> {
        let text = &whole.text()[at..];
        // Longest beginning of the rest that has been tokenised so far; shorter beginnings reuse
        // its tokens.
        let mut begun = EncodedText::default();
        let within = self.fitting(text, |end| {
            if end > begun.text().len() {
                begun = tokenizer.encode_part(whole, at..at + end)?;
                return Ok(begun.len());
            }
            tokens_until(tokenizer, &begun, end)
        })?;
        let half = &within[within.len() / 2..];
        let last = |places: &[usize], is_end: fn(&str, char) -> bool| {
            places.iter().rev().copied().find(|&at| {
                text[at..].chars().next().is_some_and(|after| is_end(&text[..at], after))
            })
        };
        let end = match within.last() {
            Some(&all) if all == text.len() => Some(all),
            _ => last(half, ends_sentence)
                .or_else(|| last(half, ends_phrase))
                .or_else(|| last(&within, |_, after| after.is_whitespace())),
        };
        let end = end.or(within.last().copied()).unwrap_or(text.len());
        let length = text[..end].trim_end().len();
        let part = match length <= begun.text().len() {
            true => tokenizer.encode_part(&begun, 0..length)?,
            false => tokenizer.encode_part(whole, at..at + length)?,
        };
        Ok((part, at + end))
    }

    /// End, in bytes, of each character in the longest beginning of `text` that fits the limit.
    /// `tokens_until` returns the number of tokens of the beginning with the given number of bytes.
    /// It is assumed that a longer beginning never has fewer tokens; there are rare exceptions.
    /// Only a limited part of a long text is tokenised, because otherwise each part would cost as
    /// much as the whole rest.
    fn fitting(
        &self,
        text: &str,
        mut tokens_until: impl FnMut(usize) -> Result<usize>,
    ) -> Result<Vec<usize>> {
        let mut ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
        let mut within: Vec<usize> = Vec::new();
        let (mut fits, mut tokens_that_fit) = (1, 0);
        let (mut exceeds, mut tokens_in_excess) = (self.tokens + self.tokens / 4 + 2, 0);
        while tokens_in_excess == 0 {
            within.extend(ends.by_ref().take(exceeds - within.len()));
            let Some(&end) = within.last() else { return Ok(within) };
            match tokens_until(end)? {
                tokens if tokens > self.tokens => {
                    (exceeds, tokens_in_excess) = (within.len(), tokens)
                }
                _ if end == text.len() => return Ok(within),
                tokens => (fits, tokens_that_fit, exceeds) = (within.len(), tokens, 2 * exceeds),
            }
        }
        // Next, a position between `fits` and `exceeds` is estimated as if all tokens were equally
        // long. If this narrows the range too little, the range is halved instead.
        let mut by_halves = false;
        while exceeds - fits > 1 {
            let width = exceeds - fits;
            let share =
                width * (self.tokens - tokens_that_fit) / (tokens_in_excess - tokens_that_fit);
            let middle = if by_halves {
                fits + width / 2
            } else {
                (fits + share).clamp(fits + 1, exceeds - 1)
            };
            match tokens_until(within[middle - 1])? {
                tokens if tokens > self.tokens => (exceeds, tokens_in_excess) = (middle, tokens),
                tokens => (fits, tokens_that_fit) = (middle, tokens),
            }
            by_halves = 2 * (exceeds - fits) > width;
        }
        within.truncate(fits);
        Ok(within)
    }
}

/// Number of tokens that the first `length` bytes of `text` would have as a text of their own. Only
/// the last word is tokenised again, because it can be cut. This is right because no token of a
/// tokenizer that was trained by this program contains text before and after a space.
fn tokens_until(tokenizer: &Tokenizer, text: &EncodedText, length: usize) -> Result<usize> {
    let beginning = &text.text()[..length];
    let blank = beginning.rfind(' ').filter(|&blank| blank > 0 && tokenizer.folder().is_none());
    let words = blank.unwrap_or(length);
    let last = if words < length { tokenizer.encode(&beginning[words..])?.len() } else { 0 };
    Ok(tokenizer.encode_part(text, 0..words)?.len() + last)
}

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
    use crate::one_line;
    use taper_data::{TokenizerConfig, TokenizerKind};
    use taper_model::Positions;

    fn tokenizer() -> Tokenizer {
        trained(TokenizerConfig::default().kind)
    }

    fn trained(kind: TokenizerKind) -> Tokenizer {
        let texts = ["one two three. four five, six seven", "eight nine ten"]
            .map(|text| Ok(text.to_owned()));
        let config = TokenizerConfig { kind, vocabulary_size: 320, ..TokenizerConfig::default() };
        Tokenizer::train(&config, false, false, texts.into_iter()).expect("trains")
    }

    fn limit(rule: OverlongRule, tokens: usize) -> LineLimit {
        LineLimit::new(rule, tokens)
    }

    fn applied(limit: LineLimit, text: &str) -> (Vec<String>, Option<Overlong>) {
        let tokenizer = tokenizer();
        let line = tokenizer.encode_long_text(text).expect("encodes");
        let (parts, overlong) =
            limit.apply(&tokenizer, &line, Place::line(1), &()).expect("not refused");
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
            let text_parts = parts(text, OverlongRule::Split, limit);
            let kept: String = text_parts.concat().split_whitespace().collect();
            assert_eq!(kept, text.split_whitespace().collect::<String>());
            // A single character can have more tokens than the limit, one for each byte.
            for part in &text_parts {
                assert!(
                    tokenizer.encode(part).expect("encodes").len() <= limit
                        || part.chars().count() == 1,
                    "{limit}: {text_parts:?}"
                );
            }
            assert_eq!(parts(text, OverlongRule::Cut, limit), text_parts[..1]);
        }
    }

    #[test]
    fn a_part_is_tokenised_once_beside_words_that_are_cut() {
        for kind in [TokenizerKind::Bpe, TokenizerKind::Unigram, TokenizerKind::Bytes] {
            let tokenizer = trained(kind);
            let text = "one two three. four five, six seven. ".repeat(40);
            let line = tokenizer.encode_text(text.trim()).expect("encodes");
            // For each part, its text is tokenised once, together with the text that did not fit,
            // and one word for each position that is tried.
            let begun = tokenizer.encodings();
            let limit = limit(OverlongRule::Split, 50);
            let (parts, _) =
                limit.apply(&tokenizer, &line, Place::line(1), &()).expect("not refused");
            let each = (tokenizer.encodings() - begun) as f64 / parts.len() as f64;
            assert!(parts.len() > 5 && each < 6.0, "{kind:?}: {each} texts for each part");
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
            let refused = limit.apply(&tokenizer, &line, Place::line(7), &());
            let error = one_line(&refused.expect_err("too long"));
            assert!(error.starts_with("line 7 has "), "{error}");
            assert!(error.contains("dividing overlong lines"), "{error}");
            error
        };
        let raise = "a larger limit of tokens allows more";
        assert!(refusal(limit(OverlongRule::Error, 3)).ends_with(raise));
        // No option gives a model more positions.
        let positions = |max_positions| ModelConfig {
            positions: Positions::Learned,
            max_positions,
            ..ModelConfig::default()
        };
        assert!(
            refusal(limit(OverlongRule::Error, 3).within(&positions(5), &tokenizer()))
                .ends_with(raise)
        );
        for max_positions in [3, 4] {
            let limit = limit(OverlongRule::Error, 3);
            let error = refusal(limit.within(&positions(max_positions), &tokenizer()));
            assert!(
                error.contains(&format!("more than {};", max_positions - 1))
                    && error.contains("model.max_positions"),
                "{error}"
            );
            assert!(!error.contains(raise), "{error}");
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
        // This takes half a minute if each part costs as much as the rest of the line; otherwise it
        // takes a moment.
        for text in [
            words,
            "x".repeat(1 << 18),
            "e\u{301}".repeat(1 << 16),
            format!("a{}b", " ".repeat(1 << 18)),
        ] {
            let text_parts = parts(&text, OverlongRule::Split, 100);
            let kept: String = text_parts.concat().split_whitespace().collect();
            assert!(
                kept == text.split_whitespace().collect::<String>(),
                "{} parts",
                text_parts.len()
            );
        }
    }
}
