//! Tests batches, the order of results, empty lines, progress reports, configuration and errors.

mod common;

use std::sync::atomic::Ordering;

use common::{HashModel, mix, random_sources};
use taper_decoding::{
    DecodingConfig, DecodingError, END, Result, SamplingConfig, Sentence, StepModel, Translator,
    greedy_search,
};

#[test]
fn results_do_not_depend_on_batches_and_come_in_input_order() {
    for beam_size in [1, 4] {
        let mut model = HashModel::new(21);
        model.levels = 5;
        let sources = random_sources(40, 21);
        let translate = |batch_tokens, batch_rows| {
            let config = DecodingConfig {
                beam_size,
                n_best: beam_size,
                batch_tokens,
                batch_rows,
                ..DecodingConfig::default()
            };
            model.starts.store(0, Ordering::Relaxed);
            let translator = Translator::new(&model, config).expect("valid");
            let found = translator.translate(&sources).expect("decodes");
            (found, model.starts.load(Ordering::Relaxed))
        };
        let (one_batch, starts) = translate(1_000_000, 1_000_000);
        assert_eq!(starts, 1);
        let (single_sentences, starts) = translate(1, 1_000_000);
        assert_eq!(starts, 40);
        let (by_rows, starts) = translate(1_000_000, 3 * beam_size);
        assert_eq!(starts, 14);
        let (by_tokens, starts) = translate(100, 1_000_000);
        assert!((2..40).contains(&starts));
        assert_eq!(one_batch, single_sentences);
        assert_eq!(one_batch, by_rows);
        assert_eq!(one_batch, by_tokens);

        // Each sentence is translated in a separate call. This shows that the results of one call
        // are in the order of the input.
        let config = DecodingConfig { beam_size, n_best: beam_size, ..DecodingConfig::default() };
        let translator = Translator::new(&model, config).expect("valid");
        for (source, expected) in sources.iter().zip(&one_batch) {
            let alone = translator.translate(std::slice::from_ref(source));
            assert_eq!(&alone.expect("decodes")[0], expected);
        }
    }
}

/// A sentence with phrases is always translated by a beam that is wide enough for its phrases. In a
/// batch, each hypothesis of this beam counts as a row.
#[test]
fn batches_count_the_rows_of_phrases() {
    let model = HashModel::new(27);
    let sources = random_sources(12, 27);
    let phrases = [vec![5, 6], vec![7]];
    let sentences: Vec<Sentence<'_>> = Sentence::plain(&sources)
        .into_iter()
        .map(|sentence| Sentence { phrases: &phrases, ..sentence })
        .collect();
    let sampling = SamplingConfig { temperature: 1.0, ..SamplingConfig::default() };
    for (beam_size, sampling) in [(1, sampling), (1, SamplingConfig::default())] {
        let config =
            DecodingConfig { beam_size, sampling, batch_rows: 8, ..DecodingConfig::default() };
        model.starts.store(0, Ordering::Relaxed);
        let translator = Translator::new(&model, config).expect("valid");
        translator.translate_sentences(&sentences, |_| {}).expect("decodes");
        // The phrases have three tokens, so the beam has a width of four. A batch of eight rows has
        // two sentences.
        assert_eq!(model.starts.load(Ordering::Relaxed), 6);
    }
}

#[test]
fn scores_do_not_depend_on_batches_and_equal_the_translations() {
    let model = HashModel::new(22);
    let mut sources = random_sources(30, 22);
    sources[3] = vec![END];
    sources[17] = Vec::new();
    for batch_tokens in [1, 40, 1_000_000] {
        let config = DecodingConfig { batch_tokens, ..DecodingConfig::default() };
        let translator = Translator::new(&model, config).expect("valid");
        let found = translator.translate(&sources).expect("decodes");
        let targets: Vec<Vec<u32>> = found.iter().map(|n| n[0].tokens.clone()).collect();
        let forced = translator.score(&sources, &targets).expect("scores");
        for (forced, found) in forced.iter().zip(found.iter().map(|n| &n[0])) {
            assert_eq!(forced.log_probability, found.log_probability);
            assert_eq!(forced.score, found.score);
            assert_eq!(forced.length, found.length);
        }
    }
}

#[test]
fn empty_sources_give_empty_output_without_the_model() {
    let model = HashModel::new(23);
    let translator = Translator::new(&model, DecodingConfig::default()).expect("valid");
    assert!(translator.translate(&[]).expect("decodes").is_empty());
    let only_empty = [Vec::new(), vec![END]];
    for list in translator.translate(&only_empty).expect("decodes") {
        assert_eq!(list.len(), 1);
        assert!(list[0].tokens.is_empty());
        assert_eq!(list[0].score, 0.0);
    }
    assert_eq!(model.starts.load(Ordering::Relaxed), 0);

    let among_others = [Vec::new(), vec![4, 5, 6, END], vec![END], vec![9, END]];
    let found = translator.translate(&among_others).expect("decodes");
    let alone = translator.translate(&among_others[1..2]).expect("decodes");
    assert_eq!(found.len(), 4);
    assert_eq!(found[1], alone[0]);
    assert!(found[0][0].tokens.is_empty() && found[2][0].tokens.is_empty());

    // A non-empty target of an empty source is scored by the model, and has a finite score.
    let scores = translator.score(&[Vec::new(), vec![END]], &[vec![5], vec![5]]);
    let scores = scores.expect("scores");
    assert_eq!(scores[0], scores[1]);
    assert!(scores[0].log_probability < 0.0 && scores[0].log_probability.is_finite());
}

#[test]
fn progress_covers_each_sentence_once() {
    let model = HashModel::new(24);
    let mut sources = random_sources(25, 24);
    sources[4].clear();
    let config = DecodingConfig { batch_tokens: 60, ..DecodingConfig::default() };
    let translator = Translator::new(&model, config).expect("valid");
    let mut seen = vec![None; sources.len()];
    let mut last_done = 0;
    let found = translator
        .translate_with(&sources, |chunk| {
            assert_eq!(chunk.sentences_total, 25);
            assert_eq!(chunk.sentences_done, last_done + chunk.indices.len());
            last_done = chunk.sentences_done;
            for (&index, list) in chunk.indices.iter().zip(chunk.results) {
                assert!(seen[index].replace(list.clone()).is_none());
            }
        })
        .expect("decodes");
    assert_eq!(last_done, 25);
    let seen: Vec<_> = seen.into_iter().flatten().collect();
    assert_eq!(seen, found);
}

/// Runs `work` on a pool of `count` threads.
fn on_threads<R: Send>(count: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(count).build().expect("a pool").install(work)
}

#[test]
fn threads_with_batches_of_their_own_find_the_same() {
    for beam_size in [1, 4] {
        let mut model = HashModel::new(27);
        let mut sources = random_sources(500, 27);
        sources[4].clear();
        let config = DecodingConfig { beam_size, batch_rows: 256, ..DecodingConfig::default() };
        let mut translate = |apart, threads| {
            model.apart = apart;
            model.starts.store(0, Ordering::Relaxed);
            let translator = Translator::new(&model, config.clone()).expect("valid");
            let mut seen = Vec::new();
            let found = on_threads(threads, || {
                translator.translate_with(&sources, |chunk| seen.extend_from_slice(chunk.indices))
            });
            (found.expect("decodes"), seen, model.starts.load(Ordering::Relaxed))
        };
        let (found, order, together) = translate(false, 4);
        for threads in [1, 2, 4, 16] {
            let (same, same_order, starts) = translate(true, threads);
            assert_eq!(found, same);
            // Progress is reported in the order of the batches, even if a later batch finishes
            // first.
            assert_eq!(order, same_order);
            // The limit on rows is divided among the threads, so there are more batches.
            let shares = threads.min(256 / 32);
            assert!(starts >= shares * (together - 1), "{starts} batches, {together} in one");
        }
    }
}

#[test]
fn finished_sentences_leave_the_batch() {
    let mut model = HashModel::new(25);
    model.end_bias = 1.0;
    let sources = random_sources(50, 25);
    let slices: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let found = greedy_search(&model, &slices, &DecodingConfig::default()).expect("decodes");
    let tokens: usize = found.iter().map(|hypothesis| hypothesis.length).sum();
    let longest = found.iter().map(|hypothesis| hypothesis.length).max();
    assert!(longest.expect("some") * 50 > tokens);
    assert_eq!(model.rows_stepped.load(Ordering::Relaxed), tokens);
}

/// A [`HashModel`] that returns NaN for one source, at one position.
struct Diverged {
    inner: HashModel,
    history: u64,
}

impl StepModel for Diverged {
    type State = Vec<u64>;

    fn vocabulary_size(&self) -> usize {
        self.inner.vocabulary_size()
    }

    fn longest_output(&self) -> Option<usize> {
        self.inner.longest_output()
    }

    fn gains_from_workers(&self) -> bool {
        self.inner.apart
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Vec<u64>> {
        self.inner.start(sources)
    }

    fn step(
        &self,
        state: &mut Vec<u64>,
        tokens: &[u32],
        mut read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        let mut logits = Vec::new();
        self.inner.step(state, tokens, |block| {
            logits.extend_from_slice(block);
            Ok(())
        })?;
        for (row, &history) in state.iter().enumerate() {
            if history == self.history {
                logits[row * self.inner.vocabulary + 5] = f32::NAN;
            }
        }
        read(&logits)
    }

    fn select(&self, state: &mut Vec<u64>, rows: &[usize]) -> Result<()> {
        self.inner.select(state, rows)
    }
}

#[test]
fn a_nan_is_reported_with_its_sentence() {
    let inner = HashModel::new(26);
    let sources = random_sources(200, 26);
    let source_history = inner.history_of_source(&sources[13]);
    let history = mix(source_history, u64::from(taper_decoding::START));
    let mut model = Diverged { inner, history };
    for (beam_size, apart) in [(1, false), (3, false), (1, true), (3, true)] {
        model.inner.apart = apart;
        let config = DecodingConfig { beam_size, batch_tokens: 30, ..DecodingConfig::default() };
        let translator = Translator::new(&model, config).expect("valid");
        let error = on_threads(4, || translator.translate(&sources)).expect_err("NaN");
        assert!(
            matches!(error, DecodingError::NotADistribution { sentence: 13, position: 0 }),
            "{error}"
        );
    }
}

#[test]
fn a_sentence_whose_search_fails_fails_alone() {
    let inner = HashModel::new(26);
    let mut sources = random_sources(200, 26);
    sources[7] = vec![END];
    let start = u64::from(taper_decoding::START);
    let history = mix(inner.history_of_source(&sources[13]), start);
    let mut model = Diverged { inner, history };
    for (beam_size, apart) in [(1, false), (3, false), (1, true), (3, true)] {
        model.inner.apart = apart;
        let config = DecodingConfig { beam_size, batch_tokens: 30, ..DecodingConfig::default() };
        let right = Translator::new(&model.inner, config.clone()).expect("valid");
        let right = right.translate(&sources).expect("translated");
        let translator = Translator::new(&model, config).expect("valid");
        let sentences = Sentence::plain(&sources);
        let mut done = Vec::new();
        let found =
            on_threads(4, || translator.translate_each(&sentences, |count| done.push(count)));
        let found = found.expect("searched");
        assert_eq!((found.len(), done.last()), (200, Some(&200)));
        for (index, (found, right)) in found.into_iter().zip(right).enumerate() {
            match found {
                Ok(found) => assert!(index != 13 && found == right, "{index}"),
                Err(DecodingError::NotADistribution { sentence: 13, position: 0 }) => {
                    assert_eq!(index, 13);
                }
                Err(error) => panic!("{index}: {error}"),
            }
        }
    }

    // With a vocabulary of only special tokens, no search succeeds.
    let mut tiny = HashModel::new(28);
    tiny.vocabulary = 4;
    for beam_size in [1, 2] {
        let config = DecodingConfig { beam_size, min_length: 1, ..DecodingConfig::default() };
        let translator = Translator::new(&tiny, config).expect("valid");
        let sources = vec![vec![5, END]; 5];
        let found = translator.translate_each(&Sentence::plain(&sources), |_| {}).expect("done");
        for (index, found) in found.iter().enumerate() {
            let Err(DecodingError::DeadEnd { sentence }) = found else { panic!("{found:?}") };
            assert_eq!(*sentence, index);
        }
    }
}

#[test]
fn unusable_input_is_refused_with_its_place() {
    let model = HashModel::new(27);
    let translator = Translator::new(&model, DecodingConfig::default()).expect("valid");
    let error = translator.translate(&[vec![5, END], vec![5, 6]]).expect_err("no </s>");
    assert!(error.to_string().contains("source 1 ends with token 6"), "{error}");
    for bad in [0, 2, END, 8, 1000] {
        let sources = [vec![5, END], vec![5, 6, 7, END]];
        let error =
            translator.score(&sources, &[vec![4, 5, bad], vec![4]]).expect_err("bad target");
        assert!(
            matches!(error, DecodingError::Target { sentence: 0, position: 2, token, vocabulary: 8 }
                if token == bad),
            "{error}"
        );
    }
    let error = translator.score(&[vec![END]], &[]).expect_err("counts");
    assert!(error.to_string().contains("1 sources but 0 targets"));

    let mut tiny = HashModel::new(28);
    tiny.vocabulary = 3;
    let error = Translator::new(&tiny, DecodingConfig::default()).map(|_| ());
    assert!(matches!(error, Err(DecodingError::Vocabulary { size: 3 })));

    // With a vocabulary of only special tokens, no output can reach a minimum length.
    tiny.vocabulary = 4;
    let config = DecodingConfig { min_length: 1, ..DecodingConfig::default() };
    let translator = Translator::new(&tiny, config).expect("valid");
    let error = translator.translate(&[vec![5, END]]).expect_err("dead end");
    assert!(matches!(error, DecodingError::DeadEnd { sentence: 0 }));
    // The message must advise to allow more, not less.
    assert!(error.to_string().contains("raise decoding.no_repeat_ngram or set it to 0"), "{error}");
}

#[test]
fn configurations_are_checked() {
    let parsed: DecodingConfig =
        serde_json::from_str(r#"{"beam_size": 3, "n_best": 2}"#).expect("parses");
    assert_eq!((parsed.beam_size, parsed.n_best), (3, 2));
    assert_eq!(parsed.length_penalty, 0.6);
    let unknown = serde_json::from_str::<DecodingConfig>(r#"{"beam": 3}"#);
    assert!(unknown.expect_err("unknown key").to_string().contains("beam"));

    DecodingConfig::default().validate().expect("valid default");
    type Change = fn(&mut DecodingConfig);
    let refused: [(&str, Change); 12] = [
        ("beam_size", |config| config.beam_size = 0),
        ("n_best", |config| config.n_best = 6),
        ("length_penalty", |config| config.length_penalty = -0.1),
        ("length_reward", |config| config.length_reward = -0.1),
        ("max_length_ratio", |config| config.max_length_ratio = f64::NAN),
        ("max_length", |config| config.max_length = 0),
        ("min_length", |config| config.min_length = 1000),
        ("batch_tokens", |config| config.batch_tokens = 0),
        ("patience", |config| config.patience = -1.0),
        ("repetition_penalty", |config| config.repetition_penalty = 0.0),
        ("sampling.temperature", |config| config.sampling.temperature = f64::INFINITY),
        ("sampling.top_p", |config| config.sampling.top_p = 0.0),
    ];
    for (key, change) in refused {
        let mut config = DecodingConfig::default();
        change(&mut config);
        let message = config.validate().expect_err(key).to_string();
        assert!(message.starts_with(&format!("decoding.{key} = ")), "{message}");
    }
}

#[test]
fn pruning_that_nothing_can_estimate_is_refused() {
    use taper_decoding::{PruningConfig, RerankingConfig, Utility};
    let with = |temperature: f64, utility: Utility, pruning: PruningConfig| {
        let reranking = RerankingConfig { candidates: 8, utility, pruning, ..Default::default() };
        let mut config = DecodingConfig { reranking, ..DecodingConfig::default() };
        config.sampling.temperature = temperature;
        config
    };
    let confident = PruningConfig { confidence: 0.99, ..PruningConfig::default() };
    with(1.0, Utility::Chrf, confident).validate().expect("samples and pairs");
    with(1.0, Utility::Bleu, confident).validate().expect("samples and pairs");
    // Without candidates, there is nothing to prune.
    let mut idle = with(0.0, Utility::Chrf, confident);
    idle.reranking.candidates = 0;
    idle.validate().expect("no choice");
    let key = "decoding.reranking.pruning";
    for (config, parts) in [
        (
            with(0.0, Utility::Chrf, confident),
            ["confidence = 0.99", "decoding.sampling.temperature"],
        ),
        (
            with(1.0, Utility::AggregatedChrf, confident),
            ["confidence = 0.99", "\"aggregated-chrf\""],
        ),
        (
            with(1.0, Utility::Chrf, PruningConfig { confidence: 1.5, ..confident }),
            ["confidence = 1.5", "from 0 to 1"],
        ),
        (
            with(1.0, Utility::Chrf, PruningConfig { references: 0, ..confident }),
            ["references = 0", "at least 1"],
        ),
        (
            with(1.0, Utility::Chrf, PruningConfig { resamples: 1 << 20, ..confident }),
            ["resamples = 1048576", "at most 65536"],
        ),
    ] {
        let message = config.validate().expect_err("refused").to_string();
        assert!(
            message.contains(key) && parts.iter().all(|part| message.contains(part)),
            "{message}"
        );
    }
}
