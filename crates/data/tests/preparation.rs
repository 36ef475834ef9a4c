//! Tests the preparation of data sets: the content of the report, the conditions for keeping the
//! cache, and damaged caches, which are made again.

mod common;

use std::path::PathBuf;

use common::mentions;
use taper_data::{DataConfig, DataReport, PairDataset, prepare_pairs};

/// Prepared sentence pairs.
type Prepared = taper_data::Prepared<PairDataset>;

fn text(source: &str, target: &str) -> (String, String) {
    (source.to_owned(), target.to_owned())
}

fn prepared(config: &DataConfig) -> (Prepared, PathBuf) {
    let run = config.dir.join("run");
    (prepare_pairs(config, &run).unwrap(), run)
}

#[test]
fn the_report_counts_what_is_dropped_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    let mut pairs = common::sentences(100);
    pairs.push(text("", "leer"));
    pairs.push(text("nothing", "  \u{3000}"));
    pairs.push(text("\t", ""));
    pairs.push(text(&"the dog ".repeat(80), &"der Hund ".repeat(80)));
    pairs.push(text("x", &"der Hund ".repeat(12)));
    pairs.push(text("a woman likes the 🦊.", "eine Frau mag den 🦊."));
    common::write_split(directory.path(), "train", &pairs);
    config.cleaning.max_tokens = 120;
    let (prepared, _) = prepared(&config);
    let report = prepared.train.report();
    let dropped = report.dropped;
    assert_eq!((report.pairs_read, report.pairs_kept), (106, 101));
    assert_eq!((dropped.empty_source, dropped.empty_target), (2, 1));
    assert_eq!((dropped.too_long, dropped.too_short, dropped.ratio), (1, 0, 1));
    assert_eq!(dropped.to_string(), "empty source 2, empty target 1, too long 1, length ratio 1");
    // The last pair keeps its line number although five pairs before it were dropped.
    assert_eq!(prepared.train.pair(100).unwrap().line, 106);
    for (side, language) in [(&report.source, "en"), (&report.target, "de")] {
        assert_eq!(side.language, language);
        assert_eq!(side.unknown, 0);
        assert_eq!(side.histogram.iter().map(|bin| bin.pairs).sum::<u64>(), 101);
        let mean = side.tokens as f64 / 101.0;
        assert!((side.mean_length - mean).abs() < 1e-12);
        assert!(side.histogram.last().unwrap().to >= side.longest);
    }
    let tokens: usize = (0..101).map(|pair| prepared.train.pair(pair).unwrap().source.len()).sum();
    assert_eq!(report.source.tokens, tokens as u64);
    let batching = report.batching;
    assert!(batching.batches > 1 && batching.largest_target_tokens <= 120);
    assert!((0.0..0.5).contains(&batching.padding_cost), "{}", batching.padding_cost);
    let json = serde_json::to_string(report).unwrap();
    assert_eq!(&serde_json::from_str::<DataReport>(&json).unwrap(), report);
}

#[test]
fn unusual_lengths_and_near_duplicates_are_dropped_from_training_text_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    let mut pairs: Vec<_> = (0..600_u32)
        .map(|number| {
            let codes = |step: u32| {
                (0..6).map(|part| format!("{:04x}", (number * 6 + part) * step % 65_521)).collect()
            };
            let (english, german): (Vec<String>, Vec<String>) = (codes(40_503), codes(51_407));
            text(&english.join(" "), &german.join(" "))
        })
        .collect();
    let again = format!("{}!", pairs[70].0.to_uppercase());
    let translated = pairs[70].1.clone();
    pairs.push((again, translated));
    let short = pairs[90].1.chars().take(12).collect::<String>();
    pairs.push(text("dead beef dead beef dead beef", &short));
    common::write_split(directory.path(), "train", &pairs);
    common::write_split(directory.path(), "val", &pairs[550..]);
    let (kept, _) = prepared(&config);
    assert_eq!(kept.train.len(), 602);
    assert!(kept.train.report().usual_lengths.is_empty());
    config.cleaning.near_duplicates = 0.8;
    config.cleaning.length_deviations = 5.0;
    let (cleaned, _) = prepared(&config);
    let report = cleaned.train.report();
    assert_eq!((report.dropped.near_duplicate, report.dropped.lengths), (1, 1));
    assert_eq!((report.dropped.total(), cleaned.train.len()), (2, 600));
    let reasons: Vec<&str> = report.dropped_pairs.iter().map(|pair| pair.reason.as_str()).collect();
    assert_eq!(reasons, ["near duplicate", "unusual lengths"]);
    assert_eq!(report.dropped_pairs[0].source, pairs[600].0);
    let usual = &report.usual_lengths[0];
    assert_eq!((usual.direction.as_str(), usual.most_characters), ("en-de", Some(64)));
    assert_eq!((usual.ratio, usual.deviation), (1.0, 0.05));
    // These rules do not apply to validation text.
    assert_eq!(cleaned.validation.unwrap().len(), 52);
    for (key, wrong) in [("near_duplicates", 0.4), ("length_deviations", 0.5)] {
        let mut config = config.clone();
        match key {
            "near_duplicates" => config.cleaning.near_duplicates = wrong,
            _ => config.cleaning.length_deviations = wrong,
        }
        let error = prepare_pairs(&config, &directory.path().join("wrong")).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn ids_are_those_of_the_text() {
    let directory = tempfile::tempdir().unwrap();
    for joint in [true, false] {
        let mut config = common::corpus(directory.path());
        config.tokenizer.joint = joint;
        let run = directory.path().join(format!("run-{joint}"));
        let prepared = prepare_pairs(&config, &run).unwrap();
        let pairs = common::sentences(600);
        for index in [0, 17, 599] {
            let source =
                prepared.tokenizers.source().decode(&prepared.train.pair(index).unwrap().source);
            let target =
                prepared.tokenizers.target().decode(&prepared.train.pair(index).unwrap().target);
            assert_eq!((source.unwrap(), target.unwrap()), pairs[index]);
        }
        assert_eq!(prepared.validation.unwrap().len(), 40);
    }
}

#[test]
fn the_cache_is_kept_until_its_causes_change() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    let (first, run) = prepared(&config);
    let cache = run.join("cache/train.bin");
    let written = || std::fs::metadata(&cache).unwrap().modified().unwrap();
    let time = written();
    config.batching.max_tokens = 60;
    let (second, _) = prepared(&config);
    assert_eq!(written(), time, "batching is no part of the cache");
    assert!(second.train.report().batching.batches > first.train.report().batching.batches);

    config.cleaning.max_tokens = 12;
    let (third, _) = prepared(&config);
    assert_ne!(written(), time, "cleaning is");
    assert!(third.train.len() < first.train.len());
    let time = written();
    let mut pairs = common::sentences(600);
    pairs[0] = text("my friend sees.", "mein Freund sieht.");
    common::write_split(directory.path(), "train", &pairs);
    let (fourth, _) = prepared(&config);
    assert_ne!(written(), time, "so is the text");
    assert_ne!(fourth.train.pair(0).unwrap(), third.train.pair(0).unwrap());
    // A cache that is open can still be read after its file was replaced.
    assert_eq!(first.train.len(), 600);
    assert_eq!(first.train.pair(0).unwrap().source, third.train.pair(0).unwrap().source);
    let names: Vec<_> = std::fs::read_dir(run.join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
}

#[test]
fn a_damaged_cache_is_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let config = common::corpus(directory.path());
    let (first, run) = prepared(&config);
    let cache = run.join("cache/train.bin");
    let whole = std::fs::read(&cache).unwrap();
    drop(first);
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let damaged = [
        Vec::new(),
        whole[..50].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        [whole.clone(), vec![0]].concat(),
        flipped(3),
        flipped(20),
        flipped(43),
        flipped(50),
        flipped(70),
        flipped(200),
        flipped(whole.len() - 5),
    ];
    for (case, bytes) in damaged.into_iter().enumerate() {
        std::fs::write(&cache, bytes).unwrap();
        let (again, _) = prepared(&config);
        assert_eq!(again.train.len(), 600, "case {case}");
        drop(again);
        assert!(std::fs::read(&cache).unwrap() == whole, "case {case}");
    }
}

#[test]
fn a_cache_that_is_cut_short_while_it_is_open_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (prepared, run) = prepared(&common::corpus(directory.path()));
    let cache = run.join("cache/train.bin");
    std::fs::File::options().write(true).open(&cache).unwrap().set_len(5000).unwrap();
    assert_eq!(prepared.train.pair(0).unwrap().line, 1);
    mentions(prepared.train.pair(599).unwrap_err(), &["train.bin"]);
}

#[test]
fn all_pairs_dropped_lists_the_reasons_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    config.cleaning.max_tokens = 2;
    let run = directory.path().join("run");
    let error = prepare_pairs(&config, &run).unwrap_err();
    mentions(&error, &["all 600 pairs were dropped (too long 600)"]);
    assert_eq!(std::fs::read_dir(run.join("cache")).unwrap().count(), 0);
}

#[test]
fn a_missing_split_is_found_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    config.validation = "dev".into();
    let run = directory.path().join("run");
    mentions(prepare_pairs(&config, &run).unwrap_err(), &["dev.en: no such file"]);
    assert!(!run.exists());
}
