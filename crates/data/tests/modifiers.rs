//! Tests modifiers, which are random changes to the texts of training pairs. They test the effect
//! of each modifier on source and target, the random draws, which may depend only on seed, epoch
//! and line, and texts that must stay unchanged.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use taper_data::{
    Batch, DataConfig, Dataset, Epoch, ModifiersConfig, PairDataset, PairPlan, Prepared,
    prepare_pairs,
};

const SEED: u64 = 7;

/// Prepares the corpus of [`common::corpus`] with `modifiers`.
fn prepared(directory: &Path, modifiers: ModifiersConfig) -> (DataConfig, Prepared<PairDataset>) {
    let mut config = common::corpus(directory);
    config.modifiers = modifiers;
    let data = prepare_pairs(&config, &directory.join("run")).unwrap();
    (config, data)
}

fn batches(data: &PairDataset, config: &DataConfig, epoch: u64) -> Vec<Batch> {
    let plan = PairPlan::new(data, &config.batching, Epoch::new(SEED, epoch));
    (0..plan.len()).map(|batch| plan.batch(data, batch).unwrap()).collect()
}

/// Source and target of each line of `split` in an epoch.
fn texts(
    data: &Prepared<PairDataset>,
    split: &PairDataset,
    config: &DataConfig,
    epoch: u64,
) -> BTreeMap<usize, (String, String)> {
    let mut texts = BTreeMap::new();
    for batch in batches(split, config, epoch) {
        let (sources, source_lengths) = batch.stream(0);
        let (mut source_from, mut target_from) = (0, 0);
        for ((line, source), target) in
            batch.indices.iter().zip(source_lengths).zip(batch.stream(1).1)
        {
            let source_ids = &sources[source_from..source_from + source];
            let target_ids = &batch.answers[target_from..target_from + target];
            let source_text = data.tokenizers.source().decode(source_ids).unwrap();
            let target_text = data.tokenizers.target().decode(target_ids).unwrap();
            texts.insert(*line, (source_text, target_text));
            (source_from, target_from) = (source_from + source, target_from + target);
        }
    }
    texts
}

/// For each line of the training split, the pair of the corpus, and its texts with `modifiers`.
fn modified(modifiers: ModifiersConfig) -> Vec<((String, String), (String, String))> {
    let directory = tempfile::tempdir().unwrap();
    let (config, data) = prepared(directory.path(), modifiers);
    let texts = texts(&data, &data.train, &config, 2);
    assert_eq!(texts.len(), 600);
    let pairs = common::sentences(600);
    texts.into_iter().map(|(line, texts)| (pairs[line - 1].clone(), texts)).collect()
}

#[test]
fn each_modifier_does_what_it_says_to_both_sides() {
    let capitals = ModifiersConfig { upper_case: 1.0, ..ModifiersConfig::default() };
    for (pair, texts) in modified(capitals) {
        assert_eq!(texts, (pair.0.to_uppercase(), pair.1.to_uppercase()));
    }
    let title = ModifiersConfig { title_case: 1.0, ..ModifiersConfig::default() };
    let title = modified(title);
    let (_, texts) = title.iter().find(|(pair, _)| pair.0 == "the dog sees a house.").unwrap();
    assert_eq!(*texts, ("The Dog Sees A House.".to_owned(), "Der Hund Sieht Ein Haus.".to_owned()));
    let open = ModifiersConfig { no_end_punctuation: 1.0, ..ModifiersConfig::default() };
    for (pair, texts) in modified(open) {
        assert_eq!((texts.0 + ".", texts.1 + "."), pair);
    }
    let typos = ModifiersConfig { typos: 1.0, ..ModifiersConfig::default() };
    let typos = modified(typos);
    assert!(typos.iter().all(|(pair, texts)| texts.1 == pair.1));
    // Two errors may undo each other.
    assert!(typos.iter().filter(|(pair, texts)| texts.0 != pair.0).count() > 590);
    let doubled = ModifiersConfig { doubled_words: 1.0, ..ModifiersConfig::default() };
    for (pair, texts) in modified(doubled) {
        assert_eq!(texts.1, pair.1);
        let words: Vec<&str> = texts.0.split(' ').collect();
        let place = (1..words.len()).find(|&place| words[place] == words[place - 1]).unwrap();
        assert_eq!([&words[..place], &words[place + 1..]].concat().join(" "), pair.0);
    }
    let emoji = ModifiersConfig { emoji: 1.0, ..ModifiersConfig::default() };
    let unknown = ModifiersConfig { unknown_spans: 1.0, ..ModifiersConfig::default() };
    for modifiers in [emoji, unknown] {
        for (pair, texts) in modified(modifiers) {
            let added = |whole: &str, text: &str| whole.replace(text.trim_end_matches('.'), "");
            let (source, target) = (added(&texts.0, &pair.0), added(&texts.1, &pair.1));
            assert_eq!(source, target, "{texts:?}");
            assert!(source.trim_matches(['.', ' ']).len() > 2, "{texts:?}");
        }
    }
}

#[test]
fn a_vocabulary_has_words_in_capitals_if_training_has() {
    let pieces = |upper_case| {
        let directory = tempfile::tempdir().unwrap();
        let modifiers = ModifiersConfig { upper_case, ..ModifiersConfig::default() };
        let (_, data) = prepared(directory.path(), modifiers);
        ["the house", "THE HOUSE"].map(|text| data.tokenizers.source().encode(text).unwrap().len())
    };
    let [plain, spelled] = pieces(0.0);
    assert!(spelled >= 2 * plain, "{spelled} {plain}");
    assert_eq!(pieces(0.5), [plain, plain]);
}

#[test]
fn a_single_word_stands_for_its_pair_with_its_translation() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    // Artificial words, each of which is in few pairs.
    let words: Vec<(String, String)> = (0..60_u8)
        .map(|one| (format!("word{}", letters(one)), format!("Wort{}", letters(one))))
        .collect();
    let pairs: Vec<(String, String)> = (0..600)
        .map(|line| {
            let (one, other) = (&words[line * 7 % 60], &words[(line * 13 + line / 60) % 60]);
            (format!("the {} and {}.", one.0, other.0), format!("das {} und {}.", one.1, other.1))
        })
        .collect();
    common::write_split(directory.path(), "train", &pairs);
    config.modifiers.single_words = 0.5;
    let data = prepare_pairs(&config, &directory.path().join("run")).unwrap();
    let epoch = |number| texts(&data, &data.train, &config, number);
    let (second, third) = (epoch(2), epoch(3));
    assert_ne!(second, third);
    assert_eq!(second, epoch(2));
    let mut alone = 0;
    for (line, (source, target)) in second {
        let pair = &pairs[line - 1];
        if (&source, &target) == (&pair.0, &pair.1) {
            continue;
        }
        alone += 1;
        assert!(words.contains(&(source.clone(), target.clone())), "{source} | {target}");
        assert!(pair.0.contains(&source) && pair.1.contains(&target));
    }
    // The expected number is half of 600 lines. The limits are five standard deviations away from
    // it.
    assert!((239..=361).contains(&alone), "{alone}");
    config.train = serde_json::from_value(serde_json::json!([
        { "stem": "train", "from": "en", "to": "de" },
        { "stem": "train", "from": "de", "to": "en" },
    ]))
    .unwrap();
    (config.validation, config.test) = ("".into(), "".into());
    let error = prepare_pairs(&config, &directory.path().join("several")).unwrap_err();
    assert!(error.to_string().contains("data.modifiers.single_words"), "{error}");
}

/// Writes a number below 676 as two letters.
fn letters(number: u8) -> String {
    [number / 26, number % 26].map(|digit| char::from(b'a' + digit)).iter().collect()
}

#[test]
fn a_merged_pair_has_the_next_one_behind_it() {
    let merged = ModifiersConfig { merged_sentences: 1.0, ..ModifiersConfig::default() };
    let texts = modified(merged);
    for (place, (pair, texts)) in texts.iter().enumerate() {
        let next = &common::sentences(600)[(place + 1) % 600];
        let both = |first: &str, second: &str| format!("{first} {second}");
        assert_eq!(*texts, (both(&pair.0, &next.0), both(&pair.1, &next.1)));
    }
}

#[test]
fn draws_depend_on_seed_epoch_and_line_alone() {
    let directory = tempfile::tempdir().unwrap();
    let some = ModifiersConfig { typos: 0.3, emoji: 0.2, ..ModifiersConfig::default() };
    let (config, data) = prepared(directory.path(), some.clone());
    let (plain_config, plain) = prepared(directory.path(), ModifiersConfig::default());
    let (second, third) =
        (texts(&data, &data.train, &config, 2), texts(&data, &data.train, &config, 3));
    let before = texts(&plain, &plain.train, &plain_config, 2);
    let changed = |texts: &BTreeMap<usize, (String, String)>| {
        texts.iter().filter(|(line, texts)| before[line] != **texts).count()
    };
    // The expected number is 1 - 0.7 · 0.8 of 600 lines. The limits are five standard deviations
    // away from it.
    for texts in [&second, &third] {
        assert!((203..=325).contains(&changed(texts)), "{}", changed(texts));
    }
    assert_ne!(second, third);
    // A line is changed in the same way if only one batch is read, if batches have another size,
    // and if another modifier is added.
    let plan = PairPlan::new(&data.train, &config.batching, Epoch::new(SEED, 2));
    let last = plan.batch(&data.train, plan.len() - 1).unwrap();
    assert_eq!(batches(&data.train, &config, 2).pop().unwrap().answers, last.answers);
    let mut other = config.clone();
    other.batching.max_tokens = 60;
    assert_eq!(texts(&data, &data.train, &other, 2), second);
    let more = ModifiersConfig { no_end_punctuation: 0.5, ..some };
    let (more_config, more) = prepared(directory.path(), more);
    let more = texts(&more, &more.train, &more_config, 2);
    let is_open = |text: &(String, String)| !text.1.contains('.');
    assert!(more.values().filter(|text| is_open(text)).count() > 200);
    for (line, text) in more.iter().filter(|(_, text)| !is_open(text)) {
        assert_eq!(text, &second[line]);
    }
}

#[test]
fn validation_tags_and_long_pairs_stay_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    config.modifiers =
        ModifiersConfig { upper_case: 1.0, merged_sentences: 1.0, ..ModifiersConfig::default() };
    config.train.0[0].tag = "<news>".to_owned();
    let data = prepare_pairs(&config, &directory.path().join("run")).unwrap();
    let pairs = common::sentences(640);
    for (line, (source, target)) in texts(&data, &data.train, &config, 0) {
        let next = &pairs[line % 600];
        let source_text = format!("{} {}", pairs[line - 1].0, next.0).to_uppercase();
        assert_eq!(source, format!("<news> {source_text}"));
        assert_eq!(target, format!("{} {}", pairs[line - 1].1, next.1).to_uppercase());
    }
    let validation = data.validation.as_ref().unwrap();
    for (line, texts) in texts(&data, validation, &config, 0) {
        assert_eq!(texts, pairs[599 + line]);
    }
    // With a lower limit of tokens, changed pairs would exceed it, so such pairs are not changed.
    assert!(data.train.longest_row() > config.cleaning.max_tokens);
    config.cleaning.max_tokens = 40;
    let data = prepare_pairs(&config, &directory.path().join("run")).unwrap();
    let lengths = batches(&data.train, &config, 0)
        .into_iter()
        .flat_map(|batch| [batch.stream(0).1.to_vec(), batch.stream(1).1.to_vec()].concat());
    assert!(lengths.max().unwrap() <= 41);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let config = common::corpus(directory.path());
    let refused = |change: &dyn Fn(&mut DataConfig), said: &str| {
        let mut config = config.clone();
        change(&mut config);
        let error = prepare_pairs(&config, &directory.path().join("run")).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    };
    refused(&|config| config.modifiers.typos = 1.5, "data.modifiers.typos: is a probability");
    refused(&|config| config.modifiers.emoji = f64::NAN, "data.modifiers.emoji");
    refused(
        &|config| {
            config.lowercase = true;
            config.modifiers.upper_case = 0.1;
        },
        "data.lowercase",
    );
    refused(
        &|config| (config.modifiers.upper_case, config.modifiers.title_case) = (0.6, 0.6),
        "at most 1",
    );
    refused(
        &|config| {
            config.modifiers.emoji = 0.1;
            config.train.0[0].links = "links".into();
        },
        "word links",
    );
}
