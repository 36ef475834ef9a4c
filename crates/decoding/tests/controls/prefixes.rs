//! Tests outputs that must begin with given tokens.

use super::*;

#[test]
fn an_output_as_prefix_gives_that_output() {
    let (model, sources) = (model(46), random_sources(30, 46));
    for config in [greedy(), DecodingConfig::default(), sampled(sampling(1.0, 9), 1)] {
        let translator = Translator::new(&model, config.clone()).expect("valid");
        let translations = translator.translate(&sources).expect("decodes");
        // Greedy search and sampling must find the same output again if a part of it is the prefix.
        // A beam can find a better output, which the search without a prefix had dropped in favour
        // of outputs with other beginnings.
        let shares: &[usize] =
            if config.beam_size == 1 || config.sampling.is_active() { &[0, 1, 2] } else { &[0] };
        for share in shares {
            let prefixes: Vec<Vec<u32>> = translations
                .iter()
                .map(|list| list[0].tokens[..list[0].tokens.len() * share / 2].to_vec())
                .collect();
            assert_eq!(
                translator
                    .translate_sentences(&prefixed(&sources, &prefixes), |_| {})
                    .expect("decodes"),
                translations
            );
        }
    }
}

#[test]
fn every_output_begins_with_its_prefix() {
    let (model, mut sources) = (model(47), random_sources(20, 47));
    sources[3] = vec![END];
    let prefixes: Vec<Vec<u32>> =
        (0..20_u32).map(|i| (0..i % 4).map(|k| 4 + (i + 3 * k) % 8).collect()).collect();
    for config in [
        greedy(),
        DecodingConfig { n_best: 4, ..DecodingConfig::default() },
        sampled(sampling(1.0, 9), 4),
    ] {
        let translator = Translator::new(&model, config).expect("valid");
        let translations = translator
            .translate_sentences(&prefixed(&sources, &prefixes), |_| {})
            .expect("decodes");
        for (list, prefix) in translations.iter().zip(&prefixes) {
            assert!(!list.is_empty());
            assert!(list.iter().all(|hypothesis| hypothesis.tokens.starts_with(prefix)));
        }
    }
    // A prefix can be longer than the configured limit on outputs.
    let short = DecodingConfig { max_length: 2, ..greedy() };
    let long = vec![vec![4, 5, 6, 7, 4, 5]];
    let translations = Translator::new(&model, short)
        .expect("valid")
        .translate_sentences(&prefixed(&sources[..1], &long), |_| {})
        .expect("decodes");
    assert_eq!(translations[0][0].tokens, long[0]);
}

#[test]
fn forced_tokens_cost_nothing_by_the_rules_of_transformers() {
    let (model, sources) = (model(57), random_sources(20, 57));
    let prefixes = vec![vec![4, 9]; sources.len()];
    let plain = DecodingConfig { max_length_ratio: 0.0, max_length_offset: 6, ..greedy() };
    let of_sampling = |sampling| DecodingConfig { sampling, n_best: 3, ..plain.clone() };
    let mut ends = 0;
    for config in [
        plain.clone(),
        DecodingConfig { beam_size: 4, ..plain.clone() },
        of_sampling(sampling(1.0, 9)),
        of_sampling(SamplingConfig { top_k: 3, ..sampling(1.0, 9) }),
    ] {
        for rules in [SearchRules::Exact, SearchRules::Transformers, SearchRules::TransformersOpen]
        {
            let config = DecodingConfig { rules, length_penalty: 0.0, ..config.clone() };
            let translator = Translator::new(&model, config.clone()).expect("valid");
            let translations = translator
                .translate_sentences(&prefixed(&sources, &prefixes), |_| {})
                .expect("decodes");
            for hypothesis in translations.iter().flatten() {
                let mut counted = &hypothesis.token_log_probabilities[..];
                if rules != SearchRules::Exact {
                    // The end at the maximum length is forced like the prefix.
                    counted = &counted[2..counted.len().min(6)];
                }
                let expected: f64 = counted.iter().sum();
                assert!((hypothesis.score - expected).abs() < 1e-9, "{config:?} {hypothesis:?}");
                ends += usize::from(hypothesis.tokens.len() == 6);
            }
        }
    }
    assert!(ends > 0);
}

#[test]
fn prefixes_are_checked() {
    let (model, sources) = (model(48), random_sources(2, 48));
    let translator = Translator::new(&model, greedy()).expect("valid");
    let prefixes = [vec![4], vec![5, END]];
    let error = translator
        .translate_sentences(&prefixed(&sources, &prefixes), |_| {})
        .expect_err("</s> within");
    assert!(
        matches!(error, DecodingError::Target { sentence: 1, position: 1, token: END, .. }),
        "{error}"
    );
}
