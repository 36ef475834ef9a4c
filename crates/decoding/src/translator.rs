//! Translation of many sentences, in batches of similar length, with results in the order of the
//! input.

use std::ops::{ControlFlow, Range};

use crate::batches::{Collector, FinishedChunk, Size, batches, in_order, shared};
use crate::forced::{check_counts, check_target, scores_of};
use crate::search::beam::beam_under;
use crate::search::greedy::greedy;
use crate::search::sampling::sample;
use crate::search::stepwise::Output;
use crate::{
    Control, DecodingConfig, DecodingError, ForcedScore, Hypothesis, LengthSettings, Renumbered,
    Result, Sentence, StepModel,
};

/// Translates and scores any number of sentences with one model and one configuration.
///
/// Sentences are divided into batches of similar length, longest first, within the limits
/// `batch_tokens` and `batch_rows` of the configuration. Results are in the order of the input. An
/// empty source (no tokens, or only `</s>`) gives an empty translation, for which the model is not
/// run.
#[derive(Debug)]
pub struct Translator<'m, M> {
    model: &'m M,
    config: DecodingConfig,
    control: &'m dyn Control,
}

impl<'m, M: StepModel> Translator<'m, M> {
    /// Makes a translator with `model`.
    ///
    /// # Errors
    /// [`DecodingError::Config`] or [`DecodingError::UnknownLength`] for an unusable configuration,
    /// and [`DecodingError::Vocabulary`] for a model whose vocabulary cannot contain the special
    /// tokens.
    pub fn new(model: &'m M, config: DecodingConfig) -> Result<Self> {
        config.validate_search()?;
        let size = model.vocabulary_size();
        if size <= model.special().end() as usize {
            return Err(DecodingError::Vocabulary { size });
        }
        Ok(Self { model, config, control: &() })
    }

    /// Sets the control of the searches, which gets the index of a sentence in the input of the
    /// call. For a sentence that the control cancels, only the finished outputs are returned, which
    /// can be none.
    #[must_use]
    pub fn controlled(self, control: &'m dyn Control) -> Self {
        Self { control, ..self }
    }

    /// Translates `sources`, each ending with `</s>`. Returns the hypotheses of each source, in the
    /// order of `sources`: at least one and at most `n_best`, best first.
    ///
    /// # Errors
    /// [`DecodingError::SourceWithoutEnd`], before anything is translated, and errors of
    /// [`beam_search`](crate::beam_search).
    pub fn translate(&self, sources: &[Vec<u32>]) -> Result<Vec<Vec<Hypothesis>>> {
        self.translate_with(sources, |_| {})
    }

    /// Translates like [`translate`](Self::translate), and calls `on_chunk` after each batch.
    ///
    /// # Errors
    /// The errors of [`translate`](Self::translate).
    pub fn translate_with(
        &self,
        sources: &[Vec<u32>],
        on_chunk: impl FnMut(FinishedChunk<'_, Vec<Hypothesis>>),
    ) -> Result<Vec<Vec<Hypothesis>>> {
        self.translate_sentences(&Sentence::plain(sources), on_chunk)
    }

    /// Translates like [`translate_with`](Self::translate_with), for sentences with their own
    /// prefixes, phrases and numbers. If an empty source has a prefix, the model reads only `</s>`
    /// as the source.
    ///
    /// # Errors
    /// The errors of [`translate`](Self::translate), and [`DecodingError::Target`] or
    /// [`DecodingError::LongPrefix`] for a prefix with which no translation can begin.
    pub fn translate_sentences(
        &self,
        sentences: &[Sentence<'_>],
        on_chunk: impl FnMut(FinishedChunk<'_, Vec<Hypothesis>>),
    ) -> Result<Vec<Vec<Hypothesis>>> {
        let of_empty = || vec![Hypothesis::empty()];
        let chunk = |chunk: &[Sentence<'_>], control: &dyn Control| self.lists_of(chunk, control);
        self.in_batches(sentences, of_empty, chunk, on_chunk)
    }

    /// Translates like [`translate_sentences`](Self::translate_sentences), but if the search for a
    /// sentence fails, the error is the result of this sentence alone. `progress` is called with
    /// the number of sentences that are done so far.
    ///
    /// # Errors
    /// The errors of [`translate_sentences`](Self::translate_sentences) which do not concern the
    /// search for a single sentence.
    pub fn translate_each(
        &self,
        sentences: &[Sentence<'_>],
        mut progress: impl FnMut(usize),
    ) -> Result<Vec<Result<Vec<Hypothesis>>>> {
        let of_empty = || Ok(vec![Hypothesis::empty()]);
        let chunk = |chunk: &[Sentence<'_>], control: &dyn Control| self.each_of(chunk, control);
        let mut results =
            self.in_batches(sentences, of_empty, chunk, |done| progress(done.sentences_done))?;
        for (index, result) in results.iter_mut().enumerate() {
            if let Some(sentence) = result.as_mut().err().and_then(DecodingError::sentence_mut) {
                *sentence = index;
            }
        }
        Ok(results)
    }

    /// Finds the best translation of each sentence for each of `lengths`, which replace the length
    /// settings of the configuration. Returns the tokens, by sentence and then by setting. They are
    /// the same as those of [`translate_sentences`](Self::translate_sentences) with each setting,
    /// but are found in a single search.
    ///
    /// # Errors
    /// [`DecodingError::Config`] for invalid settings, and the errors of
    /// [`translate_sentences`](Self::translate_sentences).
    pub fn translate_under(
        &self,
        sentences: &[Sentence<'_>],
        lengths: &[LengthSettings],
        on_chunk: impl FnMut(FinishedChunk<'_, Vec<Vec<u32>>>),
    ) -> Result<Vec<Vec<Vec<u32>>>> {
        let under = |lengths: &LengthSettings| {
            let mut config = self.config.clone();
            lengths.apply(&mut config);
            config.validate_search().map(|()| config)
        };
        let settings: Vec<DecodingConfig> = lengths.iter().map(under).collect::<Result<_>>()?;
        let chunk = |chunk: &[Sentence<'_>], control: &dyn Control| -> Result<Vec<Vec<Vec<u32>>>> {
            let best = |list: Vec<Hypothesis>| list.into_iter().next().map(|best| best.tokens);
            let translations = self.translate_chunk(chunk, &settings, control)?.into_iter();
            Ok(translations
                .map(|lists| lists.into_iter().map(|list| best(list).unwrap_or_default()).collect())
                .collect())
        };
        self.in_batches(sentences, || vec![Vec::new(); lengths.len()], chunk, on_chunk)
    }

    /// Divides `sentences` into batches, calls `chunk_results` for each batch, and returns all
    /// results in the order of `sentences`. `of_empty` makes the result of an empty sentence.
    fn in_batches<T: Send>(
        &self,
        sentences: &[Sentence<'_>],
        of_empty: impl Fn() -> T,
        chunk_results: impl Fn(&[Sentence<'_>], &dyn Control) -> Result<Vec<T>> + Sync,
        on_chunk: impl FnMut(FinishedChunk<'_, T>),
    ) -> Result<Vec<T>> {
        let special = self.model.special();
        let ends = Ends(special.end());
        ends.check(sentences.iter().map(|sentence| sentence.source))?;
        for (index, sentence) in sentences.iter().enumerate() {
            check_target(index, sentence.prefix, self.model.vocabulary_size(), special)?;
            check_length(index, sentence.prefix, self.model.longest_output())?;
        }
        let (empty, mut order): (Vec<usize>, Vec<usize>) =
            (0..sentences.len()).partition(|&index| {
                ends.is_empty(sentences[index].source) && sentences[index].prefix.is_empty()
            });
        order.sort_by_key(|&index| std::cmp::Reverse(sentences[index].source.len()));
        let size = |&index: &usize| Size {
            tokens: sentences[index].source.len(),
            rows: sentences[index].rows(&self.config),
        };
        let sizes: Vec<Size> = order.iter().map(size).collect();
        let rows = sizes.iter().fold(0_usize, |rows, size| rows.saturating_add(size.rows));
        let workers = self.workers(rows);
        let batches = batches(&sizes, &shared(&self.config, rows, workers));

        let mut collector = Collector::new(sentences.len(), on_chunk);
        if !empty.is_empty() {
            collector.finish(&empty, empty.iter().map(|_| of_empty()).collect());
        }
        let one_batch = |batch: &Range<usize>| {
            let indices = &order[batch.clone()];
            let chunk: Vec<Sentence<'_>> = indices
                .iter()
                .map(|&index| Sentence {
                    source: ends.or_only_end(sentences[index].source),
                    ..sentences[index]
                })
                .collect();
            let control = Renumbered::new(self.control, indices);
            let run = || chunk_results(&chunk, &control);
            // `run` is executed on a thread of the pool, so that its parallel operations need not
            // be handed over to the pool one by one.
            let results =
                if self.model.gains_from_workers() { rayon::scope(|_| run()) } else { run() };
            results.map_err(|error| error.in_batch(indices))
        };
        in_order(&batches, workers, one_batch, |batch, results| {
            collector.finish(&order[batch.clone()], results);
        })?;
        Ok(collector.into_results())
    }

    /// Returns the number of threads that take separate batches, for sentences that have `rows`
    /// rows (hypotheses that are advanced together) in total.
    ///
    /// A step of a small model consists of about a hundred short operations. Dividing each of them
    /// among threads would cost about as much time as it saves. Separate batches avoid this cost,
    /// because sentences are independent of each other.
    fn workers(&self, rows: usize) -> usize {
        if !self.model.gains_from_workers() {
            return 1;
        }
        (rows.min(self.config.batch_rows) / LEAST_ROWS).clamp(1, rayon::current_num_threads())
    }

    /// Scores `targets[i]` (without `<s>` and `</s>`) as a translation of `sources[i]`.
    ///
    /// An empty target of an empty source has the score 0, as in [`translate`](Self::translate).
    /// For any other target of an empty source, the model reads only `</s>` as the source.
    ///
    /// # Errors
    /// [`DecodingError::SourceWithoutEnd`], and the errors of
    /// [`forced_scores`](crate::forced_scores).
    pub fn score(&self, sources: &[Vec<u32>], targets: &[Vec<u32>]) -> Result<Vec<ForcedScore>> {
        self.score_with(sources, targets, |_| {})
    }

    /// Scores like [`score`](Self::score), and calls `on_chunk` after each batch.
    ///
    /// # Errors
    /// The errors of [`score`](Self::score).
    pub fn score_with(
        &self,
        sources: &[Vec<u32>],
        targets: &[Vec<u32>],
        on_chunk: impl FnMut(FinishedChunk<'_, ForcedScore>),
    ) -> Result<Vec<ForcedScore>> {
        check_counts(sources.len(), targets.len())?;
        let ends = Ends(self.model.special().end());
        ends.check(sources.iter().map(Vec::as_slice))?;
        let (empty, mut order): (Vec<usize>, Vec<usize>) = (0..sources.len())
            .partition(|&index| ends.is_empty(&sources[index]) && targets[index].is_empty());
        // Targets of similar length end at about the same time, so that a batch seldom continues
        // with only a few rows.
        order.sort_by_key(|&index| {
            std::cmp::Reverse((sources[index].len().max(1), targets[index].len()))
        });
        let size = |&index: &usize| Size { tokens: sources[index].len().max(1), rows: 1 };
        let sizes: Vec<Size> = order.iter().map(size).collect();

        let mut collector = Collector::new(sources.len(), on_chunk);
        if !empty.is_empty() {
            collector.finish(&empty, vec![ForcedScore::empty(); empty.len()]);
        }
        for batch in batches(&sizes, &self.config) {
            let indices = &order[batch];
            let chunk_sources: Vec<&[u32]> =
                indices.iter().map(|&index| ends.or_only_end(&sources[index])).collect();
            let chunk_targets: Vec<&[u32]> =
                indices.iter().map(|&i| targets[i].as_slice()).collect();
            let control = Renumbered::new(self.control, indices);
            let (model, config) = (self.model, &self.config);
            let results = scores_of(model, &chunk_sources, &chunk_targets, config, &control)
                .map_err(|error| error.in_batch(indices))?;
            collector.finish(indices, results);
            taper_ops::allocator::collect_soon();
        }
        Ok(collector.into_results())
    }

    /// Translates one batch with the configuration of the translator.
    fn lists_of(
        &self,
        sentences: &[Sentence<'_>],
        control: &dyn Control,
    ) -> Result<Vec<Vec<Hypothesis>>> {
        let lists = self.translate_chunk(sentences, std::slice::from_ref(&self.config), control)?;
        Ok(lists.into_iter().flatten().collect())
    }

    /// Translates one batch. If the search for a sentence fails, the halves of the batch are
    /// translated separately, down to the failing sentences. Even if all of them fail, each
    /// sentence is searched only as often as the batch can be halved.
    fn each_of(
        &self,
        sentences: &[Sentence<'_>],
        control: &dyn Control,
    ) -> Result<Vec<Result<Vec<Hypothesis>>>> {
        let error = match self.lists_of(sentences, control) {
            Ok(lists) => return Ok(lists.into_iter().map(Ok).collect()),
            Err(error) if !error.is_of_search() => return Err(error),
            Err(error) => error,
        };
        if sentences.len() <= 1 {
            return Ok(vec![Err(error)]);
        }
        let middle = sentences.len() / 2;
        let mut results = Vec::with_capacity(sentences.len());
        for half in [0..middle, middle..sentences.len()] {
            let indices: Vec<usize> = half.clone().collect();
            let control = Renumbered::new(control, &indices);
            let of_half = self.each_of(&sentences[half], &control);
            results.extend(of_half.map_err(|error| error.in_batch(&indices))?);
        }
        Ok(results)
    }

    /// Translates one batch with each of `settings`, which differ only in [`LengthSettings`]. The
    /// result is indexed by sentence and then by setting.
    fn translate_chunk(
        &self,
        sentences: &[Sentence<'_>],
        settings: &[DecodingConfig],
        control: &dyn Control,
    ) -> Result<Vec<Vec<Vec<Hypothesis>>>> {
        let mut results = vec![Vec::new(); sentences.len()];
        let Some(config) = settings.first() else { return Ok(results) };
        let (model, to_the_end) = (self.model, &mut |_| ControlFlow::Continue(()));
        let (is_drawn, is_beam) = (config.sampling.is_active(), config.beam_size > 1);
        // A sentence with phrases is translated by beam search, even if the configuration selects
        // greedy search or sampling.
        let has_beam = |one: &Sentence<'_>| !one.phrases.is_empty() || (is_beam && !is_drawn);
        let (with_beam, others): (Vec<usize>, Vec<usize>) =
            (0..sentences.len()).partition(|&index| has_beam(&sentences[index]));
        for (indices, has_beam) in [(with_beam, true), (others, false)] {
            if indices.is_empty() {
                continue;
            }
            let part: Vec<Sentence<'_>> = indices.iter().map(|&index| sentences[index]).collect();
            let control = Renumbered::new(control, &indices);
            let translated = (part.as_slice(), Output::Translation);
            let lists = match has_beam {
                true => beam_under(model, &part, settings, &control),
                false if is_drawn => sample(model, translated, settings, &control, to_the_end),
                false => greedy(model, translated, settings, &control, to_the_end),
            };
            let lists = lists.map_err(|error| error.in_batch(&indices))?;
            indices.iter().zip(lists).for_each(|(&index, lists)| results[index] = lists);
        }
        Ok(results)
    }
}

/// Smallest number of rows (hypotheses) for which a thread with separate batches is worth its cost.
/// It is the number of rows that matrix kernels multiply at a time.
const LEAST_ROWS: usize = 32;

/// The token that ends sources: `</s>`, or its counterpart in an imported vocabulary.
#[derive(Clone, Copy)]
struct Ends(u32);

impl Ends {
    fn is_empty(self, source: &[u32]) -> bool {
        source.is_empty() || source == [self.0]
    }

    /// Returns the source or, if it has no tokens, only the end token. The model needs at least one
    /// token, and it is also run for an empty line that has a prefix or a target to score.
    fn or_only_end<'s>(&'s self, source: &'s [u32]) -> &'s [u32] {
        if source.is_empty() { std::slice::from_ref(&self.0) } else { source }
    }

    fn check<'a>(self, sources: impl Iterator<Item = &'a [u32]>) -> Result<()> {
        for (sentence, source) in sources.enumerate() {
            // The end need not be the last token: a token that names a language can follow it.
            if let Some(&last) = source.last()
                && !source.contains(&self.0)
            {
                return Err(DecodingError::SourceWithoutEnd { sentence, last, end: self.0 });
            }
        }
        Ok(())
    }
}

/// Returns an error if the model has no position left for `</s>` after the prefix.
fn check_length(sentence: usize, prefix: &[u32], longest: Option<usize>) -> Result<()> {
    match longest {
        Some(longest) if prefix.len() > longest => {
            Err(DecodingError::LongPrefix { sentence, tokens: prefix.len(), longest })
        }
        _ => Ok(()),
    }
}
