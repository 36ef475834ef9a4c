//! Tests the input of encoders of texts: rows with hidden tokens, and texts with labels.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::mentions;
use taper_data::{
    Batch, BatchingConfig, DataConfig, Dataset, Documents, END, Epoch, LabelOf, MaskedDataset,
    Pairs, Prepared, Result, Task, TokenizerKind, TokenizerPair, masked_split, prepare_labelled,
    prepare_masked, rows_of,
};

fn lines(count: usize) -> String {
    let words = ["the", "sea", "sailors", "unbelievable", "birds", "no"];
    let line = |i: usize| -> String {
        let at = |k: usize| words[(i * 7 + k * k + i / 3) % 6];
        (0..12 + i % 5).map(at).collect::<Vec<_>>().join(" ") + ".\n"
    };
    (0..count).map(line).collect()
}

fn config(folder: &Path) -> DataConfig {
    let mut config = DataConfig {
        dir: folder.to_owned(),
        train: "text".into(),
        validation: "".into(),
        ..DataConfig::default()
    };
    std::fs::write(folder.join("text.txt"), lines(120)).unwrap();
    config.tokenizer.kind = TokenizerKind::Bpe;
    config.tokenizer.vocabulary_size = 320;
    config.text.block_length = 24;
    config.text.hold_out = 0.1;
    config.text.documents = Documents::Lines;
    config.batching.max_tokens = 200;
    config
}

fn prepare(config: &DataConfig) -> Result<Prepared<MaskedDataset>> {
    prepare_masked(config, &config.dir.join("run"))
}

fn batches(dataset: &Arc<MaskedDataset>, config: &BatchingConfig, epoch: u64) -> Vec<Batch> {
    let plan = dataset.clone().plan(config, Epoch::new(1, epoch));
    (0..plan.batches()).map(|index| plan.batch(index).unwrap()).collect()
}

/// For each row, its ids in the last stream (text) and in the stream before it (segments).
fn rows(batch: &Batch) -> Vec<(Vec<u32>, Vec<u32>)> {
    let [.., segments, text] = batch.streams.as_slice() else { panic!("two streams") };
    assert_eq!(segments.lengths, text.lengths);
    let mut first = 0;
    let row = |&length: &usize| {
        first += length;
        let range = first - length..first;
        (text.ids[range.clone()].to_vec(), segments.ids[range].to_vec())
    };
    text.lengths.iter().map(row).collect()
}

#[test]
fn tokens_are_hidden_as_they_are_drawn_and_rows_are_of_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let prepared = prepare(&config).unwrap();
    let tokenizer = prepared.tokenizers.target();
    let count = tokenizer.vocabulary_size() as u32;
    assert!(count <= 320, "the marks are among them: {count}");
    let id = |mark: &str| (0..count).find(|&id| tokenizer.token(id).as_deref() == Some(mark));
    let [class, separator, mask] = ["<cls>", "<sep>", "<mask>"].map(|mark| id(mark).unwrap());
    let spelled = tokenizer.encode("<mask> is a text").unwrap();
    assert!(!spelled.contains(&mask), "{spelled:?}");

    let (mut asked, mut hidden, mut same) = (0, 0, 0);
    for epoch in 0..8 {
        for batch in batches(&prepared.train, &config.batching, epoch) {
            let ids = &batch.streams[1].ids;
            assert!(ids.len() <= 8 * 24 && ids.len() > 4 * 24, "{}", ids.len());
            let places = batch.asked.as_ref().unwrap();
            assert!(places.is_sorted() && places.len() == batch.answers.len());
            let mut original = ids.clone();
            for (&place, &answer) in places.iter().zip(&batch.answers) {
                let found = ids[place as usize];
                assert!(found >= 4 && ![class, separator].contains(&found));
                asked += 1;
                hidden += usize::from(found == mask);
                same += usize::from(found == answer);
                original[place as usize] = answer;
            }
            assert!(!original.contains(&mask) && !original.contains(&END));
            for (row, segments) in rows(&batch) {
                assert_eq!((row[0], row[row.len() - 1]), (class, separator));
                assert!(row.len() <= 24 && segments.iter().all(|&segment| segment == 0));
            }
            let share = places.len() as f64 / ids.len() as f64;
            assert!((0.08..0.25).contains(&share), "{share}");
        }
    }
    let share = |count: usize| count as f64 / asked as f64;
    assert!((share(hidden) - 0.8).abs() < 0.05, "{}", share(hidden));
    // A token that is drawn as a replacement may be the original token.
    assert!((share(same) - 0.1).abs() < 0.04, "{}", share(same));

    // Batches are a function of seed and epoch, and differ between epochs.
    let first = batches(&prepared.train, &config.batching, 3);
    assert_eq!(batches(&prepared.train, &config.batching, 3), first);
    assert_ne!(batches(&prepared.train, &config.batching, 4), first);
    // Validation batches are the same, whether they are prepared or read directly from the files.
    let in_order = BatchingConfig { shuffle: false, ..config.batching.clone() };
    let validation = batches(prepared.validation.as_ref().unwrap(), &in_order, 0);
    let read = Arc::new(masked_split(&config, tokenizer, None).unwrap());
    assert_eq!(batches(&read, &in_order, 0), validation);
    let largest = prepared.train.largest_batch(200);
    assert_eq!(largest.streams[1].lengths, [24; 8]);
}

#[test]
fn the_largest_batch_has_as_many_predictions_as_a_batch_of_short_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.tokenizer.vocabulary_size = 290;
    let prepared = prepare(&config).unwrap();
    let most = |data: &Arc<MaskedDataset>| {
        let asked = |batch: Batch| batch.asked.map_or(0, |asked| asked.len());
        let largest = asked(data.largest_batch(config.batching.max_tokens));
        let batches = batches(data, &config.batching, 0).into_iter().map(asked);
        (largest, batches.max().unwrap())
    };
    let (largest, most_of_long) = most(&prepared.train);
    assert!(largest < 2 * most_of_long, "{largest} {most_of_long}");
    // Each line is a token, so each row has three tokens, one of which is predicted.
    std::fs::write(folder.path().join("text.txt"), "a\n".repeat(400)).unwrap();
    config.tokenizer.kind = TokenizerKind::Bytes;
    let (largest, most_of_short) =
        most(&prepare_masked(&config, &folder.path().join("short")).unwrap().train);
    assert!(largest >= most_of_short && most_of_short > 50, "{largest} {most_of_short}");
}

/// Path of the tokenizer of a BERT model of the library Transformers, which has BERT's special
/// tokens.
fn bert() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/tests/golden/bert/tokenizer.json")
}

#[test]
fn whole_words_are_asked_together() {
    // A vocabulary marks either the beginnings of words or the tokens that continue words.
    let is_letter = |token: &str| token.starts_with(char::is_alphanumeric);
    let is_marked = |token: &str| token.starts_with("##");
    for (path, goes_on) in [(None, is_letter as fn(&str) -> bool), (Some(bert()), is_marked)] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        config.tokenizer.vocabulary_size = 290;
        config.tokenizer.path = path;
        config.masked.whole_words = true;
        let prepared = prepare(&config).unwrap();
        let tokenizer = prepared.tokenizers.target();
        let goes_on = |id: u32| tokenizer.token(id).is_some_and(|token| goes_on(&token));
        let mut words = 0;
        for batch in batches(&prepared.train, &config.batching, 0) {
            let (ids, places) = (&batch.streams[1].ids, batch.asked.as_ref().unwrap());
            let mut original = ids.clone();
            for (&place, &answer) in places.iter().zip(&batch.answers) {
                original[place as usize] = answer;
            }
            for &place in places {
                // If a token of a word is predicted, the next token of the word is predicted too.
                let next = place as usize + 1;
                if goes_on(original[next]) {
                    assert!(
                        places.contains(&(next as u32)),
                        "{:?}",
                        tokenizer.token(original[next])
                    );
                    words += 1;
                }
            }
        }
        assert!(words > 20, "{words} words of several tokens");
    }
}

#[test]
fn rows_have_the_marks_of_a_tokenizer_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.tokenizer.path = Some(bert());
    let prepared = prepare(&config).unwrap();
    let tokenizer = prepared.tokenizers.target();
    assert_eq!(tokenizer.token(tokenizer.end()).as_deref(), Some("[SEP]"));
    let named = |id: u32| tokenizer.token(id).unwrap();
    let mut hidden = 0;
    for batch in batches(&prepared.train, &config.batching, 0) {
        for (row, _) in rows(&batch) {
            assert_eq!(
                (named(row[0]), named(row[row.len() - 1])),
                ("[CLS]".into(), "[SEP]".into())
            );
            hidden += row.iter().filter(|&&id| named(id) == "[MASK]").count();
        }
        let special = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"];
        assert!(batch.answers.iter().all(|&id| !special.contains(&named(id).as_str())));
    }
    assert!(hidden > 20, "{hidden}");
    // Text that spells a special token, such as `[SEP]`, is ordinary text, and a character that the
    // vocabulary cannot spell becomes the token for unknown text.
    let ids = tokenizer.encode("[SEP] sail \u{3b1}").unwrap();
    assert!(!ids.contains(&tokenizer.end()), "{ids:?}");
    assert!(tokenizer.is_unknown(*ids.last().unwrap()), "{ids:?}");
    // Translation needs the special tokens of this project.
    mentions(TokenizerPair::train(&config).unwrap_err(), &["<pad> must have id 0 but is absent"]);
}

#[test]
fn half_of_the_second_texts_come_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.masked.next_sentence = true;
    let prepared = prepare(&config).unwrap();
    let (mut pairs, mut others) = (0, 0);
    for batch in batches(&prepared.train, &config.batching, 0) {
        let follows = &batch.streams[0];
        assert!(follows.lengths.iter().all(|&length| length == 1));
        assert_eq!(follows.ids.len(), batch.examples());
        pairs += follows.ids.len();
        others += follows.ids.iter().filter(|&&id| id == 1).count();
        for (row, segments) in rows(&batch) {
            let separator = row[row.len() - 1];
            let first = row.iter().position(|&id| id == separator).unwrap();
            assert!(first > 1 && first < row.len() - 2, "{row:?}");
            let expected = (0..row.len()).map(|at| u32::from(at > first));
            assert_eq!(segments, expected.collect::<Vec<_>>());
        }
    }
    let share = others as f64 / pairs as f64;
    assert!((share - 0.5).abs() < 0.15 && pairs > 50, "{share} of {pairs}");
}

#[test]
fn a_batch_has_rows_although_its_documents_have_one_token() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    // Every letter is a token.
    config.tokenizer.kind = TokenizerKind::Char;
    config.masked.next_sentence = true;
    config.text.hold_out = 0.0;
    config.batching.max_tokens = 24;
    let of_text = |run: &str, text: &str| {
        std::fs::write(folder.path().join("text.txt"), text).unwrap();
        prepare_masked(&config, &folder.path().join(run)).unwrap().train
    };
    let train = of_text("some", &("a\n".repeat(100) + "sea\nsailors\n"));
    for shuffle in [false, true] {
        let batching = BatchingConfig { shuffle, ..config.batching.clone() };
        let all = batches(&train, &batching, 0);
        assert!(all.len() > 5 && all.iter().all(|batch| batch.examples() > 0), "{shuffle}");
    }
    let plan = of_text("none", &"a\n".repeat(100)).plan(&config.batching, Epoch::new(1, 0));
    mentions(plan.batch(0).unwrap_err(), &["data.masked.next_sentence", "no document"]);
}

#[test]
fn labels_and_texts_are_read_and_what_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.text.hold_out = 0.0;
    config.train = "reviews".into();
    config.labelled.labels = vec!["bad".to_owned(), "good".to_owned()];
    config.labelled.max_tokens = 12;
    config.batching.max_tokens = 50;
    let line = |i: usize| {
        let (label, text) =
            if i.is_multiple_of(3) { ("good", "birds of the sea") } else { ("bad", "no") };
        format!("{label}\t{text} {i}\n")
    };
    let text: String = (0..40).map(line).collect();
    let path = folder.path().join("reviews.tsv");
    std::fs::write(&path, &text).unwrap();
    let run = folder.path().join("run");
    let prepared = prepare_labelled(LabelOf::Text, &config, &run).unwrap();
    assert_eq!(prepared.train.len(), 40);
    let plan = |epoch| {
        let plan = prepared.train.clone().plan(&config.batching, Epoch::new(1, epoch));
        (0..plan.batches()).map(|index| plan.batch(index).unwrap()).collect::<Vec<_>>()
    };
    let mut seen = Vec::new();
    for batch in plan(0) {
        assert!(batch.streams[1].ids.len() <= 50);
        assert!(batch.streams[0].ids.iter().all(|&segment| segment == 0));
        let mut first = 0;
        for (row, &length) in batch.streams[1].lengths.iter().enumerate() {
            assert_eq!(batch.asked.as_ref().unwrap()[row], first);
            first += length as u32;
            assert!(length <= 12);
            let expected = u32::from((batch.indices[row] - 1).is_multiple_of(3));
            assert_eq!(batch.answers[row], expected);
        }
        seen.extend(batch.indices);
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=40).collect::<Vec<_>>(), "each text once");
    assert_eq!(plan(0), plan(0));
    assert_ne!(plan(0), plan(1));

    let says = |text: &str, said: &str| {
        std::fs::write(&path, text).unwrap();
        let error = prepare_labelled(LabelOf::Text, &config, &run).map(|_| ()).unwrap_err();
        mentions(&error, &["reviews.tsv", said]);
    };
    says("good\tfine\nfine\n", "line 2: has no tab");
    says("great\tfine\n", "label \"great\", but data.labelled.labels has bad, good");
    says("good\t \n", "line 1: has an empty text");
    says("\n\n", "hold no text");
    std::fs::remove_file(&path).unwrap();
    let error = prepare_labelled(LabelOf::Text, &config, &run).map(|_| ()).unwrap_err();
    mentions(&error, &[".tsv, nor with .gz, .zst"]);
    for (change, key) in [
        (
            &(|config: &mut DataConfig| config.labelled.labels.truncate(1))
                as &dyn Fn(&mut DataConfig),
            "labels",
        ),
        (&|config: &mut DataConfig| config.labelled.labels[1] = "bad".to_owned(), "twice"),
        (&|config: &mut DataConfig| config.labelled.max_tokens = 2, "max_tokens"),
    ] {
        let mut other = config.clone();
        change(&mut other);
        mentions(Task::Classification.validate(&other).unwrap_err(), &[key]);
    }
    let mut other = config;
    other.masked.rate = 1.0;
    mentions(Task::MaskedLanguageModel.validate(&other).unwrap_err(), &["data.masked.rate"]);
}

#[test]
fn pairs_have_two_segments_and_the_longer_text_is_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.train = "pairs".into();
    config.text.hold_out = 0.0;
    config.tokenizer.vocabulary_size = 290;
    config.labelled.labels = vec!["no".to_owned(), "yes".to_owned()];
    config.labelled.pairs = Pairs::Yes;
    config.labelled.max_tokens = 16;
    let path = folder.path().join("pairs.tsv");
    let long = "the birds of the sea ".repeat(5);
    let text =
        format!("yes\tthe sea\tno birds\nno\t{long}\tno\nyes\tno\t{long}\nno\t{long}\t{long}\n");
    std::fs::write(&path, text).unwrap();
    let prepared = prepare_labelled(LabelOf::Text, &config, &folder.path().join("run")).unwrap();
    let tokenizer = prepared.tokenizers.target();
    let [first, second, no] =
        ["the sea", "no birds", "no"].map(|text| tokenizer.encode(text).unwrap());
    let found = rows_of(tokenizer, &["the sea\tno birds".to_owned()], &config.labelled).unwrap();
    let [class, separator] = [found[0].ids[0], *found[0].ids.last().unwrap()];
    let whole = [&[class][..], &first, &[separator], &second, &[separator]].concat();
    assert_eq!(found[0].ids, whole);
    let segments: Vec<u32> = found[0].segments().collect();
    assert_eq!(segments, [vec![0; first.len() + 2], vec![1; second.len() + 1]].concat());

    let plan = prepared.train.clone().plan(&config.batching, Epoch::new(1, 0));
    let mut seen = 0;
    for index in 0..plan.batches() {
        let batch = plan.batch(index).unwrap();
        for (row, (ids, segments)) in rows(&batch).into_iter().enumerate() {
            let of_second = segments.iter().filter(|&&segment| segment == 1).count();
            match batch.indices[row] {
                1 => assert_eq!(ids, whole),
                2 => assert_eq!((ids.len(), of_second), (16, no.len() + 1)),
                3 => assert_eq!((ids.len(), ids.len() - of_second), (16, no.len() + 2)),
                _ => assert_eq!((ids.len(), of_second), (16, 7)),
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 4);

    std::fs::write(&path, "yes\tone text\n").unwrap();
    let error = prepare_labelled(LabelOf::Text, &config, &folder.path().join("other"))
        .map(|_| ())
        .unwrap_err();
    assert!(error.to_string().contains("pairs.tsv, line 1: has one text"), "{error}");
    let lines = ["a\tb".to_owned(), "a\t ".to_owned()];
    let error = rows_of(tokenizer, &lines, &config.labelled).unwrap_err();
    assert_eq!(error.to_string(), "line 2: has an empty text");
    config.labelled.max_tokens = 4;
    mentions(Task::Classification.validate(&config).unwrap_err(), &["data.labelled.max_tokens"]);
}
