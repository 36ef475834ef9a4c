//! Tests the features that influence outputs: prefixes, sampling, penalties on repetition,
//! ensembles and special tokens.

#[path = "../common/mod.rs"]
mod common;
mod prefixes;
mod repetition;
mod traces;

use std::ops::ControlFlow;

use common::{HashModel, random_sources};
use taper_decoding::{
    DecodingConfig, DecodingError, END, Ensemble, Hypothesis, Result, SamplingConfig, SearchRules,
    Sentence, SpecialIds, StepModel, Translator, generate,
};

/// Makes a model whose outputs are long enough for these tests.
fn model(seed: u64) -> HashModel {
    let mut model = HashModel::new(seed);
    model.vocabulary = 12;
    model.end_bias = 1.5;
    model
}

fn translate(
    model: &HashModel,
    config: &DecodingConfig,
    sources: &[Vec<u32>],
) -> Vec<Vec<Hypothesis>> {
    translate_with(model, config, sources)
}

fn translate_with(
    model: &impl StepModel,
    config: &DecodingConfig,
    sources: &[Vec<u32>],
) -> Vec<Vec<Hypothesis>> {
    Translator::new(model, config.clone()).expect("valid").translate(sources).expect("decodes")
}

fn prefixed<'a>(sources: &'a [Vec<u32>], prefixes: &'a [Vec<u32>]) -> Vec<Sentence<'a>> {
    sources
        .iter()
        .zip(prefixes)
        .zip(0..)
        .map(|((source, prefix), number)| Sentence {
            source,
            prefix,
            phrases: &[],
            candidates: None,
            number,
        })
        .collect()
}

fn greedy() -> DecodingConfig {
    DecodingConfig { beam_size: 1, ..DecodingConfig::default() }
}

fn sampled(sampling: SamplingConfig, n_best: usize) -> DecodingConfig {
    DecodingConfig { n_best, sampling, ..DecodingConfig::default() }
}

fn sampling(temperature: f64, seed: u64) -> SamplingConfig {
    SamplingConfig { temperature, seed, ..SamplingConfig::default() }
}

/// Returns the outputs with which the model continues prompts, like a language model.
fn continued(
    model: &HashModel,
    config: &DecodingConfig,
    prompts: &[Vec<u32>],
) -> Vec<Vec<Hypothesis>> {
    let sentences = Sentence::plain(prompts);
    generate(model, &sentences, config, &(), |_| ControlFlow::Continue(())).expect("goes on")
}

#[test]
fn a_low_temperature_and_one_candidate_are_greedy_search() {
    let (model, sources) = (model(41), random_sources(30, 41));
    let expected = translate(&model, &greedy(), &sources);
    assert_eq!(translate(&model, &sampled(sampling(1e-6, 5), 1), &sources), expected);
    let one = SamplingConfig { top_k: 1, ..sampling(3.0, 5) };
    assert_eq!(translate(&model, &sampled(one, 1), &sources), expected);
    let little = SamplingConfig { top_p: 1e-9, ..sampling(3.0, 5) };
    assert_eq!(translate(&model, &sampled(little, 1), &sources), expected);
}

/// A caller who wants no limit gives the largest numbers. Then only the model limits outputs.
#[test]
fn the_largest_sizes_are_no_limits() {
    let (mut model, sources) = (model(45), random_sources(12, 45));
    model.longest = Some(12);
    let most = usize::MAX;
    let unlimited = |config: DecodingConfig| DecodingConfig {
        max_length: most,
        max_length_offset: most,
        max_length_ratio: f64::MAX,
        no_repeat_ngram: most,
        batch_tokens: most,
        batch_rows: most,
        patience: f64::MAX,
        ..config
    };
    let all = SamplingConfig { top_k: most, ..sampling(1.0, 5) };
    for config in [greedy(), DecodingConfig::default(), sampled(all, 2)] {
        let expected = translate(&model, &config, &sources);
        let config = unlimited(config);
        assert_eq!(translate(&model, &config, &sources), expected);
        let phrases = [vec![5, 6]];
        let sentences = [Sentence { phrases: &phrases, ..Sentence::plain(&sources)[0] }];
        let translator = Translator::new(&model, config.clone()).expect("valid");
        assert_eq!(translator.translate_sentences(&sentences, |_| {}).expect("decodes").len(), 1);
        assert_eq!(continued(&model, &config, &sources[..2]).len(), 2);
    }
    let error = Translator::new(&model, DecodingConfig { beam_size: most, ..greedy() });
    assert!(matches!(error, Err(DecodingError::Config { key: "beam_size", .. })));
}

#[test]
fn cuts_that_cut_nothing_change_nothing() {
    let (model, sources) = (model(42), random_sources(30, 42));
    let expected = translate(&model, &sampled(sampling(1.0, 5), 1), &sources);
    // These limits exclude no token: there are 12 tokens, and the `top_p` is just below 1. But the
    // sampler sorts the tokens to apply the limits, which must not change the draws.
    for (top_k, top_p) in [(12, 1.0), (0, 1.0 - f64::EPSILON)] {
        let all = SamplingConfig { top_k, top_p, ..sampling(1.0, 5) };
        assert_eq!(translate(&model, &sampled(all, 1), &sources), expected, "{top_k} {top_p}");
    }
}

#[test]
fn samples_depend_on_seed_and_sentence_alone() {
    let (model, sources) = (model(43), random_sources(30, 43));
    let config = sampled(sampling(1.0, 5), 3);
    let together = translate(&model, &config, &sources);
    for batch_rows in [1, 7, 20] {
        assert_eq!(
            translate(&model, &DecodingConfig { batch_rows, ..config.clone() }, &sources),
            together
        );
    }
    // Each sentence is translated alone, with the number that it has in the whole text.
    let translator = Translator::new(&model, config).expect("valid");
    for (number, (source, expected)) in sources.iter().zip(&together).enumerate() {
        let sentence =
            Sentence { source, prefix: &[], phrases: &[], candidates: None, number: number as u64 };
        let alone = translator.translate_sentences(&[sentence], |_| {}).expect("decodes");
        assert_eq!(&alone[0], expected);
    }
    assert_ne!(translate(&model, &sampled(sampling(1.0, 6), 3), &sources), together);
    // Several copies of a sentence in a text have separate random draws.
    let twice = [sources[4].clone(), sources[4].clone(), sources[4].clone(), sources[4].clone()];
    let drawn = translate(&model, &sampled(sampling(2.0, 5), 1), &twice);
    assert!(drawn.iter().any(|found| found != &drawn[0]));
}

#[test]
fn more_samples_leave_the_first_ones_as_they_were() {
    let (model, sources) = (model(44), random_sources(10, 44));
    let few = translate(&model, &sampled(sampling(1.0, 5), 2), &sources);
    let many = translate(&model, &sampled(sampling(1.0, 5), 9), &sources);
    for (few, many) in few.iter().zip(many) {
        assert_eq!((few.len(), many.len()), (2, 9));
        assert!(many.is_sorted_by(|a, b| a.score >= b.score));
        assert!(few.iter().all(|hypothesis| many.contains(hypothesis)));
    }
}

#[test]
fn a_samples_score_is_the_models() {
    let (model, sources) = (model(45), random_sources(20, 45));
    let config = sampled(SamplingConfig { top_k: 3, ..sampling(2.5, 5) }, 1);
    let translator = Translator::new(&model, config).expect("valid");
    let translations = translator.translate(&sources).expect("decodes");
    let targets: Vec<Vec<u32>> = translations.iter().map(|list| list[0].tokens.clone()).collect();
    let forced = translator.score(&sources, &targets).expect("scores");
    for (forced, translations) in forced.iter().zip(translations.iter().map(|list| &list[0])) {
        assert_eq!(forced.log_probability, translations.log_probability);
    }
}

#[test]
fn no_output_is_longer_than_the_model_takes() {
    let (mut short, long, sources) = (model(55), model(55), random_sources(20, 55));
    short.end_bias = -9.0;
    short.longest = Some(5);
    let two = [HashModel { longest: Some(9), end_bias: -9.0, ..model(56) }, short];
    let ensemble = Ensemble::new(&two).expect("one vocabulary");
    let short = &two[1];
    for config in [
        greedy(),
        DecodingConfig { n_best: 4, ..DecodingConfig::default() },
        sampled(sampling(1.0, 9), 4),
    ] {
        // The forced end overrides the minimum length.
        let config = DecodingConfig { min_length: 7, ..config };
        let alone = translate(short, &config, &sources);
        let together = Translator::new(&ensemble, config)
            .expect("valid")
            .translate(&sources)
            .expect("decodes");
        assert!(
            alone.iter().chain(&together).flatten().all(|hypothesis| hypothesis.tokens.len() == 5)
        );
    }
    let prefixes = [vec![4, 5, 6, 7, 4], vec![4, 5, 6, 7, 4, 5]];
    let prefixed = |count: usize, model| {
        Translator::new(model, greedy())
            .expect("valid")
            .translate_sentences(&prefixed(&sources[..count], &prefixes[..count]), |_| {})
    };
    assert_eq!(prefixed(1, short).expect("fits")[0][0].tokens, prefixes[0]);
    let error = prefixed(2, short).expect_err("too long");
    assert!(
        matches!(error, DecodingError::LongPrefix { sentence: 1, tokens: 6, longest: 5 }),
        "{error}"
    );
    assert!(prefixed(2, &long).expect("no limit")[1][0].tokens.starts_with(&prefixes[1]));
}

#[test]
fn what_is_cut_has_no_end_and_what_ends_has_one() {
    let (model, prompts) = (model(55), random_sources(30, 55));
    let most = |tokens: usize| {
        let config = DecodingConfig { max_length_ratio: 0.0, max_length: tokens, ..greedy() };
        continued(&model, &DecodingConfig { max_length_offset: tokens, ..config }, &prompts)
    };
    let (short, long) = (most(2), most(40));
    let (mut cut, mut ended) = (0, 0);
    for (short, long) in short.iter().flatten().zip(long.iter().flatten()) {
        let sum = |output: &Hypothesis| output.token_log_probabilities.iter().sum::<f64>();
        assert!((sum(short) - short.log_probability).abs() < 1e-12);
        assert!((sum(long) - long.log_probability).abs() < 1e-12);
        let of_tokens = &long.token_log_probabilities[..short.tokens.len()];
        if short.truncated {
            // The output has the first tokens of the longer output, with the same probabilities,
            // and nothing after them.
            assert_eq!((short.tokens.len(), &short.tokens[..]), (2, &long.tokens[..2]));
            assert_eq!(short.token_log_probabilities, of_tokens);
            cut += 1;
        } else {
            assert_eq!(short, long);
            assert_eq!(short.token_log_probabilities.len(), short.tokens.len() + 1);
            ended += 1;
        }
    }
    assert!(cut > 3 && ended > 3, "{cut} {ended}");
    // A translation ends with `</s>` even if it reaches the maximum length.
    let config = DecodingConfig { max_length_ratio: 0.0, max_length_offset: 2, ..greedy() };
    for output in translate(&model, &config, &prompts).iter().flatten() {
        assert_eq!(output.token_log_probabilities.len(), output.tokens.len() + 1);
    }
}

#[test]
fn an_ensemble_is_the_mean_of_log_probabilities() {
    let models = [model(51), model(52), model(53)];
    let sources = random_sources(10, 51);
    let ensemble = Ensemble::new(&models).expect("one vocabulary");
    let targets: Vec<Vec<u32>> = (0..10_u32).map(|i| vec![4 + i % 8]).collect();
    let score = |sources: &[Vec<u32>], targets: &[Vec<u32>]| {
        Translator::new(&ensemble, greedy())
            .expect("valid")
            .score(sources, targets)
            .expect("scores")
    };
    // The probability of a token is proportional to the geometric mean of its probabilities under
    // the models. These means are divided by their sum over the vocabulary.
    let single = |model: &HashModel, target: &[u32]| {
        let translator = Translator::new(model, greedy()).expect("valid");
        translator.score(&sources[..1], &[target.to_vec()]).expect("scores")[0]
            .token_log_probabilities[0]
    };
    let means: Vec<f64> = (1..12)
        .filter(|&token| token != 2 && token != END)
        .map(|token| models.iter().map(|m| single(m, &[token])).sum::<f64>() / 3.0)
        .collect();
    let found: Vec<f64> = (1..12)
        .filter(|&token| token != 2 && token != END)
        .map(|token| score(&sources[..1], &[vec![token]])[0].token_log_probabilities[0])
        .collect();
    let shift = found[0] - means[0];
    assert!(shift > 0.0);
    for (found, mean) in found.iter().zip(&means) {
        assert!((found - mean - shift).abs() < 1e-5, "{found} {mean} {shift}");
    }
    assert!(score(&sources, &targets).iter().all(|score| score.log_probability < 0.0));

    let mut odd = model(54);
    odd.vocabulary = 9;
    let error = Ensemble::new(&[model(51), odd]).map(|_| ()).expect_err("two vocabularies");
    assert!(error.to_string().contains("[12, 9]"), "{error}");
}

/// A model that returns some values too many or too few in each step.
struct Miscounting(HashModel, isize);

impl StepModel for Miscounting {
    type State = Vec<u64>;

    fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }

    fn longest_output(&self) -> Option<usize> {
        self.0.longest_output()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Vec<u64>> {
        self.0.start(sources)
    }

    fn step(
        &self,
        state: &mut Vec<u64>,
        tokens: &[u32],
        mut read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        let mut all = Vec::new();
        self.0.step(state, tokens, |logits| {
            all.extend_from_slice(logits);
            Ok(())
        })?;
        all.resize(all.len().saturating_add_signed(self.1), 0.0);
        read(&all)
    }

    fn select(&self, state: &mut Vec<u64>, rows: &[usize]) -> Result<()> {
        self.0.select(state, rows)
    }
}

#[test]
fn an_ensemble_counts_the_values_of_its_models() {
    let sources = random_sources(3, 51);
    let one = model(51);
    let expected = sources.len() * one.vocabulary;
    for extra in [-1, 1, -(one.vocabulary as isize), one.vocabulary as isize] {
        let models = [Miscounting(model(51), 0), Miscounting(model(52), extra)];
        let ensemble = Ensemble::new(&models).expect("one vocabulary");
        let error = Translator::new(&ensemble, greedy())
            .expect("valid")
            .translate(&sources)
            .expect_err("a wrong number of values");
        let DecodingError::WrongShape { rows: 3, expected: wanted, got, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((wanted, got), (expected, expected.saturating_add_signed(extra)));
    }
}

/// A model with other special tokens than those of this project.
struct Special(HashModel, SpecialIds);

impl StepModel for Special {
    type State = Vec<u64>;

    fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }

    fn special(&self) -> &SpecialIds {
        &self.1
    }

    fn longest_output(&self) -> Option<usize> {
        self.0.longest_output()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Vec<u64>> {
        self.0.start(sources)
    }

    fn step(
        &self,
        state: &mut Vec<u64>,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        self.0.step(state, tokens, read)
    }

    fn select(&self, state: &mut Vec<u64>, rows: &[usize]) -> Result<()> {
        self.0.select(state, rows)
    }
}

#[test]
fn any_end_ends_and_what_is_never_produced_keeps_its_probability() {
    let ends = [5, 9];
    let never = [1, 11];
    let special = Special(model(61), SpecialIds::new(5, &ends, never));
    let (sources, mut ended) = (random_sources(60, 61), [0, 0]);
    let sentences = Sentence::plain(&sources);
    for config in [greedy(), sampled(sampling(1.0, 5), 2)] {
        let mut written: Vec<[Vec<u32>; 2]> = vec![Default::default(); sources.len()];
        let found = generate(&special, &sentences, &config, &(), |new| {
            written[new.sentence][new.copy].push(new.token);
            ControlFlow::Continue(())
        })
        .expect("decodes");
        for ((found, written), source) in found.iter().zip(&written).zip(&sources) {
            for hypothesis in found {
                // The tokens that were reported one by one include the end, unless the output is
                // cut off.
                let ends_here = usize::from(!hypothesis.truncated);
                let is_whole = |tokens: &&Vec<u32>| {
                    tokens.len() == hypothesis.tokens.len() + ends_here
                        && tokens.starts_with(&hypothesis.tokens)
                };
                let probability = |whole: &&Vec<u32>| {
                    let (mut history, mut total) = (special.0.history_of_source(source), 0.0);
                    let first = special.first_input(source);
                    for (input, &token) in [first].iter().chain(*whole).zip(*whole) {
                        history = common::mix(history, u64::from(*input));
                        let logits = special.0.logits(history);
                        let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
                        total += f64::from(logits[token as usize]) - sum.ln();
                    }
                    total
                };
                // Two outputs can differ only in their ends.
                let whole = written
                    .iter()
                    .filter(is_whole)
                    .find(|whole| (hypothesis.log_probability - probability(whole)).abs() < 1e-4)
                    .expect("told, with its probability");
                if let Some(last) = whole.get(hypothesis.tokens.len()) {
                    ended[ends.iter().position(|end| end == last).expect("an end")] += 1;
                }
                assert!(
                    hypothesis.tokens.iter().all(|id| !ends.contains(id) && !never.contains(id))
                );
            }
        }
    }
    assert!(ended.iter().all(|&count| count > 5), "{ended:?}");
    // For a translator, sources must end with the end token of this vocabulary.
    let sources: Vec<Vec<u32>> =
        sources.iter().map(|source| [&source[..source.len() - 1], &[5]].concat()).collect();
    for list in translate_with(&special, &DecodingConfig::default(), &sources) {
        assert!(list[0].tokens.iter().all(|id| !ends.contains(id) && !never.contains(id)));
    }
}
