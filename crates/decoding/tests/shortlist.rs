//! Tests searches with a shortlist, which choose only among the candidates of each sentence (the
//! tokens that the shortlist allows for it), with real Transformers.

use candle_core::{DType, Device};
use taper_decoding::{
    DecodingConfig, END, Ensemble, Hypothesis, SamplingConfig, Sentence, Shortlist, StepModel,
    Translator,
};
use taper_model::{Builder, Inference, ModelConfig, Transformer};
use taper_ops::{Kernel, Products};

/// Size of the source and the target vocabulary. Matrix kernels multiply several columns at a time;
/// this size is no multiple of their number.
const VOCABULARY: usize = 203;

fn model(seed: u64, dtype: DType) -> Transformer {
    let config = ModelConfig {
        d_model: 32,
        d_ff: 48,
        heads: 4,
        encoder_layers: 1,
        decoder_layers: 1,
        output_bias: true,
        ..Default::default()
    };
    let builder = Builder::seeded(seed, &Device::Cpu, dtype);
    Transformer::new(&config, VOCABULARY, VOCABULARY, builder).expect("a valid model")
}

/// Models whose matrix products are computed in f32, bf16 and int8, with the names of these types.
fn models() -> Vec<(Inference, &'static str)> {
    let mut rounded = model(3, DType::F32);
    rounded.round_to_int8().expect("finite weights");
    vec![
        (model(3, DType::F32).inference(), "f32"),
        (model(3, DType::BF16).inference(), "bf16"),
        (rounded.inference(), "int8"),
    ]
}

fn sources() -> Vec<Vec<u32>> {
    (0..13_u32)
        .map(|i| (0..1 + i * 5 % 9).map(|t| 4 + (17 * i + 3 * t) % 199).chain([END]).collect())
        .collect()
}

/// A shortlist with seven tokens for each source token, and two tokens that every translation may
/// contain.
fn shortlist() -> Shortlist {
    let list = |source: u32| (0..7).map(|k| 4 + (source * 31 + k * 57) % 199).collect::<Vec<u32>>();
    Shortlist::new(vec![20, 40], (0..VOCABULARY as u32).map(list))
}

/// Configurations of greedy search, beam search, a search with penalties, and sampling.
fn configs() -> Vec<DecodingConfig> {
    let config = |beam_size| DecodingConfig {
        beam_size,
        n_best: beam_size,
        max_length_ratio: 1.0,
        max_length_offset: 4,
        ..DecodingConfig::default()
    };
    let sampling = SamplingConfig { temperature: 1.0, top_k: 5, ..SamplingConfig::default() };
    vec![
        config(1),
        config(4),
        DecodingConfig { repetition_penalty: 1.7, no_repeat_ngram: 2, ..config(3) },
        DecodingConfig { sampling, ..config(3) },
    ]
}

/// Translates sentences, each with its candidates.
fn translate<M: StepModel>(
    model: &M,
    config: &DecodingConfig,
    sentences: &[Sentence<'_>],
    candidates: &[Vec<u32>],
) -> Vec<Vec<Hypothesis>> {
    let limited: Vec<Sentence<'_>> = sentences
        .iter()
        .zip(candidates)
        .map(|(sentence, list)| Sentence { candidates: Some(list), ..*sentence })
        .collect();
    let translator = Translator::new(model, config.clone()).expect("valid");
    translator.translate_sentences(&limited, |_| ()).expect("decodes")
}

fn of_shortlist<M: StepModel>(model: &M, sentences: &[Sentence<'_>]) -> Vec<Vec<u32>> {
    let shortlist = shortlist();
    sentences.iter().map(|sentence| shortlist.candidates(sentence, model.special())).collect()
}

/// Whether matrix products in the type `name` give each number the same bits, however many rows and
/// columns the product has.
fn is_exact(name: &str) -> bool {
    name == "int8" || Kernel::best(Products::F32) != Kernel::Gemm
}

#[test]
fn all_tokens_as_candidates_change_no_bit() {
    let sources = sources();
    let sentences = Sentence::plain(&sources);
    let all = vec![(0..VOCABULARY as u32).collect::<Vec<u32>>(); sources.len()];
    for (model, name) in models() {
        for config in configs() {
            let plain = Translator::new(&model, config.clone()).expect("valid");
            let plain = plain.translate(&sources).expect("decodes");
            assert_eq!(translate(&model, &config, &sentences, &all), plain, "{name} {config:?}");
        }
    }
}

/// If only the logits of a few tokens are computed, each must be identical to the bit to the logit
/// in the full projection.
#[test]
fn few_logits_are_those_among_all() {
    let sources = sources();
    let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    for (model, name) in models() {
        for tokens in [vec![3, 4, 5], (0..150).collect(), vec![202], (3..203).step_by(9).collect()]
        {
            let mut full = StepModel::start(&model, &sources).expect("starts");
            let mut few = StepModel::start_shortlisted(&model, &sources, &tokens).expect("starts");
            for input in [2_u32, 17, 30] {
                let inputs = vec![input; sources.len()];
                let (mut of_all, mut of_few) = (Vec::new(), Vec::new());
                let step = |state: &mut _, logits: &mut Vec<f32>| {
                    StepModel::step(&model, state, &inputs, |block| {
                        logits.extend_from_slice(block);
                        Ok(())
                    })
                };
                step(&mut full, &mut of_all).expect("steps");
                step(&mut few, &mut of_few).expect("steps");
                assert_eq!(of_few.len(), tokens.len() * sources.len());
                for (all, few) in of_all.chunks(VOCABULARY).zip(of_few.chunks(tokens.len())) {
                    for (&token, &logit) in tokens.iter().zip(few) {
                        let expected = all[token as usize];
                        match is_exact(name) {
                            true => assert_eq!(logit.to_bits(), expected.to_bits(), "{name}"),
                            false => assert!((logit - expected).abs() < 1e-4, "{name}"),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_sentence_does_not_depend_on_the_candidates_of_others() {
    let sources = sources();
    let sentences = Sentence::plain(&sources);
    for (model, name) in models().into_iter().filter(|(_, name)| is_exact(name)) {
        let candidates = of_shortlist(&model, &sentences);
        for config in configs() {
            let together = translate(&model, &config, &sentences, &candidates);
            for ((sentence, list), expected) in sentences.iter().zip(&candidates).zip(&together) {
                let (sentence, list) = ([*sentence], std::slice::from_ref(list));
                let alone = translate(&model, &config, &sentence, list);
                assert_eq!(&alone[0], expected, "{name} {config:?}");
                for token in expected.iter().flat_map(|hypothesis| &hypothesis.tokens) {
                    assert!(list[0].contains(token), "{name}: {token}");
                }
            }
        }
    }
}

/// A model that always computes all logits must give the same results as one that computes only the
/// logits of the candidates.
#[test]
fn logits_may_be_few_or_picked_from_all() {
    struct Full(Inference);
    impl StepModel for Full {
        type State = <Inference as StepModel>::State;

        fn vocabulary_size(&self) -> usize {
            self.0.vocabulary_size()
        }

        fn longest_output(&self) -> Option<usize> {
            self.0.longest_output()
        }

        fn start(&self, sources: &[&[u32]]) -> taper_decoding::Result<Self::State> {
            StepModel::start(&self.0, sources)
        }

        fn step(
            &self,
            state: &mut Self::State,
            tokens: &[u32],
            read: impl FnMut(&[f32]) -> taper_decoding::Result<()>,
        ) -> taper_decoding::Result<()> {
            StepModel::step(&self.0, state, tokens, read)
        }

        fn select(&self, state: &mut Self::State, rows: &[usize]) -> taper_decoding::Result<()> {
            StepModel::select(&self.0, state, rows)
        }
    }
    let sources = sources();
    let sentences = Sentence::plain(&sources);
    for (model, name) in models().into_iter().filter(|(_, name)| is_exact(name)) {
        let candidates = of_shortlist(&model, &sentences);
        for config in configs() {
            let few = translate(&model, &config, &sentences, &candidates);
            let full = Full(model_of(name));
            assert_eq!(translate(&full, &config, &sentences, &candidates), few, "{name}");
        }
    }
}

fn model_of(name: &str) -> Inference {
    let named = models().into_iter().find(|(_, other)| *other == name);
    named.map(|(model, _)| model).expect("a model")
}

/// The tokens of prefixes and phrases must be candidates even if the shortlist does not have them
/// for the source.
#[test]
fn forced_tokens_are_candidates() {
    let sources = sources();
    let (prefix, phrases) = ([99, 100], [vec![111, 112], vec![113]]);
    let lists = shortlist();
    let sentences: Vec<Sentence<'_>> = Sentence::plain(&sources)
        .into_iter()
        .map(|sentence| Sentence { prefix: &prefix, phrases: &phrases, ..sentence })
        .collect();
    let (model, _) = models().remove(0);
    let config =
        DecodingConfig { beam_size: 8, max_length_offset: 20, ..DecodingConfig::default() };
    let candidates = of_shortlist(&model, &sentences);
    let mut outside = 0;
    for (translations, sentence) in
        translate(&model, &config, &sentences, &candidates).iter().zip(&sentences)
    {
        let best = &translations[0].tokens;
        assert!(best.starts_with(&prefix), "{best:?}");
        let has = |phrase: &Vec<u32>| best.windows(phrase.len()).any(|run| run == phrase);
        assert!(translations[0].truncated || phrases.iter().all(has), "{best:?}");
        let in_lists = sentence.source.iter().flat_map(|&source| lists.list(source));
        outside += usize::from(!in_lists.chain(lists.always()).any(|&token| token == prefix[0]));
    }
    assert!(outside > 3, "{outside}");
}

#[test]
fn an_ensemble_of_equal_models_decides_like_one() {
    let sources = sources();
    let sentences = Sentence::plain(&sources);
    let members = [model(3, DType::F32).inference(), model(3, DType::F32).inference()];
    let ensemble = Ensemble::new(&members).expect("equal vocabularies");
    let candidates = of_shortlist(&members[0], &sentences);
    for config in configs() {
        let one = translate(&members[0], &config, &sentences, &candidates);
        assert_eq!(translate(&ensemble, &config, &sentences, &candidates), one);
    }
}
