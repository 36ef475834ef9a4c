//! Tests several directions in one data set: tokens of languages, shares by temperature,
//! reproducible draws, directions that are measured separately, and a shared vocabulary.

mod common;

use std::path::Path;

use taper_data::{
    Batch, DataConfig, Dataset, Direction, END, Epoch, LanguageTag, PairDataset, PairPlan,
    Prepared, START, Task, prepare_pairs,
};

const SEED: u64 = 3;

/// Writes a corpus of two directions: 600 pairs into German, and `back` pairs into English.
fn corpus(directory: &Path, back: usize) -> DataConfig {
    let mut config = common::corpus(directory);
    let pairs = common::sentences(back);
    common::write_split(directory, "small", &pairs);
    config.train = serde_json::from_value(serde_json::json!([
        { "stem": "train", "from": "en", "to": "de" },
        { "stem": "small", "from": "de", "to": "en" },
    ]))
    .unwrap();
    config.validation = serde_json::from_value(serde_json::json!([
        { "stem": "val", "from": "en", "to": "de" },
        { "stem": "val", "from": "de", "to": "en" },
    ]))
    .unwrap();
    config.test = "".into();
    config
}

fn prepared(config: &DataConfig, directory: &Path, run: &str) -> Prepared<PairDataset> {
    Task::Translation.validate(config).unwrap();
    prepare_pairs(config, &directory.join(run)).unwrap()
}

/// Source, decoder input and answers of each row of a batch.
fn rows(batch: &Batch) -> Vec<[Vec<u32>; 3]> {
    let (sources, source_lengths) = batch.stream(0);
    let (inputs, target_lengths) = batch.stream(1);
    let (mut source, mut target) = (0, 0);
    let mut rows = Vec::new();
    for (&source_length, &target_length) in source_lengths.iter().zip(target_lengths) {
        let (of_source, of_target) =
            (source..source + source_length, target..target + target_length);
        rows.push([
            sources[of_source.clone()].to_vec(),
            inputs[of_target.clone()].to_vec(),
            batch.answers[of_target.clone()].to_vec(),
        ]);
        (source, target) = (of_source.end, of_target.end);
    }
    rows
}

fn batches(data: &PairDataset, config: &DataConfig, epoch: u64) -> Vec<Batch> {
    let plan = PairPlan::new(data, &config.batching, Epoch::new(SEED, epoch));
    (0..plan.len()).map(|batch| plan.batch(data, batch).unwrap()).collect()
}

#[test]
fn a_row_names_its_target_language_before_its_source_or_its_target() {
    let german = ["der", "eine", "mein", "Der", "Eine", "Mein"];
    for (tag, joint) in [
        (LanguageTag::Source, true),
        (LanguageTag::Source, false),
        (LanguageTag::Target, true),
        (LanguageTag::Target, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = corpus(directory.path(), 600);
        (config.languages.tag, config.tokenizer.joint) = (tag, joint);
        config.tokenizer.vocabulary_size = 330;
        let data = prepared(&config, directory.path(), "run");
        let tokenizers = &data.tokenizers;
        let marked = match tag {
            LanguageTag::Source => tokenizers.source(),
            LanguageTag::Target => tokenizers.target(),
        };
        assert_eq!(marked.vocabulary_size(), 330, "languages have their place in the vocabulary");
        let [into_german, into_english] = ["<2de>", "<2en>"].map(|mark| marked.id(mark).unwrap());
        let mut seen = [0, 0];
        for [source, input, answers] in batches(&data.train, &config, 0).iter().flat_map(rows) {
            assert_eq!((input[0], answers[answers.len() - 1]), (START, END));
            assert_eq!(input[1..], answers[..answers.len() - 1]);
            let (mark, text) = match tag {
                LanguageTag::Source => (source[0], &answers[..]),
                LanguageTag::Target => (answers[0], &answers[1..]),
            };
            let text = tokenizers.target().decode(text).unwrap();
            let is_german = german.iter().any(|word| text.starts_with(word));
            assert_eq!(mark, if is_german { into_german } else { into_english }, "{text}");
            seen[usize::from(is_german)] += 1;
        }
        assert_eq!(seen, [600, 600]);
        // No text can contain the token of a language, and decoding omits the token.
        let spelled = marked.encode("<2de> the dog").unwrap();
        assert!(!spelled.contains(&into_german));
        assert_eq!(
            marked.decode(&[into_german, spelled[0]]).unwrap(),
            marked.decode(&spelled[..1]).unwrap()
        );
    }
}

#[test]
fn small_directions_get_the_share_of_their_temperature() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = corpus(directory.path(), 60);
    let share = |config: &DataConfig, epochs: u64| {
        let data = prepared(config, directory.path(), "run");
        let mark = data.tokenizers.source().id("<2en>").unwrap();
        let (mut small, mut all) = (0, 0);
        for epoch in 0..epochs {
            for [source, ..] in batches(&data.train, config, epoch).iter().flat_map(rows) {
                small += usize::from(source[0] == mark);
                all += 1;
            }
        }
        (small as f64 / all as f64, all as f64 / epochs as f64, data)
    };
    let (plain, _, _) = share(&config, 1);
    assert_eq!(plain, 60.0 / 660.0);
    for temperature in [2.0, 5.0] {
        config.languages.temperature = temperature;
        let root = |pairs: f64| (pairs / 660.0).powf(1.0 / temperature);
        let expected = root(60.0) / (root(60.0) + root(600.0));
        let (found, pairs, data) = share(&config, 20);
        assert!((found - expected).abs() < 0.01, "T = {temperature}: {found}, not {expected}");
        // The number of pairs in an epoch does not change.
        assert!((pairs - 660.0).abs() < 15.0, "{pairs}");
        let weights: Vec<f64> =
            data.train.report().corpora.iter().map(|corpus| corpus.weight).collect();
        assert!((weights[0] * 600.0 + weights[1] * 60.0 - 660.0).abs() < 1e-9, "{weights:?}");
        // A batch does not depend on batches that were read before, and differs between epochs.
        let again = batches(&data.train, &config, 7);
        let plan = PairPlan::new(&data.train, &config.batching, Epoch::new(SEED, 7));
        let last = plan.batch(&data.train, plan.len() - 1).unwrap();
        assert_eq!(again.last().unwrap().answers, last.answers);
        assert_ne!(again[0].answers, batches(&data.train, &config, 8)[0].answers);
    }
}

#[test]
fn the_vocabulary_is_trained_on_the_same_mix() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = corpus(directory.path(), 600);
    // A small corpus in Greek, which occurs in no other direction.
    let greek: Vec<(String, String)> = (0..20)
        .map(|number| (format!("καλημέρα κόσμε {number}"), format!("hello world {number}")))
        .collect();
    common::write_split(directory.path(), "greek", &greek);
    std::fs::rename(directory.path().join("greek.en"), directory.path().join("greek.el")).unwrap();
    std::fs::rename(directory.path().join("greek.de"), directory.path().join("greek.en")).unwrap();
    config.train = serde_json::from_value(serde_json::json!([
        { "stem": "train", "from": "en", "to": "de" },
        { "stem": "greek", "from": "el", "to": "en" },
    ]))
    .unwrap();
    config.validation = "".into();
    config.tokenizer.vocabulary_size = 340;
    config.tokenizer.character_coverage = 1.0;
    let mut pieces = |temperature: f64, run: &str| {
        config.languages.temperature = temperature;
        let data = prepared(&config, directory.path(), run);
        data.tokenizers.source().encode("καλημέρα κόσμε").unwrap().len()
    };
    let (plain, mixed) = (pieces(1.0, "plain"), pieces(100.0, "mixed"));
    assert!(mixed < plain, "{mixed} pieces, and {plain} without the mix");
}

#[test]
fn each_direction_is_measured_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let config = corpus(directory.path(), 600);
    let data = prepared(&config, directory.path(), "run");
    let validation = data.validation.unwrap();
    let parts = validation.directions();
    let names: Vec<String> = parts.iter().map(|(direction, _)| direction.to_string()).collect();
    assert_eq!(names, ["en-de", "de-en"]);
    for (Direction { to, .. }, part) in parts {
        let mark = data.tokenizers.source().id(&format!("<2{to}>")).unwrap();
        let plan = part.plan(&config.batching, Epoch::new(0, 0));
        let rows: Vec<_> =
            (0..plan.batches()).flat_map(|batch| rows(&plan.batch(batch).unwrap())).collect();
        assert_eq!(rows.len(), 40);
        assert!(rows.iter().all(|[source, ..]| source[0] == mark));
    }
    let single = common::corpus(directory.path());
    let single = prepared(&single, directory.path(), "single");
    assert!(single.validation.unwrap().directions().is_empty());
}

#[test]
fn a_table_and_a_pattern_are_read_in_the_direction_of_their_corpus() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    common::write_split(path, "train", &common::sentences(40));
    std::fs::write(path.join("memory.tmx"), MEMORY).unwrap();
    let mut config = corpus(path, 40);
    config.train = serde_json::from_value(serde_json::json!([
        { "stem": "trai?", "from": "de", "to": "en" },
        { "file": path.join("memory.tmx"), "from": "fr", "to": "en", "name": "memory" },
        { "file": path.join("memory.tmx"), "from": "en", "to": "fr" },
    ]))
    .unwrap();
    Task::Translation.expand(&mut config).unwrap();
    assert!(config.train[0].source[0].ends_with("train.de"));
    let read = |corpus: usize| taper_data::read_pairs(&config, &config.train[corpus]).unwrap();
    let pair = |corpus: usize| (read(corpus)[0].source.clone(), read(corpus)[0].target.clone());
    assert_eq!(pair(1), ("le chien".to_owned(), "the dog".to_owned()));
    assert_eq!(pair(2), ("the dog".to_owned(), "le chien".to_owned()));
    assert_eq!(read(0)[0].target, common::sentences(1)[0].0);
    assert_eq!(config.train.name(), "train.de-en+memory+memory.en-fr");
}

const MEMORY: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>the dog</seg></tuv><tuv xml:lang="fr"><seg>le chien</seg></tuv></tu>
</body></tmx>
"#;
