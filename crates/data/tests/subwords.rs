//! Tests the random segmentation of training text: each epoch has the same text in other tokens,
//! and an epoch has the same tokens each time it is requested.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use std::sync::Arc;

use common::mentions;
use taper_data::{
    Batch, DataConfig, Dataset, Epoch, Epochs, PairDataset, PairPlan, Position, Prefetcher, Task,
    Tokenizer, TokenizerKind, prepare_pairs,
};

/// Prepared sentence pairs.
type Prepared = taper_data::Prepared<PairDataset>;

const SEED: u64 = 11;

fn config(directory: &Path, kind: TokenizerKind, strength: f64) -> DataConfig {
    let mut config = common::corpus(directory);
    config.tokenizer.kind = kind;
    match kind {
        TokenizerKind::Bpe => config.tokenizer.dropout = strength,
        _ => config.tokenizer.sampling_alpha = strength,
    }
    config
}

/// Prepares data with sampling of strength `strength`, and without sampling. Returns the
/// configuration with sampling, and both data sets in this order.
fn prepared(
    kind: TokenizerKind,
    strength: f64,
) -> (tempfile::TempDir, DataConfig, Prepared, Prepared) {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), kind, strength);
    let mut plain = config.clone();
    (plain.tokenizer.dropout, plain.tokenizer.sampling_alpha) = (0.0, 0.0);
    let run = directory.path().join("run");
    let without = prepare_pairs(&plain, &run).unwrap();
    let with = prepare_pairs(&config, &run).unwrap();
    (directory, config, with, without)
}

fn epoch(data: &Prepared, config: &DataConfig, seed: u64, epoch: u64) -> Vec<Batch> {
    let plan = PairPlan::new(&data.train, &config.batching, Epoch::new(seed, epoch));
    (0..plan.len()).map(|batch| plan.batch(&data.train, batch).unwrap()).collect()
}

/// Text of each row of a side.
fn texts(tokenizer: &Tokenizer, ids: &[u32], lengths: &[usize]) -> Vec<String> {
    let mut rest = ids;
    lengths
        .iter()
        .map(|&length| {
            let (row, after) = rest.split_at(length);
            rest = after;
            tokenizer.decode(row).unwrap()
        })
        .collect()
}

#[test]
fn each_epoch_sees_the_same_text_in_other_tokens() {
    for (kind, strength) in
        [(TokenizerKind::Bpe, 0.1), (TokenizerKind::Bpe, 0.6), (TokenizerKind::Unigram, 0.2)]
    {
        let (_directory, config, with, without) = prepared(kind, strength);
        let (sampled, plain) = (epoch(&with, &config, SEED, 3), epoch(&without, &config, SEED, 3));
        assert_eq!(sampled.len(), plain.len());
        let mut differing = 0;
        for (sampled, plain) in sampled.iter().zip(&plain) {
            assert_eq!(sampled.indices, plain.indices);
            let source = with.tokenizers.source();
            assert_eq!(
                texts(source, &sampled.streams[0].ids, &sampled.streams[0].lengths),
                texts(source, &plain.streams[0].ids, &plain.streams[0].lengths)
            );
            let target = with.tokenizers.target();
            assert_eq!(
                texts(target, &sampled.answers, &sampled.streams[1].lengths),
                texts(target, &plain.answers, &plain.streams[1].lengths)
            );
            differing += usize::from(
                sampled.streams[0].ids != plain.streams[0].ids && sampled.answers != plain.answers,
            );
        }
        assert!(
            differing * 10 > plain.len() * 9,
            "{kind:?}: {differing} of {} batches differ",
            plain.len()
        );
        let tokens =
            |batches: &[Batch]| batches.iter().map(|batch| batch.answers.len()).sum::<usize>();
        assert!(tokens(&sampled) > tokens(&plain), "{kind:?}");
    }
}

/// Compares the links of tokens in batches with the links of words. All subwords of a word must
/// have the links of the word, however the word is segmented.
#[test]
fn links_of_words_hold_however_words_are_cut() {
    for (kind, strength, is_tagged) in [
        (TokenizerKind::Bpe, 0.0, true),
        (TokenizerKind::Bpe, 0.6, false),
        (TokenizerKind::Unigram, 0.2, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path(), kind, strength);
        // The first word of a source is linked with the last word of the target, and so on.
        let pairs = common::sentences(600);
        let links = |pair: &(String, String)| {
            let words = pair.0.split_whitespace().count();
            assert_eq!(words, pair.1.split_whitespace().count());
            (0..words).map(|word| format!("{word}-{} ", words - 1 - word)).collect::<String>()
        };
        let lines: String = pairs.iter().map(|pair| links(pair) + "\n").collect();
        let file = directory.path().join("links");
        std::fs::write(&file, lines).unwrap();
        config.train.0[0].links = file.into();
        // A tag and bidirectional epochs cannot be combined here.
        if is_tagged {
            config.train.0[0].tag = "<mark>".to_owned();
        } else {
            config.bidirectional_epochs = 1;
        }
        config.tokenizer.joint = true;
        let data = prepare_pairs(&config, &directory.path().join("run")).unwrap();
        let tokenizer = data.tokenizers.source();
        for number in [0, 1] {
            let (mut seen, mut turned) = (0, 0);
            for batch in epoch(&data, &config, SEED, number) {
                let (source_ids, source_lengths) = batch.stream(0);
                let (target_ids, target_lengths) = batch.stream(1);
                assert!(batch.links.is_sorted());
                let (mut first_source, mut first_target) = (0, 0);
                for (sources, targets) in source_lengths.iter().zip(target_lengths) {
                    // `</s>` belongs to no word. The answers of a target begin one token after the
                    // beginning of the row.
                    let source = &source_ids[first_source..first_source + sources - 1];
                    let target = &target_ids[first_target + 1..first_target + targets];
                    let own = batch.links.iter().filter_map(|(target, source)| {
                        let target = (*target as usize).checked_sub(first_target)?;
                        (target < *targets).then(|| (target, *source as usize - first_source))
                    });
                    let own: BTreeSet<(usize, usize)> = own.collect();
                    let words_of = |ids: &[u32]| -> Vec<usize> {
                        // A word begins with the mark of a space, and the tag is a word.
                        let is_tagged = tokenizer.decode(ids).unwrap().starts_with("<mark>");
                        let begins = |id: &u32| tokenizer.token(*id).unwrap().starts_with('▁');
                        let mut words = usize::from(is_tagged);
                        let word = |id: &u32| {
                            words += usize::from(begins(id));
                            words - 1
                        };
                        ids.iter().map(word).collect()
                    };
                    let (source_words, target_words) = (words_of(source), words_of(target));
                    // The tag is the first word of the source, and has no links.
                    let tags = usize::from(is_tagged);
                    let words = source_words.last().unwrap() + 1 - tags;
                    let is_linked = |source: usize, target: usize| {
                        source >= tags && source - tags + target == words - 1
                    };
                    let expected: BTreeSet<(usize, usize)> = (0..target.len())
                        .flat_map(|place| (0..source.len()).map(move |other| (place, other)))
                        .filter(|&(place, other)| {
                            is_linked(source_words[other], target_words[place])
                        })
                        .collect();
                    turned += usize::from(tokenizer.decode(source).unwrap().contains("der Hund"));
                    assert_eq!(own, expected, "{kind:?} {strength} {number}");
                    seen += own.len();
                    first_source += sources;
                    first_target += targets;
                }
            }
            assert!(seen > 5000, "{seen}");
            assert_eq!(turned > 0, !is_tagged && number == 0, "pairs turned round");
        }
    }
}

/// A token of a byte such as `<0x41>` spells the byte and not its own name, even if each character
/// of the name is a token.
#[test]
fn bytes_stay_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let markup = |number: usize| format!("<0x{number:02X}> of <0xABCDEF> and 0123456789");
    let pairs: Vec<_> = (0..256)
        .map(|number| (markup(number), markup(255 - number)))
        .chain([("鿫".to_owned(), "鿫".to_owned())])
        .collect();
    common::write_split(directory.path(), "train", &pairs);
    let mut config = DataConfig {
        dir: directory.path().to_owned(),
        validation: "".into(),
        ..DataConfig::default()
    };
    config.tokenizer.vocabulary_size = 330;
    config.tokenizer.character_coverage = 0.999;
    let without = prepare_pairs(&config, &directory.path().join("run")).unwrap();
    config.tokenizer.dropout = 0.5;
    let with = prepare_pairs(&config, &directory.path().join("run")).unwrap();
    let rare = |data: &Prepared| {
        let row = |batch: Batch| {
            let place = batch.indices.iter().position(|&line| line == 257)?;
            let from: usize = batch.streams[0].lengths[..place].iter().sum();
            Some(batch.streams[0].ids[from..from + batch.streams[0].lengths[place]].to_vec())
        };
        epoch(data, &config, SEED, 0).into_iter().find_map(row).unwrap()
    };
    assert_eq!(rare(&without).len(), 5, "the mark of a word, three bytes, the end");
    assert_eq!(rare(&with), rare(&without));
}

#[test]
fn epochs_and_seeds_differ_and_nothing_else_matters() {
    for (kind, strength) in [(TokenizerKind::Bpe, 0.2), (TokenizerKind::Unigram, 0.3)] {
        let (_directory, mut config, with, _) = prepared(kind, strength);
        config.batching.shuffle = false;
        let first = epoch(&with, &config, SEED, 0);
        assert_eq!(epoch(&with, &config, SEED, 0), first);
        assert_ne!(epoch(&with, &config, SEED, 1), first);
        assert_ne!(epoch(&with, &config, SEED + 1, 0), first);

        // The segmentation of a line does not depend on its batch.
        let rows = |batches: &[Batch]| -> BTreeSet<(usize, Vec<u32>)> {
            let row = |batch: &Batch, place: usize| {
                let from: usize = batch.streams[0].lengths[..place].iter().sum();
                (
                    batch.indices[place],
                    batch.streams[0].ids[from..from + batch.streams[0].lengths[place]].to_vec(),
                )
            };
            batches
                .iter()
                .flat_map(|batch| (0..batch.examples()).map(move |place| row(batch, place)))
                .collect()
        };
        config.batching.max_tokens = 33;
        assert_eq!(rows(&epoch(&with, &config, SEED, 0)), rows(&first));

        // Resuming in the middle of an epoch gives the same tokens.
        let plan = PairPlan::new(&with.train, &config.batching, Epoch::new(SEED, 2));
        let middle = Position { epoch: 2, batch: plan.len() / 2 };
        let epochs = Arc::new(Epochs::new(with.train.clone(), &config.batching, SEED));
        let resumed = Prefetcher::new(&epochs, epochs.positions(middle));
        let expected = epoch(&with, &config, SEED, 2);
        for (item, expected) in
            resumed.take(plan.len() - middle.batch).zip(&expected[middle.batch..])
        {
            assert_eq!(&item.unwrap().batch, expected);
        }
    }
}

#[test]
fn almost_no_dropout_is_the_tokenizer_and_validation_is_untouched() {
    // The dropout is so small that no draw is below it, and the exponent so large that only the
    // best segmentation has a probability.
    for (kind, strength) in [(TokenizerKind::Bpe, 1e-300), (TokenizerKind::Unigram, 1e4)] {
        let (_directory, config, with, without) = prepared(kind, strength);
        assert_eq!(epoch(&with, &config, SEED, 0), epoch(&without, &config, SEED, 0), "{kind:?}");
    }
    let (_directory, config, with, without) = prepared(TokenizerKind::Bpe, 0.5);
    let batches = |data: &Prepared| {
        let validation = data.validation.as_ref().unwrap();
        let plan = PairPlan::new(validation, &config.batching, Epoch::new(SEED, 0));
        (0..plan.len()).map(|batch| plan.batch(validation, batch).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(batches(&with), batches(&without));
    assert_eq!(with.train.pair(5).unwrap(), without.train.pair(5).unwrap());
}

#[test]
fn more_dropout_gives_more_tokens_and_none_beyond_the_limit() {
    let count = |strength: f64, max_tokens: usize| {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path(), TokenizerKind::Bpe, strength);
        config.cleaning.max_tokens = max_tokens;
        let data = prepare_pairs(&config, &directory.path().join("run")).unwrap();
        let batches = epoch(&data, &config, SEED, 0);
        let longest =
            batches.iter().flat_map(|batch| &batch.streams[1].lengths).max().copied().unwrap();
        (batches.iter().map(|batch| batch.answers.len()).sum::<usize>(), longest)
    };
    let (few, _) = count(0.1, 250);
    let (more, long) = count(0.9, 250);
    assert!(more > few);
    // The length includes the end token. Cleaning drops longer sentences before sampling.
    let (_, limited) = count(0.9, 40);
    assert!(limited <= 41 && long > 41, "{limited} {long}");
}

#[test]
fn a_drawn_segmentation_has_its_probability() {
    // There are two segmentations of "ab": "a" "b" with probability (1/8)², and "ab" with 1/4. With
    // alpha 0.5 their weights are 1/8 and 1/2.
    let directory = tempfile::tempdir().unwrap();
    let pairs: Vec<(String, String)> =
        (0..4000).map(|_| ("ab".to_owned(), "ab".to_owned())).collect();
    common::write_split(directory.path(), "train", &pairs);
    let eighth = 0.125_f64.ln();
    let file = serde_json::json!({
        "version": "1.0",
        "added_tokens": (0..4).zip(["<pad>", "<unk>", "<s>", "</s>"]).map(|(id, content)| serde_json::json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true
        })).collect::<Vec<_>>(),
        "model": {
            "type": "Unigram", "unk_id": 1, "byte_fallback": false,
            "vocab": [["<pad>", 0.0], ["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0], ["a", eighth], ["b", eighth], ["ab", 0.25_f64.ln()]],
        },
    });
    let path = directory.path().join("pieces.json");
    std::fs::write(&path, file.to_string()).unwrap();
    // Text cannot spell the special tokens, although they are pieces of the vocabulary too.
    assert_eq!(Tokenizer::load(&path).unwrap().encode("ab</s>a").unwrap(), [6, 1, 4]);
    let mut config = DataConfig {
        dir: directory.path().to_owned(),
        validation: "".into(),
        ..DataConfig::default()
    };
    config.tokenizer.path = Some(path);
    config.tokenizer.sampling_alpha = 0.5;
    let data = prepare_pairs(&config, &directory.path().join("run")).unwrap();
    let lengths: Vec<usize> = epoch(&data, &config, SEED, 0)
        .iter()
        .flat_map(|batch| batch.streams[0].lengths.clone())
        .collect();
    let whole = lengths.iter().filter(|&&length| length == 2).count() as f64 / lengths.len() as f64;
    assert!((whole - 0.8).abs() < 0.03, "{whole}");

    config.tokenizer.dropout = 0.1;
    let error = prepare_pairs(&config, &directory.path().join("run")).unwrap_err();
    mentions(&error, &["data.tokenizer.dropout: needs a BPE tokenizer, but there is none"]);
    config.tokenizer.sampling_alpha = 0.0;
    let error = prepare_pairs(&config, &directory.path().join("run")).unwrap_err();
    mentions(
        &error,
        &["data.tokenizer.dropout: needs a BPE tokenizer, but the tokenizer.json holds Unigram"],
    );
}

#[test]
fn settings_are_checked() {
    let refused = |change: fn(&mut DataConfig), fragment: &str| {
        let mut config = DataConfig::default();
        change(&mut config);
        mentions(Task::Translation.validate(&config).unwrap_err(), &[fragment]);
    };
    refused(
        |config| config.tokenizer.dropout = 1.0,
        "data.tokenizer.dropout: must be at least 0 and below 1",
    );
    refused(
        |config| config.tokenizer.sampling_alpha = -1.0,
        "data.tokenizer.sampling_alpha: must be 0",
    );
    refused(|config| config.tokenizer.sampling_alpha = 0.1, "with bpe, set data.tokenizer.dropout");
    refused(
        |config| {
            config.tokenizer.kind = TokenizerKind::Unigram;
            config.tokenizer.dropout = 0.1;
        },
        "with unigram, set data.tokenizer.sampling_alpha",
    );
}

#[test]
fn sampled_subwords_make_batches_larger() {
    let folder = tempfile::tempdir().unwrap();
    let grows = |dropout: f64| {
        let config = config(folder.path(), TokenizerKind::Bpe, dropout);
        let prepared = prepare_pairs(&config, &folder.path().join("run")).unwrap();
        prepared.train.growth(&config.batching, SEED).unwrap()
    };
    assert_eq!(grows(0.0), 1.0);
    let little = grows(0.1);
    assert!(1.05 < little && 1.2 * little < grows(0.5), "{little}");
}
