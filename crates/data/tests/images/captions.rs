//! Tests images with captions: the content of batches, the caption that an epoch draws, and omitted
//! captions.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::common::mentions;
use taper_data::{
    Batch, BatchingConfig, CaptionUse, CaptionedDataset, DataConfig, Dataset, END, Epoch, Prepared,
    START, prepare_captions,
};

/// Writes images of three classes to `folder`. Returns a configuration in which two sentences
/// describe them.
fn config(folder: &Path, count: usize) -> DataConfig {
    let mut config = super::config(folder, count);
    config.captions.sentences =
        ["one {label}", "this is a very {brightness} {label}"].map(str::to_owned).into();
    config.tokenizer.vocabulary_size = 300;
    config
}

fn prepared(usage: CaptionUse, config: &DataConfig) -> Prepared<CaptionedDataset> {
    let run = tempfile::tempdir().unwrap();
    prepare_captions(usage, config, run.path()).unwrap()
}

fn batches(
    data: &Arc<CaptionedDataset>,
    batching: &BatchingConfig,
    (seed, epoch): (u64, u64),
) -> Vec<Batch> {
    let plan = data.clone().plan(batching, Epoch::new(seed, epoch));
    (0..plan.batches()).map(|index| plan.batch(index).unwrap()).collect()
}

/// For each image of the batches, its number and the ids of its caption without special tokens.
/// `marks` is the number of special tokens in a row.
fn captions(batches: &[Batch], marks: usize) -> Vec<(usize, Vec<u32>)> {
    let mut found = Vec::new();
    for batch in batches {
        let (ids, lengths) = batch.stream(1);
        let mut rest = ids;
        for (&length, &index) in lengths.iter().zip(&batch.indices) {
            let (row, others) = rest.split_at(length);
            assert_eq!(row[0], START);
            found.push((index, row[1..=length - marks].to_vec()));
            rest = others;
        }
    }
    found.sort();
    found
}

#[test]
fn captions_are_written_or_compared() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), 10);
    let written = prepared(CaptionUse::Written, &config);
    let all = batches(&written.train, &config.batching, (1, 0));
    assert_eq!(all.iter().map(|batch| batch.indices.len()).sum::<usize>(), 10);
    for batch in &all {
        let (ids, lengths) = batch.stream(1);
        assert_eq!(batch.asked, None);
        assert_eq!(batch.answers.len(), ids.len());
        let mut start = 0;
        for length in lengths {
            // Each answer is the next token.
            assert_eq!(batch.answers[start..start + length - 1], ids[start + 1..start + length]);
            assert_eq!(batch.answers[start + length - 1], END);
            start += length;
        }
        assert!(batch.stream(0).1.iter().all(|&values| values == config.images.values()));
    }
    let compared = prepared(CaptionUse::Compared, &config);
    let of_compared = batches(&compared.train, &config.batching, (1, 0));
    for batch in &of_compared {
        let ids = batch.stream(1).0;
        let asked = batch.asked.as_ref().unwrap();
        assert!(asked.iter().all(|&row| ids[row as usize] == END));
        assert_eq!((asked.len(), batch.answers.len()), (batch.indices.len(), batch.indices.len()));
    }
    assert_eq!(captions(&all, 1), captions(&of_compared, 2));
}

#[test]
fn each_epoch_draws_a_caption_that_is_true_of_its_image() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), 30);
    let Prepared { train, tokenizers, .. } = prepared(CaptionUse::Written, &config);
    let drawn = |seed, epoch| captions(&batches(&train, &config.batching, (seed, epoch)), 1);
    assert_eq!(drawn(1, 2), drawn(1, 2));
    let mut seen: Vec<HashSet<String>> = vec![HashSet::new(); 30];
    for epoch in 0..12 {
        for (index, ids) in drawn(1, epoch) {
            seen[index - 1].insert(tokenizers.target().decode(&ids).unwrap());
        }
    }
    let (texts, own) = train.captions();
    for (seen, own) in seen.iter().zip(own) {
        let own: HashSet<String> = own.iter().map(|&at| texts[at as usize].clone()).collect();
        assert_eq!((seen, own.len()), (&own, 2));
    }
    assert!((2..9).any(|seed| drawn(seed, 2) != drawn(1, 2)));
}

#[test]
fn captions_that_are_too_long_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 10);
    let shortest = |config: &DataConfig| {
        let data = prepared(CaptionUse::Written, config).train;
        let all = captions(&batches(&data, &config.batching, (1, 0)), 1);
        (data.longest_row(), all.iter().map(|(_, ids)| ids.len()).max().unwrap(), data.len())
    };
    let (longest, ..) = shortest(&config);
    config.captions.max_tokens = longest - 2;
    let (shorter, most, images) = shortest(&config);
    assert!(shorter < longest && most < shorter && images == 10, "{shorter} {longest} {most}");
    config.captions.max_tokens = 1;
    let run = tempfile::tempdir().unwrap();
    let error = prepare_captions(CaptionUse::Written, &config, run.path()).unwrap_err();
    mentions(&error, &["data.captions.max_tokens: is 1"]);
}

#[test]
fn values_are_those_of_the_file_in_training_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 10);
    (config.images.flip, config.images.crop_padding) = (true, 2);
    let train = prepared(CaptionUse::Written, &config).train;
    let all: Vec<usize> = (0..10).collect();
    let read = train.values(&all).unwrap();
    for (image, values) in read.iter().enumerate() {
        let expected = super::pixels(image, values.len());
        assert_eq!(*values, expected.into_iter().map(u32::from).collect::<Vec<_>>());
    }
}
