//! Data set of the tokenised sentence pairs of a split, which are read from a file.

mod limit;
pub(crate) mod plan;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use self::limit::require_few_pairs;
use crate::tasks::pairs::cache::{Pair, PairCache};
use crate::tasks::pairs::directions::{SplitCorpora, SplitCorpus};
use crate::tasks::pairs::largest::Rows;
use crate::tasks::pairs::variation::PairVariation;
use crate::text::cache::Key;
use crate::{
    Batch, BatchingConfig, BatchingReport, DataReport, Dataset, Direction, END, Epoch, EpochPlan,
    PairLinks, PairPlan, Report, Result, Stream, TokenizerPair,
};

/// Number of batches that [`Dataset::growth`] samples. It computes by which factor changes to the
/// text enlarge each of these batches, and takes the largest factor.
const SAMPLED_BATCHES: usize = 32;
/// The largest sampled factor is multiplied by this number, because batches that were not sampled
/// may grow more.
const SAMPLING_MARGIN: f64 = 1.05;

/// Purpose number of the random draws that decide which pairs of a weighted corpus an epoch
/// contains (see [`Epoch::draws`]).
const WEIGHTS: u64 = 6;

/// Seed of the example epochs whose batches the report describes.
const EXAMPLE: u64 = 0;

/// The pairs of a split that were not dropped, as ids without special tokens.
///
/// The ids stay on the disk until they are used, so a data set may be larger than the memory.
#[derive(Debug, Clone)]
pub struct PairDataset {
    cache: Arc<PairCache>,
    report: DataReport,
    /// The direction of each corpus, with the tokenizers that add special tokens to its texts.
    directions: Arc<[SplitCorpus]>,
    /// Indices of the pairs in the cache, if this data set is the part of a split for one
    /// direction; otherwise `None`.
    part: Option<Arc<[u32]>>,
    /// Changes that differ between epochs. `None` if pairs are the same in all epochs.
    variation: Option<Arc<PairVariation>>,
    /// Number of epochs at the start of the training in which both directions are trained.
    bidirectional_epochs: u64,
    /// For each corpus, the index after its last pair, and the number of passes over its pairs in
    /// an epoch (its weight).
    corpora: Vec<(usize, f64)>,
}

impl PairDataset {
    /// Opens the cache at `path`; `None` if the cache is incomplete or has another key. `has_links`
    /// is true if the pairs have word links.
    pub(crate) fn open(
        path: &Path,
        key: &Key,
        batching: &BatchingConfig,
        split: &SplitCorpora,
        bidirectional_epochs: u64,
        has_links: bool,
    ) -> Result<Option<Self>> {
        let opened = PairCache::open(path, key, has_links)?;
        let Some((cache, mut report)): Option<(PairCache, DataReport)> = opened else {
            return Ok(None);
        };
        let mut end = 0;
        let kept: Vec<usize> =
            report.corpora.iter().map(|corpus| corpus.pairs_kept as usize).collect();
        let weights = split.passes(&kept);
        require_few_pairs(&report.split, kept.into_iter().zip(weights.iter().copied()))?;
        let corpora = report.corpora.iter_mut().zip(weights).map(|(corpus, weight)| {
            // The cache (the file of tokenised pairs) does not contain weights, so that they can be
            // changed without tokenising again.
            corpus.weight = weight;
            end += corpus.pairs_kept as usize;
            (end, weight)
        });
        let corpora = corpora.collect();
        let mut dataset = Self {
            cache: Arc::new(cache),
            report,
            directions: split.corpora.clone().into(),
            part: None,
            variation: None,
            bidirectional_epochs,
            corpora,
        };
        // Reports on batches are not in the cache either, so that settings of batches can be
        // changed without tokenising again.
        let of = |number| {
            let epoch = Epoch::new(EXAMPLE, number);
            PairPlan::new(&dataset, batching, epoch).report(&dataset)
        };
        let one_way = of(bidirectional_epochs);
        dataset.report.batching = match bidirectional_epochs {
            0 => one_way,
            epochs => one_way.after_bidirectional_epochs(epochs, &of(0)),
        };
        Ok(Some(dataset))
    }

    /// Sets the changes to pairs that differ between epochs.
    pub(crate) fn with_variation(self, variation: Option<PairVariation>) -> Self {
        Self { variation: variation.map(Arc::new), ..self }
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.cache.pairs()
    }

    /// True if there are no pairs. The preparation of such a split fails.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Report on pairs read, kept and dropped, and on the lengths of sentences.
    pub fn report(&self) -> &DataReport {
        &self.report
    }

    /// Indices of the pairs of an epoch, before shuffling. A pair occurs as often as the weight of
    /// its corpus demands, and at least one pair occurs. In a bidirectional epoch, each pair occurs
    /// a second time, with its sides exchanged, as in [`PairDataset::pair`]. `None` if each pair of
    /// the data set occurs once.
    pub(crate) fn pairs_in(&self, epoch: Epoch) -> Option<Vec<u32>> {
        if let Some(part) = &self.part {
            return Some(part.to_vec());
        }
        let is_once = self.corpora.iter().all(|(_, weight)| *weight == 1.0);
        if is_once && epoch.number >= self.bidirectional_epochs {
            return None;
        }
        // `require_few_pairs` checked that the number of pairs fits into a `u32`.
        let all = self.len() as u32;
        let draws = epoch.draws(WEIGHTS);
        let mut corpora = self.corpora.iter().peekable();
        let often = |pair: u32| {
            while corpora.next_if(|(end, _)| *end <= pair as usize).is_some() {}
            let weight = corpora.peek().map_or(1.0, |(_, weight)| *weight);
            let drawn = draws.unit(u64::from(pair)) < weight.fract();
            std::iter::repeat_n(pair, weight.trunc() as usize + usize::from(drawn))
        };
        let mut pairs: Vec<u32> =
            if is_once { (0..all).collect() } else { (0..all).flat_map(often).collect() };
        if pairs.is_empty() {
            // If a corpus is small and has a small weight, no pair at all may be drawn. Then the
            // epoch contains the pair whose random number was closest to being drawn.
            let share = |pair: u32| {
                let corpus = self.corpora.get(self.corpus_of(pair as usize));
                let weight = corpus.map_or(1.0, |(_, weight)| *weight);
                draws.unit(u64::from(pair)) / weight
            };
            pairs.extend((0..all).min_by(|&one, &other| share(one).total_cmp(&share(other))));
        }
        if epoch.number < self.bidirectional_epochs {
            pairs.extend_from_within(..);
            let half = pairs.len() / 2;
            pairs[half..].iter_mut().for_each(|pair| *pair += all);
        }
        Some(pairs)
    }

    /// Reads a pair. If `pair` is below [`PairDataset::len`], it is the index of the pair.
    /// Otherwise the index is `pair` minus [`PairDataset::len`], and the sides of the pair are
    /// exchanged, for translation in the opposite direction.
    ///
    /// # Errors
    ///
    /// If the file can no longer be read.
    ///
    /// # Panics
    ///
    /// If `pair` is not below twice [`PairDataset::len`]. All methods with a pair as an argument
    /// panic in this case.
    pub fn pair(&self, pair: usize) -> Result<Pair> {
        let (pair, turned) = self.locate(pair);
        let read = self.cache.read(pair)?;
        Ok(match turned {
            true => Pair {
                source: read.target,
                target: read.source,
                links: read.links.map(PairLinks::turned),
                ..read
            },
            false => read,
        })
    }

    /// The number of source ids of a pair.
    pub fn source_length(&self, pair: usize) -> usize {
        self.lengths(pair).0
    }

    /// The number of target ids of a pair.
    pub fn target_length(&self, pair: usize) -> usize {
        self.lengths(pair).1
    }

    /// The numbers of source and target ids of a pair.
    fn lengths(&self, pair: usize) -> (usize, usize) {
        let (pair, turned) = self.locate(pair);
        let (source, target) = self.cache.lengths(pair);
        if turned { (target, source) } else { (source, target) }
    }

    /// The numbers of tokens of the source and of the target of a pair, including special tokens.
    pub(crate) fn row_lengths(&self, pair: usize) -> (usize, usize) {
        let ((source, target), around) = (self.lengths(pair), self.around());
        (source + around.0, target + around.1)
    }

    /// The tokenizers of a pair's direction, which add special tokens to its texts.
    fn tokenizers_of(&self, pair: usize) -> &TokenizerPair {
        &self.directions[self.corpus_of(self.locate(pair).0).min(self.directions.len() - 1)]
            .tokenizers
    }

    /// The numbers of special tokens in a source row and in a target row. They are the same in all
    /// directions.
    fn around(&self) -> (usize, usize) {
        let tokenizers = &self.directions[0].tokenizers;
        let (source, target) = (tokenizers.source(), tokenizers.target());
        (source.tokens_around_source(), target.tokens_around_answer())
    }

    /// Index of a pair in the cache, and whether its sides are exchanged.
    fn locate(&self, pair: usize) -> (usize, bool) {
        match pair.checked_sub(self.len()) {
            Some(pair) => (pair, true),
            None => (pair, false),
        }
    }

    /// True if pairs differ between epochs.
    pub fn varies(&self) -> bool {
        self.variation.is_some()
    }

    /// The next pair in the same corpus and direction. After the last pair of a corpus comes its
    /// first. `None` if the corpus has only one pair.
    fn next_pair(&self, pair: usize) -> Result<Option<Pair>> {
        let (place, turned) = self.locate(pair);
        let corpus = self.corpus_of(place);
        let begin = corpus.checked_sub(1).map_or(0, |before| self.corpora[before].0);
        let end = self.corpora.get(corpus).map_or(self.len(), |(end, _)| *end);
        let next = if place + 1 < end { place + 1 } else { begin };
        let turn = if turned { self.len() } else { 0 };
        if next == place { Ok(None) } else { self.pair(next + turn).map(Some) }
    }

    /// Index of the corpus of a pair. `pair` is an index in the cache.
    fn corpus_of(&self, pair: usize) -> usize {
        self.corpora.partition_point(|(end, _)| *end <= pair)
    }

    /// The largest possible lengths of a source row and of a target row, including special tokens.
    /// If the data set changes pairs in each epoch, these are the lengths after the changes.
    fn longest_rows(&self) -> (usize, usize) {
        let BatchingReport { longest_source, longest_target, .. } = self.report.batching;
        match &self.variation {
            Some(variation) => {
                let around = self.around();
                (variation.max_tokens + around.0, variation.max_tokens + around.1)
            }
            None => (longest_source, longest_target),
        }
    }

    /// Lengths of the sources and of the targets that an epoch can contain, including special
    /// tokens. If `longest` is not `None`, every length is replaced by it.
    fn rows(&self, longest: Option<usize>) -> [Rows; 2] {
        // An epoch contains each pair of a corpus at most as often as the weight of the corpus,
        // rounded up.
        let (mut first, mut corpora) = (0, Vec::with_capacity(self.corpora.len()));
        for &(end, weight) in &self.corpora {
            corpora.push((first..end, weight.ceil() as usize));
            first = end;
        }
        corpora.push((first..self.len(), 1));
        // In a bidirectional epoch, each pair also occurs with its sides exchanged.
        let ways = if self.bidirectional_epochs > 0 { 2 } else { 1 };
        if let Some(longest) = longest {
            let pairs: usize = corpora.iter().map(|(pairs, times)| pairs.len() * times).sum();
            return [(), ()].map(|()| Rows::alike(ways * pairs, longest));
        }
        let [mut source, mut target] = [Rows::default(), Rows::default()];
        for (pairs, times) in corpora {
            let turned = |way| pairs.clone().map(move |pair| pair + way * self.len());
            for pair in (0..ways).flat_map(turned) {
                let lengths = self.row_lengths(pair);
                source.push(lengths.0, times);
                target.push(lengths.1, times);
            }
        }
        [source, target]
    }

    /// Makes a batch of `pairs`. It has two [streams](Batch::streams), which are the inputs of the
    /// model: the sources, each followed by `</s>`, and the targets, each after `<s>`. The model
    /// predicts the tokens of the target and `</s>`. Pairs are changed as in `epoch`; with `None`
    /// they are not changed.
    ///
    /// # Errors
    ///
    /// See [`PairDataset::pair`].
    pub fn batch(&self, pairs: &[u32], epoch: Option<Epoch>) -> Result<Batch> {
        let [mut sources, mut targets] = [Stream::default(), Stream::default()];
        let (mut answers, mut indices) = (Vec::new(), Vec::with_capacity(pairs.len()));
        let mut links = Vec::new();
        for &number in pairs {
            let number = number as usize;
            let tokenizers = self.tokenizers_of(number);
            let (of_source, of_target) = (tokenizers.source(), tokenizers.target());
            let of_links = [of_target.before_target().len(), of_source.tokens_before_source()];
            let before = of_links.map(|count| count as u32);
            let mut pair = self.pair(number)?;
            if let (Some(variation), Some(epoch)) = (&self.variation, epoch) {
                let corpus = self.report.corpora.get(self.corpus_of(self.locate(number).0));
                let tag = corpus.map_or("", |corpus| corpus.tag.as_str());
                let next = || self.next_pair(number);
                pair = variation.vary(pair, next, (tokenizers, tag), epoch)?;
            }
            let Pair { line, source, target, links: of_pair } = pair;
            // A model predicts each token at the place before it, and the first token at `<s>`.
            let before =
                (before[0] + targets.ids.len() as u32, before[1] + sources.ids.len() as u32);
            let own = of_pair.iter().flat_map(PairLinks::tokens);
            links.extend(own.map(|(target, source)| (before.0 + target, before.1 + source)));
            sources.push(of_source.source_row(source));
            targets.push(of_target.target_row(target.iter().copied()));
            answers.extend(of_target.answer_row(target));
            indices.push(line as usize);
        }
        Ok(Batch { streams: vec![sources, targets], asked: None, answers, indices, links })
    }
}

impl Dataset for PairDataset {
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
        let plan = PairPlan::new(&self, batching, epoch);
        Box::new(PlannedPairs { dataset: self, plan })
    }

    fn report(&self) -> Report<'_> {
        Report::Pairs(&self.report)
    }

    fn growth(self: Arc<Self>, batching: &BatchingConfig, seed: u64) -> Result<f64> {
        if !self.varies() {
            return Ok(1.0);
        }
        let mut most: f64 = 1.0;
        // Both kinds of epochs are measured, because in bidirectional epochs each side contains
        // texts in both languages.
        for number in BTreeSet::from([0, self.bidirectional_epochs]) {
            let plan = PairPlan::new(&self, batching, Epoch::new(seed, number));
            for index in (0..plan.len()).step_by(plan.len().div_ceil(SAMPLED_BATCHES).max(1)) {
                let batch = plan.batch(&self, index)?;
                let lengths =
                    plan.members(index).iter().map(|&pair| self.row_lengths(pair as usize));
                let (source, target) =
                    lengths.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                most = most
                    .max(batch.streams[0].ids.len() as f64 / source as f64)
                    .max(batch.answers.len() as f64 / target as f64);
            }
        }
        Ok(most * SAMPLING_MARGIN)
    }

    /// Makes a data set for each direction. All of them read the same file of tokenised pairs.
    fn directions(&self) -> Vec<(Direction, Arc<dyn Dataset>)> {
        let mut parts: Vec<(Direction, Vec<u32>)> = Vec::new();
        let mut first = 0;
        for ((end, _), SplitCorpus { direction, .. }) in self.corpora.iter().zip(&*self.directions)
        {
            let pairs = first as u32..*end as u32;
            match parts.iter_mut().find(|(known, _)| known == direction) {
                Some((_, known)) => known.extend(pairs),
                None => parts.push((direction.clone(), pairs.collect())),
            }
            first = *end;
        }
        if parts.len() < 2 {
            return Vec::new();
        }
        parts.retain(|(_, pairs)| !pairs.is_empty());
        let part = |pairs: Vec<u32>| Self { part: Some(pairs.into()), ..self.clone() };
        let parts = parts.into_iter();
        parts.map(|(direction, pairs)| (direction, Arc::new(part(pairs)) as _)).collect()
    }

    fn longest_row(&self) -> usize {
        let (source, target) = self.longest_rows();
        source.max(target)
    }

    fn pair_lengths(&self) -> Option<Box<dyn Iterator<Item = (usize, usize)> + '_>> {
        let without_ends = |pair| {
            let (source, target) = self.row_lengths(pair);
            (source - 1, target - 1)
        };
        Some(Box::new((0..self.len()).map(without_ends)))
    }

    fn most_tokens(&self) -> usize {
        let [source, target] = self.rows(None);
        source.tokens().max(target.tokens())
    }

    /// Takes the longest rows of each side, up to `tokens` tokens. Each side is filled separately,
    /// because the pairs with the longest sources need not have the longest targets.
    fn largest_batch(&self, tokens: usize) -> Batch {
        let longest = self.variation.as_ref().map(|_| self.longest_row());
        let lengths = self.rows(longest).map(|rows| rows.longest(tokens));
        let count = lengths.iter().map(Vec::len).max().unwrap_or(0);
        let streams = lengths.map(|mut lengths| {
            lengths.resize(count, 1);
            let mut stream = Stream::default();
            lengths.iter().for_each(|&length| stream.push(std::iter::repeat_n(END, length)));
            stream
        });
        let answers = streams[1].ids.clone();
        let mut links = Vec::new();
        if self.cache.has_links() {
            let (mut target, mut source) = (0, 0);
            for (rows, keys) in streams[1].lengths.iter().zip(&streams[0].lengths) {
                links.extend((target..target + *rows as u32).map(|row| (row, source)));
                (target, source) = (target + *rows as u32, source + *keys as u32);
            }
        }
        Batch { streams: streams.into(), asked: None, answers, indices: vec![0; count], links }
    }
}

/// The batches of an epoch, with the data from which they are made.
struct PlannedPairs {
    dataset: Arc<PairDataset>,
    plan: PairPlan,
}

impl EpochPlan for PlannedPairs {
    fn batches(&self) -> usize {
        self.plan.len()
    }

    /// Sum of the numbers of source tokens, target tokens and predicted tokens. There are as many
    /// predicted tokens as target tokens.
    fn cost(&self, batch: usize) -> u64 {
        let (source, target) = self.plan.tokens(&self.dataset, batch);
        (source + 2 * target) as u64
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        self.plan.batch(&self.dataset, batch)
    }
}
