//! The loss in segments of the vocabulary that stay in cache, for kernels on packed operands.
//!
//! Products cost such a kernel less than the memory that logits need, so that none are kept: the forward pass keeps the logarithm of
//! each token's softmax denominator, computed online over the segments (Milakov and Gimelshein 2018, section 3), and the backward pass
//! computes the logits again, once by tokens for the gradient of the hidden states and once by classes for that of the weights.

use super::{CrossEntropy, LossSums};
use crate::parallel::Shared;
use crate::products::{DEPTH, Into, Kernel, Matrix, PANEL, Packed, PackedProducts, Products};
use crate::real::{blocked_max, blocked_sum, vectorised};
use rayon::prelude::*;
use std::ops::Range;

/// Tokens of a block.
const TOKENS: usize = 128;
/// Classes of a segment: with [`TOKENS`], 256 KiB of logits.
const CLASSES: usize = 512;

/// What the passes share: the packed operands.
pub(super) struct Tiled {
    kernel: Kernel,
    products: Products,
    width: usize,
    classes: usize,
    targets: Vec<u32>,
    /// Hidden states `(N, D)` as rows.
    hidden: Packed,
    /// Weights `(V, D)` transposed: classes as columns.
    classifier: Packed,
}

/// Where a block of logits lies: its tokens and its classes.
struct Block {
    tokens: Range<usize>,
    classes: Range<usize>,
}

impl Tiled {
    pub(super) fn new(kernel: Kernel, products: Products, hidden: &[f32], weight: &[f32], targets: &[u32]) -> Self {
        let width = hidden.len() / targets.len().max(1);
        let classes = weight.len() / width.max(1);
        let rows = Matrix::rows(width);
        Self {
            kernel,
            products,
            width,
            classes,
            targets: targets.to_vec(),
            hidden: Packed::left((hidden, rows), targets.len(), width, products),
            classifier: Packed::right((weight, rows.transposed()), width, classes, products),
        }
    }

    fn worker(&self) -> Worker {
        Worker { products: PackedProducts::new(self.kernel, self.products), logits: vec![0.0; TOKENS * CLASSES], sums: Vec::new() }
    }

    fn token_blocks(&self) -> usize {
        self.targets.len().div_ceil(TOKENS)
    }

    fn segments(&self) -> usize {
        self.classes.div_ceil(CLASSES)
    }

    fn block(&self, tokens: usize, segment: usize) -> Block {
        Block {
            tokens: tokens * TOKENS..((tokens + 1) * TOKENS).min(self.targets.len()),
            classes: segment * CLASSES..((segment + 1) * CLASSES).min(self.classes),
        }
    }

    /// The logits of a block, row-major with stride [`CLASSES`].
    fn logits(&self, worker: &mut Worker, block: &Block) {
        let panels = |range: &Range<usize>| range.start / PANEL..range.end.div_ceil(PANEL);
        let (rows, columns) = (panels(&block.tokens), panels(&block.classes));
        worker.products.of_panels((&self.hidden, rows), (&self.classifier, columns), &mut worker.logits, CLASSES);
    }

    /// The sums over all tokens, and for each the logarithm of its softmax denominator.
    pub(super) fn forward(&self, smoothing: f64) -> (LossSums, Vec<f32>) {
        crate::profile::count_product(self.targets.len(), self.width, self.classes);
        let mut denominators = vec![0.0; self.targets.len()];
        let parts: Vec<LossSums> = denominators
            .par_chunks_mut(TOKENS)
            .enumerate()
            .map_init(
                || self.worker(),
                |worker, (number, denominators)| {
                    let mut tokens = vec![Online::default(); denominators.len()];
                    for segment in 0..self.segments() {
                        let block = self.block(number, segment);
                        self.logits(worker, &block);
                        for ((token, logits), position) in
                            tokens.iter_mut().zip(worker.logits.chunks_exact(CLASSES)).zip(block.tokens.clone())
                        {
                            let target = (self.targets[position] as usize).wrapping_sub(block.classes.start);
                            online::<f32>(token, &logits[..block.classes.len()], target, block.classes.start);
                        }
                    }
                    let mut sums = LossSums::default();
                    for ((token, denominator), position) in tokens.iter().zip(denominators).zip(number * TOKENS..) {
                        *denominator = token.largest + token.total.ln();
                        sums.add(&token.finish(self.targets[position] as usize, self.classes, smoothing));
                    }
                    sums
                },
            )
            .collect();
        let mut sums = LossSums::default();
        parts.iter().for_each(|part| sums.add(part));
        (sums, denominators)
    }

    /// The gradient by the logits of a block, in place of the logits.
    fn gradient(&self, worker: &mut Worker, block: &Block, denominators: &[f32], (smoothing, scale): (f64, f64)) {
        self.logits(worker, block);
        for (logits, position) in worker.logits.chunks_exact_mut(CLASSES).zip(block.tokens.clone()) {
            let (logits, outside) = logits.split_at_mut(block.classes.len());
            let share = smoothing / self.classes as f64;
            probabilities::<f32>(logits, denominators[position], scale as f32, (scale * share) as f32);
            outside.fill(0.0);
            let target = (self.targets[position] as usize).wrapping_sub(block.classes.start);
            if let Some(value) = logits.get_mut(target) {
                *value -= (scale * (1.0 - smoothing)) as f32;
            }
        }
    }

    /// Adds the gradient by the hidden states, given the weights `(V, D)`.
    pub(super) fn add_hidden_gradient(&self, weight: &[f32], denominators: &[f32], spec: &CrossEntropy, out: &mut [f32], into: Into) {
        crate::profile::count_product(self.targets.len(), self.classes, self.width);
        let weight = Packed::right((weight, Matrix::rows(self.width)), self.classes, self.width, self.products);
        let stride = weight.panels() * PANEL;
        out.par_chunks_mut(TOKENS * self.width).enumerate().for_each_init(
            || self.worker(),
            |worker, (number, out)| {
                let mut sums = std::mem::take(&mut worker.sums);
                sums.resize(TOKENS * stride, 0.0);
                for segment in 0..self.segments() {
                    let block = self.block(number, segment);
                    self.gradient(worker, &block, denominators, (spec.smoothing, spec.scale));
                    let shape = (block.tokens.len(), block.classes.len());
                    let into = if segment == 0 { Into::Replace } else { Into::Add };
                    let left = (worker.logits.as_slice(), Matrix::rows(CLASSES));
                    worker.products.of_matrix(left, shape, (&weight, block.classes.start / DEPTH), (&mut sums, stride), into);
                }
                write(&sums, stride, out, self.width, into);
                worker.sums = sums;
            },
        );
    }

    /// Adds the gradient by the weights, given the hidden states `(N, D)`.
    pub(super) fn add_weight_gradient(&self, hidden: &[f32], denominators: &[f32], spec: &CrossEntropy, out: &mut [f32], into: Into) {
        crate::profile::count_product(self.classes, self.targets.len(), self.width);
        let hidden = Packed::right((hidden, Matrix::rows(self.width)), self.targets.len(), self.width, self.products);
        let stride = hidden.panels() * PANEL;
        let shared = Shared::new(out);
        (0..self.segments()).into_par_iter().for_each_init(
            || self.worker(),
            |worker, segment| {
                let mut sums = std::mem::take(&mut worker.sums);
                sums.resize(CLASSES * stride, 0.0);
                let mut classes = 0..0;
                for number in 0..self.token_blocks() {
                    let block = self.block(number, segment);
                    self.gradient(worker, &block, denominators, (spec.smoothing, spec.scale));
                    let shape = (block.classes.len(), block.tokens.len());
                    let into = if number == 0 { Into::Replace } else { Into::Add };
                    let left = (worker.logits.as_slice(), Matrix::rows(CLASSES).transposed());
                    worker.products.of_matrix(left, shape, (&hidden, block.tokens.start / DEPTH), (&mut sums, stride), into);
                    classes = block.classes;
                }
                // SAFETY: segments have disjoint classes, and `out` outlives the loop.
                let out = unsafe { shared.range(classes.start * self.width..classes.end * self.width) };
                write(&sums, stride, out, self.width, into);
                worker.sums = sums;
            },
        );
    }
}

/// What a thread needs for itself.
struct Worker {
    products: PackedProducts,
    logits: Vec<f32>,
    sums: Vec<f32>,
}

fn write(sums: &[f32], stride: usize, out: &mut [f32], width: usize, into: Into) {
    for (sums, out) in sums.chunks_exact(stride).zip(out.chunks_exact_mut(width)) {
        match into {
            Into::Replace => out.copy_from_slice(&sums[..width]),
            Into::Add => crate::parallel::add(out, &sums[..width]),
        }
    }
}

/// A token's softmax so far.
#[derive(Clone, Copy)]
pub(crate) struct Online {
    largest: f32,
    /// The first class with the largest logit.
    best: usize,
    /// `Σ exp(logit - largest)`.
    total: f32,
    logit_sum: f64,
    true_logit: f32,
}

impl Default for Online {
    fn default() -> Self {
        Self { largest: f32::NEG_INFINITY, best: usize::MAX, total: 0.0, logit_sum: 0.0, true_logit: 0.0 }
    }
}

impl Online {
    fn finish(&self, target: usize, classes: usize, smoothing: f64) -> LossSums {
        let log_total = f64::from(self.largest + self.total.ln());
        let nll = log_total - f64::from(self.true_logit);
        let uniform = log_total - self.logit_sum / classes as f64;
        LossSums { smoothed: (1.0 - smoothing) * nll + smoothing * uniform, nll, correct: usize::from(self.best == target) }
    }
}

vectorised! {
    /// Adds the logits of a segment, which begins at class `first` and has the true class at `target`, if within.
    fn online<T>(token: &mut Online, logits: &[f32], target: usize, first: usize) {
        let largest = blocked_max(logits);
        if largest > token.largest {
            token.total *= crate::real::Real::exp(token.largest - largest);
            token.largest = largest;
            token.best = first + logits.iter().position(|&logit| logit == largest).unwrap_or(0);
        }
        let base = token.largest;
        token.total += blocked_sum([logits], |[logit]| crate::real::Real::exp(logit - base));
        token.logit_sum += f64::from(blocked_sum([logits], |[logit]| logit));
        if let Some(logit) = logits.get(target) {
            token.true_logit = *logit;
        }
    }
}

vectorised! {
    /// `logit ← scale · exp(logit - denominator) - share`.
    fn probabilities<T>(logits: &mut [T], denominator: T, scale: T, share: T) {
        for logit in logits.iter_mut() {
            *logit = scale * (*logit - denominator).exp() - share;
        }
    }
}
