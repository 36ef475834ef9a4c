//! Lines with more tokens than training saw: refused, cut, or translated in parts.

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use taper_data::Tokenizer;
use taper_decoding::Control;
use taper_model::ModelConfig;

use super::punctuation::{ends_phrase, ends_sentence};
use crate::items::BadItem;

/// Number of bytes of a line that are tokenised at once to count its tokens.
const PIECE: usize = 1 << 16;

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
        let around = tokenizer.source_row([]).len();
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
    pub fn apply<'a>(
        &self,
        tokenizer: &Tokenizer,
        line: &'a str,
        number: usize,
        control: &dyn Control,
    ) -> Result<(Vec<&'a str>, Option<Overlong>)> {
        let in_line = || format!("line {number}");
        // A token spells at least one byte, and normalisation makes at most eleven of one (NFKC, of
        // U+FDFA).
        if line.len().saturating_mul(11) < self.tokens {
            return Ok((vec![line], None));
        }
        control.between_steps();
        if count(tokenizer, line).with_context(in_line)? <= self.tokens {
            return Ok((vec![line], None));
        }
        // Surrounding blanks do not belong to it.
        let mut rest = line.trim();
        let tokens = count(tokenizer, rest).with_context(in_line)?;
        if tokens <= self.tokens {
            return Ok((vec![rest], None));
        }
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let at = self.divide(tokenizer, rest).with_context(in_line)?;
            let (part, after) = rest.split_at(at);
            parts.push(part.trim());
            rest = after.trim_start();
            control.between_steps();
            if control.is_cancelled(0) {
                break;
            }
            match self.rule {
                OverlongRule::Split => {}
                OverlongRule::Cut => break,
                OverlongRule::Error => {
                    let error = anyhow!(
                        "line {number} has {tokens} tokens, more than {}; allow it with --overlong \
                         split or --overlong cut, or {}",
                        self.tokens,
                        self.more_by("raise --max-source-tokens")
                    );
                    return Err(BadItem::of(&error));
                }
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

    /// Place to divide `text`: the last end of a sentence that keeps the first part within the
    /// limit, else of a phrase, else of a word, else within a word. Ends of sentences and phrases
    /// count only in the second half of what fits, so that parts stay few.
    fn divide(&self, tokenizer: &Tokenizer, text: &str) -> Result<usize> {
        let mut ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
        let mut within: Vec<usize> = Vec::new();
        let tokens_until =
            |end: usize| Ok::<_, anyhow::Error>(tokenizer.encode(&text[..end])?.len());
        // The longest beginning that fits: tokens grow with length but for rare merges across the
        // end. Only as much of a long text is examined as necessary, or each part would cost as
        // much as the whole rest.
        let (mut fits, mut tokens_that_fit) = (1, 0);
        let (mut exceeds, mut tokens_in_excess) = (self.tokens + self.tokens / 4 + 2, 0);
        while tokens_in_excess == 0 {
            within.extend(ends.by_ref().take(exceeds - within.len()));
            let Some(&end) = within.last() else { return Ok(text.len()) };
            match tokens_until(end)? {
                tokens if tokens > self.tokens => {
                    (exceeds, tokens_in_excess) = (within.len(), tokens)
                }
                _ if end == text.len() => return Ok(end),
                tokens => (fits, tokens_that_fit, exceeds) = (within.len(), tokens, 2 * exceeds),
            }
        }
        // If tokens are of about equal length, the place follows from their number; otherwise, by
        // bisection.
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
        let within = &within[..fits];
        let half = &within[fits / 2..];
        let last = |places: &[usize], is_end: fn(&str, char) -> bool| {
            places.iter().rev().copied().find(|&at| {
                text[at..].chars().next().is_some_and(|after| is_end(&text[..at], after))
            })
        };
        Ok(last(half, ends_sentence)
            .or_else(|| last(half, ends_phrase))
            .or_else(|| last(within, |_, after| after.is_whitespace()))
            .unwrap_or(within[fits - 1]))
    }
}

/// Number of tokens of a text of any length.
///
/// # Errors
/// When the tokenizer fails.
pub fn count_tokens(tokenizer: &Tokenizer, text: &str) -> Result<usize> {
    count(tokenizer, text)
}

/// Number of tokens of a text, read piece by piece: a tokenizer needs hundreds of bytes for each
/// byte of its text. Pieces end at a space, which no token crosses; without a space for long, the
/// count may be off by the tokens at the cut.
fn count(tokenizer: &Tokenizer, text: &str) -> Result<usize> {
    pieces(text).try_fold(0, |tokens, piece| Ok(tokens + tokenizer.encode(piece)?.len()))
}

/// Tokens of a text, read piece by piece like in [`count`].
///
/// # Errors
/// When the tokenizer fails.
pub(crate) fn encode_long(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    for piece in pieces(text) {
        tokens.extend(tokenizer.encode(piece)?);
    }
    Ok(tokens)
}

/// Divides a text into pieces of at most [`PIECE`] bytes, before a space if there is one.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let most = (0..=PIECE.min(rest.len()))
            .rev()
            .find(|&at| rest.is_char_boundary(at))
            .unwrap_or(rest.len());
        let at = if most == rest.len() {
            most
        } else {
            rest[..most].rfind(' ').filter(|&at| at > 0).unwrap_or(most)
        };
        let (piece, after) = rest.split_at(at);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
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

    fn parts(text: &str, rule: OverlongRule, tokens: usize) -> Vec<&str> {
        limit(rule, tokens).apply(&tokenizer(), text, 1, &()).expect("not refused").0
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
                let (parts, overlong) =
                    limit(rule, 20).apply(&tokenizer(), &line, 1, &()).expect("fits");
                assert_eq!((parts, overlong.is_some()), (vec![expected], false));
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
            let error = limit
                .apply(&tokenizer(), "one two three four five six", 7, &())
                .expect_err("too long")
                .to_string();
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
    fn a_long_line_is_counted_and_divided_in_time_that_grows_with_it() {
        let tokenizer = tokenizer();
        let words = "one two three. four five, six seven ".repeat(1 << 13);
        assert_eq!(
            count(&tokenizer, &words).expect("counts"),
            tokenizer.encode(&words).expect("encodes").len()
        );
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
