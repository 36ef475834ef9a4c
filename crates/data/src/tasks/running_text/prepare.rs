//! From the files of running text to data sets ready to be batched.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::tasks::running_text::reader::{Passage, Portion, TextReader, files};
use crate::text::cache::{CACHE_FOLDER, CacheWriter, Key};
use crate::text::fingerprint::Fingerprint;
use crate::text::segmentation::Layout;
use crate::{
    Corpora, DataConfig, Error, Format, Prepared, Result, TextDataset, TextReport, Tokenizer,
    TokenizerPair, split_name,
};

/// Passages, and bytes of text, that are read before they are tokenised together, in parallel.
const CHUNK: usize = 16_384;
const CHUNK_BYTES: usize = 1 << 24;

/// Refuses what cannot work for running text.
///
/// # Errors
///
/// [`Error::Config`] with the offending key.
pub(crate) fn validate(config: &DataConfig) -> Result<()> {
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    let (text, tokenizer) = (&config.text, &config.tokenizer);
    if text.hold_out > 0.0 && !config.validation.is_empty() {
        return wrong(
            "data.text.hold_out",
            "holds validation text out of the training text, but data.validation names some: set \
             one of the two to 0 or \"\"",
        );
    }
    if config.hold_out > 0 {
        return wrong(
            "data.hold_out",
            "is for sentence pairs; running text has data.text.hold_out",
        );
    }
    let instead = "running text is a name in data.dir, or { file = \"text.txt\" }";
    config.train.require_plain("data.train", instead)?;
    config.validation.require_plain("data.validation", instead)?;
    config.test.require_plain("data.test", instead)?;
    if config.format != Format::Text {
        return wrong("data.format", "must be \"text\" for a language model");
    }
    if tokenizer.dropout > 0.0 || tokenizer.sampling_alpha > 0.0 {
        let key = match tokenizer.dropout {
            0.0 => "data.tokenizer.sampling_alpha",
            _ => "data.tokenizer.dropout",
        };
        return wrong(key, "is for sentence pairs: running text is cut once; set it to 0");
    }
    if tokenizer.target_path.is_some() {
        return wrong("data.tokenizer.target_path", "is for sentence pairs; leave it out");
    }
    Ok(())
}

/// Readies the training and validation text of a run: tokenizer and tokenised text come to lie in
/// the folder `run`.
///
/// Where `data.text.hold_out` is above 0, the training text is divided by its characters before
/// anything is learned from it.
///
/// # Errors
///
/// Whatever is wrong with configuration, text, tokenizer or disk, as [`Error`] lists it.
pub fn prepare_text(config: &DataConfig, run: &Path) -> Result<Prepared<TextDataset>> {
    config.validate()?;
    validate(config)?;
    prepare_with(config, run, train_tokenizer)
}

/// As [`prepare_text`], with a tokenizer that `train` makes where the run has none.
pub(crate) fn prepare_with(
    config: &DataConfig,
    run: &Path,
    train_tokenizer: impl FnOnce(&DataConfig) -> Result<TokenizerPair>,
) -> Result<Prepared<TextDataset>> {
    let train = Split::find(config, &config.train, run)?;
    let validation = match config.validation.is_empty() {
        true => None,
        false => Some(Split::find(config, &config.validation, run)?),
    };
    let portions = Portions::of(config, &train.files);
    let tokenizers = match TokenizerPair::exists(run) {
        true => TokenizerPair::load(run)?,
        false => {
            let trained = train_tokenizer(config)?;
            trained.save(run)?;
            trained
        }
    };
    let tokenizer = tokenizers.target();
    let text = |split: &Split, portion: &dyn Fn() -> Result<Portion>, part| {
        split.prepare(config, tokenizer, run, portion, part)
    };
    let held_out = config.text.hold_out > 0.0;
    let train_part = if held_out { Part::Kept } else { Part::Whole };
    let validation = match &validation {
        Some(split) => Some(text(split, &|| Ok(Portion::WHOLE), Part::Whole)?),
        None if held_out => Some(text(&train, &|| Ok(portions.get()?.1), Part::HeldOut)?),
        None => None,
    };
    let train = text(&train, &|| Ok(portions.get()?.0), train_part)?;
    require_tokens(config, &train)?;
    Ok(Prepared { train: Arc::new(train), validation: validation.map(Arc::new), tokenizers })
}

/// Refuses a training text that has no block.
fn require_tokens(config: &DataConfig, train: &TextDataset) -> Result<()> {
    let length = config.text.block_length;
    if train.tokens() > length as u64 {
        return Ok(());
    }
    let message = format!(
        "is {length}, but split {:?} has {} tokens to train on and needs one more than a block: \
         set it to less, or use more text",
        config.train.name(),
        train.tokens()
    );
    Err(Error::Config { key: "data.text.block_length", message })
}

/// Which part of a split a data set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// What is left of the training text.
    Kept,
    /// What is held out of it.
    HeldOut,
}

/// The portions of the training text to train and to validate on, which are counted when they are
/// asked for: a text that has been tokenised need not be read again.
pub(crate) struct Portions<'a> {
    config: &'a DataConfig,
    files: &'a [PathBuf],
    found: std::cell::OnceCell<(Portion, Portion)>,
}

impl<'a> Portions<'a> {
    pub(crate) fn of(config: &'a DataConfig, files: &'a [PathBuf]) -> Self {
        Self { config, files, found: std::cell::OnceCell::new() }
    }

    /// To train on, and to validate on.
    pub(crate) fn get(&self) -> Result<(Portion, Portion)> {
        if let Some(found) = self.found.get() {
            return Ok(*found);
        }
        let text = &self.config.text;
        let found = if text.hold_out > 0.0 {
            let all = TextReader::new(self.files, text.documents, Portion::WHOLE).characters()?;
            let kept = (all as f64 * (1.0 - text.hold_out)) as u64;
            (Portion(0, kept), Portion(kept, u64::MAX))
        } else {
            (Portion::WHOLE, Portion(0, 0))
        };
        Ok(*self.found.get_or_init(|| found))
    }
}

/// The tokenizer that is named, or one trained on what is trained on.
///
/// # Errors
///
/// If a text cannot be read, or a tokenizer not be trained or loaded.
pub(crate) fn train_tokenizer(config: &DataConfig) -> Result<TokenizerPair> {
    let settings = &config.tokenizer;
    if let Some(path) = &settings.path {
        return Ok(TokenizerPair::joint(Tokenizer::load(path)?));
    }
    let files = files(config, &config.train)?;
    let portion = Portions::of(config, &files).get()?.0;
    let mut is_empty = true;
    let lines = TextReader::new(&files, config.text.documents, portion)
        .flat_map(|passage| match passage {
            Ok(passage) => {
                passage.text.split_inclusive('\n').map(|line| Ok(line.to_owned())).collect()
            }
            Err(error) => vec![Err(error)],
        })
        .take(usize::try_from(settings.max_pairs).unwrap_or(usize::MAX))
        .inspect(|_| is_empty = false);
    let (nfkc, lowercase) = (config.nfkc, config.lowercase);
    let trained = Tokenizer::train_for(Layout::RunningText, settings, nfkc, lowercase, lines);
    match trained {
        Err(Error::Tokenizer { .. }) if is_empty => Err(empty(config.train.name(), &files)),
        trained => trained.map(TokenizerPair::joint),
    }
}

fn empty(split: String, files: &[PathBuf]) -> Error {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Error::EmptyText { split, files: names.join(", ") }
}

/// The files of a split as they are now.
struct Split {
    name: String,
    files: Vec<PathBuf>,
    text: Fingerprint,
}

impl Split {
    fn find(config: &DataConfig, split: &Corpora, run: &Path) -> Result<Self> {
        let files = files(config, split)?;
        let text = Fingerprint::obtain(&files, &split.name(), run)?;
        Ok(Self { name: split.name(), files, text })
    }

    /// Tokenises a part into the folder `cache` of the run, or opens that file where it still fits.
    fn prepare(
        &self,
        config: &DataConfig,
        tokenizer: &Tokenizer,
        run: &Path,
        portion: &dyn Fn() -> Result<Portion>,
        part: Part,
    ) -> Result<TextDataset> {
        let ending = if part == Part::HeldOut { ".held-out.bin" } else { ".bin" };
        let folder = run.join(CACHE_FOLDER);
        let path = folder.join(format!("{}{ending}", split_name(&self.name)));
        let facts = serde_json::json!({
            "split": self.name,
            "part": format!("{part:?}"),
            "hold_out": config.text.hold_out,
            "documents": config.text.documents,
            "text": self.text.text_hash,
            "tokenizer": tokenizer.hash(),
        });
        let key: Key = Sha256::digest(facts.to_string().as_bytes()).into();
        let (text, end) = (&config.text, tokenizer.end());
        let open = || TextDataset::open(&path, &key, text, end, &config.batching);
        if let Some(dataset) = open()? {
            return Ok(dataset);
        }
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        let mut builder = Builder::new(tokenizer, CacheWriter::create(&path)?);
        for passage in TextReader::new(&self.files, config.text.documents, portion()?) {
            builder.add(passage?)?;
        }
        self.text.still_holds()?;
        builder.tokenise()?;
        // Nothing can be asked for of a single token.
        if builder.report.tokens < 2 {
            return Err(empty(self.name.clone(), &self.files));
        }
        let report = TextReport {
            split: self.name.clone(),
            text_hash: self.text.text_hash.clone(),
            tokenizer_hash: tokenizer.hash().to_owned(),
            ..builder.report
        };
        builder.writer.finish(&key, &report)?;
        let message = "cannot be read back right after it was written; check the disk".to_owned();
        open()?.ok_or(Error::Malformed { path, message })
    }
}

/// Tokenises and counts passages on their way to the cache.
struct Builder<'a> {
    tokenizer: &'a Tokenizer,
    writer: CacheWriter,
    /// Passages to be tokenised together.
    chunk: Vec<Passage>,
    chunk_bytes: usize,
    report: TextReport,
}

impl<'a> Builder<'a> {
    fn new(tokenizer: &'a Tokenizer, writer: CacheWriter) -> Self {
        let report = TextReport::default();
        Self { tokenizer, writer, chunk: Vec::new(), chunk_bytes: 0, report }
    }

    fn add(&mut self, passage: Passage) -> Result<()> {
        self.chunk_bytes += passage.text.len();
        self.chunk.push(passage);
        if self.chunk.len() < CHUNK && self.chunk_bytes < CHUNK_BYTES {
            return Ok(());
        }
        self.tokenise()
    }

    /// Tokenises and writes the passages that were taken in.
    fn tokenise(&mut self) -> Result<()> {
        self.chunk_bytes = 0;
        let chunk = std::mem::take(&mut self.chunk);
        let texts: Vec<&str> = chunk.iter().map(|passage| passage.text.as_str()).collect();
        for (ids, passage) in self.tokenizer.encode_batch(&texts)?.iter_mut().zip(&chunk) {
            let is_next_document = passage.begins_document && self.report.tokens > 0;
            self.report.count(passage, ids, self.tokenizer);
            if is_next_document {
                ids.insert(0, self.tokenizer.end());
                self.report.tokens += 1;
            }
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            self.writer.push(ids.len() as u64, &bytes)?;
        }
        Ok(())
    }
}
