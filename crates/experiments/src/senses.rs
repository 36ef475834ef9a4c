//! Two senses of a word: "bank" by money and by a river. In a table of words, "bank" has only one
//! vector. The states that an encoder gives to "bank", however, depend on the words around it
//! (Peters et al. 2018, "Deep contextualized word representations", section 5.3).
//!
//! The sentences are as short as headlines. Each has "bank" and some nouns and verbs of one
//! subject, which is money or rivers. Some of these nouns and verbs never occur together with
//! "bank" in training. The encoder is tested on sentences in which "bank" stands with these words
//! only.

use candle_core::{DType, Device};
use taper_model::{Batch, Builder, MaskedLanguageModel, ModelConfig, Pass, Sequences, StatePoint};
use taper_ops::rng::{Counter, mix};
use taper_plots::{Figure, Heatmap};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Study, heads};

use crate::lesson::Lesson;

pub(crate) const STUDY: Study = Study {
    name: "senses",
    claim: "\"bank\" has one vector in a table of words; the states of an encoder tell money from a \
            river, by words that never stood beside it",
    run,
};

/// Nouns of the two subjects. Those from the index [`FAMILIAR`] on never occur together with "bank"
/// in training.
const NOUNS: [[&str; 12]; 2] = [
    [
        "loan", "account", "cash", "clerk", "cheque", "debt", "deposit", "manager", "interest",
        "money", "mortgage", "coin",
    ],
    [
        "river", "boat", "mud", "fish", "reed", "current", "flood", "ferry", "shore", "water",
        "otter", "bridge",
    ],
];
/// Number of nouns of each subject that occur together with "bank" in training.
const FAMILIAR: usize = 8;
/// Verbs of the two subjects. The last two never occur together with "bank" in training.
const VERBS: [[&str; 6]; 2] = [
    ["pays", "owes", "counts", "saves", "lends", "signs"],
    ["floats", "drifts", "swims", "rises", "flows", "sinks"],
];
/// Number of verbs of each subject that occur together with "bank" in training.
const FAMILIAR_VERBS: usize = 4;
/// Other words. The last two have the ids [`BANK`] and [`HIDDEN`].
const OTHERS: [&str; 5] = ["and", "at", "by", "bank", "<mask>"];
/// Id of "bank".
const BANK: u32 = OTHERS.len() as u32 - 2;
/// Id of the token that stands in place of a hidden word.
const HIDDEN: u32 = OTHERS.len() as u32 - 1;
/// Word lists of the vocabulary, in the order of their ids.
const LISTS: [&[&str]; 5] = [&OTHERS, &VERBS[0], &VERBS[1], &NOUNS[0], &NOUNS[1]];

/// Number of sentences in a batch.
const ROWS: u64 = 32;
/// Number of updates of a training.
const UPDATES: u64 = 300;
/// Number of trainings over which shares are averaged.
const SEEDS: u64 = 8;
/// Number of layers of the encoder.
const LAYERS: usize = 2;
/// Number of test sentences with familiar words. There are as many with words that are held out.
const ASKED: u64 = 400;
/// Seed of the sentences of the test.
const HELD_OUT: u64 = 1 << 32;

/// Returns the id of a word.
fn id(word: &str) -> u32 {
    let mut words = LISTS.iter().flat_map(|list| list.iter());
    words.position(|one| *one == word).expect("a word of the grammar") as u32
}

/// Words from which a sentence is drawn: those that occur together with "bank" in training, or
/// those that never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    Familiar,
    HeldOut,
}

/// Draws a sentence about a subject, 0 (money) or 1 (rivers). The sentence has "bank" and words of
/// the kind `words`. If `words` is `None`, it has any words of the subject, but not "bank".
///
/// The nouns of a sentence are taken from the list of nouns at regular steps of 1, 2 or 3 nouns.
/// After the end of the list, its beginning follows. The list of held-out nouns has only four. With
/// steps of 2, the third noun of such a sentence is therefore its first noun again.
fn draw(key: u64, subject: usize, words: Option<Words>) -> Vec<&'static str> {
    let counter = Counter::new(key);
    let bits = |place: u64| (counter.u64_at(place) >> 32) as usize;
    let (nouns, verbs) = match words {
        Some(Words::Familiar) => (&NOUNS[subject][..FAMILIAR], &VERBS[subject][..FAMILIAR_VERBS]),
        Some(Words::HeldOut) => (&NOUNS[subject][FAMILIAR..], &VERBS[subject][FAMILIAR_VERBS..]),
        None => (&NOUNS[subject][..], &VERBS[subject][..]),
    };
    let start = bits(0);
    let noun = |number: usize| nouns[(start + number * (1 + bits(1) % 3)) % nouns.len()];
    let verb = |number: usize| verbs[(bits(2) + number) % verbs.len()];
    match (words, bits(3) % 4) {
        (None, _) => vec![noun(0), verb(0), noun(1), "and", noun(2), verb(1), noun(3)],
        (_, 0) => vec![noun(0), verb(0), noun(1), "at", "bank", "and", noun(2), verb(1)],
        (_, 1) => vec!["by", "bank", noun(0), verb(0), "and", noun(1), verb(1), noun(2)],
        (_, 2) => vec![noun(0), "and", noun(1), verb(0), noun(2), "by", "bank"],
        _ => vec!["bank", "and", noun(0), verb(0), noun(1), "at", noun(2)],
    }
}

/// Draws sentences for training, each with one hidden word. Half of the sentences have "bank" and
/// familiar words. The others have any words of their subject, without "bank".
fn batch(key: u64) -> Batch {
    let (mut texts, mut asked, mut answers, mut start) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for row in 0..ROWS {
        let key = mix(key, &[row]);
        let subject = (row % 2) as usize;
        let words = draw(key, subject, (row / 2 % 2 == 0).then_some(Words::Familiar));
        let mut ids: Vec<u32> = words.into_iter().map(id).collect();
        let hidden = (mix(key, &[1]) % ids.len() as u64) as usize;
        asked.push(start + hidden as u32);
        answers.push(std::mem::replace(&mut ids[hidden], HIDDEN));
        start += ids.len() as u32;
        texts.push(ids);
    }
    let packed = Sequences::pack(&texts);
    let segments = Sequences { ids: vec![0; packed.ids.len()], ..packed.clone() };
    Batch { asked: Some(asked), ..Batch::new(vec![segments, packed], answers) }
}

/// Computes the cosine of the angle between two vectors.
fn cosine(one: &[f64], other: &[f64]) -> f64 {
    let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

/// An encoder that learns to fill in hidden words.
#[derive(Debug)]
pub struct SenseReader(MaskedLanguageModel);

impl SenseReader {
    /// Trains an encoder. With 0 updates, it keeps its random weights.
    ///
    /// # Errors
    /// If the training fails.
    pub fn train(updates: u64, seed: u64) -> Result<Self, TheoryError> {
        let config = ModelConfig {
            d_model: 32,
            d_ff: 64,
            heads: 4,
            encoder_layers: LAYERS,
            ..ModelConfig::default().with_dropout(0.0)
        };
        let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
        let vocabulary = LISTS.iter().map(|list| list.len()).sum();
        let model = MaskedLanguageModel::new(&config, vocabulary, false, builder)?;
        if updates == 0 {
            return Ok(Self(model));
        }
        let lesson = Lesson { updates, learning_rate: 3e-3 };
        Ok(Self(lesson.teach(model, seed, batch)?))
    }

    /// Draws two lists of `count` sentences. In each list, sentences about money and sentences
    /// about rivers take turns, and the first one is about money. The first list has words that
    /// occur together with "bank" in training, and the second list has words that never do.
    #[must_use]
    pub fn sentences(count: u64) -> [Vec<Vec<&'static str>>; 2] {
        [Words::Familiar, Words::HeldOut].map(|words| {
            let sentence = |number: u64| {
                let key = mix(HELD_OUT, &[words as u64, number]);
                draw(key, (number % 2) as usize, Some(words))
            };
            (0..count).map(sentence).collect()
        })
    }

    /// Returns the vectors of "bank" as `[point][sentence]`, for several points of the encoder. The
    /// first point is the vector of the word itself. The second is the input of the first layer, to
    /// which the vector of the position was added. The others are the states after each layer.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn vectors(
        &self,
        sentences: &[Vec<&'static str>],
    ) -> Result<Vec<Vec<Vec<f64>>>, TheoryError> {
        let texts: Vec<Vec<u32>> =
            sentences.iter().map(|words| words.iter().map(|word| id(word)).collect()).collect();
        let packed = Sequences::pack(&texts);
        let pass = Pass::evaluate_with_states();
        self.0.hidden(&packed, &vec![0; packed.ids.len()], &pass)?;
        let places: Vec<usize> =
            (0..packed.ids.len()).filter(|row| packed.ids[*row] == BANK).collect();
        let mut points = Vec::new();
        for record in pass.into_records().states {
            if matches!(record.point, StatePoint::Token | StatePoint::Layer) {
                let rows: Vec<Vec<f64>> = record.rows.to_dtype(DType::F64)?.to_vec2()?;
                points.push(places.iter().map(|row| rows[*row].clone()).collect());
            }
        }
        Ok(points)
    }
}

/// Computes the share of vectors in `asked` whose sense is recognised. For each sense, the mean of
/// its `known` vectors is computed. The sense of a vector is recognised if the vector is closer, by
/// cosine, to the mean of its own sense than to the mean of the other sense. A tie counts one half.
/// In both lists, the two senses take turns.
#[must_use]
pub fn told_apart(known: &[Vec<f64>], asked: &[Vec<f64>]) -> f64 {
    let mean = |sense: usize| {
        let of_sense: Vec<_> = known.iter().skip(sense).step_by(2).collect();
        let column = |at: usize| of_sense.iter().map(|one| one[at]).sum::<f64>();
        (0..known[0].len()).map(|at| column(at) / of_sense.len() as f64).collect::<Vec<_>>()
    };
    let means = [mean(0), mean(1)];
    let right = |(number, vector): (usize, &Vec<f64>)| {
        let apart = cosine(vector, &means[number % 2]) - cosine(vector, &means[1 - number % 2]);
        if apart.abs() < 1e-9 { 0.5 } else { f64::from(u8::from(apart > 0.0)) }
    };
    asked.iter().enumerate().map(right).sum::<f64>() / asked.len() as f64
}

/// Plots the cosines between the states of "bank" after the last layer, for sentences of both
/// senses.
fn cosines(reader: &SenseReader) -> Result<Figure, TheoryError> {
    let [_, mut sentences] = SenseReader::sentences(10);
    // Sentences of money come first, then those of rivers.
    sentences.sort_by_key(|words| words.iter().any(|word| NOUNS[1].contains(word)));
    let states = reader.vectors(&sentences)?.pop().unwrap_or_default();
    let values = states.iter().map(|one| states.iter().map(|other| cosine(one, other)).collect());
    let label = |words: &Vec<&str>| {
        let nouns = words.iter().filter(|word| NOUNS.iter().any(|list| list.contains(word)));
        nouns.copied().take(2).collect::<Vec<_>>().join(", ")
    };
    let labels: Vec<String> = sentences.iter().map(label).collect();
    let heatmap = Heatmap {
        row_label: "sentence, by two nouns".to_owned(),
        column_label: "sentence, by two nouns".to_owned(),
        rows: labels.clone(),
        columns: labels,
        values: values.collect(),
        strongest: Some(1.0),
    };
    let title = "One word, two senses: cosines of the states of \"bank\"";
    let description = "Two blocks: money and rivers. The word's own vector would be one block.";
    Ok(Figure::new(title, description, heatmap))
}

fn run() -> Result<Findings, TheoryError> {
    let names = ["vector of the word", "with its position", "after layer 1", "after layer 2"];
    let mut rows: Vec<Vec<String>> = names.iter().map(|name| vec![(*name).to_owned()]).collect();
    let [known, asked] = SenseReader::sentences(ASKED);
    for updates in [0, UPDATES] {
        let mut shares = vec![Vec::new(); names.len()];
        for seed in 1..=SEEDS {
            let reader = SenseReader::train(updates, seed)?;
            let points = reader.vectors(&known)?.into_iter().zip(reader.vectors(&asked)?);
            for (shares, (known, asked)) in shares.iter_mut().zip(points) {
                shares.push(100.0 * told_apart(&known, &asked));
            }
        }
        for (row, shares) in rows.iter_mut().zip(shares) {
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let most = shares.iter().copied().fold(0.0, f64::max);
            row.push(format!("{mean:.1} % ({least:.0} to {most:.0})"));
        }
    }
    Ok(Findings {
        columns: heads(&["state of \"bank\"", "not trained", "trained"]),
        rows,
        figures: vec![("senses".to_owned(), cosines(&SenseReader::train(UPDATES, 1)?)?)],
    })
}
