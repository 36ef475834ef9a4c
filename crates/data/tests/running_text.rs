//! Tests running text: its conversion to the blocks of a language model.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use taper_data::{
    Batch, BatchingConfig, DataConfig, Dataset, Documents, END, Epoch, Epochs, Position,
    Prefetcher, Prepared, Result, Task, TextBlocks, TextDataset, Tokenizer, TokenizerKind, UNKNOWN,
    prepare_text,
};

/// Makes a text of `count` lines from a few words.
fn lines(count: usize) -> String {
    let words = ["the", "sea,", "häuser", "two birds!", "and\t7", "(no)", "", "don't <s>"];
    (0..count).map(|i| format!("{} {}\n", words[i % 8], words[i * i % 7])).collect()
}

fn config(folder: &Path, kind: TokenizerKind) -> DataConfig {
    let mut config = DataConfig {
        dir: folder.to_owned(),
        train: "text".into(),
        validation: "".into(),
        ..DataConfig::default()
    };
    config.tokenizer.kind = kind;
    config.tokenizer.vocabulary_size = 330;
    config.text.block_length = 16;
    config.text.hold_out = 0.1;
    config.batching.max_tokens = 50;
    config
}

fn prepare(config: &DataConfig) -> Result<Prepared<TextDataset>> {
    prepare_text(config, &config.dir.join("run"))
}

/// Prepares the text, which must fail, and returns the message of the error.
fn refusal(config: &DataConfig) -> String {
    prepare(config).map(|_| ()).expect_err("refused").to_string()
}

fn decoded(tokenizer: &Tokenizer, dataset: &TextDataset) -> String {
    let ids = dataset.read(0, dataset.tokens() as usize).expect("readable");
    assert!(!ids.contains(&UNKNOWN));
    tokenizer.decode(&ids).expect("decodes")
}

#[test]
fn every_kind_of_tokenizer_gives_the_text_back() {
    let folder = tempfile::tempdir().unwrap();
    let text = lines(400);
    std::fs::write(folder.path().join("text.txt"), &text).unwrap();
    for kind in
        [TokenizerKind::Char, TokenizerKind::Bytes, TokenizerKind::Bpe, TokenizerKind::Unigram]
    {
        let config = config(folder.path(), kind);
        std::fs::remove_dir_all(folder.path().join("run")).ok();
        let prepared = prepare(&config).unwrap();
        let tokenizer = prepared.tokenizers.target();
        let held_out = prepared.validation.as_ref().unwrap();
        let whole = decoded(tokenizer, &prepared.train) + &decoded(tokenizer, held_out);
        assert_eq!(whole, text, "{kind:?}");
        let report = prepared.train.report();
        assert_eq!(report.characters, (text.chars().count() as f64 * 0.9) as u64);
        assert_eq!(report.tokens, prepared.train.tokens());
        if kind == TokenizerKind::Char {
            let characters: HashSet<char> = text.chars().collect();
            assert_eq!(tokenizer.vocabulary_size(), 4 + characters.len());
            assert_eq!(report.tokens, report.characters);
            assert_eq!(tokenizer.encode("ж").unwrap(), [UNKNOWN]);
        } else {
            assert!(report.tokens < report.characters, "{kind:?}");
        }
        // Existing files are used again.
        let again = prepare(&config).unwrap();
        assert_eq!(again.tokenizers.hash(), prepared.tokenizers.hash());
    }
}

fn batches(dataset: &Arc<TextDataset>, batching: &BatchingConfig, seed: u64) -> Vec<Batch> {
    let plan = dataset.clone().plan(batching, Epoch::new(seed, 3));
    (0..plan.batches()).map(|index| plan.batch(index).unwrap()).collect()
}

#[test]
fn blocks_are_drawn_for_training_and_follow_one_another_for_validation() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.txt"), lines(300)).unwrap();
    let config = config(folder.path(), TokenizerKind::Char);
    let prepared = prepare(&config).unwrap();
    let train = &prepared.train;
    let ids = train.read(0, train.tokens() as usize).unwrap();
    let drawn = batches(train, &config.batching, 1);
    assert_eq!(drawn.len(), train.tokens() as usize / 48, "three blocks of 16 fit into 50 tokens");
    let mut starts = HashSet::new();
    for batch in &drawn {
        assert_eq!(batch.streams[0].lengths, [16; 3]);
        for (row, &start) in batch.indices.iter().enumerate() {
            assert_eq!(batch.streams[0].ids[row * 16..][..16], ids[start..start + 16]);
            assert_eq!(batch.answers[row * 16..][..16], ids[start + 1..start + 17]);
            starts.insert(start);
        }
    }
    assert!(starts.len() > drawn.len() * 2, "{} of {}", starts.len(), drawn.len() * 3);
    assert!(starts.iter().any(|start| start % 16 != 0));
    // A batch is a function of seed and position: a prefetcher that begins at the position gives
    // the same batch.
    assert_ne!(batches(train, &config.batching, 2), drawn);
    let place = Position { epoch: 3, batch: 5 };
    let epochs = Arc::new(Epochs::new(train.clone(), &config.batching, 1));
    let mut ahead = Prefetcher::new(&epochs, epochs.positions(place));
    assert_eq!(ahead.next().unwrap().unwrap().batch, drawn[5]);

    let in_order = BatchingConfig { shuffle: false, ..config.batching.clone() };
    let validation = prepared.validation.as_ref().unwrap();
    let held_out = validation.read(0, validation.tokens() as usize).unwrap();
    let all = batches(validation, &in_order, 1);
    let asked: Vec<u32> = all.iter().flat_map(|batch| batch.answers.clone()).collect();
    assert_eq!(asked, held_out[1..], "each token but the first is asked for once");
    assert_eq!(all[0].streams[0].ids, held_out[..48]);
    // The same batches are read directly from the files.
    let tokenizer = prepared.tokenizers.target();
    let mut blocks = TextBlocks::open(&config, tokenizer, None).unwrap();
    let read: Vec<Batch> = blocks.by_ref().collect::<Result<_>>().unwrap();
    assert_eq!(read, all);
    let (ours, theirs) = (blocks.report(), validation.report());
    assert_eq!(
        (ours.tokens, ours.characters, ours.words),
        (theirs.tokens, theirs.characters, theirs.words)
    );
    assert_eq!(validation.largest_batch(50).streams[0].lengths, [16; 3]);
}

#[test]
fn several_files_and_lines_are_documents_with_an_end_between_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("text")).unwrap();
    let path = |name: &str| folder.path().join("text").join(name);
    std::fs::write(path("b.txt"), "dear\n\nb\u{feff}\r\n").unwrap();
    let file = std::fs::File::create(path("a.txt.gz")).unwrap();
    let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    file.write_all("abc\n".as_bytes()).unwrap();
    file.finish().unwrap();
    let mut config = config(folder.path(), TokenizerKind::Char);
    config.text.hold_out = 0.0;
    config.text.block_length = 2;
    let text = |config: &DataConfig| {
        std::fs::remove_dir_all(folder.path().join("run")).ok();
        let prepared = prepare(config).unwrap();
        assert!(prepared.validation.is_none());
        let ids = prepared.train.read(0, prepared.train.tokens() as usize).unwrap();
        let parts = ids.split(|&id| id == END);
        let texts: Vec<String> =
            parts.map(|ids| prepared.tokenizers.target().decode(ids).unwrap()).collect();
        (texts, prepared.train.report().documents)
    };
    assert_eq!(text(&config), (vec!["abc\n".to_owned(), "dear\n\nb\u{feff}\n".to_owned()], 2));
    config.text.documents = Documents::Lines;
    let lines = ["abc", "dear", "b\u{feff}"].map(str::to_owned).to_vec();
    assert_eq!(text(&config), (lines, 3));
}

#[test]
fn what_cannot_work_is_refused_with_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    let mut config = config(folder.path(), TokenizerKind::Char);
    assert!(refusal(&config).contains("nor the same with .txt"), "{}", refusal(&config));
    std::fs::write(&path, "").unwrap();
    assert!(refusal(&config).contains("text.txt hold no text"), "{}", refusal(&config));
    std::fs::write(&path, "sixteen letters..").unwrap();
    let message = refusal(&config);
    assert!(message.starts_with("data.text.block_length: is 16, but split"), "{message}");
    assert!(message.contains("has 15 tokens"), "{message}");
    std::fs::write(&path, b"fine\n\xff").unwrap();
    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    assert!(refusal(&config).contains("text.txt, line 2: not valid UTF-8"), "{}", refusal(&config));
    let says = |change: &dyn Fn(&mut DataConfig), key: &str| {
        let mut config = config.clone();
        change(&mut config);
        let message = Task::LanguageModel.validate(&config).unwrap_err().to_string();
        assert!(message.starts_with(key), "{message}");
    };
    says(&|config| config.text.block_length = 0, "data.text.block_length");
    says(&|config| config.text.hold_out = 1.0, "data.text.hold_out");
    says(&|config| config.validation = "other".into(), "data.text.hold_out");
    says(&|config| config.format = taper_data::Format::Tsv, "data.format");
    says(&|config| config.tokenizer.dropout = 0.1, "data.tokenizer.dropout");
    config.text.hold_out = 0.0;
    assert!(!Task::LanguageModel.validates(&config));
}

#[test]
fn a_cache_is_made_anew_when_the_text_or_a_setting_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    std::fs::write(&path, lines(200)).unwrap();
    let mut config = config(folder.path(), TokenizerKind::Char);
    let run = folder.path().join("run");
    let before = prepare(&config).unwrap().train.tokens();
    assert!(Task::LanguageModel.corpus_changes(&config, &run).unwrap().is_empty());
    config.text.hold_out = 0.5;
    assert!(prepare(&config).unwrap().train.tokens() < before);
    // A damaged file is made again.
    let cache = run.join("cache/text.bin");
    let mut bytes = std::fs::read(&cache).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&cache, &bytes).unwrap();
    let text =
        decoded(prepare(&config).unwrap().tokenizers.target(), &prepare(&config).unwrap().train);
    assert!(lines(200).starts_with(&text));
    std::fs::write(&path, lines(100)).unwrap();
    let changes = Task::LanguageModel.corpus_changes(&config, &run).unwrap();
    assert!(changes.len() == 1 && changes[0].contains("text.txt"), "{changes:?}");
}

#[test]
fn behind_a_barrier_each_row_is_of_one_document() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.txt"), lines(300)).unwrap();
    let mut config = config(folder.path(), TokenizerKind::Char);
    config.text.documents = Documents::Lines;
    let of = |config: &DataConfig| {
        let prepared = prepare(config).unwrap();
        let in_order = BatchingConfig { shuffle: false, ..config.batching.clone() };
        let validation = batches(prepared.validation.as_ref().unwrap(), &in_order, 1);
        let tokenizer = prepared.tokenizers.target();
        let read: Vec<Batch> =
            TextBlocks::open(config, tokenizer, None).unwrap().collect::<Result<_>>().unwrap();
        assert_eq!(read, validation);
        [batches(&prepared.train, &config.batching, 1), validation]
    };
    let open = of(&config);
    config.text.barrier = true;
    let closed = of(&config);
    for (open, closed) in open.iter().flatten().zip(closed.iter().flatten()) {
        // Tokens and answers are the same, whether or not a barrier separates documents.
        assert_eq!(open.streams[0].ids, closed.streams[0].ids);
        assert_eq!(open.answers, closed.answers);
        assert_eq!(closed.indices.len(), closed.streams[0].lengths.len());
        let mut rest = closed.streams[0].ids.as_slice();
        for &length in &closed.streams[0].lengths {
            let (row, others) = rest.split_at(length);
            assert!(!row[1..].contains(&END), "a row goes on behind a document: {row:?}");
            rest = others;
        }
    }
    assert!(closed[0][0].examples() > open[0][0].examples());
}
