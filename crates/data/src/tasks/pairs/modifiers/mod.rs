//! Changes to training pairs that make a model robust: capitals, typing errors, lost punctuation,
//! two sentences in one, one word alone, text that is copied.
//!
//! Case, merged sentences and copied emoji follow OpusTrainer (Bogoychev et al. 2023, "OpusCleaner
//! and OpusTrainer", section 4). Typing errors follow Belinkov and Bisk 2018, "Synthetic and
//! Natural Noise Both Break Neural Machine Translation".
//!
//! **Decision.** A pair is changed when a batch is made: its ids are decoded, and the changed text
//! is tokenised again. So the tokenised cache does not depend on random draws. A draw depends only
//! on the seed, the epoch and the line of the pair, so a resumed run makes the same changes. Texts
//! with a token for unknown characters are not changed, because they cannot be decoded.

pub(crate) mod letters;
mod spans;
pub(crate) mod typos;
pub(crate) mod word_pairs;

use self::letters::{joined, title_case, with_doubled_word, without_end_punctuation};
use self::spans::{with_emoji, with_other_spaces, with_unknown_span};
use self::typos::with_typos;
use self::word_pairs::WordPairs;
use crate::draws::Draws;
use crate::{Epoch, ModifiersConfig, Pair, Result, Tokenizer, TokenizerPair};

/// Purpose number of the random draws of modifiers (see [`Draws::new`]).
const PURPOSE: u64 = 10;

/// Kinds of changes. The key of random draws includes the number of the kind, so different kinds
/// have independent draws.
#[derive(Debug, Clone, Copy)]
enum Change {
    Merged = 0,
    EndPunctuation = 1,
    UnknownSpan = 2,
    Emoji = 3,
    Case = 4,
    Typos = 5,
    Spaces = 6,
    DoubledWords = 7,
    SingleWord = 8,
}

/// Source and target text.
type Texts = (String, String);

/// Changes the pairs of a training split at random.
#[derive(Debug)]
pub(crate) struct PairModifiers {
    config: ModifiersConfig,
    /// Words that may replace a pair, with their translations; `None` if single words are not
    /// configured.
    words: Option<WordPairs>,
    /// Largest number of tokens of a side. A pair that a change would make longer is not changed.
    max_tokens: usize,
}

/// Random draws for a pair in an epoch.
#[derive(Debug, Clone, Copy)]
struct PairDraws {
    draws: Draws,
    line: u64,
}

impl PairDraws {
    fn new(epoch: Epoch, line: u64) -> Self {
        Self { draws: epoch.draws(PURPOSE), line }
    }

    fn draws_for(self, change: Change) -> Draws {
        self.draws.within(self.line, change as u64)
    }

    /// Random number in [0, 1) that decides if a change is made.
    fn decides(self, change: Change) -> f64 {
        self.draws_for(change).unit(0)
    }

    /// Draws for the choices within a change.
    fn choices(self, change: Change) -> Draws {
        self.draws_for(change).within(1, 0)
    }
}

impl PairModifiers {
    /// Makes the modifiers of `config`. `words` are the words that may replace a pair. `None` if
    /// the configuration has no changes.
    pub(crate) fn new(
        config: &ModifiersConfig,
        words: Option<WordPairs>,
        max_tokens: usize,
    ) -> Option<Self> {
        config.is_active().then(|| Self { config: config.clone(), words, max_tokens })
    }

    /// The pair with the changes of an epoch. `next` returns the next pair of the corpus, which may
    /// be appended. If the source begins with `tag`, it still does after the changes.
    ///
    /// # Errors
    ///
    /// If `next` or a tokenizer fails.
    pub(crate) fn modify(
        &self,
        pair: Pair,
        next: impl FnOnce() -> Result<Option<Pair>>,
        (tokenizers, tag): (&TokenizerPair, &str),
        epoch: Epoch,
    ) -> Result<Pair> {
        let draws = PairDraws::new(epoch, pair.line);
        if !self.changes(draws) {
            return Ok(pair);
        }
        let Some((mut source, mut target)) = texts(&pair, tokenizers)? else { return Ok(pair) };
        let is_tagged = strip_tag(&mut source, tag);
        if let Some((word, translation)) = self.word_of(&source, &target, draws) {
            (source, target) = (word.to_owned(), translation.to_owned());
        } else if draws.decides(Change::Merged) < self.config.merged_sentences
            && let Some(next) = next()?
            && let Some((mut source_behind, target_behind)) = texts(&next, tokenizers)?
        {
            strip_tag(&mut source_behind, tag);
            source = joined(&source, &source_behind);
            target = joined(&target, &target_behind);
        }
        (source, target) = self.changed((source, target), draws);
        if is_tagged {
            source = format!("{tag} {source}");
        }
        let (source, target) =
            (tokenizers.source().encode(&source)?, tokenizers.target().encode(&target)?);
        let fits = |ids: &Vec<u32>| (1..=self.max_tokens).contains(&ids.len());
        Ok(if fits(&source) && fits(&target) { Pair { source, target, ..pair } } else { pair })
    }

    /// A word of the source that replaces the pair, with its translation; `None` if the draw does
    /// not choose this change, or if there is no such word.
    fn word_of(&self, source: &str, target: &str, draws: PairDraws) -> Option<(&str, &str)> {
        if draws.decides(Change::SingleWord) >= self.config.single_words {
            return None;
        }
        let drawn = draws.choices(Change::SingleWord).unit(0);
        self.words.as_ref()?.within(source, target, drawn)
    }

    /// True if any change is drawn for a pair. Pairs without a change need not be decoded.
    fn changes(&self, draws: PairDraws) -> bool {
        let config = &self.config;
        let probabilities = [
            (Change::Merged, config.merged_sentences),
            (Change::EndPunctuation, config.no_end_punctuation),
            (Change::UnknownSpan, config.unknown_spans),
            (Change::Emoji, config.emoji),
            (Change::Case, config.upper_case + config.title_case),
            (Change::Typos, config.typos),
            (Change::Spaces, config.spaces),
            (Change::DoubledWords, config.doubled_words),
            (Change::SingleWord, config.single_words),
        ];
        probabilities.into_iter().any(|(change, probability)| draws.decides(change) < probability)
    }

    /// Makes all drawn changes except those that replace the pair by a word or append another pair.
    fn changed(&self, (mut source, mut target): Texts, draws: PairDraws) -> Texts {
        let config = &self.config;
        let is_drawn = |change, probability| draws.decides(change) < probability;
        if is_drawn(Change::EndPunctuation, config.no_end_punctuation)
            && let (Some(short_source), Some(short_target)) =
                (without_end_punctuation(&source), without_end_punctuation(&target))
        {
            (source, target) = (short_source.to_owned(), short_target.to_owned());
        }
        if is_drawn(Change::DoubledWords, config.doubled_words)
            && let Some(changed) =
                with_doubled_word(&source, draws.choices(Change::DoubledWords).unit(0))
        {
            source = changed;
        }
        if is_drawn(Change::UnknownSpan, config.unknown_spans) {
            (source, target) =
                with_unknown_span(&source, &target, draws.choices(Change::UnknownSpan));
        }
        if is_drawn(Change::Emoji, config.emoji) {
            (source, target) = with_emoji(&source, &target, draws.choices(Change::Emoji));
        }
        let texts = (source, target);
        (source, target) = in_case(config, &texts, draws.decides(Change::Case)).unwrap_or(texts);
        if is_drawn(Change::Typos, config.typos)
            && let Some(changed) = with_typos(&source, draws.choices(Change::Typos))
        {
            source = changed;
        }
        if is_drawn(Change::Spaces, config.spaces)
            && let Some(changed) = with_other_spaces(&source, draws.choices(Change::Spaces))
        {
            source = changed;
        }
        (source, target)
    }
}

/// Texts with the case (all capitals, or a capital for each word) that the random number `drawn`
/// chooses; `None` if they are not changed. If the source has no case, the target is not changed
/// either, because a model could not know when to write capitals.
pub(crate) fn in_case(
    config: &ModifiersConfig,
    (source, target): &Texts,
    drawn: f64,
) -> Option<Texts> {
    let ModifiersConfig { upper_case, title_case: title, .. } = *config;
    let change: fn(&str) -> String = match drawn {
        drawn if drawn < upper_case => str::to_uppercase,
        drawn if drawn < upper_case + title => title_case,
        _ => return None,
    };
    let changed = change(source);
    (changed != *source).then(|| (changed, change(target)))
}

/// Decoded texts of a pair; `None` if it contains a token for unknown characters.
fn texts(pair: &Pair, tokenizers: &TokenizerPair) -> Result<Option<Texts>> {
    let text =
        |tokenizer: &Tokenizer, ids: &[u32]| match ids.iter().any(|&id| tokenizer.is_unknown(id)) {
            true => Ok(None),
            false => tokenizer.decode(ids).map(Some),
        };
    let source = text(tokenizers.source(), &pair.source)?;
    let target = text(tokenizers.target(), &pair.target)?;
    Ok(source.zip(target))
}

/// Removes `tag` from the beginning of a source; returns whether it was present.
fn strip_tag(source: &mut String, tag: &str) -> bool {
    if tag.is_empty() {
        return false;
    }
    let plain = source.trim_start().strip_prefix(tag).map(|rest| rest.trim_start().to_owned());
    let is_tagged = plain.is_some();
    *source = plain.unwrap_or_else(|| std::mem::take(source));
    is_tagged
}
