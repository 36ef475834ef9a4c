//! A pronoun whose noun is determined by a later word. In "the animal did not cross the street
//! because it was too tired", `it` is the animal; with "wide" instead of "tired", `it` is the
//! street (Uszkoreit 2017, "Transformer: A Novel Neural Network Architecture for Language
//! Understanding"). Such a pair of sentences is a Winograd schema (Levesque et al. 2012).
//!
//! Sentences are drawn from a grammar. At `it`, an encoder is asked for the noun that `it` stands
//! for. A sentence "with a choice" has two nouns that `it` could stand for. The encoder is tested
//! on sentences with a choice between nouns that never occur in a training sentence with a choice.
//! It knows these nouns only from training sentences with one noun, which `it` must stand for.
//! There are twelve such nouns of each kind: with six of them the settings of the training were
//! chosen, and with the other six the results are measured.

use candle_core::{DType, Device, Tensor};
use taper_model::{Batch, Builder, MaskedLanguageModel, ModelConfig, Pass, Sequences};
use taper_ops::rng::{Counter, mix};
use taper_theory::TheoryError;

use crate::lesson::Lesson;

/// Living things. Those from index [`FAMILIAR`] on do not occur in training sentences with a
/// choice.
const ANIMALS: [&str; 42] = [
    "cat", "dog", "horse", "fox", "goat", "hen", "cow", "pig", "rabbit", "mouse", "bear", "sheep",
    "lion", "tiger", "deer", "camel", "monkey", "snake", "turtle", "frog", "goose", "swan", "owl",
    "eagle", "otter", "beaver", "badger", "lizard", "zebra", "panda", "animal", "wolf", "duck",
    "donkey", "hare", "squirrel", "hedgehog", "raccoon", "weasel", "hamster", "parrot", "pigeon",
];
/// Places. Those from index [`FAMILIAR`] on do not occur in training sentences with a choice.
const PLACES: [&str; 42] = [
    "road", "river", "field", "bridge", "garden", "path", "hill", "market", "square", "yard",
    "forest", "harbour", "tunnel", "desert", "island", "cave", "swamp", "lake", "avenue", "ditch",
    "slope", "gorge", "plain", "court", "alley", "stream", "pond", "hall", "ford", "marsh",
    "street", "meadow", "canal", "park", "lane", "valley", "orchard", "plaza", "trail", "beach",
    "quarry", "dock",
];
/// Number of nouns of each kind that occur in training sentences with a choice.
const FAMILIAR: usize = 30;
/// Number of nouns of each kind with which the settings were chosen. They follow the familiar
/// nouns. The nouns after them are those with which results are measured.
const CHOOSING: usize = 6;
/// Adjectives of living things.
const MOODS: [&str; 6] = ["tired", "hungry", "afraid", "lazy", "ill", "sleepy"];
/// Adjectives of places.
const SHAPES: [&str; 6] = ["wide", "steep", "muddy", "narrow", "crowded", "dark"];
/// Verbs of sentences in the active voice; sentences in the passive voice all have "seen".
const VERBS: [&str; 4] = ["visit", "cross", "enter", "reach"];
/// The word that stands in place of a living thing, and the word that stands in place of a place.
/// `it` never stands for one of them.
const NEITHER: [&str; 2] = ["someone", "somewhere"];
/// Other words. The last two have the ids [`HIDDEN`] and [`IT`].
const OTHERS: [&str; 10] =
    ["the", "did", "was", "not", "because", "too", "by", "seen", "<mask>", "it"];
/// Id of the token that stands in place of a hidden word.
const HIDDEN: u32 = OTHERS.len() as u32 - 2;
/// Id of `it`.
const IT: u32 = OTHERS.len() as u32 - 1;

/// Number of sentences in a batch.
const ROWS: u64 = 64;
/// Seed of the sentences for measurements, which are not trained on.
const SEED: u64 = 1 << 32;
/// Number of layers of the encoder.
const LAYERS: usize = 2;
/// Dropout in training. Without dropout, nouns that are held out are more often mistaken for nouns
/// of the other kind.
const DROPOUT: f64 = 0.1;
/// Number of updates of a training.
pub(crate) const UPDATES: u64 = 2500;
/// Number of heads of a layer.
pub(crate) const HEADS: usize = 4;

/// Word lists of the vocabulary, in the order of their ids.
const LISTS: [&[&str]; 7] = [&OTHERS, &NEITHER, &VERBS, &MOODS, &SHAPES, &ANIMALS, &PLACES];

/// Number of words in the vocabulary.
fn vocabulary() -> usize {
    LISTS.iter().map(|list| list.len()).sum()
}

/// Id of a word.
fn id(word: &str) -> u32 {
    let mut words = LISTS.iter().flat_map(|list| list.iter());
    words.position(|one| *one == word).expect("a word of the grammar") as u32
}

/// Word that has an id.
fn word(id: u32) -> &'static str {
    LISTS.iter().flat_map(|list| list.iter()).nth(id as usize).expect("an id of the grammar")
}

/// Nouns that do not occur in training sentences with a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldOut {
    /// Nouns with which the settings of the training were chosen.
    Choosing,
    /// Nouns with which results are measured. No settings were chosen with them.
    Final,
}

impl HeldOut {
    /// Indices of these nouns in [`ANIMALS`] and [`PLACES`].
    fn numbers(self) -> std::ops::Range<usize> {
        match self {
            Self::Choosing => FAMILIAR..FAMILIAR + CHOOSING,
            Self::Final => FAMILIAR + CHOOSING..ANIMALS.len(),
        }
    }
}

/// A sentence, and the noun that `it` stands for in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referred {
    /// Words of the sentence.
    pub words: Vec<&'static str>,
    /// The noun that `it` stands for.
    pub noun: &'static str,
    /// The noun that `it` does not stand for; `None` in a sentence with one noun.
    pub other: Option<&'static str>,
}

impl Referred {
    /// Makes a sentence about a living thing and a place. One of the two can be a word of
    /// [`NEITHER`] instead. In the passive voice, the place comes first.
    pub(crate) fn new(
        [animal, place, verb, adjective]: [&'static str; 4],
        is_passive: bool,
    ) -> Self {
        let phrase = |noun| if NEITHER.contains(&noun) { vec![noun] } else { vec!["the", noun] };
        let (animals, places) = (phrase(animal), phrase(place));
        let clause = match is_passive {
            false => [animals, vec!["did", "not", verb], places],
            true => [places, vec!["was", "not", "seen", "by"], animals],
        };
        let mut words = clause.concat();
        words.extend(["because", "it", "was", "too", adjective]);
        let (noun, other) = match MOODS.contains(&adjective) {
            true => (animal, place),
            false => (place, animal),
        };
        Self { words, noun, other: Some(other).filter(|other| !NEITHER.contains(other)) }
    }

    /// Draws a training sentence. Half of the sentences have one noun, which can be any noun. The
    /// others have two familiar nouns to choose between.
    fn draw(key: u64) -> Self {
        let counter = Counter::new(key);
        let bits = |place: u64| (counter.u64_at(place) >> 32) as usize;
        let from = |place: u64, list: &[&'static str]| list[bits(place) % list.len()];
        let is_mood = bits(1) % 2 == 0;
        let adjective = from(2, if is_mood { &MOODS } else { &SHAPES });
        let nouns = match (bits(0) % 2 == 0, is_mood) {
            (false, _) => [from(3, &ANIMALS[..FAMILIAR]), from(4, &PLACES[..FAMILIAR])],
            (true, true) => [from(3, &ANIMALS), NEITHER[1]],
            (true, false) => [NEITHER[0], from(4, &PLACES)],
        };
        Self::new([nouns[0], nouns[1], from(5, &VERBS), adjective], bits(6) % 2 == 1)
    }

    /// Draws `count` pairs of sentences with held-out nouns. The two sentences of a pair differ
    /// only in the last word: in the first sentence `it` is the living thing, and in the second it
    /// is the place.
    #[must_use]
    pub fn pairs(nouns: HeldOut, count: usize) -> Vec<[Self; 2]> {
        let numbers = nouns.numbers();
        let pair = |number: u64| {
            let counter = Counter::new(mix(SEED, &[numbers.start as u64, number]));
            let bits = |place: u64| (counter.u64_at(place) >> 32) as usize;
            let from = |place: u64, list: &[&'static str]| list[bits(place) % list.len()];
            let nouns = [&ANIMALS, &PLACES].map(|list| &list[numbers.clone()]);
            let nouns = [from(0, nouns[0]), from(1, nouns[1])];
            let (verb, is_passive) = (from(2, &VERBS), bits(3) % 2 == 1);
            [from(4, &MOODS), from(5, &SHAPES)]
                .map(|last| Self::new([nouns[0], nouns[1], verb, last], is_passive))
        };
        (0..count as u64).map(pair).collect()
    }

    /// Ids of the words.
    fn ids(&self) -> Vec<u32> {
        self.words.iter().map(|word| id(word)).collect()
    }

    /// Index of a word in the sentence.
    fn place(&self, word: &str) -> usize {
        self.words.iter().position(|one| *one == word).expect("a word of the sentence")
    }
}

/// Indices of the rows where packed sentences have the word `it`.
fn rows_of_it(packed: &Sequences) -> Vec<u32> {
    let is_it = |(row, id): (usize, &u32)| (*id == IT).then_some(row as u32);
    packed.ids.iter().enumerate().filter_map(is_it).collect()
}

/// Packs sentences.
fn pack(sentences: &[&Referred]) -> Sequences {
    Sequences::pack(&sentences.iter().map(|one| one.ids()).collect::<Vec<_>>())
}

/// Draws a batch of training sentences. At `it`, the answer is the noun. In half of the sentences
/// with one noun, the last word is also hidden and asked for. From these sentences, the encoder
/// learns which nouns are living things.
fn batch(key: u64) -> Batch {
    let (mut texts, mut asked, mut answers, mut start) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for row in 0..ROWS {
        let key = mix(key, &[row]);
        let sentence = Referred::draw(key);
        let (mut ids, last) = (sentence.ids(), sentence.words.len() - 1);
        asked.push(start + sentence.place("it") as u32);
        answers.push(id(sentence.noun));
        if sentence.other.is_none() && mix(key, &[1]).is_multiple_of(2) {
            asked.push(start + last as u32);
            answers.push(std::mem::replace(&mut ids[last], HIDDEN));
        }
        start += ids.len() as u32;
        texts.push(ids);
    }
    let packed = Sequences::pack(&texts);
    let segments = Sequences { ids: vec![0; packed.ids.len()], ..packed.clone() };
    Batch { asked: Some(asked), ..Batch::new(vec![segments, packed], answers) }
}

/// An encoder that learns what `it` stands for.
#[derive(Debug)]
pub struct PronounReader(MaskedLanguageModel);

/// Shares of right answers to sentences with held-out nouns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Understood {
    /// Share of sentences with a right answer.
    pub sentences: f64,
    /// Share of pairs in which both sentences have a right answer. It is 0 for a model that does
    /// not read the last word, because the sentences of a pair differ only there.
    pub pairs: f64,
}

/// Attention of one head, as mean weights over sentences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gaze {
    /// Weight that `it` gives to the noun that it stands for.
    pub noun: f64,
    /// Weight that `it` gives to the other noun.
    pub other: f64,
    /// Weight that `it` gives to the adjective.
    pub adjective: f64,
    /// Weight that the two nouns give to the adjective, on average.
    pub adjective_from_nouns: f64,
}

impl PronounReader {
    /// Trains an encoder. With 0 updates, it keeps its random weights.
    ///
    /// # Errors
    /// If the training fails.
    pub fn train(updates: u64, seed: u64) -> Result<Self, TheoryError> {
        let config = ModelConfig {
            d_model: 64,
            d_ff: 128,
            heads: HEADS,
            encoder_layers: LAYERS,
            ..ModelConfig::default().with_dropout(DROPOUT)
        };
        let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
        let model = MaskedLanguageModel::new(&config, vocabulary(), false, builder)?;
        if updates == 0 {
            return Ok(Self(model));
        }
        let lesson = Lesson { updates, learning_rate: 3e-3 };
        Ok(Self(lesson.teach(model, seed, batch)?))
    }

    /// Names of the attention layers, from the first to the last.
    fn layers() -> impl Iterator<Item = String> {
        (0..LAYERS).map(|layer| format!("encoder.layers.{layer}.self_attention"))
    }

    /// All heads. A head is given as the full name of its layer, and its index in the layer, from 0
    /// on.
    #[must_use]
    pub fn heads() -> Vec<(String, usize)> {
        Self::layers().flat_map(|layer| (0..HEADS).map(move |head| (layer.clone(), head))).collect()
    }

    /// Id of the likeliest word at `it`, for each sentence.
    fn answers(&self, sentences: &[&Referred], pass: &Pass) -> Result<Vec<u32>, TheoryError> {
        let packed = pack(sentences);
        // N tokens, width D, and a vocabulary of V words.
        let hidden = self.0.hidden(&packed, &vec![0; packed.ids.len()], pass)?; // (N, D)
        let asked = Tensor::new(rows_of_it(&packed), &Device::Cpu)?;
        let logits = self.0.logits(&hidden.index_select(&asked, 0)?, pass)?; // (sentences, V)
        Ok(logits.argmax(1)?.to_vec1()?)
    }

    /// Computes the shares of right answers when the [heads](Self::heads) in `without` are left
    /// out.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn understood(
        &self,
        pairs: &[[Referred; 2]],
        without: &[(String, usize)],
    ) -> Result<Understood, TheoryError> {
        let mask = |pass: Pass, (layer, head): &(String, usize)| pass.without_head(layer, *head);
        let pass = without.iter().fold(Pass::evaluate(), mask);
        let sentences: Vec<&Referred> = pairs.iter().flatten().collect();
        let answers = self.answers(&sentences, &pass)?;
        let is_right = sentences.iter().zip(answers).map(|(one, answer)| word(answer) == one.noun);
        let right: Vec<bool> = is_right.collect();
        let both = right.chunks(2).filter(|pair| pair.iter().all(|one| *one)).count();
        let all = right.iter().filter(|one| **one).count();
        Ok(Understood {
            sentences: all as f64 / right.len() as f64,
            pairs: both as f64 / pairs.len() as f64,
        })
    }

    /// Attention weights from the word `from` of a sentence to all words of the sentence, as
    /// `[head][word]`. Heads have the order of [`Self::heads`].
    ///
    /// # Errors
    /// If the memory is exhausted.
    ///
    /// # Panics
    /// If the sentence lacks the word.
    pub fn attention(&self, sentence: &Referred, from: &str) -> Result<Vec<Vec<f64>>, TheoryError> {
        let pass = Pass::evaluate_with_attention();
        let packed = pack(&[sentence]);
        self.0.hidden(&packed, &vec![0; packed.ids.len()], &pass)?;
        let mut weights = Vec::new();
        for record in pass.into_records().attention {
            let row = record.weights.squeeze(0)?.narrow(1, sentence.place(from), 1)?.squeeze(1)?;
            weights.extend(row.to_dtype(DType::F64)?.to_vec2::<f64>()?); // (H, words)
        }
        Ok(weights)
    }

    /// Mean attention weights over all sentences, for each of the [heads](Self::heads).
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn gazes(&self, pairs: &[[Referred; 2]]) -> Result<Vec<Gaze>, TheoryError> {
        let none = Gaze { noun: 0.0, other: 0.0, adjective: 0.0, adjective_from_nouns: 0.0 };
        let (mut gazes, count) = (vec![none; LAYERS * HEADS], 2.0 * pairs.len() as f64);
        for sentence in pairs.iter().flatten() {
            let at = |word: &str| sentence.place(word);
            let other = sentence.other.map(at);
            for (gaze, weights) in gazes.iter_mut().zip(self.attention(sentence, "it")?) {
                gaze.noun += weights[at(sentence.noun)] / count;
                gaze.other += other.map_or(0.0, |other| weights[other]) / count;
                gaze.adjective += weights[weights.len() - 1] / count;
            }
            for noun in [Some(sentence.noun), sentence.other].into_iter().flatten() {
                let weights = self.attention(sentence, noun)?;
                for (gaze, weights) in gazes.iter_mut().zip(weights) {
                    gaze.adjective_from_nouns += 0.5 * weights[weights.len() - 1] / count;
                }
            }
        }
        Ok(gazes)
    }
}
