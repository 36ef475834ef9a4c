//! Tests bidirectional epochs: they contain each pair as it is and with its sides exchanged. Later
//! epochs are the same as without bidirectional epochs.

mod common;

use std::path::Path;

use std::sync::Arc;

use taper_data::{
    Batch, DataConfig, Dataset, Epoch, Epochs, PairDataset, PairPlan, Position, Prefetcher,
    prepare_pairs,
};

/// Prepared sentence pairs.
type Prepared = taper_data::Prepared<PairDataset>;

const SEED: u64 = 5;
const EPOCHS: u64 = 2;

/// Prepares the corpus with [`EPOCHS`] bidirectional epochs, and without any. Returns the
/// configuration, and both data sets in this order.
fn prepared(
    directory: &Path,
    change: impl Fn(&mut DataConfig),
) -> (DataConfig, Prepared, Prepared) {
    let mut config = common::corpus(directory);
    change(&mut config);
    let run = directory.join("run");
    let one_way = prepare_pairs(&config, &run).unwrap();
    config.bidirectional_epochs = EPOCHS;
    let both = prepare_pairs(&config, &run).unwrap();
    (config, both, one_way)
}

fn epoch(data: &Prepared, config: &DataConfig, epoch: u64) -> Vec<Batch> {
    let plan = PairPlan::new(&data.train, &config.batching, Epoch::new(SEED, epoch));
    (0..plan.len()).map(|batch| plan.batch(&data.train, batch).unwrap()).collect()
}

/// Line, source and target text of each row, in order.
fn rows(data: &Prepared, batches: &[Batch]) -> Vec<(usize, String, String)> {
    let tokenizer = data.tokenizers.source();
    let mut rows = Vec::new();
    for batch in batches {
        let (mut source, mut target) = (&batch.streams[0].ids[..], &batch.answers[..]);
        for (place, &line) in batch.indices.iter().enumerate() {
            let of_source = source.split_off(..batch.streams[0].lengths[place]).unwrap();
            let of_target = target.split_off(..batch.streams[1].lengths[place]).unwrap();
            rows.push((
                line,
                tokenizer.decode(of_source).unwrap(),
                tokenizer.decode(of_target).unwrap(),
            ));
        }
    }
    rows.sort();
    rows
}

#[test]
fn the_first_epochs_have_each_pair_in_both_directions() {
    // If subwords are sampled, rows have the same text, but other tokens.
    for dropout in [0.0, 0.3] {
        let directory = tempfile::tempdir().unwrap();
        let (config, both, one_way) =
            prepared(directory.path(), |config| config.tokenizer.dropout = dropout);
        let forward = rows(&one_way, &epoch(&one_way, &config, 0));
        let turned =
            forward.iter().map(|(line, source, target)| (*line, target.clone(), source.clone()));
        let mut expected: Vec<_> = forward.iter().cloned().chain(turned).collect();
        expected.sort();
        assert_eq!(expected.len(), 1200);
        for number in 0..EPOCHS {
            let batches = epoch(&both, &config, number);
            assert_eq!(rows(&both, &batches), expected, "epoch {number}");
            let fits = |batch: &Batch| {
                batch.streams[0].ids.len().max(batch.answers.len()) <= config.batching.max_tokens
            };
            // The budget is a limit for the text without dropout.
            assert!(dropout > 0.0 || batches.iter().all(fits));
            // A batch contains pairs of both directions; the directions do not alternate between
            // batches.
            let mixed = |batch: &&Batch| {
                let sources: Vec<String> = rows(&both, &[(*batch).clone()])
                    .into_iter()
                    .map(|(_, source, _)| source)
                    .collect();
                let english = |text: &String| forward.iter().any(|(_, source, _)| source == text);
                sources.iter().any(english) && !sources.iter().all(english)
            };
            assert!(batches.iter().filter(mixed).count() > batches.len() / 2);
        }
    }
}

#[test]
fn the_epochs_that_follow_and_the_validation_are_as_ever() {
    let directory = tempfile::tempdir().unwrap();
    let (config, both, one_way) =
        prepared(directory.path(), |config| config.tokenizer.dropout = 0.2);
    for number in EPOCHS..EPOCHS + 3 {
        assert_eq!(epoch(&both, &config, number), epoch(&one_way, &config, number));
    }
    let validation = |data: &Prepared| {
        let dataset = data.validation.clone().unwrap();
        let plan = PairPlan::new(&dataset, &config.batching, Epoch::new(SEED, 0));
        let batches: Vec<Batch> =
            (0..plan.len()).map(|batch| plan.batch(&dataset, batch).unwrap()).collect();
        (batches, dataset.report().clone())
    };
    assert_eq!(validation(&both), validation(&one_way));
}

#[test]
fn the_batches_can_be_had_from_any_place_on() {
    let directory = tempfile::tempdir().unwrap();
    let (config, both, _) = prepared(directory.path(), |_| ());
    let epochs = Arc::new(Epochs::new(both.train.clone(), &config.batching, SEED));
    let from = |position| Prefetcher::new(&epochs, epochs.positions(position)).map(Result::unwrap);
    let (first, other) = (epoch(&both, &config, 0).len(), epoch(&both, &config, EPOCHS).len());
    let all: Vec<_> = from(Position::default()).take(2 * first + other + 3).collect();
    assert_eq!(all[2 * first].position, Position { epoch: EPOCHS, batch: 0 });
    assert_eq!([0, EPOCHS].map(|epoch| epochs.plan(epoch).batches()), [first, other]);
    for start in [first / 2, 2 * first - 1, 2 * first, 2 * first + other - 1] {
        let resumed: Vec<_> = from(all[start].position).take(all.len() - start).collect();
        assert_eq!(resumed, all[start..], "from {start}");
    }
}

#[test]
fn the_report_knows_both_kinds_of_epochs() {
    let directory = tempfile::tempdir().unwrap();
    let (_, both, one_way) = prepared(directory.path(), |config| config.batching.shuffle = false);
    let (report, plain) = (both.train.report().batching, one_way.train.report().batching);
    assert_eq!(
        (report.batches, plain.bidirectional_epochs, plain.bidirectional_batches),
        (plain.batches, 0, 0)
    );
    assert_eq!(report.bidirectional_epochs, EPOCHS);
    assert!(report.bidirectional_batches > report.batches);
    let longest = plain.longest_source.max(plain.longest_target);
    assert_eq!((report.longest_source, report.longest_target), (longest, longest));
    let (first, other) = (report.bidirectional_batches as u64, report.batches as u64);
    assert_eq!(
        [0, 1, 2, 5].map(|epochs| report.batches_of(epochs)),
        [0, first, 2 * first, 2 * first + 3 * other]
    );
    assert_eq!((plain.batches_of(3), report.batches_of(u64::MAX)), (3 * other, u64::MAX));
}

#[test]
fn the_largest_batch_has_both_texts_of_every_pair_on_each_side() {
    for dropout in [0.0, 0.3] {
        let directory = tempfile::tempdir().unwrap();
        let (mut config, both, _) =
            prepared(directory.path(), |config| config.tokenizer.dropout = dropout);
        // One batch contains the whole epoch.
        config.batching.max_tokens = 1 << 20;
        let batches = epoch(&both, &config, 0);
        assert_eq!(batches.len(), 1);
        let tokens = |batch: &Batch| batch.streams[0].ids.len().max(batch.streams[1].ids.len());
        let largest = both.train.largest_batch(1 << 30);
        for (expected, actual) in largest.streams.iter().zip(&batches[0].streams) {
            assert_eq!(expected.lengths.len(), actual.lengths.len());
            assert!(expected.ids.len() >= actual.ids.len());
        }
        if dropout == 0.0 {
            assert_eq!(both.train.most_tokens(), tokens(&batches[0]));
            assert_eq!(tokens(&largest), tokens(&batches[0]));
        }
    }
}
