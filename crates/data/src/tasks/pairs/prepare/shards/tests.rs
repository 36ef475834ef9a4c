//! Tests that the cache is the same for any number of processes, and whatever files earlier starts
//! left behind.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::tasks::pairs::prepare::{begin, prepare_pairs, tokenise_share};
use crate::{Corpora, DataReport, hold_out};

/// Makes two corpora. Their files have several shards, exactly two shards, or no pairs. Some pairs
/// are dropped for each reason.
fn corpus(folder: &Path) -> DataConfig {
    let nouns = ["dog", "house", "bird", "sea", "friend", "red cat"];
    let mut number = 0;
    for (name, pairs) in [("a.0", 53), ("a.1", 2 * PAIRS), ("a.2", 0), ("a.3", 1), ("b", 40)] {
        let (mut source, mut target) = (String::new(), String::new());
        for _ in 0..pairs {
            number += 1;
            let noun = |step: u64| nouns[(number * step % 6) as usize];
            let (one, other) = (noun(5), noun(number % 7));
            let (one, other) = match number % 13 {
                3 => (String::new(), other.to_owned()),
                5 => (format!("the {one}"), " ".to_owned()),
                8 => (format!("the {one} ").repeat(40), format!("the {other} ").repeat(40)),
                9 => (one.to_owned(), format!("{other} and {one} ").repeat(9)),
                _ => (format!("the {one} {number}"), format!("{other} {}", number % 17)),
            };
            // Some pairs occur twice.
            let repeated = ("the dog".to_owned(), "dog and bird".to_owned());
            let (one, other) = if number % 11 == 0 { repeated } else { (one, other) };
            source += &format!("{one}\n");
            target += &format!("{other}\n");
        }
        fs::write(folder.join(format!("{name}.en")), source).expect("written");
        fs::write(folder.join(format!("{name}.de")), target).expect("written");
    }
    let split = serde_json::json!([
        { "source": folder.join("a.?.en"), "target": folder.join("a.?.de"), "tag": "<a>" },
        { "source": folder.join("b.en"), "target": folder.join("b.de"), "weight": 2.0 }
    ]);
    let mut config = DataConfig {
        train: serde_json::from_value(split).expect("corpora"),
        validation: Corpora::default(),
        hold_out: 4,
        ..DataConfig::default()
    };
    crate::Task::Translation.expand(&mut config).expect("files");
    assert_eq!(config.train[0].source.len(), 4);
    config.tokenizer.vocabulary_size = 300;
    (config.cleaning.max_tokens, config.cleaning.max_ratio) = (30, 4.0);
    config
}

fn prepared(config: &DataConfig, run: &Path) -> (Vec<u8>, DataReport) {
    let report = prepare_pairs(config, run).expect("prepared").train.report().clone();
    let cache = format!("cache/{}.bin", config.train.name());
    assert!(!run.join(cache.replace(".bin", ".shards")).exists(), "shards are left");
    (fs::read(run.join(cache)).expect("a cache"), report)
}

fn shards_in(run: &Path, config: &DataConfig) -> Vec<PathBuf> {
    let folder = run.join(format!("cache/{}.shards", config.train.name()));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[test]
fn however_many_processes_tokenise_the_cache_is_the_same() {
    let folder = tempfile::tempdir().expect("folder");
    for (drop_duplicates, compares) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let mut plain = corpus(folder.path());
        plain.cleaning.drop_duplicates = drop_duplicates;
        if compares {
            plain.cleaning.near_duplicates = 0.5;
            plain.cleaning.length_deviations = 1.0;
        }
        let run = |name: &str| folder.path().join(format!("{name}-{drop_duplicates}-{compares}"));
        let whole = run("whole");
        let config = hold_out(&plain, 7, &whole).expect("drawn");
        let one = prepared(&config, &whole);
        assert_eq!(one.1.pairs_read + one.1.held_out, 53 + 2 * PAIRS + 1 + 40);
        let dropped = one.1.dropped;
        assert!(
            [dropped.empty_source, dropped.empty_target, dropped.too_long, dropped.ratio]
                .iter()
                .all(|&count| count > 0)
        );
        assert_eq!(dropped.duplicate > 0, drop_duplicates);
        assert_eq!(dropped.near_duplicate > 0, compares);
        let examples = |reason| one.1.dropped_pairs.iter().any(|pair| pair.reason == reason);
        assert_eq!(examples("near duplicate"), compares);
        assert!(one.1.held_out >= 4 && one.1.corpora[1].pairs_kept > 0);
        for of in [2, 3, 4] {
            let run = run(&of.to_string());
            let config = hold_out(&plain, 7, &run).expect("drawn");
            assert!(begin(&config, &run).expect("text"));
            for place in (0..of).rev() {
                let share = Share { place, of };
                tokenise_share(&config, &run, share, &mut |_| ()).expect("tokenised");
            }
            // The files have 53, 32, 0, 1 and 40 pairs, and shards have 16. The file with exactly
            // two full shards ends with an empty shard.
            assert_eq!(shards_in(&run, &config).len(), 4 + 3 + 1 + 1 + 3);
            assert!(prepared(&config, &run) == one, "{of} processes");
            assert!(!begin(&config, &run).expect("text"), "nothing is left to tokenise");
        }
    }
}

#[test]
fn what_was_tokenised_before_a_process_was_killed_is_used() {
    let folder = tempfile::tempdir().expect("folder");
    let (whole, run) = (folder.path().join("whole"), folder.path().join("run"));
    let config = DataConfig { hold_out: 0, ..corpus(folder.path()) };
    let one = prepared(&config, &whole);
    begin(&config, &run).expect("text");
    let share = Share { place: 1, of: 3 };
    tokenise_share(&config, &run, share, &mut |_| ()).expect("tokenised");
    let made = shards_in(&run, &config);
    assert_eq!(made.len(), 3);
    let times = || -> Vec<_> {
        let of = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified());
        made.iter().map(|path| of(path).expect("there")).collect()
    };
    let before = times();
    fs::write(made[0].with_extension("bin.1.partial"), "half").expect("written");
    for place in 0..2 {
        let share = Share { place, of: 2 };
        tokenise_share(&config, &run, share, &mut |_| ()).expect("tokenised");
    }
    assert_eq!(times(), before, "shards were made again");
    // One shard is damaged, and one is missing.
    let mut bytes = fs::read(&made[1]).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&made[1], bytes).expect("written");
    fs::remove_file(&made[2]).expect("removed");
    assert!(prepared(&config, &run) == one);
}

#[test]
fn shards_of_another_text_are_not_used() {
    let folder = tempfile::tempdir().expect("folder");
    let run = folder.path().join("run");
    let config = DataConfig { hold_out: 0, ..corpus(folder.path()) };
    begin(&config, &run).expect("text");
    tokenise_share(&config, &run, Share::WHOLE, &mut |_| ()).expect("tokenised");
    let path = folder.path().join("b.en");
    let text = fs::read_to_string(&path).expect("text").replace("house", "horse");
    fs::write(&path, text).expect("written");
    let (cache, report) = prepared(&config, &run);
    let fresh = folder.path().join("fresh");
    fs::create_dir(&fresh).expect("folder");
    fs::copy(run.join("tokenizer.json"), fresh.join("tokenizer.json")).expect("copied");
    assert!((cache, report) == prepared(&config, &fresh));
}

#[test]
fn a_shard_whose_text_is_damaged_is_made_again() {
    let folder = tempfile::tempdir().expect("folder");
    let (whole, run) = (folder.path().join("whole"), folder.path().join("run"));
    let mut config = DataConfig { hold_out: 0, ..corpus(folder.path()) };
    config.cleaning.near_duplicates = 0.5;
    let one = prepared(&config, &whole);
    begin(&config, &run).expect("text");
    tokenise_share(&config, &run, Share::WHOLE, &mut |_| ()).expect("tokenised");
    let shard = &shards_in(&run, &config)[0];
    let mut bytes = fs::read(shard).expect("there");
    // A byte that is in no UTF-8 text.
    let at = bytes.windows(4).position(|part| part == b"the ").expect("a text");
    bytes[at] = 0xff;
    fs::write(shard, bytes).expect("written");
    assert!(prepared(&config, &run) == one);
}
