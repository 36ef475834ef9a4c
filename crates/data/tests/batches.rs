//! Tests that the batches of an epoch contain every pair once, stay within the budget, and have an
//! order that depends only on seed and epoch.

mod common;

use std::sync::Arc;

use taper_data::{
    BatchingConfig, END, Epoch, Epochs, PairDataset, PairPlan, Position, Prefetcher, START,
    prepare_pairs,
};

struct Fixture {
    _directory: tempfile::TempDir,
    dataset: Arc<PairDataset>,
    config: BatchingConfig,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let config = common::corpus(directory.path());
    let prepared = prepare_pairs(&config, &directory.path().join("run")).unwrap();
    Fixture { _directory: directory, dataset: prepared.train, config: config.batching }
}

/// Combinations of the settings that affect batches.
fn variants(base: &BatchingConfig) -> Vec<BatchingConfig> {
    let mut variants = Vec::new();
    for max_tokens in [1, 17, 120, 100_000] {
        for max_sentences in [0, 1, 5] {
            for (shuffle, group_by_length) in [(true, true), (true, false), (false, false)] {
                variants.push(BatchingConfig {
                    max_tokens,
                    max_sentences,
                    shuffle,
                    group_by_length,
                    ..base.clone()
                });
            }
        }
    }
    variants
}

#[test]
fn every_pair_comes_once_an_epoch_within_the_budget() {
    let fixture = fixture();
    for config in variants(&fixture.config) {
        for epoch in 0..3 {
            let plan = PairPlan::new(&fixture.dataset, &config, Epoch::new(9, epoch));
            let mut seen = vec![0; fixture.dataset.len()];
            for index in 0..plan.len() {
                plan.members(index).iter().for_each(|&pair| seen[pair as usize] += 1);
                let batch = plan.batch(&fixture.dataset, index).unwrap();
                let tokens = batch.streams[0].ids.len().max(batch.answers.len());
                assert!(batch.examples() > 0);
                assert!(tokens <= config.max_tokens || batch.examples() == 1, "{config:?}");
                assert!(config.max_sentences == 0 || batch.examples() <= config.max_sentences);
            }
            assert!(seen.iter().all(|&count| count == 1), "{config:?}");
        }
    }
}

#[test]
fn the_order_follows_from_seed_and_epoch() {
    let fixture = fixture();
    let plan =
        |seed, epoch| PairPlan::new(&fixture.dataset, &fixture.config, Epoch::new(seed, epoch));
    assert_eq!(plan(1, 0), plan(1, 0));
    assert_ne!(plan(1, 0), plan(1, 1));
    assert_ne!(plan(1, 0), plan(2, 0));
    let still = BatchingConfig { shuffle: false, ..fixture.config.clone() };
    let in_order = PairPlan::new(&fixture.dataset, &still, Epoch::new(1, 0));
    let pairs: Vec<u32> = (0..in_order.len()).flat_map(|i| in_order.members(i).to_vec()).collect();
    assert!(pairs.is_sorted());
    assert_eq!(in_order, PairPlan::new(&fixture.dataset, &still, Epoch::new(2, 5)));
}

#[test]
fn grouping_by_length_saves_padding_and_fills_batches() {
    let fixture = fixture();
    let grouped = PairPlan::new(&fixture.dataset, &fixture.config, Epoch::new(3, 0));
    let spread = |plan: &PairPlan| -> usize {
        (0..plan.len())
            .map(|index| {
                let batch = plan.batch(&fixture.dataset, index).unwrap();
                let lengths = &batch.streams[1].lengths;
                lengths.iter().max().unwrap() - lengths.iter().min().unwrap()
            })
            .sum()
    };
    let loose = BatchingConfig { group_by_length: false, ..fixture.config.clone() };
    let loose = PairPlan::new(&fixture.dataset, &loose, Epoch::new(3, 0));
    assert!(2 * spread(&grouped) < spread(&loose), "{} {}", spread(&grouped), spread(&loose));
    // Pairs of similar lengths are not always in the same batch: the members of batches change
    // between epochs.
    let next = PairPlan::new(&fixture.dataset, &fixture.config, Epoch::new(3, 1));
    let sets = |plan: &PairPlan| -> Vec<Vec<u32>> {
        (0..plan.len())
            .map(|index| {
                let mut members = plan.members(index).to_vec();
                members.sort_unstable();
                members
            })
            .collect()
    };
    let (first, second) = (sets(&grouped), sets(&next));
    let same = first.iter().filter(|members| second.contains(members)).count();
    assert!(same * 10 < first.len(), "{same} of {}", first.len());
}

#[test]
fn rows_are_packed_with_their_marks() {
    let fixture = fixture();
    let plan = PairPlan::new(&fixture.dataset, &fixture.config, Epoch::new(1, 0));
    let batch = plan.batch(&fixture.dataset, 0).unwrap();
    assert!(batch.examples() > 1);
    let (mut source, mut target) = (0, 0);
    for (row, &pair) in plan.members(0).iter().enumerate() {
        let source_row = &batch.streams[0].ids[source..source + batch.streams[0].lengths[row]];
        let ids = target..target + batch.streams[1].lengths[row];
        let (input, output) = (&batch.streams[1].ids[ids.clone()], &batch.answers[ids]);
        let ids = fixture.dataset.pair(pair as usize).unwrap();
        assert_eq!(source_row, [ids.source, vec![END]].concat());
        assert_eq!(input, [vec![START], ids.target.clone()].concat());
        assert_eq!(output, [ids.target, vec![END]].concat());
        assert_eq!(batch.indices[row] as u64, ids.line);
        source += batch.streams[0].lengths[row];
        target += batch.streams[1].lengths[row];
    }
    assert_eq!((source, target), (batch.streams[0].ids.len(), batch.streams[1].ids.len()));
    assert_eq!(batch.streams[1].ids.len(), batch.answers.len());
}

#[test]
fn any_position_resumes_exactly() {
    let fixture = fixture();
    let config = BatchingConfig { max_tokens: 900, ..fixture.config.clone() };
    let epochs = || Arc::new(Epochs::new(fixture.dataset.clone(), &config, 4));
    let start = |position| {
        let epochs = epochs();
        Prefetcher::new(&epochs, epochs.positions(position))
    };
    let epoch = PairPlan::new(&fixture.dataset, &config, Epoch::new(4, 0)).len();
    let whole: Vec<_> =
        start(Position::default()).take(2 * epoch + 3).map(Result::unwrap).collect();
    assert!(whole.last().unwrap().position.epoch >= 1);
    for (index, item) in whole.iter().enumerate().take(whole.len() - 2) {
        let Position { epoch, batch } = item.position;
        let mut resumed = start(Position { epoch, batch: batch + 1 });
        assert_eq!(resumed.next().unwrap().unwrap(), whole[index + 1]);
        assert_eq!(resumed.next().unwrap().unwrap(), whole[index + 2]);
    }
    // The prefetcher's thread yields the batches of the plan, in whichever order epochs are
    // requested.
    let epochs = epochs();
    for item in &whole {
        let plan = PairPlan::new(&fixture.dataset, &config, Epoch::new(4, item.position.epoch));
        assert_eq!(epochs.plan(item.position.epoch).batches(), plan.len());
        assert_eq!(item.batch, plan.batch(&fixture.dataset, item.position.batch).unwrap());
    }
    for item in whole.iter().rev().step_by(7).chain(&whole[..1]) {
        assert_eq!(item.batch, epochs.batch(item.position).unwrap());
        // The cost is the number of tokens of both sides and of answers.
        let tokens = item.batch.streams.iter().map(|stream| stream.ids.len()).sum::<usize>();
        let cost = epochs.plan(item.position.epoch).cost(item.position.batch);
        assert_eq!(cost, (tokens + item.batch.answers.len()) as u64);
    }
    let plans = [0, 1].map(|epoch| epochs.plan(epoch));
    epochs.forget_before(1);
    assert_eq!(plans.map(|plan| Arc::strong_count(&plan)), [1, 2], "one is held here alone");
    // The positions may be in any order.
    let places = [(1, 3), (0, 2), (1, 0)].map(|(epoch, batch)| Position { epoch, batch });
    let found: Vec<_> =
        Prefetcher::new(&epochs, places.into_iter()).map(|item| item.unwrap().position).collect();
    assert_eq!(found, places);
}

#[test]
fn a_panic_of_the_thread_is_an_error_and_not_the_end() {
    let fixture = fixture();
    let epochs = Arc::new(Epochs::new(fixture.dataset.clone(), &fixture.config, 4));
    // The second of these positions has no batch.
    let places = [0, usize::MAX, 1].map(|batch| Position { epoch: 0, batch });
    let mut batches = Prefetcher::new(&epochs, places.into_iter());
    assert_eq!(batches.next().unwrap().unwrap().position, places[0]);
    let error = batches.next().unwrap().unwrap_err();
    common::mentions(error, &["the thread that makes batches panicked: ", "out of bounds"]);
    assert!(batches.next().is_none());
}
