//! Retrieval of keys (random strings) that are hidden in long texts (Mohtashami and Jaggi 2023,
//! "Landmark Attention: Random-Access Infinite Context Length for Transformers", section 4.2). A
//! text consists of filler words. Among them is a sentence that states a key, and at the end is the
//! question for the key.
//!
//! The filler words are taken from the test text in the model's configuration, except those that
//! contain a word of the sentence or of the question. Punctuation and case do not count. Keys and
//! filler are determined by a seed, the length of the text and the depth of the key. So all models
//! that read the same test text are asked for the same keys in the same texts, whatever method they
//! use for texts longer than in training.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use taper_data::{Draws, SpelledSpecial, TextBlocks};
use taper_decoding::DecodingConfig;
use taper_model::LanguageModel;

use crate::LoadedRun;
use crate::generation::{GeneratedText, GenerationSettings, Generator, Prompt, PromptContent};
use crate::tasks::first_test_text;

/// Placeholder for the key in a statement.
const KEY: &str = "{key}";

/// Number of batches of the test text from which filler words are taken.
const BATCHES: usize = 64;

/// Settings of the texts with keys, and of the questions for the keys.
#[derive(Debug, Clone)]
pub struct Passkey {
    /// Number of depths at which keys are hidden, evenly spread from the beginning of a text (0) to
    /// its end (1).
    pub depths: usize,
    /// Number of keys that are asked for at each text length and depth.
    pub keys: usize,
    /// Characters that keys are made of.
    pub characters: String,
    /// Number of characters in a key.
    pub key_length: usize,
    /// Sentence that states the key, with `{key}` in place of the key.
    pub statement: String,
    /// Question at the end of the text, to which the key is the only right continuation.
    pub question: String,
    /// Seed of keys and filler.
    pub seed: u64,
}

impl Default for Passkey {
    fn default() -> Self {
        Self {
            depths: 5,
            keys: 10,
            characters: "0123456789".to_owned(),
            key_length: 5,
            statement: " The pass key is {key}. Remember it.".to_owned(),
            question: " What is the pass key? The pass key is".to_owned(),
            seed: 1,
        }
    }
}

/// Numbers of keys that a model was asked for and found, at one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PasskeyRecall {
    /// Depth of the key: share of the filler that comes before it, from 0 at the beginning of the
    /// text to 1 at its end.
    pub depth: f64,
    /// Number of keys that were asked for.
    pub keys: usize,
    /// Number of keys that the model found: its answer, decoded greedily, begins with the key.
    pub found: usize,
}

/// Key, and the tokens of the text that contains it.
struct Hidden {
    key: String,
    ids: Vec<u32>,
}

impl Passkey {
    /// Checks that the settings describe at least one key.
    ///
    /// # Errors
    /// If a number is 0, there are no characters for keys, or the statement has no placeholder for
    /// the key.
    pub(super) fn validate(&self) -> Result<()> {
        if [self.depths, self.keys, self.key_length].contains(&0) || self.characters.is_empty() {
            bail!("passkeys: there must be at least one depth, one key and one character of a key");
        }
        if !self.statement.contains(KEY) {
            bail!("passkeys: the statement {:?} has no {KEY} for the key", self.statement);
        }
        Ok(())
    }

    /// Asks the model of `run` for keys in texts of about `length` tokens, including the answer, at
    /// each depth. Returns the numbers of keys found at each depth.
    ///
    /// # Errors
    /// If the vocabulary cannot spell the sentences, or they leave no room for filler.
    pub(super) fn retrieve(
        &self,
        run: &LoadedRun<LanguageModel>,
        length: usize,
    ) -> Result<Vec<PasskeyRecall>> {
        let words = self.words(run)?;
        let settings = GenerationSettings {
            decoding: DecodingConfig::default(),
            max_tokens: self.answer(),
            context: length,
            special_tokens: SpelledSpecial::default(),
        };
        let generator = Generator::new(run, &settings)?;
        let at_depth = |index: usize| {
            let depth = index as f64 / (self.depths - 1).max(1) as f64;
            let draws = Draws::new(self.seed, length as u64, index as u64);
            let texts = (0..self.keys)
                .map(|number| {
                    self.hide(&generator, &words, draws.within(number as u64, 0), (length, depth))
                })
                .collect::<Result<Vec<_>>>()?;
            let prompts: Vec<Prompt<'_>> = (0..)
                .zip(&texts)
                .map(|(number, text)| Prompt { content: PromptContent::Tokens(&text.ids), number })
                .collect();
            let answers = generator.generate_until(&prompts, |_| ControlFlow::Continue(()))?;
            let is_found = |(text, answers): &(&Hidden, &Vec<_>)| {
                answers.first().is_some_and(|answer| self.is_key(&text.key, answer))
            };
            let found = texts.iter().zip(&answers).filter(is_found).count();
            Ok(PasskeyRecall { depth, keys: self.keys, found })
        };
        (0..self.depths).map(at_depth).collect()
    }

    /// Largest number of tokens in an answer: one for a space, one for each character of the key,
    /// and one that shows where the key ends.
    fn answer(&self) -> usize {
        self.key_length + 2
    }

    /// Whether `answer` begins with `key`, apart from spaces. Text after the key is ignored, unless
    /// it begins with a character that keys are made of.
    fn is_key(&self, key: &str, answer: &GeneratedText) -> bool {
        let rest = answer.text.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| self.characters.contains(next)))
    }

    /// Makes a text with a key at the given depth. Text and answer together have at most `length`
    /// tokens.
    fn hide(
        &self,
        generator: &Generator<'_>,
        words: &[String],
        draws: Draws,
        (length, depth): (usize, f64),
    ) -> Result<Hidden> {
        let characters: Vec<char> = self.characters.chars().collect();
        let drawn = |index: usize, of: usize| (draws.bits(index as u64) % of as u64) as usize;
        let key: String =
            (0..self.key_length).map(|index| characters[drawn(index, characters.len())]).collect();
        let statement = spell(generator, &self.statement.replace(KEY, &key))?;
        let question = spell(generator, &self.question)?;
        let beginning = generator.beginning();
        let others = beginning.len() + statement.len() + question.len() + self.answer();
        let Some(room) = length.checked_sub(others).filter(|&room| room > 0) else {
            bail!(
                "passkeys: a text of {length} tokens has no room for filler: {others} tokens are \
                 needed for the statement, the question and the key"
            );
        };
        let filler: Vec<&str> = (0..room)
            .map(|index| words[drawn(self.key_length + index, words.len())].as_str())
            .collect();
        let filler = spell(generator, &filler.join(" "))?;
        let filler = &filler[..room.min(filler.len())];
        let before = (depth * filler.len() as f64).round() as usize;
        let (before, after) = filler.split_at(before);
        let ids = [beginning.as_slice(), before, &statement, after, &question].concat();
        Ok(Hidden { key, ids })
    }

    /// Words of the statement and of the question, as [`bare_words`] divides them.
    fn spoken(&self) -> BTreeSet<String> {
        let spoken = format!("{} {}", self.statement.replace(KEY, " "), self.question);
        bare_words(&spoken).collect()
    }

    /// Words of the test text that contain no characters that keys are made of, and no word of the
    /// statement or of the question.
    fn words(&self, run: &LoadedRun<LanguageModel>) -> Result<Vec<String>> {
        let (config, tokenizer) = (&run.config, run.tokenizers.target());
        let split = first_test_text(config).context("passkeys: words for filler")?;
        let spoken = self.spoken();
        let is_filler = |word: &&str| {
            !bare_words(word).any(|bare| spoken.contains(&bare))
                && !word.contains(|character: char| self.characters.contains(character))
        };
        let mut words = BTreeSet::new();
        for batch in TextBlocks::open(&config.data, tokenizer, split.as_deref())?.take(BATCHES) {
            let Some(stream) = batch?.streams.into_iter().next() else { continue };
            let mut rest = stream.ids.as_slice();
            for &length in &stream.lengths {
                let (block, others) = rest.split_at(length);
                rest = others;
                let text = tokenizer.decode(block)?;
                let all: Vec<&str> = text.split_whitespace().collect();
                // The first and the last word of a block may be cut off, so they are left out.
                let whole = all.get(1..all.len().saturating_sub(1)).unwrap_or_default();
                words.extend(whole.iter().copied().filter(is_filler).map(str::to_owned));
            }
        }
        ensure!(!words.is_empty(), "passkeys: the test text of the run has no words for filler");
        Ok(words.into_iter().collect())
    }
}

/// Words of a text in lower case and without punctuation.
fn bare_words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Tokens of `text`, which is part of a longer text, without the tokens that the model reads at the
/// beginning of every text.
fn spell(generator: &Generator<'_>, text: &str) -> Result<Vec<u32>> {
    let mut ids =
        generator.read(PromptContent::Text(text)).with_context(|| format!("passkeys: {text:?}"))?;
    Ok(ids.split_off(generator.beginning().len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_statement_are_no_filler_with_other_punctuation_or_case() {
        let spoken = Passkey::default().spoken();
        let words = ["what", "is", "the", "pass", "key", "remember", "it"].map(str::to_owned);
        assert_eq!(spoken, BTreeSet::from(words));
        let is_spoken = |word: &str| bare_words(word).any(|bare| spoken.contains(&bare));
        for word in ["key", "key,", "(Pass", "it", "REMEMBER!", "pass-through"] {
            assert!(is_spoken(word), "{word}");
        }
        for word in ["keys", "passing", "item", "—", "forget."] {
            assert!(!is_spoken(word), "{word}");
        }
    }
}
