//! Trains BPE and Unigram vocabularies, with the same result in every run.
//!
//! Text is split before each space, around each punctuation mark and around each digit. For BPE on
//! bytes, text is split as in GPT-2. Splitting at punctuation also has the effect that no piece
//! contains both `<` and a letter. So no text can spell a special token or the name of a byte such
//! as `<0x41>`, and decoding gives the encoded text.
//!
//! The library's Unigram trainer makes another vocabulary in each run, because it depends on orders
//! that vary. It adds numbers in the order of a hash map and of its threads, and it ranks
//! characters without a score in the order of a hash set. Here the words are sorted, the trainer
//! runs on one thread, and characters without a score are ranked by code point afterwards.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;

use ahash::AHashMap;
use compact_str::CompactString;
use rayon::prelude::*;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::normalizers::unicode::NFKC;
use tokenizers::normalizers::utils::{Lowercase, Sequence as NormalizerSequence};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    AddedToken, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
};

use crate::text::tokenizer::by_words::WordDivision;
use crate::text::tokenizer::segmentation::{Layout, SPACE_MARK, decoder, pre_tokenizer};
use crate::text::tokenizer::{SPECIAL_TOKENS, UNKNOWN, byte_token, fault};
use crate::{Error, Result, TokenizerConfig, TokenizerKind};

/// Character that is put after a copy of each word while a Unigram vocabulary is trained, and
/// removed afterwards. It is a noncharacter, which no text should contain.
const SENTINEL: char = '\u{FFFF}';

/// Number of bytes of text that are divided into words at once.
const BYTES_AT_ONCE: usize = 1 << 25;

/// Number of times that each word occurs.
type Counts = AHashMap<CompactString, u64>;

/// Tokens that are fixed before training: the special tokens and, if `byte_fallback` is true, the
/// bytes.
fn fixed_tokens(byte_fallback: bool) -> Vec<String> {
    let special = SPECIAL_TOKENS.into_iter().map(str::to_owned);
    let bytes = (0..=u8::MAX).filter(|_| byte_fallback).map(byte_token);
    special.chain(bytes).collect()
}

/// Trains a tokenizer on texts.
pub(crate) fn train(
    config: &TokenizerConfig,
    layout: Layout,
    nfkc: bool,
    lowercase: bool,
    texts: impl Iterator<Item = Result<String>>,
) -> Result<tokenizers::Tokenizer> {
    let normalizer = normalizer(nfkc, lowercase);
    let pre_tokenizer = pre_tokenizer(config.kind, layout)?;
    let model: ModelWrapper = match &pre_tokenizer {
        Some(cut) => {
            let counts = count_words(texts, normalizer.as_ref(), cut)?;
            require_text(counts.is_empty())?;
            match config.kind {
                TokenizerKind::Bytes => train_byte_level(config, counts)?.into(),
                _ => train_subwords(config, counts)?,
            }
        }
        None => train_characters(texts, normalizer.as_ref())?.into(),
    };
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_normalizer(normalizer).map_err(fault("set the normalizer"))?;
    tokenizer.with_pre_tokenizer(pre_tokenizer);
    tokenizer.with_decoder(Some(decoder(config.kind, layout)));
    tokenizer
        .add_special_tokens(SPECIAL_TOKENS.map(|token| AddedToken::from(token, true)))
        .map_err(fault("add the special tokens"))?;
    Ok(tokenizer)
}

/// Refuses to train without text.
fn require_text(is_missing: bool) -> Result<()> {
    let message = "there is no text to train on".to_owned();
    if is_missing { Err(Error::Tokenizer { action: "train", message }) } else { Ok(()) }
}

/// Refuses a vocabulary of `size` tokens unless it is larger than `needed`, the number of its
/// mandatory tokens. `parts` describes these tokens in the error.
fn require_size(size: usize, needed: usize, parts: &str) -> Result<()> {
    if size > needed {
        return Ok(());
    }
    let message = format!("is {size} but must exceed {needed}: {parts}");
    Err(Error::Config { key: "data.tokenizer.vocabulary_size", message })
}

/// Trains a vocabulary of characters: each character of the texts is a token, in the order of code
/// points. This vocabulary is byte-pair encoding without merges.
fn train_characters(
    texts: impl Iterator<Item = Result<String>>,
    normalizer: Option<&NormalizerWrapper>,
) -> Result<BPE> {
    let mut characters = BTreeSet::new();
    for text in texts {
        characters.extend(normalized(text?, normalizer)?.get().chars());
    }
    require_text(characters.is_empty())?;
    let tokens = SPECIAL_TOKENS.into_iter().map(str::to_owned);
    let vocabulary: AHashMap<String, u32> =
        tokens.chain(characters.iter().map(char::to_string)).zip(0..).collect();
    BPE::builder()
        .vocab_and_merges(vocabulary, Vec::new())
        .unk_token(SPECIAL_TOKENS[UNKNOWN as usize].to_owned())
        .build()
        .map_err(fault("make a vocabulary of characters"))
}

/// Trains byte-pair encoding whose first tokens are the 256 bytes (Radford et al. 2019, section
/// 2.2), so any text can be spelled.
fn train_byte_level(config: &TokenizerConfig, words: BTreeMap<String, u64>) -> Result<BPE> {
    let bytes = ByteLevel::alphabet();
    let fixed: Vec<String> = SPECIAL_TOKENS.into_iter().map(str::to_owned).collect();
    require_size(
        config.vocabulary_size,
        fixed.len() + bytes.len(),
        &format!("{} special tokens and {} bytes; raise it", fixed.len(), bytes.len()),
    )?;
    train_merges(config.vocabulary_size, &fixed, bytes.into_iter().collect(), words)
}

/// Trains BPE or Unigram on characters. Rare characters are not learned, and are spelled as bytes.
fn train_subwords(config: &TokenizerConfig, counts: BTreeMap<String, u64>) -> Result<ModelWrapper> {
    let fixed = fixed_tokens(config.byte_fallback);
    let alphabet = alphabet(&counts, config.character_coverage);
    require_size(
        config.vocabulary_size,
        fixed.len() + alphabet.len(),
        &format!(
            "{} special tokens and bytes and {} characters of the text; raise it or lower \
             data.tokenizer.character_coverage",
            fixed.len(),
            alphabet.len()
        ),
    )?;
    let words = split_at_rare_characters(counts, &alphabet);
    Ok(match config.kind {
        TokenizerKind::Unigram => train_unigram(config, &fixed, words)?.into(),
        _ => {
            let mut model = train_merges(config.vocabulary_size, &fixed, HashSet::new(), words)?;
            model.unk_token = Some(SPECIAL_TOKENS[UNKNOWN as usize].to_owned());
            model.byte_fallback = config.byte_fallback;
            model.into()
        }
    })
}

fn normalizer(nfkc: bool, lowercase: bool) -> Option<NormalizerWrapper> {
    let mut steps = Vec::new();
    if nfkc {
        steps.push(NormalizerWrapper::NFKC(NFKC));
    }
    if lowercase {
        steps.push(NormalizerWrapper::Lowercase(Lowercase));
    }
    (!steps.is_empty()).then(|| NormalizerSequence::new(steps).into())
}

fn normalized(text: String, normalizer: Option<&NormalizerWrapper>) -> Result<NormalizedString> {
    let mut normalized = NormalizedString::from(text);
    if let Some(normalizer) = normalizer {
        normalizer.normalize(&mut normalized).map_err(fault("normalise a text"))?;
    }
    Ok(normalized)
}

/// Words into which the pre-tokenizer divides the texts, sorted, with their counts.
fn count_words(
    texts: impl Iterator<Item = Result<String>>,
    normalizer: Option<&NormalizerWrapper>,
    pre_tokenizer: &PreTokenizerWrapper,
) -> Result<BTreeMap<String, u64>> {
    let division = WordDivision::new(normalizer, pre_tokenizer);
    let counted = |mut counts: Counts, text: String| -> Result<Counts> {
        let mut count = |word: &str| match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => _ = counts.insert(word.into(), 1),
        };
        match division {
            Some(division) => {
                let text = division.normalized(normalizer, &text);
                let text = text.map_err(fault("normalise a text"))?;
                let Ok(()) =
                    division.each_word(&text, |word| -> std::result::Result<(), Infallible> {
                        count(word);
                        Ok(())
                    });
            }
            None => {
                let mut words = PreTokenizedString::from(normalized(text, normalizer)?);
                pre_tokenizer.pre_tokenize(&mut words).map_err(fault("split a text into words"))?;
                let words = words.get_splits(OffsetReferential::Original, OffsetType::None);
                words.into_iter().for_each(|(word, _, _)| count(word));
            }
        }
        Ok(counts)
    };
    let mut all = Counts::default();
    let mut texts = texts.peekable();
    while texts.peek().is_some() {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while let Some(text) = texts.next_if(|_| bytes < BYTES_AT_ONCE) {
            some.push(text?);
            bytes += some.last().map_or(0, String::len);
        }
        let parts = some.into_par_iter().try_fold(Counts::default, counted);
        let more = parts.try_reduce(Counts::default, |one, other| Ok(sum(one, other)))?;
        all = sum(all, more);
    }
    all.remove("");
    Ok(all.into_iter().map(|(word, count)| (word.into(), count)).collect())
}

/// Sum of two tables of counts.
fn sum(one: Counts, other: Counts) -> Counts {
    let (mut all, fewer) = if one.len() < other.len() { (other, one) } else { (one, other) };
    for (word, count) in fewer {
        *all.entry(word).or_default() += count;
    }
    all
}

/// The most frequent characters that together make up the share `coverage` of the text, and the
/// space mark. Sorted by code point.
fn alphabet(words: &BTreeMap<String, u64>, coverage: f64) -> Vec<char> {
    let mut counts: BTreeMap<char, u64> = BTreeMap::new();
    for (word, count) in words {
        for character in word.chars() {
            *counts.entry(character).or_default() += count;
        }
    }
    // The Unigram trainer puts NUL between words, and this module puts the sentinel after words. So
    // these two characters cannot be learned, and are spelled as bytes.
    counts.remove(&'\0');
    counts.remove(&SENTINEL);
    let total: u64 = counts.values().sum();
    let mut ranked: Vec<(char, u64)> = counts.into_iter().collect();
    // The sort is stable, so characters with equal counts stay in the order of code points.
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let enough = coverage * total as f64;
    let mut covered = 0;
    let mut kept: Vec<char> = ranked
        .into_iter()
        .take_while(|(_, count)| {
            let more = (covered as f64) < enough;
            covered += count;
            more
        })
        .map(|(character, _)| character)
        .chain([SPACE_MARK])
        .collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// Divides words at characters outside the alphabet, and drops those characters.
fn split_at_rare_characters(
    counts: BTreeMap<String, u64>,
    alphabet: &[char],
) -> BTreeMap<String, u64> {
    let is_rare = |character: char| alphabet.binary_search(&character).is_err();
    let mut split = BTreeMap::new();
    for (word, count) in counts {
        for part in word.split(is_rare).filter(|part| !part.is_empty()) {
            *split.entry(part.to_owned()).or_default() += count;
        }
    }
    // The space mark must be known even if no word is left. Otherwise the first token would be a
    // single rare character.
    split.entry(SPACE_MARK.to_string()).or_insert(1);
    split
}

fn train_merges(
    size: usize,
    fixed: &[String],
    alphabet: HashSet<char>,
    words: BTreeMap<String, u64>,
) -> Result<BPE> {
    let trainer = BpeTrainer::builder()
        .vocab_size(size)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(fixed.iter().map(|token| AddedToken::from(token.as_str(), true)).collect())
        .initial_alphabet(alphabet)
        .build();
    let counts: AHashMap<CompactString, u64> =
        words.into_iter().map(|(word, count)| (CompactString::from(word), count)).collect();
    let mut model = BPE::default();
    trainer.do_train(&counts, &mut model).map_err(fault("train byte-pair encoding"))?;
    Ok(model)
}

fn train_unigram(
    config: &TokenizerConfig,
    fixed: &[String],
    words: BTreeMap<String, u64>,
) -> Result<Unigram> {
    let action = "train the unigram model";
    // If the sentinel occurs, it is one of the trainer's pieces, so one more piece is requested.
    let marked = words.values().any(|count| *count > 1);
    let trainer = UnigramTrainer::builder()
        .vocab_size(
            u32::try_from(config.vocabulary_size - fixed.len() + usize::from(marked)).map_err(
                |_| Error::Config {
                    key: "data.tokenizer.vocabulary_size",
                    message: "is more than 2^32".to_owned(),
                },
            )?,
        )
        .show_progress(false)
        .build()
        .map_err(|error| Error::Tokenizer { action, message: error.to_string() })?;
    let sentences = words.into_iter().flat_map(with_sentinel).collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .map_err(|error| Error::Tokenizer { action, message: error.to_string() })?;
    let mut model = Unigram::default();
    pool.install(|| trainer.do_train(sentences, &mut model)).map_err(fault(action))?;
    let mut pieces: Vec<(String, f64)> =
        model.iter().filter(|(piece, _)| !piece.contains(SENTINEL)).cloned().collect();
    rank_unscored_characters(&mut pieces);
    let vocabulary = fixed.iter().map(|token| (token.clone(), 0.0)).chain(pieces).collect();
    Unigram::from(vocabulary, Some(UNKNOWN as usize), config.byte_fallback).map_err(fault(action))
}

/// Returns a word with its count. If the word occurs more than once, one of its occurrences gets
/// the sentinel after it, and is returned separately.
///
/// The trainer looks for candidates for pieces among the substrings of the distinct words. A
/// substring is a candidate only if at least two different characters follow it. A whole word that
/// is not the beginning of another word is followed only by NUL, which the trainer puts between
/// words. So without the sentinel it would never be a candidate, however frequent it is.
fn with_sentinel((word, count): (String, u64)) -> impl Iterator<Item = (String, u32)> {
    let marked = (count > 1).then(|| (format!("{word}{SENTINEL}"), 1));
    let rest = count - u64::from(marked.is_some());
    let plain = (word, u32::try_from(rest).unwrap_or(u32::MAX));
    std::iter::once(plain).chain(marked)
}

/// Ranks characters without a learned score by code point. The trainer gives these characters
/// scores just above the lowest score, in random order. Here the same scores are assigned in the
/// order of code points.
fn rank_unscored_characters(pieces: &mut [(String, f64)]) {
    const STEP: f64 = 0.0001; // the trainer's distance between two such scores
    let lowest = pieces.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
    let mut scores = Vec::new();
    let mut penalty = 0.0;
    // The penalties are summed in the same order as in the trainer, so that the same scores result.
    for _ in 0..pieces.len() {
        scores.push(lowest + penalty);
        penalty += STEP;
    }
    let mut places: Vec<usize> = (0..pieces.len())
        .filter(|&place| {
            let (piece, score) = &pieces[place];
            piece.chars().count() == 1 && scores.binary_search_by(|s| s.total_cmp(score)).is_ok()
        })
        .collect();
    let mut characters: Vec<String> = places.iter().map(|&place| pieces[place].0.clone()).collect();
    characters.sort_unstable();
    places.sort_unstable();
    for (place, character) in places.into_iter().zip(characters) {
        pieces[place].0 = character;
    }
    // Sorting pieces with equal scores by their text gives the trainer's order.
    pieces.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
}
