//! Checks that damaged text files, images, tables of captions and tokenizers can be read, or are
//! refused with a clear error. Each check gets the bytes of one damaged file.

use std::fs;
use std::path::{Path, PathBuf};

use taper_data::{
    CaptionUse, DataConfig, Dataset, Epoch, Format, ImageDataset, ImageFormat, PairReader,
    Tokenizer, prepare_captions, read_questions,
};

/// Valid lines of text, to be damaged.
pub const TEXT: &[u8] = "one\r\ntwo ü\n\nthree\n".as_bytes();
/// A valid table, to be damaged.
pub const TABLE: &[u8] = "id\tenglish\tgerman\n1\ta \"b\"\tä\n2\tc\td\n".as_bytes();
/// Valid lines of JSON, to be damaged.
pub const JSON_LINES: &[u8] =
    b"{\"en\": \"a\", \"de\": \"\\u00e4\"}\n\n{\"translation\": {\"en\": \"b\", \"de\": \"c\"}, \"id\": 1.5e3}\n";

/// Valid questions in SQuAD's format, to be damaged.
pub const QUESTIONS: &[u8] = "{\"data\": [{\"paragraphs\": [{\"context\": \"ü\u{1f642}b c\", \"qas\": \
    [{\"id\": \"1\", \"question\": \"b?\", \"answers\": [{\"text\": \"b\", \"answer_start\": 2}]}]}]}]}"
    .as_bytes();

/// A valid translation memory, to be damaged.
pub const MEMORY: &[u8] = "<?xml version=\"1.0\"?>\n<!DOCTYPE tmx [<!ENTITY a \"b\">]><tmx version=\"1.4\"><body>\
    <tu><tuv xml:lang=\"en-US\"><seg>a &amp; <ph>b</ph>ü</seg></tuv><tuv lang=\"de\"><seg>c<![CDATA[<]]></seg>\
    </tuv></tu></body></tmx>"
    .as_bytes();

/// A valid exchange file (XLIFF), to be damaged.
pub const EXCHANGE: &[u8] = "<xliff version=\"1.2\"><file source-language=\"en\" target-language=\"de\"><body>\
    <trans-unit id=\"1\"><source>a <g id=\"1\">ü</g><x/> &#228;</source><target>b</target></trans-unit>\
    <segment><source/><target state=\"new\">c</target></segment></body></file></xliff>"
    .as_bytes();

/// A valid catalog of gettext, to be damaged.
pub const CATALOG: &[u8] = "msgid \"\"\nmsgstr \"Language: de\\n\"\n\n#, fuzzy\nmsgid \"a\"\nmsgstr \"b\"\n\n\
    msgctxt \"c\"\nmsgid \"one \\\"ü\"\nmsgid_plural \"\"\n\"two\"\nmsgstr[0] \"\\x41\"\nmsgstr[1] \"\\303\"\n"
    .as_bytes();

/// Columns of source and target in [`TABLE`], in three ways: by default, by name and by number.
pub const COLUMNS: [[&str; 2]; 3] = [["", ""], ["english", "german"], ["3", "2"]];

/// A part of a corpus, such as its training text. One of its files is damaged repeatedly.
#[derive(Debug)]
pub struct Split {
    damaged: PathBuf,
    config: DataConfig,
    // The folder is removed when this value is dropped.
    _folder: tempfile::TempDir,
}

impl Split {
    /// Makes a split in `format`. Its file `damaged` is written later, by [`Split::read`]. In text
    /// format, the file of the other language has the lines `other`. `columns` names the fields of
    /// source and target.
    ///
    /// # Panics
    /// If temporary files cannot be made.
    pub fn new(format: Format, damaged: &str, other: &str, columns: [&str; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config =
            DataConfig { dir: folder.path().to_owned(), format, ..DataConfig::default() };
        [config.fields.source, config.fields.target] = columns.map(str::to_owned);
        fs::write(folder.path().join("train.de"), other).unwrap();
        Self { damaged: folder.path().join(damaged), config, _folder: folder }
    }

    /// Makes a split of text, with as many lines as [`TEXT`].
    pub fn text() -> Self {
        Self::new(Format::Text, "train.en", "eins\r\nzwei ü\n\ndrei\n", ["", ""])
    }

    /// Makes a split whose file is a table with tabs between its columns.
    pub fn table(columns: [&str; 2]) -> Self {
        Self::new(Format::Tsv, "train.tsv", "", columns)
    }

    /// Makes a split with a JSON object on each line.
    pub fn json_lines() -> Self {
        Self::new(Format::Jsonl, "train.jsonl", "", ["", ""])
    }

    /// Makes a split whose file has questions about texts.
    pub fn questions() -> Self {
        Self::new(Format::Text, "train.json", "", ["", ""])
    }

    /// Makes a split in a Parquet file. By default, one column of the file has the texts of both
    /// languages.
    pub fn parquet() -> Self {
        Self::new(Format::Parquet, "train.parquet", "", ["", ""])
    }

    /// Reads the split, with `bytes` as its damaged file, to the end or to the first error. The
    /// error's message must name a file.
    ///
    /// # Panics
    /// If the error's message names no file.
    pub fn read(&self, bytes: &[u8]) {
        fs::write(&self.damaged, bytes).unwrap();
        let read = PairReader::open(&self.config, "train")
            .and_then(|mut pairs| pairs.try_for_each(|pair| pair.map(drop)));
        if let Err(error) = read {
            let message = error.to_string();
            assert!(message.contains("train."), "{message}");
        }
    }
}

impl Split {
    /// Reads a split of questions about texts, like [`Split::read`].
    ///
    /// # Panics
    /// See [`Split::read`].
    pub fn read_questions(&self, bytes: &[u8]) {
        fs::write(&self.damaged, bytes).unwrap();
        if let Err(error) = read_questions(&self.config, &self.config.train, |_| Ok(())) {
            let message = error.to_string();
            assert!(message.contains("train.json"), "{message}");
        }
    }
}

/// A part of a collection of images, such as the training images. One of its files is damaged
/// repeatedly.
#[derive(Debug)]
pub struct ImageSplit {
    damaged: PathBuf,
    config: DataConfig,
    // The folder is removed when this value is dropped.
    _folder: tempfile::TempDir,
}

/// Height and width of the images of an [`ImageSplit`].
pub const SIDE: usize = 4;

impl ImageSplit {
    /// Makes a split in `format`. Its file `damaged` is written later, by [`ImageSplit::read`]. The
    /// bytes `labels` are the content of the file of labels. Images have [`SIDE`] × [`SIDE`] pixels
    /// in one channel; images in CIFAR's format have 32 × 32 pixels in three channels.
    ///
    /// # Panics
    /// If temporary files cannot be made.
    pub fn new(format: ImageFormat, damaged: &str, labels: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = DataConfig { dir: folder.path().to_owned(), ..DataConfig::default() };
        config.images.format = format;
        config.images.labels = ["a", "b"].map(str::to_owned).into();
        config.images.size = SIDE;
        if format == ImageFormat::Cifar10 {
            (config.images.size, config.images.channels) = (32, 3);
            (config.images.mean, config.images.deviation) = (vec![0.5; 3], vec![0.5; 3]);
        }
        fs::write(folder.path().join("train-labels-idx1-ubyte"), labels).unwrap();
        for label in &config.images.labels {
            fs::create_dir_all(folder.path().join("train").join(label)).unwrap();
        }
        Self { damaged: folder.path().join(damaged), config, _folder: folder }
    }

    /// Reads every image of the split, with `bytes` as its damaged file, up to the first error. The
    /// error's message must name a file.
    ///
    /// # Panics
    /// If the error's message names no file.
    pub fn read(&self, bytes: &[u8]) {
        fs::write(&self.damaged, bytes).unwrap();
        let read = ImageDataset::read(&self.config, &self.config.train).and_then(|images| {
            let plan = std::sync::Arc::new(images).plan(&self.config.batching, Epoch::new(1, 0));
            (0..plan.batches()).try_for_each(|batch| plan.batch(batch).map(drop))
        });
        if let Err(error) = read {
            let message = error.to_string();
            assert!(message.contains("train"), "{message}");
        }
    }
}

/// A valid table of captions, to be damaged; [`CaptionTable`] makes its pictures.
pub const CAPTIONS: &[u8] = "a.png\tone ü\na.png\ttwo\r\n\nb.png\tthree\n".as_bytes();

/// A table of captions that is damaged repeatedly, next to its pictures.
#[derive(Debug)]
pub struct CaptionTable {
    config: DataConfig,
    // The folder is removed when this value is dropped.
    _folder: tempfile::TempDir,
}

impl CaptionTable {
    /// Makes a table whose pictures are copies of `picture`, a PNG file.
    ///
    /// # Panics
    /// If temporary files cannot be made.
    pub fn new(picture: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = DataConfig { dir: folder.path().to_owned(), ..DataConfig::default() };
        (config.images.format, config.images.size) = (ImageFormat::Table, SIDE);
        (config.validation, config.tokenizer.vocabulary_size) = ("".into(), 300);
        for name in ["a.png", "b.png"] {
            fs::write(folder.path().join(name), picture).unwrap();
        }
        Self { config, _folder: folder }
    }

    /// Reads the table `bytes` and its batches, up to the first error. The error's message must
    /// name the table, one of its pictures or a key.
    ///
    /// # Panics
    /// If the error's message names none of these.
    pub fn read(&self, bytes: &[u8]) {
        fs::write(self.config.dir.join("train.tsv"), bytes).unwrap();
        let run = tempfile::tempdir().unwrap();
        let read = prepare_captions(CaptionUse::Written, &self.config, run.path());
        let read = read.and_then(|prepared| {
            let plan = prepared.train.plan(&self.config.batching, Epoch::new(1, 0));
            (0..plan.batches()).try_for_each(|batch| plan.batch(batch).map(drop))
        });
        if let Err(error) = read {
            let message = error.to_string();
            let names = ["train", ".png", "data.", "tokenizer"];
            let path = self.config.dir.display().to_string();
            let is_named = names.iter().any(|name| message.contains(name));
            assert!(is_named || message.contains(&path), "{message}");
        }
    }
}

/// Checks that a damaged tokenizer file works, or is refused with an error that names the file. The
/// path must end in `tokenizer.json`.
///
/// # Panics
/// If the check fails.
pub fn tokenizer_file(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    match Tokenizer::load(path) {
        Ok(tokenizer) => {
            if let Ok(ids) = tokenizer.encode("the dog sees ü and \u{1f680}") {
                assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary_size()));
                let _ = tokenizer.decode(&ids);
            }
            let _ = tokenizer.decode(&[0, 5, u32::MAX]);
        }
        Err(error) => assert!(error.to_string().contains("tokenizer.json"), "{error}"),
    }
}
