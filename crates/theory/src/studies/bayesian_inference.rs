//! Learning in context as Bayesian inference: a mixture of hidden Markov models, and the exact
//! posterior of a prompt (Xie et al. 2022, "An Explanation of In-context Learning as Implicit
//! Bayesian Inference", sections 2 and 4, whose data set is called GINC).
//!
//! A concept is a pair of transition matrices, one for hidden entities and one for hidden slots. A
//! document follows one concept: at each token, the entity and the slot change by the two matrices.
//! A table, which is called the memory and which all concepts share, has the token for each pair of
//! entity and slot. The token of slot 0 is the delimiter. A prompt is n examples of k tokens, with
//! delimiters between them, and then one more example without its last token. All examples of a
//! prompt follow one concept θ. A model that has learned the mixture of concepts answers by
//! p(token | prompt) = Σ_θ p(θ | prompt) p(token | prompt, θ). A filter computes this probability
//! exactly: at each token, it updates the probabilities of all concepts, entities and slots. On
//! average, no decoder can do better.

use super::{Findings, Study, heads};
use crate::TheoryError;
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};

pub(super) const STUDY: Study = Study {
    name: "bayesian-inference",
    claim: "More and longer examples tell the concept of a prompt; one that is unseen they do not",
    run,
};

/// Token between examples.
pub const DELIMITER: usize = 0;

/// A concept: transition matrices of entities and slots, with a row for each present state.
#[derive(Debug, Clone)]
pub struct Concept {
    /// Probabilities of the next entity: one row for each present entity.
    pub entities: Vec<Vec<f64>>,
    /// Probabilities of the next slot: one row for each present slot. Slot 0 has the delimiter as
    /// its token.
    pub slots: Vec<Vec<f64>>,
}

/// A mixture of concepts that share one memory.
#[derive(Debug, Clone)]
pub struct Mixture {
    /// Concepts, equally likely.
    pub concepts: Vec<Concept>,
    /// Token of each pair of an entity (row) and a slot (column).
    pub memory: Vec<Vec<usize>>,
    /// Number of different tokens.
    pub vocabulary: usize,
}

/// Random numbers, one after the other.
struct Draws {
    counter: Counter,
    next: u64,
}

impl Draws {
    fn new(seed: u64) -> Self {
        Self { counter: Counter::new(mix(8, &[seed])), next: 0 }
    }

    fn uniform(&mut self) -> f64 {
        self.next += 1;
        f64::from(self.counter.f32_at(self.next))
    }

    fn below(&mut self, count: usize) -> usize {
        ((self.uniform() * count as f64) as usize).min(count - 1)
    }

    /// Draws an index with probabilities proportional to `weights`.
    fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut rest = self.uniform() * weights.iter().sum::<f64>();
        weights
            .iter()
            .position(|weight| {
                rest -= weight;
                rest < 0.0
            })
            .unwrap_or(weights.len() - 1)
    }

    /// Draws a transition matrix of `count` states: 0.95 times a weighted mean of four random
    /// permutations, plus 0.05 times the uniform matrix. The weights vary so much that few of the
    /// permutations have most of the weight.
    fn transitions(&mut self, count: usize) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.05 / count as f64; count]; count];
        let weights: Vec<f64> = (0..4).map(|_| (self.uniform() / 0.1).exp()).collect();
        let total: f64 = weights.iter().sum();
        for weight in weights {
            let mut order: Vec<usize> = (0..count).collect();
            (1..count).rev().for_each(|last| order.swap(last, self.below(last + 1)));
            for (row, to) in rows.iter_mut().zip(order) {
                row[to] += 0.95 * weight / total;
            }
        }
        rows
    }
}

impl Concept {
    /// Draws a concept in which the entity mostly stays the same.
    fn draw(draws: &mut Draws, entities: usize, slots: usize) -> Self {
        let mut moves = draws.transitions(entities);
        for (at, row) in moves.iter_mut().enumerate() {
            row.iter_mut().for_each(|probability| *probability *= 0.1);
            row[at] += 0.9;
        }
        Self { entities: moves, slots: draws.transitions(slots) }
    }
}

impl Mixture {
    /// Draws a mixture.
    ///
    /// # Panics
    /// If there are fewer than one concept, one entity, two slots or two tokens.
    #[must_use]
    pub fn draw(
        concepts: usize,
        (entities, slots): (usize, usize),
        vocabulary: usize,
        seed: u64,
    ) -> Self {
        let enough = concepts >= 1 && entities >= 1 && slots >= 2 && vocabulary >= 2;
        assert!(enough, "a mixture has a concept, an entity, two slots and two tokens at least");
        let mut draws = Draws::new(seed);
        let concepts = (0..concepts).map(|_| Concept::draw(&mut draws, entities, slots)).collect();
        let mut token = |slot| if slot == 0 { DELIMITER } else { 1 + draws.below(vocabulary - 1) };
        let memory = (0..entities).map(|_| (0..slots).map(&mut token).collect()).collect();
        Self { concepts, memory, vocabulary }
    }

    /// Probabilities of the next token after a prompt, from the posterior over concepts and states.
    #[must_use]
    pub fn predict(&self, prompt: &[usize]) -> Vec<f64> {
        self.predict_by(&self.concepts, prompt)
    }

    /// Probabilities of the next token after a prompt, for a mixture of `concepts`.
    fn predict_by(&self, concepts: &[Concept], prompt: &[usize]) -> Vec<f64> {
        let mut beliefs = Beliefs::new(self, concepts);
        for token in prompt {
            beliefs.observe(*token);
        }
        beliefs.predicted()
    }

    /// Surprise (negative logarithm of the probability) of each token of a document except the
    /// first, given the tokens before it, in nats.
    #[must_use]
    pub fn surprise(&self, document: &[usize]) -> Vec<f64> {
        let mut beliefs = Beliefs::new(self, &self.concepts);
        let nats = document.iter().map(|token| -beliefs.observe(*token).ln());
        nats.collect::<Vec<f64>>().split_off(1.min(document.len()))
    }

    /// Draws a document of one of the concepts. Equal keys give equal documents.
    #[must_use]
    pub fn document(&self, key: u64, length: usize) -> Vec<usize> {
        let mut draws = Draws::new(key);
        let concept = &self.concepts[draws.below(self.concepts.len())];
        self.walk(concept, length, true, &mut draws)
    }

    /// Draws tokens of a concept. The walk begins in any slot but the delimiter's, and enters the
    /// delimiter's slot only if `delimits` is true.
    fn walk(
        &self,
        concept: &Concept,
        length: usize,
        delimits: bool,
        draws: &mut Draws,
    ) -> Vec<usize> {
        let mut entity = draws.below(self.memory.len());
        let mut slot = 1 + draws.below(self.memory[0].len() - 1);
        let step = |_| {
            let token = self.memory[entity][slot];
            entity = draws.weighted(&concept.entities[entity]);
            let mut weights = concept.slots[slot].clone();
            weights[0] *= f64::from(u8::from(delimits));
            slot = draws.weighted(&weights);
            token
        };
        (0..length).map(step).collect()
    }

    /// Draws `count` prompts of a kind. Equal arguments give equal prompts.
    #[must_use]
    pub fn prompts(&self, kind: &PromptKind, count: usize) -> Vec<Prompt> {
        let mut draws = Draws::new(mix(kind.examples as u64, &[kind.length as u64]));
        let mut prompts = Vec::with_capacity(count);
        for number in 0..count {
            let drawn = Concept::draw(&mut draws, self.memory.len(), self.memory[0].len());
            let concept =
                if kind.unseen { &drawn } else { &self.concepts[number % self.concepts.len()] };
            let length = kind.length.max(1);
            let mut tokens = Vec::new();
            for _ in 0..kind.examples {
                tokens.extend(self.walk(concept, length, false, &mut draws));
                tokens.extend(kind.delimited.then_some(DELIMITER));
            }
            let question = self.walk(concept, length - 1, false, &mut draws);
            tokens.extend(&question);
            let answer = likeliest(&self.predict_by(std::slice::from_ref(concept), &question));
            prompts.push(Prompt { tokens, answer });
        }
        prompts
    }

    /// Share of `count` prompts of a kind for which the exact posterior answers correctly.
    #[must_use]
    pub fn accuracy(&self, kind: &PromptKind, count: usize) -> f64 {
        let prompts = self.prompts(kind, count);
        let is_right = |prompt: &&Prompt| likeliest(&self.predict(&prompt.tokens)) == prompt.answer;
        prompts.iter().filter(is_right).count() as f64 / count as f64
    }
}

/// Kind of prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptKind {
    /// Number of complete examples, which come before the question.
    pub examples: usize,
    /// Number of tokens of an example, including the answer; 0 counts as 1.
    pub length: usize,
    /// True if the concept of a prompt is not in the mixture.
    pub unseen: bool,
    /// True if delimiters stand between examples.
    pub delimited: bool,
}

impl PromptKind {
    /// Makes a kind of prompts for a concept of the mixture, with delimiters.
    #[must_use]
    pub const fn new(examples: usize, length: usize) -> Self {
        Self { examples, length, unseen: false, delimited: true }
    }
}

/// Conditions under which accuracies are measured, with their names.
#[must_use]
pub fn conditions() -> [(&'static str, PromptKind); 5] {
    let of_eight = PromptKind::new(0, 8);
    [
        ("seen, k = 3", PromptKind::new(0, 3)),
        ("seen, k = 5", PromptKind::new(0, 5)),
        ("seen, k = 8", of_eight),
        ("seen, k = 8, no delimiters", PromptKind { delimited: false, ..of_eight }),
        ("unseen, k = 8", PromptKind { unseen: true, ..of_eight }),
    ]
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Tokens of the examples, and of a question without its last token.
    pub tokens: Vec<usize>,
    /// Likeliest token after the question under the concept of the examples.
    pub answer: usize,
}

/// Probabilities of concept, entity and slot, given the tokens so far.
struct Beliefs<'a> {
    mixture: &'a Mixture,
    concepts: &'a [Concept],
    /// Probabilities by concept, entity and slot; they sum to 1.
    shares: Vec<Vec<Vec<f64>>>,
}

impl<'a> Beliefs<'a> {
    /// Makes the beliefs before the first token: all concepts, entities and slots are equally
    /// likely, except slot 0, the delimiter's, which has probability 0.
    fn new(mixture: &'a Mixture, concepts: &'a [Concept]) -> Self {
        let (entities, slots) = (mixture.memory.len(), mixture.memory[0].len());
        let share = 1.0 / (concepts.len() * entities * (slots - 1)) as f64;
        let row: Vec<f64> = (0..slots).map(|slot| if slot == 0 { 0.0 } else { share }).collect();
        Self { mixture, concepts, shares: vec![vec![row; entities]; concepts.len()] }
    }

    /// Updates the beliefs with the next token. Returns the probability that the beliefs before the
    /// update gave this token.
    fn observe(&mut self, token: usize) -> f64 {
        let mut total = 0.0;
        for (belief, concept) in self.shares.iter_mut().zip(self.concepts) {
            for (row, memory) in belief.iter_mut().zip(&self.mixture.memory) {
                for (probability, own) in row.iter_mut().zip(memory) {
                    *probability *= f64::from(u8::from(*own == token));
                    total += *probability;
                }
            }
            *belief = moved(belief, concept);
        }
        self.shares.iter_mut().flatten().flatten().for_each(|belief| *belief /= total);
        total
    }

    /// Probabilities of the next token.
    fn predicted(&self) -> Vec<f64> {
        let mut predicted = vec![0.0; self.mixture.vocabulary];
        for belief in &self.shares {
            for (row, memory) in belief.iter().zip(&self.mixture.memory) {
                row.iter().zip(memory).for_each(|(belief, token)| predicted[*token] += belief);
            }
        }
        predicted
    }
}

/// Returns the probabilities of entities and slots after one transition of a concept.
fn moved(belief: &[Vec<f64>], concept: &Concept) -> Vec<Vec<f64>> {
    let slots = belief[0].len();
    let mut by_slot = vec![vec![0.0; slots]; belief.len()];
    for (to, from) in by_slot.iter_mut().zip(belief) {
        for (probability, row) in from.iter().zip(&concept.slots) {
            if *probability > 0.0 {
                to.iter_mut().zip(row).for_each(|(sum, share)| *sum += probability * share);
            }
        }
    }
    let mut moved = vec![vec![0.0; slots]; belief.len()];
    for (from, row) in by_slot.iter().zip(&concept.entities) {
        for (to, share) in moved.iter_mut().zip(row) {
            to.iter_mut().zip(from).for_each(|(sum, probability)| *sum += share * probability);
        }
    }
    moved
}

/// Index of the largest probability or logit, leaving out the delimiter.
#[must_use]
pub fn likeliest(probabilities: &[f64]) -> usize {
    (1..probabilities.len())
        .reduce(|best, at| if probabilities[at] > probabilities[best] { at } else { best })
        .unwrap_or(DELIMITER)
}

/// Number of prompts on which an accuracy is measured.
const PROMPTS: usize = 60;

fn run() -> Result<Findings, TheoryError> {
    let mixture = Mixture::draw(5, (10, 10), 50, 1);
    let counts = [0, 1, 2, 4, 8, 16, 32];
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (name, kind) in conditions() {
        let accuracies =
            counts.map(|examples| mixture.accuracy(&PromptKind { examples, ..kind }, PROMPTS));
        let shown = accuracies.iter().map(|accuracy| format!("{:.0} %", 100.0 * accuracy));
        rows.push([name.to_owned()].into_iter().chain(shown).collect());
        let points = counts.iter().map(|count| *count as f64).zip(accuracies);
        series.push(Series::line(name, points.collect()));
    }
    let chart = Chart::new(Axis::linear("examples"), Axis::linear("accuracy"), series);
    let title = "Answers of the exact posterior, by examples in the prompt";
    let description = "Accuracy grows with examples of a concept in the mixture, not of another.";
    let figure = Figure::new(title, description, chart);
    let names = counts.map(|count| format!("n = {count}"));
    let columns = [heads(&["concept, length"]), names.to_vec()].concat();
    Ok(Findings { columns, rows, figures: vec![("bayesian-inference".to_owned(), figure)] })
}
