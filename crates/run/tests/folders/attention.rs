//! Attention is computed with the rows that a model reads: texts with their special tokens,
//! prefixes and languages.

use std::collections::BTreeSet;

use taper_data::{NO_WORD, Tokenizer};
use taper_run::LoadedRun;
use taper_run::attention::{
    AttentionMap, AttentionPart, Journey, WordAligner, WordAlignerSettings,
};
use taper_run::translation::{LineTranslator, TranslationSettings};

use super::{golden, imported, json_of};

const NAMES: [&str; 4] = ["nllb", "bart", "mbart", "t5"];

/// Calls `check` with each run and a few of its source texts.
fn with_runs(check: impl Fn(&str, &LoadedRun, &[String])) {
    for name in NAMES {
        let folder = tempfile::tempdir().unwrap();
        let run: LoadedRun = imported(&golden(name), &folder.path().join("run")).unwrap();
        let expected = json_of(golden(name).join("expected.json"));
        let texts: Vec<String> = serde_json::from_value(expected["texts"].clone()).unwrap();
        check(name, &run, &texts[..3]);
    }
}

/// Names of the queries, and their attention to the source, summed over all heads of the last
/// decoder layer but one, or of the only decoder layer.
fn cross_attention(map: &AttentionMap, layers: usize) -> (Vec<String>, Vec<Vec<f64>>) {
    let number = layers.saturating_sub(1).max(1);
    let is_wanted = |part, layer| part == AttentionPart::Cross && layer == number;
    let layer = map.layers.iter().find(|one| is_wanted(one.part, one.layer)).unwrap();
    let sum = |query: usize, key: usize| -> f64 {
        layer.heads.iter().map(|head| f64::from(head[query][key])).sum()
    };
    let row = |query: usize| (0..layer.keys.len()).map(|key| sum(query, key)).collect();
    (layer.queries.clone(), (0..layer.queries.len()).map(row).collect())
}

#[test]
fn words_are_aligned_by_the_rows_that_the_model_reads() {
    let targets = ["Die Möwen segeln.", "Die Schiffe sind auf See.", "Nichts ist verloren!"];
    let targets = targets.map(str::to_owned);
    with_runs(|name, run, sources| {
        let aligner = WordAligner::new(run, &WordAlignerSettings::default()).unwrap();
        let links = aligner.align(sources, &targets, 1).unwrap();
        let (of_source, of_target) = (run.tokenizers.source(), run.tokenizers.target());
        let before = (of_source.tokens_before_source(), of_target.before_target().len());
        for ((source, target), links) in sources.iter().zip(&targets).zip(links) {
            let source = of_source.encode_text(source).unwrap();
            let target = of_target.encode_text(target).unwrap();
            let map = AttentionMap::of_encoded(run, &source, &target).unwrap();
            let (_, weights) = cross_attention(&map, run.config.model.decoder_layers);
            let mut expected = BTreeSet::new();
            // A marker of the beginning of a word has no text, so it is not linked.
            let has_text = |tokenizer: &Tokenizer, id: u32| tokenizer.token(id).unwrap() != "▁";
            for (index, &to) in target.words().iter().enumerate() {
                let row = &weights[before.1 + index][before.0..before.0 + source.len()];
                let of_words = (0..row.len()).rev().filter(|&at| {
                    source.words()[at] != NO_WORD && has_text(of_source, source.ids()[at])
                });
                let heaviest = of_words.max_by(|&a, &b| row[a].total_cmp(&row[b]));
                let from = source.words()[heaviest.unwrap()];
                if to != NO_WORD && has_text(of_target, target.ids()[index]) {
                    expected.insert((from, to));
                }
            }
            assert_eq!(links, Vec::from_iter(expected), "{name}: {}", source.text());
        }
    });
}

#[test]
fn tokens_before_a_translation_are_there_once() {
    with_runs(|name, run, sources| {
        let translator =
            LineTranslator::new(run, &TranslationSettings::from_config(&run.config)).unwrap();
        let target = run.tokenizers.target();
        for (source, translated) in
            sources.iter().zip(translator.translate(sources, &[], 1, |_| {}).unwrap())
        {
            let best = translated.unwrap().translations.swap_remove(0);
            let text = target.without_before_target(&best.tokens);
            assert_eq!(text.len() + target.before_target().len(), best.tokens.len(), "{name}");
            let answers = target.answer_row(text.iter().copied());
            let map = AttentionMap::of_translation(run, source, None).unwrap();
            let (queries, _) = cross_attention(&map, run.config.model.decoder_layers);
            assert_eq!(queries.len(), answers.len(), "{name}: {queries:?}");
            // A journey must find the same translation, and predict the same tokens.
            let journey = Journey::of_translation(run, source).unwrap();
            assert_eq!(journey.found[0].text, best.text, "{name}");
            assert!((journey.found[0].score - best.score).abs() < 1e-4, "{name}");
            assert_eq!(journey.choices.len(), answers.len(), "{name}");
        }
    });
}
