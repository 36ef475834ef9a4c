//! Learning in context as inference. A decoder is trained on documents that a mixture of hidden
//! Markov models writes, and is compared with the exact posterior of this mixture (Xie et al. 2022,
//! "An Explanation of In-context Learning as Implicit Bayesian Inference", section 4).
//!
//! The mixture, its documents, its prompts and the filter that computes the posterior are those of
//! `taper_theory::studies`. The decoder is trained on whole documents, never on a prompt. Documents
//! and prompts differ at delimiters: the hidden chain of a document goes on after a delimiter,
//! while each example of a prompt begins a new chain.

use candle_core::{DType, Device, Tensor};
use taper_model::{Batch, Builder, LanguageModel, Model, ModelConfig, Pass, Positions, Sequences};
use taper_ops::rng::mix;
use taper_plots::{Axis, Chart, Figure, Series};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Mixture, PromptKind, Study, conditions, heads, likeliest};

use crate::lesson::Lesson;

pub(crate) const STUDY: Study = Study {
    name: "trained-on-concepts",
    claim: "A decoder trained on a mixture of hidden Markov models answers prompts like the exact \
            posterior: better with more examples, but for concepts that it never saw",
    run,
};

/// Seed of the documents on which losses are measured.
const HELD_OUT: u64 = 1 << 32;

/// Number of prompts on which an accuracy is measured.
const PROMPTS: usize = 300;

/// Training of a decoder on documents of a mixture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConceptLesson {
    /// Width of the decoder.
    pub width: usize,
    /// Number of layers of the decoder.
    pub layers: usize,
    /// Number of tokens in a document. No prompt may be longer.
    pub length: usize,
    /// Number of documents in a batch.
    pub documents: usize,
    /// Number of updates.
    pub updates: u64,
    /// Peak of the learning rate.
    pub learning_rate: f64,
}

/// A decoder that has been trained on documents.
#[derive(Debug)]
pub struct ConceptDecoder(LanguageModel);

impl ConceptLesson {
    /// Trains a decoder on documents of `mixture`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the training fails.
    pub fn train(&self, mixture: &Mixture, seed: u64) -> Result<ConceptDecoder, TheoryError> {
        let config = ModelConfig {
            d_model: self.width,
            d_ff: 4 * self.width,
            heads: self.width / 16,
            decoder_layers: self.layers,
            positions: Positions::Rotary,
            max_positions: self.length,
            ..ModelConfig::default().with_dropout(0.0)
        };
        let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
        let model = LanguageModel::new(&config, mixture.vocabulary, builder)?;
        let lesson = Lesson { updates: self.updates, learning_rate: self.learning_rate };
        let draw = |key| self.batch(mixture, key);
        Ok(ConceptDecoder(lesson.teach(model, seed, draw)?))
    }

    fn batch(&self, mixture: &Mixture, key: u64) -> Batch {
        let documents = (0..self.documents as u64)
            .map(|number| mixture.document(mix(key, &[number]), self.length));
        batch_of(&documents.collect::<Vec<_>>())
    }
}

/// Makes a batch of documents. Each token but the last one of a document is read, and the answer
/// after it is the next token.
pub(crate) fn batch_of(documents: &[Vec<usize>]) -> Batch {
    let ids = |tokens: &[usize]| tokens.iter().map(|token| *token as u32).collect::<Vec<u32>>();
    let texts: Vec<_> = documents.iter().map(|tokens| ids(&tokens[..tokens.len() - 1])).collect();
    let answers = documents.iter().flat_map(|tokens| ids(&tokens[1..])).collect();
    Batch::new(vec![Sequences::pack(&texts)], answers)
}

impl ConceptDecoder {
    /// Computes the mean loss per token, in nats, on documents that were not trained on. Returns
    /// the loss of the decoder and then the loss of the exact posterior.
    ///
    /// # Errors
    /// If `length` is larger than the length of the training documents.
    pub fn surprise(&self, mixture: &Mixture, length: usize) -> Result<(f64, f64), TheoryError> {
        let key = |number: u64| mix(HELD_OUT, &[number]);
        let documents: Vec<Vec<usize>> =
            (0..32).map(|number| mixture.document(key(number), length)).collect();
        let batch = batch_of(&documents);
        let logs = self.0.log_probabilities(&batch.streams[0], &batch.answers)?;
        let exact: Vec<f64> = documents.iter().flat_map(|text| mixture.surprise(text)).collect();
        let mean = |nats: &[f64]| nats.iter().sum::<f64>() / nats.len() as f64;
        Ok((-mean(&logs), mean(&exact)))
    }

    /// Returns the most likely token after each text, other than the delimiter.
    ///
    /// # Errors
    /// If a token is not in the vocabulary.
    pub fn answers(&self, texts: &[&[usize]]) -> Result<Vec<usize>, TheoryError> {
        let ids = |text: &&[usize]| text.iter().map(|token| *token as u32).collect::<Vec<u32>>();
        let packed = Sequences::pack(&texts.iter().map(ids).collect::<Vec<_>>());
        let pass = Pass::evaluate();
        let hidden = self.0.hidden(&packed, &pass)?; // (N, D): N tokens, width D
        let mut end = 0;
        let last = packed.lengths.iter().map(|length| {
            end += *length as u32;
            end - 1
        });
        let last = Tensor::from_iter(last, self.0.device())?;
        let logits = self.0.logits(&hidden.index_select(&last, 0)?, &pass)?; // (texts, V): V words
        let rows = logits.to_dtype(DType::F64)?.to_vec2::<f64>()?;
        Ok(rows.iter().map(|row| likeliest(row)).collect())
    }

    /// Computes the share of `count` prompts of a kind that the decoder answers correctly.
    ///
    /// # Errors
    /// Errors of [`ConceptDecoder::answers`].
    pub fn accuracy(
        &self,
        mixture: &Mixture,
        kind: &PromptKind,
        count: usize,
    ) -> Result<f64, TheoryError> {
        let prompts = mixture.prompts(kind, count);
        let texts: Vec<&[usize]> = prompts.iter().map(|prompt| prompt.tokens.as_slice()).collect();
        let answers = self.answers(&texts)?;
        let right = prompts.iter().zip(answers).filter(|(prompt, answer)| prompt.answer == *answer);
        Ok(right.count() as f64 / prompts.len() as f64)
    }
}

fn run() -> Result<Findings, TheoryError> {
    let mixture = Mixture::draw(4, (2, 6), 8, 1);
    let counts = [0, 1, 2, 4, 8];
    let lesson = ConceptLesson {
        width: 48,
        layers: 3,
        length: 80,
        documents: 16,
        updates: 1500,
        learning_rate: 4e-3,
    };
    let decoder = lesson.train(&mixture, 1)?;
    let (nats, exact) = decoder.surprise(&mixture, lesson.length)?;
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (colour, (name, kind)) in conditions().into_iter().enumerate() {
        let mut shown = vec![name.to_owned()];
        let (mut trained, mut posterior) = (Vec::new(), Vec::new());
        for examples in counts {
            let kind = PromptKind { examples, ..kind };
            let one = decoder.accuracy(&mixture, &kind, PROMPTS)?;
            let other = mixture.accuracy(&kind, PROMPTS);
            shown.push(format!("{:.0} / {:.0} %", 100.0 * one, 100.0 * other));
            trained.push((examples as f64, one));
            posterior.push((examples as f64, other));
        }
        rows.push(shown);
        series.push(Series::line(name, trained).coloured(colour));
        series.push(Series::dashes("", posterior).coloured(colour));
    }
    let nats = [format!("{nats:.3} / {exact:.3}")];
    let blank = vec![String::new(); counts.len() - 1];
    rows.push([vec!["nats for each token".to_owned()], nats.to_vec(), blank].concat());
    let chart = Chart::new(Axis::linear("examples"), Axis::linear("accuracy"), series);
    let title = "Answers of a trained decoder, and of the exact posterior (broken)";
    let description = "The decoder's accuracy grows with examples as the posterior's does.";
    let figure = Figure::new(title, description, chart);
    let names = counts.map(|count| format!("n = {count}"));
    let columns = [heads(&["decoder / posterior"]), names.to_vec()].concat();
    Ok(Findings { columns, rows, figures: vec![("trained-on-concepts".to_owned(), figure)] })
}
