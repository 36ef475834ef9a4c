//! Static word vectors compared with hidden states, which depend on the context: for a word with
//! two senses, skip-gram has a single vector, whereas the hidden states of an encoder differ by
//! sense. Skip-gram and the encoder are trained here on the same made-up sentences.

use std::sync::atomic::AtomicBool;

use candle_core::{DType, Device};
use taper_embeddings::WordVectors;
use taper_embeddings::training::{self, Limits, TrainingSettings};
use taper_model::{Batch, Builder, MaskedLanguageModel, ModelConfig, Pass, Sequences};
use taper_ops::rng::{Counter, mix};
use taper_trainer::{DueUpdate, Outcome, TrainingConfig, Updater};

/// Number of tokens in a sentence.
const LENGTH: usize = 8;
/// Number of words that belong to one subject only. The words of the first subject have the ids
/// from 5 on. The words of the second subject have the ids after these.
const WORDS: u32 = 8;
/// Id of the word that belongs to both subjects, as `bank` belongs to money and to rivers.
const BANK: u32 = 4;
/// Id of the token that stands in place of a hidden token.
const MASK: u32 = 3;
const VOCABULARY: usize = 5 + 2 * WORDS as usize;
const UPDATES: u64 = 250;
const SENTENCES: u64 = 32;

/// Sentence `number`: words of one subject and, at a random place, the word of both subjects. Also
/// returns this place.
fn sentence(seed: u64, number: u64) -> (Vec<u32>, usize) {
    let draws = Counter::new(mix(seed, &[number]));
    let first = 5 + WORDS * (number % 2) as u32;
    let word = |place: u64| first + (draws.u64_at(place) >> 40) as u32 % WORDS;
    let mut words: Vec<u32> = (0..LENGTH as u64).map(word).collect();
    let place = (draws.u64_at(100) >> 40) as usize % LENGTH;
    words[place] = BANK;
    (words, place)
}

/// Batch for the update `step`: sentences with one hidden token each, which is to be predicted.
fn batch(step: u64) -> Batch {
    let (mut texts, mut asked, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..SENTENCES {
        let (mut words, _) = sentence(1, step * SENTENCES + row);
        let hidden = (Counter::new(mix(2, &[step])).u64_at(row) >> 40) as usize % LENGTH;
        asked.push(row as u32 * LENGTH as u32 + hidden as u32);
        answers.push(std::mem::replace(&mut words[hidden], MASK));
        texts.push(words);
    }
    let segments: Vec<Vec<u32>> = texts.iter().map(|text| vec![0; text.len()]).collect();
    let streams = vec![Sequences::pack(&segments), Sequences::pack(&texts)];
    Batch { streams, asked: Some(asked), answers, ..Batch::default() }
}

/// Encoder that has been trained to predict hidden tokens.
fn encoder() -> MaskedLanguageModel {
    let shape = ModelConfig {
        d_model: 32,
        d_ff: 64,
        heads: 4,
        encoder_layers: 2,
        ..ModelConfig::default().with_dropout(0.0)
    };
    let (cpu, dtype) = (Device::Cpu, DType::F32);
    let model =
        MaskedLanguageModel::new(&shape, VOCABULARY, false, Builder::seeded(7, &cpu, dtype))
            .unwrap();
    let config = TrainingConfig::default();
    let mut updater = Updater::new(taper_model::Model::parameters(&model), &config).unwrap();
    for step in 1..=UPDATES {
        let due = DueUpdate { step, learning_rate: 3e-3, loss_limit: f64::INFINITY };
        let stop = AtomicBool::new(false);
        let outcome = updater.update(&model, &config, due, &[batch(step)], &stop).unwrap();
        assert!(matches!(outcome, Outcome::Made(_)), "{outcome:?}");
    }
    model
}

/// States of the word of both subjects in `count` sentences that were not used in training.
fn states(model: &MaskedLanguageModel, count: u64) -> Vec<Vec<f32>> {
    let (texts, places): (Vec<_>, Vec<_>) = (0..count).map(|number| sentence(9, number)).unzip();
    let pass = Pass::evaluate();
    let segments = vec![0; texts.len() * LENGTH];
    let hidden = model.hidden(&Sequences::pack(&texts), &segments, &pass).unwrap();
    let rows: Vec<Vec<f32>> = hidden.to_vec2().unwrap();
    places.iter().enumerate().map(|(text, place)| rows[text * LENGTH + place].clone()).collect()
}

fn mean<'a>(rows: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
    let rows: Vec<&[f32]> = rows.collect();
    let value = |column: usize| rows.iter().map(|row| row[column]).sum::<f32>() / rows.len() as f32;
    (0..rows[0].len()).map(value).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Number of states in `rows` that are nearer to the mean of their own sense than to that of the
/// other. The senses alternate in `rows`.
fn told_apart(rows: &[Vec<f32>], means: [&[f32]; 2]) -> usize {
    let is_right = |(number, row): &(usize, &Vec<f32>)| {
        let [own, other] = [means[number % 2], means[1 - number % 2]];
        cosine(row, own) > cosine(row, other)
    };
    rows.iter().enumerate().filter(is_right).count()
}

/// The experiment of Peters et al. 2018, "Deep contextualized word representations", section 5.3,
/// on sentences in which the sense of the word is known.
#[test]
fn an_encoder_tells_senses_apart_that_one_vector_cannot() {
    let count = 400;
    let states = states(&encoder(), count);
    let (seen, new) = states.split_at(200);
    let of = |sense: usize| mean(seen.iter().skip(sense).step_by(2).map(Vec::as_slice));
    let right = told_apart(new, [&of(0), &of(1)]);
    assert!(right >= 190, "states tell {right} of 200 apart");

    // Skip-gram, trained on the same number of sentences, has one vector for both senses.
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    let line = |number| {
        let words = sentence(1, number).0;
        words.iter().map(|word| format!("w{word}")).collect::<Vec<_>>().join(" ") + "\n"
    };
    std::fs::write(&text, (0..UPDATES * SENTENCES).map(line).collect::<String>()).unwrap();
    let settings = TrainingSettings { dimensions: 32, subsampling: 0.0, ..Default::default() };
    let (output, stop) = (folder.path().join("words"), AtomicBool::new(false));
    training::start(&[text], &output, &settings, &Limits::default(), &mut |_| {}, &stop).unwrap();
    let vectors = WordVectors::open(&output).unwrap();
    let vector = |word: u32| vectors.get(&format!("w{word}")).unwrap();
    let subject = |first: u32| mean((first..first + WORDS).map(vector));
    let subjects = [subject(5), subject(5 + WORDS)];
    let statics: Vec<Vec<f32>> = (0..200).map(|_| vector(BANK).to_vec()).collect();
    assert_eq!(told_apart(&statics, [&subjects[0], &subjects[1]]), 100, "chance");
    // This vector lies between those of the two subjects: it is nearer to each than they are to
    // each other.
    let apart = cosine(&subjects[0], &subjects[1]);
    for subject in &subjects {
        assert!(cosine(vector(BANK), subject) > apart, "{apart}");
    }
}
