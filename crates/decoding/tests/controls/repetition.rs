//! Tests the ban on repeated n-grams, and the repetition penalty.

use super::*;

/// Returns the length of the longest run of tokens that occurs twice.
fn longest_repeated_run(tokens: &[u32]) -> usize {
    let twice = |size: usize| {
        let runs: Vec<&[u32]> = tokens.windows(size).collect();
        runs.iter().enumerate().any(|(place, run)| runs[..place].contains(run))
    };
    (1..tokens.len()).take_while(|&size| twice(size)).last().unwrap_or(0)
}

#[test]
fn no_run_comes_twice() {
    let mut model = model(49);
    model.end_bias = -3.0;
    let sources = random_sources(20, 49);
    let base = DecodingConfig { n_best: 3, beam_size: 3, ..DecodingConfig::default() };
    let free = translate(&model, &base, &sources);
    assert!(free.iter().flatten().any(|hypothesis| longest_repeated_run(&hypothesis.tokens) > 1));
    for size in [1, 2, 3] {
        for config in [base.clone(), greedy(), sampled(sampling(1.0, 3), 3)] {
            let config = DecodingConfig { no_repeat_ngram: size, ..config };
            for hypothesis in translate(&model, &config, &sources).iter().flatten() {
                assert!(
                    longest_repeated_run(&hypothesis.tokens) < size,
                    "{size}: {:?}",
                    hypothesis.tokens
                );
            }
        }
    }
}

/// The ban on repeated n-grams also applies to the n-grams of a prompt, as in
/// `NoRepeatNGramLogitsProcessor` of the library Transformers. In translation, it applies to the
/// n-grams of the prefix, but not to the n-grams of the source.
#[test]
fn no_run_of_a_prompt_or_prefix_comes_again() {
    let mut model = model(53);
    model.end_bias = -3.0;
    let prompts: Vec<Vec<u32>> = random_sources(20, 53)
        .into_iter()
        .map(|source| source.iter().map(|&token| 4 + token % 8).collect())
        .collect();
    // Whether `output` completes a run of `size` tokens that has occurred before.
    let repeats = |before: &[u32], output: &[u32], size: usize| {
        let all = [before, output].concat();
        (before.len()..all.len()).any(|end| {
            end + 1 >= size && {
                let run = &all[end + 1 - size..=end];
                all[..end].windows(size).any(|earlier| earlier == run)
            }
        })
    };
    let base = DecodingConfig { max_length_ratio: 0.0, max_length_offset: 12, ..greedy() };
    for size in [2, 3] {
        let free = continued(&model, &base, &prompts);
        let mut found = prompts.iter().zip(&free);
        assert!(found.any(|(prompt, outputs)| repeats(prompt, &outputs[0].tokens, size)));
        for config in [base.clone(), sampled(sampling(1.0, 3), 3)] {
            let config = DecodingConfig { no_repeat_ngram: size, ..config };
            for (prompt, outputs) in prompts.iter().zip(continued(&model, &config, &prompts)) {
                for output in outputs {
                    assert!(!repeats(prompt, &output.tokens, size), "{prompt:?} {output:?}");
                }
            }
        }
        // The prefix of a translation is part of it; its source is not.
        let sources = random_sources(20, 54);
        let sentences = prefixed(&sources, &prompts);
        for config in [base.clone(), DecodingConfig { beam_size: 3, ..base.clone() }] {
            let config = DecodingConfig { no_repeat_ngram: size, max_length: 30, ..config };
            let config = DecodingConfig { max_length_offset: 30, ..config };
            let translator = Translator::new(&model, config).expect("valid");
            let found = translator.translate_sentences(&sentences, |_| {}).expect("decodes");
            for (prefix, outputs) in prompts.iter().zip(found) {
                let (begin, rest) = outputs[0].tokens.split_at(prefix.len());
                assert_eq!(begin, prefix);
                assert!(!repeats(begin, rest, size), "{prefix:?} {rest:?}");
            }
        }
    }
}

#[test]
fn a_repetition_penalty_makes_outputs_more_varied_and_one_leaves_them() {
    let mut model = model(50);
    model.end_bias = -3.0;
    let sources = random_sources(20, 50);
    let repeats = |config: &DecodingConfig| -> usize {
        translate(&model, config, &sources)
            .iter()
            .flatten()
            .map(|hypothesis| {
                let mut distinct = hypothesis.tokens.clone();
                distinct.sort_unstable();
                distinct.dedup();
                hypothesis.tokens.len() - distinct.len()
            })
            .sum()
    };
    for base in [greedy(), DecodingConfig::default()] {
        let penalised = DecodingConfig { repetition_penalty: 3.0, ..base.clone() };
        assert!(repeats(&penalised) < repeats(&base), "{} {}", repeats(&penalised), repeats(&base));
        // The log-probabilities in the result are those of the model, although the search ranks
        // hypotheses by penalised log-probabilities.
        let translator = Translator::new(&model, penalised).expect("valid");
        let translations = translator.translate(&sources).expect("decodes");
        let targets: Vec<Vec<u32>> =
            translations.iter().map(|list| list[0].tokens.clone()).collect();
        let forced = translator.score(&sources, &targets).expect("scores");
        for (forced, translations) in forced.iter().zip(&translations) {
            assert_eq!(forced.log_probability, translations[0].log_probability);
        }
    }
}
