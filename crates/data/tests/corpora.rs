//! Tests what users can do with corpora: tables and their headers, weights, tags, removal of
//! duplicates, a validation set that is held out from the training text, and compressed files,
//! which count as the same text as uncompressed ones.

mod common;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use taper_data::{
    Corpora, Corpus, DataConfig, Dataset, Epoch, Epochs, PairDataset, PairPlan, Position, Prepared,
    Task, hold_out, prepare_pairs, read_pairs,
};

fn parsed(value: serde_json::Value) -> Corpora {
    serde_json::from_value(value).unwrap()
}

fn file(folder: &Path, name: &str, text: &str) -> Corpus {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    Corpus { file: file.into(), ..Corpus::default() }
}

fn sides(config: &DataConfig, corpus: &Corpus) -> Vec<(String, String)> {
    let pairs = read_pairs(config, corpus).unwrap();
    pairs.into_iter().map(|pair| (pair.source, pair.target)).collect()
}

fn pair(source: &str, target: &str) -> (String, String) {
    (source.to_owned(), target.to_owned())
}

/// Number of times that an epoch contains the pair of each line.
fn counts(data: &Prepared<PairDataset>, config: &DataConfig, epoch: u64) -> BTreeMap<usize, usize> {
    let plan = PairPlan::new(&data.train, &config.batching, Epoch::new(3, epoch));
    let mut counts = BTreeMap::new();
    for batch in 0..plan.len() {
        for line in plan.batch(&data.train, batch).unwrap().indices {
            *counts.entry(line).or_default() += 1;
        }
    }
    counts
}

#[test]
fn csv_is_read_with_quotes_and_by_its_header() {
    let folder = tempfile::tempdir().unwrap();
    let config = DataConfig::default();
    let plain =
        file(folder.path(), "plain.csv", "\"a, b\",\"say \"\"x\"\"\"\r\nc,\"two\nlines\"\n");
    assert_eq!(sides(&config, &plain), [pair("a, b", "say \"x\""), pair("c", "two\nlines")]);
    let named = file(folder.path(), "named.csv", "id,de,en\n1,x,a\n");
    assert_eq!(sides(&config, &named), [pair("a", "x")], "columns named like the languages");
    let short = file(folder.path(), "short.csv", "a,b\nc\n");
    let message = read_pairs(&config, &short).unwrap_err().to_string();
    assert!(message.contains("short.csv, line 2: has 1 comma-separated"), "{message}");
}

#[test]
fn a_header_that_would_be_trained_on_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let config = DataConfig::default();
    for (name, text) in [
        ("a.tsv", "source\ttarget\nx\ty\n"),
        ("b.tsv", "English\tGerman\nx\ty\n"),
        ("c.csv", "src,tgt\nx,y\n"),
    ] {
        let mut corpus = file(folder.path(), name, text);
        let message = read_pairs(&config, &corpus).unwrap_err().to_string();
        assert!(message.contains("line 1: looks like a header"), "{message}");
        // The advice of the message works: columns can be chosen by name, and by number if the
        // first line is text.
        let first: Vec<&str> = text.lines().next().unwrap().split(['\t', ',']).collect();
        corpus.fields.source = first[0].to_owned();
        corpus.fields.target = first[1].to_owned();
        assert_eq!(sides(&config, &corpus), [pair("x", "y")]);
        (corpus.fields.source, corpus.fields.target) = ("1".to_owned(), "2".to_owned());
        assert_eq!(sides(&config, &corpus).len(), 2);
    }
    let text = file(folder.path(), "d.tsv", "no\tnein\nsource\tQuelle\n");
    assert_eq!(sides(&config, &text).len(), 2, "one heading is a word like others");
}

#[test]
fn weights_say_how_often_an_epoch_takes_a_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = common::corpus(folder.path());
    let pairs = common::sentences(600);
    common::write_split(folder.path(), "a", &pairs[..100]);
    common::write_split(folder.path(), "b", &pairs[100..500]);
    common::write_split(folder.path(), "c", &pairs[500..600]);
    config.train = parsed(serde_json::json!([
        { "stem": "a", "weight": 2.0 }, { "stem": "b", "weight": 0.25 }, "c"
    ]));
    let data = prepare_pairs(&config, &folder.path().join("run")).unwrap();
    let report = data.train.report();
    let kept: Vec<u64> = report.corpora.iter().map(|corpus| corpus.pairs_kept).collect();
    assert_eq!((report.split.as_str(), kept), ("a+b+c", vec![100, 400, 100]));
    let (first, second) = (counts(&data, &config, 0), counts(&data, &config, 1));
    for epoch in [&first, &second] {
        assert!((1..=100).all(|line| epoch.get(&line) == Some(&2)));
        assert!((501..=600).all(|line| epoch.get(&line) == Some(&1)));
        let of_b: Vec<usize> = (101..=500).filter_map(|line| epoch.get(&line).copied()).collect();
        assert!((60..=140).contains(&of_b.len()) && of_b.iter().all(|count| *count == 1));
    }
    assert_ne!(first, second, "the quarter is drawn anew");
    assert_eq!(first, counts(&data, &config, 0), "and is a function of seed and epoch");
    let largest = data.train.largest_batch(1 << 30);
    assert_eq!(largest.indices.len(), 700, "no epoch has more rows than each weight rounded up");
    // A weight of 1 gives exactly the same result as no weight.
    let plan = |train: serde_json::Value| {
        let config = DataConfig { train: parsed(train), ..config.clone() };
        let data = prepare_pairs(&config, &folder.path().join("plain")).unwrap();
        PairPlan::new(&data.train, &config.batching, Epoch::new(3, 0))
    };
    assert_eq!(
        plan(serde_json::json!("b")),
        plan(serde_json::json!({ "stem": "b", "weight": 1.0 }))
    );
}

#[test]
fn the_smallest_weights_leave_a_pair_in_each_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = common::corpus(folder.path());
    common::write_split(folder.path(), "few", &common::sentences(3));
    config.train = parsed(serde_json::json!({ "stem": "few", "weight": 0.2 }));
    let run = folder.path().join("run");
    let data = prepare_pairs(&config, &run).unwrap();
    let sizes: Vec<usize> =
        (0..60).map(|epoch| counts(&data, &config, epoch).values().sum()).collect();
    assert!(sizes.iter().all(|size| (1..=3).contains(size)), "{sizes:?}");
    let lines: HashSet<usize> =
        (0..60).flat_map(|epoch| counts(&data, &config, epoch).into_keys()).collect();
    assert_eq!(lines.len(), 3, "each pair is drawn at times");
    let epochs = Arc::new(Epochs::new(data.train.clone(), &config.batching, 3));
    assert_eq!(epochs.positions(Position::default()).take(200).count(), 200);
}

#[test]
fn a_tag_is_one_token_before_the_source_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    for (joint, dropout) in [(true, 0.0), (false, 0.5)] {
        let mut config = common::corpus(folder.path());
        config.tokenizer.joint = joint;
        config.tokenizer.dropout = dropout;
        config.train = parsed(serde_json::json!({ "stem": "train", "tag": "<news>" }));
        let tagged =
            prepare_pairs(&config, &folder.path().join(format!("tagged-{joint}"))).unwrap();
        let tokenizer = tagged.tokenizers.source();
        assert!(tokenizer.vocabulary_size() <= config.tokenizer.vocabulary_size);
        assert_eq!(tokenizer.tokens("<news> the dog").unwrap()[0], "<news>");
        let tag = tokenizer.encode("<news>").unwrap();
        assert_eq!(tag.len(), 1);
        let plan = PairPlan::new(&tagged.train, &config.batching, Epoch::new(3, 0));
        for batch in 0..plan.len() {
            let batch = plan.batch(&tagged.train, batch).unwrap();
            let (source, target) = (&batch.streams[0], &batch.streams[1]);
            let mut at = 0;
            for length in &source.lengths {
                assert_eq!(source.ids[at], tag[0]);
                assert!(!source.ids[at + 1..at + length].contains(&tag[0]));
                at += length;
            }
            assert!(!joint || !target.ids.contains(&tag[0]));
        }
    }
}

#[test]
fn a_pair_that_stood_there_before_is_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = common::corpus(folder.path());
    let mut pairs = common::sentences(120);
    pairs.dedup();
    let distinct: HashSet<_> = pairs.iter().cloned().collect();
    pairs.extend(distinct.iter().take(5).cloned().collect::<Vec<_>>());
    // A pair that has only one side in common with an earlier pair is not a duplicate.
    pairs.push(pair(&pairs[0].0.clone(), "etwas anderes"));
    common::write_split(folder.path(), "train", &pairs);
    let kept = prepare_pairs(&config, &folder.path().join("kept")).unwrap();
    assert_eq!((kept.train.len(), kept.train.report().dropped.duplicate), (pairs.len(), 0));
    config.cleaning.drop_duplicates = true;
    let dropped = prepare_pairs(&config, &folder.path().join("dropped")).unwrap();
    assert_eq!(dropped.train.len(), distinct.len() + 1);
    let report = dropped.train.report();
    assert_eq!(report.dropped.duplicate as usize, pairs.len() - distinct.len() - 1);
    assert!(report.dropped.to_string().contains("duplicate"));
}

#[test]
fn duplicates_are_compared_side_by_side_if_texts_have_line_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = common::corpus(folder.path());
    let texts = "\"the dog\nsees\",a house\nthe dog,\"sees\na house\"\n\
                 \"the dog\nsees\",a house\nthe dog,\"sees\na house\"\n";
    let corpus = file(folder.path(), "lines.csv", texts);
    config.train = Corpora(vec![corpus]);
    config.cleaning.drop_duplicates = true;
    let data = prepare_pairs(&config, &folder.path().join("equal")).unwrap();
    assert_eq!((data.train.len(), data.train.report().dropped.duplicate), (2, 2));
    (config.cleaning.drop_duplicates, config.cleaning.near_duplicates) = (false, 0.9);
    let data = prepare_pairs(&config, &folder.path().join("near")).unwrap();
    assert_eq!((data.train.len(), data.train.report().dropped.near_duplicate), (2, 2));
}

#[test]
fn what_is_held_out_is_drawn_by_the_seed_and_never_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = common::corpus(folder.path());
    let mut pairs: Vec<(String, String)> =
        (0..300).map(|n| pair(&format!("the dog sees {n} birds"), &format!("{n} Vögel"))).collect();
    // Each sentence occurs twice, with two translations.
    pairs.extend((0..300).map(|n| pair(&format!("the dog sees {n} birds"), &format!("{n} mal"))));
    common::write_split(folder.path(), "train", &pairs);
    (config.validation, config.hold_out) = (Corpora::default(), 40);
    let run = folder.path().join("run");
    let held = hold_out(&config, 7, &run).unwrap();
    let data = prepare_pairs(&held, &run).unwrap();
    let validation = read_pairs(&held, &held.validation).unwrap();
    let sources: HashSet<&str> = validation.iter().map(|pair| pair.source.as_str()).collect();
    assert_eq!((validation.len(), sources.len()), (40, 40));
    assert_eq!(data.validation.unwrap().len(), 40);
    assert_eq!((data.train.len(), data.train.report().held_out), (600 - 80, 80));
    for pair in read_pairs(&held, &held.train).unwrap() {
        assert!(!sources.contains(pair.source.as_str()), "{}", pair.source);
    }
    assert_eq!(held, hold_out(&held, 7, &run).unwrap(), "drawn once");
    // The held-out set depends on the seed, not on the order of the text.
    pairs.reverse();
    common::write_split(folder.path(), "train", &pairs);
    let drawn = |seed: u64, run: &str| {
        let held = hold_out(&config, seed, &folder.path().join(run)).unwrap();
        let pairs = read_pairs(&held, &held.validation).unwrap();
        pairs.into_iter().map(|pair| pair.source).collect::<HashSet<String>>()
    };
    let same: HashSet<String> = sources.iter().map(|source| (*source).to_owned()).collect();
    assert_eq!(drawn(7, "reversed"), same);
    assert_ne!(drawn(8, "other"), same);
    config.hold_out = 500;
    let message = hold_out(&config, 7, &folder.path().join("much")).unwrap_err().to_string();
    assert!(message.starts_with("data.hold_out: is 500, but"), "{message}");
}

#[test]
fn the_same_text_compressed_is_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    let config = common::corpus(folder.path());
    let run = folder.path().join("run");
    let before = prepare_pairs(&config, &run).unwrap().train.report().text_hash.clone();
    let cache = std::fs::metadata(run.join("cache/train.bin")).unwrap().modified().unwrap();
    let text = std::fs::read(folder.path().join("train.en")).unwrap();
    let compressed = zstd::encode_all(&text[..], 1).unwrap();
    std::fs::write(folder.path().join("train.en.zst"), compressed).unwrap();
    std::fs::remove_file(folder.path().join("train.en")).unwrap();
    assert_eq!(Task::Translation.corpus_changes(&config, &run).unwrap(), Vec::<String>::new());
    assert_eq!(prepare_pairs(&config, &run).unwrap().train.report().text_hash, before);
    let now = std::fs::metadata(run.join("cache/train.bin")).unwrap().modified().unwrap();
    assert_eq!(now, cache, "nothing is tokenised again");
    // Earlier versions of the program recorded the hash of the compressed file, without the key
    // `decompressed`. Such a record is still used, so a change is reported if the hash does not
    // fit.
    let record = run.join("text/train.json");
    let mut json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("decompressed");
    json["text_hash"] = "of another text".into();
    std::fs::write(&record, json.to_string()).unwrap();
    assert_eq!(Task::Translation.corpus_changes(&config, &run).unwrap().len(), 1);
}
