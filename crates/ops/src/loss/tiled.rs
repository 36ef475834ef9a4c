//! The loss for AMX (a unit for matrix products in Intel processors). It is computed in segments of
//! the vocabulary, whose logits stay in the cache.
//!
//! With AMX, it is cheaper to recompute logits than to store them, so none are kept. The forward
//! pass keeps the logarithm of the softmax denominator of each token, computed online over the
//! segments (Milakov and Gimelshein 2018, section 3). The backward pass recomputes the logits
//! twice. For the gradient with respect to the hidden states, it goes over blocks of tokens. For
//! the gradient with respect to the weights, it goes over segments of classes.

use super::online::{Online, Softmax, online};
use super::pairs::{BLOCK_ROWS as TOKENS, pair_gradients, partner};
use crate::float::vectorised;
use crate::products::{DEPTH, Matrix, PANEL, Packed, PackedProducts, Packing, Threads};
use crate::profile::{even, region};
use crate::shared::{Shared, Write};
use crate::spec::{CrossEntropySpec, LossSums};
use rayon::prelude::*;
use std::ops::Range;

/// Number of classes in a segment: with [`TOKENS`] tokens, this makes 256 KiB of logits.
const CLASSES: usize = 512;

/// Packed operands (copied to the kernel's order) and settings that all passes share.
pub(super) struct Tiled {
    packing: Packing,
    spec: CrossEntropySpec,
    width: usize,
    classes: usize,
    targets: Vec<u32>,
    /// Hidden states `(N, D)`, packed as the left operand.
    hidden: Packed,
    /// Weights `(V, D)`, transposed and packed as the right operand, with a column for each class.
    classifier: Packed,
}

/// Ranges of tokens and classes of a block of logits.
struct Block {
    tokens: Range<usize>,
    classes: Range<usize>,
}

impl Tiled {
    /// Packs the operands. If tokens are in pairs (R-Drop), `hidden` and `targets` must be
    /// [arranged](super::pairs::arranged).
    pub(super) fn new(
        packing: Packing,
        spec: &CrossEntropySpec,
        hidden: &[f32],
        weight: &[f32],
        targets: &[u32],
    ) -> Self {
        let width = hidden.len() / targets.len().max(1);
        let classes = weight.len() / width.max(1);
        let rows = Matrix::rows(width);
        Self {
            packing,
            spec: *spec,
            width,
            classes,
            targets: targets.to_vec(),
            hidden: Packed::left((hidden, rows), targets.len(), width, (packing, Threads::All)),
            classifier: Packed::right(
                (weight, rows.transposed()),
                width,
                classes,
                (packing, Threads::All),
            ),
        }
    }

    fn worker(&self) -> Worker {
        Worker {
            products: PackedProducts::new(self.packing),
            logits: vec![0.0; TOKENS * CLASSES],
            sums: Vec::new(),
        }
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

    /// Computes the logits of a block, row-major; a row takes [`CLASSES`] elements.
    fn logits(&self, worker: &mut Worker, block: &Block) {
        let panels = |range: &Range<usize>| range.start / PANEL..range.end.div_ceil(PANEL);
        let (rows, columns) = (panels(&block.tokens), panels(&block.classes));
        worker.products.multiply_panels(
            (&self.hidden, rows),
            (&self.classifier, columns),
            &mut worker.logits,
            CLASSES,
        );
    }

    /// Computes the loss sums over all tokens, and the softmax of each token.
    pub(super) fn forward(&self) -> (LossSums, Vec<Softmax<f32>>) {
        crate::profile::count_product(self.targets.len(), self.width, self.classes);
        let mut softmaxes = vec![Softmax::default(); self.targets.len()];
        let of_tokens = |worker: &mut Worker, (number, softmaxes): (usize, &mut [Softmax<f32>])| {
            let rows = softmaxes.len();
            let mut tokens = vec![Online::<f32>::default(); rows];
            for segment in 0..self.segments() {
                let block = self.block(number, segment);
                self.logits(worker, &block);
                let logits = |row: usize| &worker.logits[row * CLASSES..][..block.classes.len()];
                for ((row, token), position) in
                    tokens.iter_mut().enumerate().zip(block.tokens.clone())
                {
                    let target =
                        (self.targets[position] as usize).wrapping_sub(block.classes.start);
                    let other = self.spec.is_paired().then(|| logits(partner(row, rows)));
                    online(token, logits(row), other, target, block.classes.start);
                }
            }
            let mut sums = LossSums::default();
            for ((row, softmax), position) in
                softmaxes.iter_mut().enumerate().zip(number * TOKENS..)
            {
                *softmax =
                    tokens[row].softmax(self.spec.is_paired().then(|| &tokens[partner(row, rows)]));
                sums.add(&tokens[row].sums(
                    softmax,
                    self.targets[position] as usize,
                    self.classes,
                    self.spec.smoothing,
                ));
            }
            sums
        };
        let parts: Vec<LossSums> = region(even(self.token_blocks()), || {
            let blocks = softmaxes.par_chunks_mut(TOKENS).enumerate();
            blocks.map_init(|| self.worker(), of_tokens).collect()
        });
        let mut sums = LossSums::default();
        parts.iter().for_each(|part| sums.add(part));
        (sums, softmaxes)
    }

    /// Computes the logits of a block, and replaces them with the gradient of the loss with respect
    /// to the logits.
    fn gradient(&self, worker: &mut Worker, block: &Block, softmaxes: &[Softmax<f32>], scale: f64) {
        self.logits(worker, block);
        let CrossEntropySpec { smoothing, r_drop, .. } = self.spec;
        let (rows, classes) = (block.tokens.len(), block.classes.len());
        let (logits, softmaxes) =
            (&mut worker.logits[..rows * CLASSES], &softmaxes[block.tokens.clone()]);
        let share = (scale * (smoothing / self.classes as f64)) as f32;
        if self.spec.is_paired() {
            let (first, second) = logits.split_at_mut(rows / 2 * CLASSES);
            let pairs = first.chunks_exact_mut(CLASSES).zip(second.chunks_exact_mut(CLASSES));
            for ((first, second), row) in pairs.zip(0..) {
                let pair = [softmaxes[row], softmaxes[row + rows / 2]];
                pair_gradients(
                    &mut first[..classes],
                    &mut second[..classes],
                    pair,
                    scale as f32,
                    (scale * r_drop) as f32,
                    share,
                );
            }
        } else {
            for (logits, softmax) in logits.chunks_exact_mut(CLASSES).zip(softmaxes) {
                probabilities(&mut logits[..classes], softmax.log_sum_exp, scale as f32, share);
            }
        }
        for (logits, position) in logits.chunks_exact_mut(CLASSES).zip(block.tokens.clone()) {
            let (logits, outside) = logits.split_at_mut(classes);
            outside.fill(0.0);
            let target = (self.targets[position] as usize).wrapping_sub(block.classes.start);
            if let Some(value) = logits.get_mut(target) {
                *value -= (scale * (1.0 - smoothing)) as f32;
            }
        }
    }

    /// Adds the gradient with respect to the hidden states to `out`, given the weights `(V, D)`.
    /// `scale`: multiplier of the sum over tokens.
    pub(super) fn add_hidden_gradient(
        &self,
        weight: &[f32],
        softmaxes: &[Softmax<f32>],
        scale: f64,
        out: &mut [f32],
        write: Write,
    ) {
        crate::profile::count_product(self.targets.len(), self.classes, self.width);
        let weight = Packed::right(
            (weight, Matrix::rows(self.width)),
            self.classes,
            self.width,
            (self.packing, Threads::All),
        );
        let stride = weight.panels() * PANEL;
        let of_tokens = |worker: &mut Worker, (number, out): (usize, &mut [f32])| {
            let mut sums = std::mem::take(&mut worker.sums);
            sums.resize(TOKENS * stride, 0.0);
            for segment in 0..self.segments() {
                let block = self.block(number, segment);
                self.gradient(worker, &block, softmaxes, scale);
                let shape = (block.tokens.len(), block.classes.len());
                let write = if segment == 0 { Write::Replace } else { Write::Add };
                let left = (worker.logits.as_slice(), Matrix::rows(CLASSES));
                worker.products.multiply_matrix(
                    left,
                    shape,
                    (&weight, block.classes.start / DEPTH),
                    (&mut sums, stride),
                    write,
                );
            }
            write_rows(&sums, stride, out, self.width, write);
            worker.sums = sums;
        };
        region(even(self.token_blocks()), || {
            let blocks = out.par_chunks_mut(TOKENS * self.width).enumerate();
            blocks.for_each_init(|| self.worker(), of_tokens);
        });
    }

    /// Adds the gradient with respect to the weights to `out`, given the hidden states `(N, D)`.
    pub(super) fn add_weight_gradient(
        &self,
        hidden: &[f32],
        softmaxes: &[Softmax<f32>],
        scale: f64,
        out: &mut [f32],
        write: Write,
    ) {
        crate::profile::count_product(self.classes, self.targets.len(), self.width);
        let hidden = Packed::right(
            (hidden, Matrix::rows(self.width)),
            self.targets.len(),
            self.width,
            (self.packing, Threads::All),
        );
        let stride = hidden.panels() * PANEL;
        let shared = Shared::new(out);
        let of_classes = |worker: &mut Worker, segment: usize| {
            let mut sums = std::mem::take(&mut worker.sums);
            sums.resize(CLASSES * stride, 0.0);
            let mut classes = 0..0;
            for number in 0..self.token_blocks() {
                let block = self.block(number, segment);
                self.gradient(worker, &block, softmaxes, scale);
                let shape = (block.classes.len(), block.tokens.len());
                let write = if number == 0 { Write::Replace } else { Write::Add };
                let left = (worker.logits.as_slice(), Matrix::rows(CLASSES).transposed());
                worker.products.multiply_matrix(
                    left,
                    shape,
                    (&hidden, block.tokens.start / DEPTH),
                    (&mut sums, stride),
                    write,
                );
                classes = block.classes;
            }
            // SAFETY: segments have disjoint classes, and `out` outlives the loop.
            let out = unsafe { shared.range(classes.start * self.width..classes.end * self.width) };
            write_rows(&sums, stride, out, self.width, write);
            worker.sums = sums;
        };
        region(even(self.segments()), || {
            (0..self.segments()).into_par_iter().for_each_init(|| self.worker(), of_classes);
        });
    }
}

/// Working memory of a thread.
struct Worker {
    products: PackedProducts,
    logits: Vec<f32>,
    sums: Vec<f32>,
}

fn write_rows(sums: &[f32], stride: usize, out: &mut [f32], width: usize, write: Write) {
    for (sums, out) in sums.chunks_exact(stride).zip(out.chunks_exact_mut(width)) {
        match write {
            Write::Replace => out.copy_from_slice(&sums[..width]),
            Write::Add => crate::parallel::add(out, &sums[..width]),
        }
    }
}

vectorised! {
    /// Computes `logit ← scale · exp(logit - log_sum_exp) - share` for each logit.
    fn probabilities<T>(logits: &mut [T], log_sum_exp: T, scale: T, share: T) {
        for logit in logits.iter_mut() {
            *logit = scale * (*logit - log_sum_exp).exp() - share;
        }
    }
}
