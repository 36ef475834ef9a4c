//! Batches of sentences: division of sentences into batches, computation of batches by several
//! threads, and collection of the results in order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use crate::{DecodingConfig, DecodingError, Result};

/// Number of batches after which freed memory is returned to the system.
const BATCHES_BETWEEN: usize = 8;

/// A finished batch, for progress reports and for showing translations early.
#[derive(Clone, Copy, Debug)]
pub struct FinishedChunk<'a, T> {
    /// Indices of the batch's sentences in the input.
    pub indices: &'a [usize],
    /// Results of the batch's sentences, in the order of `indices`.
    pub results: &'a [T],
    /// Number of sentences that have been finished so far, including this batch.
    pub sentences_done: usize,
    /// Number of all sentences in the call.
    pub sentences_total: usize,
}

/// Returns the configuration for each of `workers` workers (threads that take batches). The limits
/// `batch_tokens` and `batch_rows` of `config` are divided by the number of workers. `batch_rows`
/// is reduced further if that is needed to give every worker a batch. `rows` is the number of rows
/// of all sentences; a row is one hypothesis in the state of the model.
pub(crate) fn shared(config: &DecodingConfig, rows: usize, workers: usize) -> DecodingConfig {
    if workers == 1 {
        return config.clone();
    }
    DecodingConfig {
        batch_tokens: (config.batch_tokens / workers).max(1),
        batch_rows: (config.batch_rows / workers).min(rows.div_ceil(workers)).max(1),
        ..config.clone()
    }
}

/// Makes one thread pool for each worker. All new pools together have as many threads as the
/// current pool.
fn divided_pool(workers: usize) -> Result<Vec<rayon::ThreadPool>> {
    let threads = rayon::current_num_threads();
    (0..workers)
        .map(|worker| (worker + 1) * threads / workers - worker * threads / workers)
        .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| DecodingError::model("start threads", error))
}

/// Calls `work` for every batch, on `workers` threads, each with its own share of the thread pool.
/// Calls `finish` on the calling thread with each batch and its results, in the order of the
/// batches.
pub(crate) fn in_order<T: Send>(
    batches: &[Range<usize>],
    workers: usize,
    work: impl Fn(&Range<usize>) -> Result<Vec<T>> + Sync,
    mut finish: impl FnMut(&Range<usize>, Vec<T>),
) -> Result<()> {
    // Freed memory is not returned to the system after each batch, because a small model would need
    // a tenth more time: the returned pages would cause page faults when they are used again.
    let tidy = |number: usize| {
        if number % BATCHES_BETWEEN == BATCHES_BETWEEN - 1 {
            taper_ops::allocator::collect_soon();
        }
    };
    let workers = workers.min(batches.len());
    if workers <= 1 {
        for (number, batch) in batches.iter().enumerate() {
            finish(batch, work(batch)?);
            tidy(number);
        }
        taper_ops::allocator::collect_soon();
        return Ok(());
    }
    let pools = divided_pool(workers)?;
    let next = AtomicUsize::new(0);
    let take_batches = |results_sender: Sender<(usize, Result<Vec<T>>)>| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(number) else { return };
            let results = work(batch);
            if results.is_err() {
                // From now on, no thread takes another batch. Batches that have been taken already
                // are still finished. So if several batches have errors, the error of the first of
                // them, in the order of batches, is always the one that is returned.
                next.store(batches.len(), Ordering::Relaxed);
            }
            tidy(number);
            if results_sender.send((number, results)).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for pool in &pools {
            let (sender, take_batches) = (sender.clone(), &take_batches);
            scope.spawn(move || pool.install(|| take_batches(sender)));
        }
        drop(sender);
        let (mut early, mut turn) = (BTreeMap::new(), 0);
        for (number, results) in receiver {
            early.insert(number, results);
            while let Some(results) = early.remove(&turn) {
                finish(&batches[turn], results?);
                turn += 1;
            }
        }
        Ok(())
    })
}

/// Collects results, puts them in input order, and reports each batch to the caller.
pub(crate) struct Collector<T, F> {
    results: Vec<(usize, T)>,
    total: usize,
    on_chunk: F,
}

impl<T, F: FnMut(FinishedChunk<'_, T>)> Collector<T, F> {
    pub(crate) fn new(total: usize, on_chunk: F) -> Self {
        Self { results: Vec::with_capacity(total), total, on_chunk }
    }

    pub(crate) fn finish(&mut self, indices: &[usize], results: Vec<T>) {
        (self.on_chunk)(FinishedChunk {
            indices,
            results: &results,
            sentences_done: self.results.len() + results.len(),
            sentences_total: self.total,
        });
        self.results.extend(indices.iter().copied().zip(results));
    }

    pub(crate) fn into_results(mut self) -> Vec<T> {
        self.results.sort_by_key(|&(index, _)| index);
        self.results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Size of a sentence in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Number of source tokens.
    pub(crate) tokens: usize,
    /// Number of rows that the sentence needs in the state of the model: the largest number of its
    /// hypotheses that advance at the same time.
    pub(crate) rows: usize,
}

/// Divides sentences of these sizes, in order, into batches within the limits `batch_tokens` and
/// `batch_rows` of `config`. Returns the range of indices of each batch. A sentence that exceeds a
/// limit alone is a batch by itself.
pub(crate) fn batches(sizes: &[Size], config: &DecodingConfig) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let mut start = 0;
    let (mut tokens, mut rows) = (0_usize, 0_usize);
    for (index, size) in sizes.iter().enumerate() {
        let cost = size.tokens.saturating_mul(size.rows);
        let over = tokens.saturating_add(cost) > config.batch_tokens
            || rows.saturating_add(size.rows) > config.batch_rows;
        if over && index > start {
            batches.push(start..index);
            start = index;
            (tokens, rows) = (0, 0);
        }
        tokens = tokens.saturating_add(cost);
        rows = rows.saturating_add(size.rows);
    }
    if start < sizes.len() {
        batches.push(start..sizes.len());
    }
    batches
}
