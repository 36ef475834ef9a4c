//! Makes data sets from files of running text.

mod shards;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::shards::TextShards;
use crate::tasks::running_text::reader::{Portion, TextReader, files};
use crate::text::cache::{CACHE_FOLDER, Cache, Key};
use crate::text::fingerprint::Fingerprint;
use crate::text::shards::Shards;
use crate::text::tokenizer::segmentation::Layout;
use crate::{
    Corpora, DataConfig, Error, Format, Prepared, Result, Share, TextDataset, TokenisingProgress,
    Tokenizer, TokenizerPair, split_name,
};

/// Refuses settings that are impossible for running text.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a setting is impossible.
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
        return wrong("data.tokenizer.target_path", "is only for sentence pairs; leave it out");
    }
    Ok(())
}

/// Prepares the training and validation text of a run. Writes the tokenizer and the tokenised text
/// to the folder `run`.
///
/// If `data.text.hold_out` is above 0, that share of the training text is held out before the
/// tokenizer is trained.
///
/// # Errors
///
/// Any fault of configuration, text, tokenizer or disk, see [`Error`].
pub fn prepare_text(config: &DataConfig, run: &Path) -> Result<Prepared<TextDataset>> {
    config.validate()?;
    validate(config)?;
    prepare_with(config, run, train_tokenizer, &mut |_| ())
}

/// Prepares text like [`prepare_text`], and reports progress to `observe` while text is tokenised.
/// `train_tokenizer` makes the tokenizer if the run has none.
pub(crate) fn prepare_with(
    config: &DataConfig,
    run: &Path,
    train_tokenizer: impl FnOnce(&DataConfig) -> Result<TokenizerPair>,
    observe: &mut dyn FnMut(&TokenisingProgress),
) -> Result<Prepared<TextDataset>> {
    let ready = Ready::obtain(config, run, train_tokenizer)?;
    let mut prepared: [Option<TextDataset>; 2] = [None, None];
    // The validation text, which is smaller, comes first, so that its errors are found sooner.
    for text in ready.texts(config).iter().rev() {
        let place = usize::from(!text.is_trained_on);
        prepared[place] = Some(text.prepare(config, &ready.tokenizers, run, observe)?);
    }
    let [train, validation] = prepared;
    let train = train.ok_or_else(|| empty(config.train.name(), &ready.train.files))?;
    require_tokens(config, &train)?;
    let validation = validation.map(Arc::new);
    Ok(Prepared { train: Arc::new(train), validation, tokenizers: ready.tokenizers })
}

/// Does the work that a single process must do before several processes tokenise the text together.
/// Returns true if there is anything to tokenise.
///
/// # Errors
///
/// See [`prepare_text`].
pub(crate) fn begin(
    config: &DataConfig,
    run: &Path,
    train_tokenizer: impl FnOnce(&DataConfig) -> Result<TokenizerPair>,
) -> Result<bool> {
    let ready = Ready::obtain(config, run, train_tokenizer)?;
    for text in ready.texts(config) {
        if !text.is_there(config, &ready.tokenizers, run)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tokenises this process's share of the text. One process must have called [`begin`] before.
///
/// # Errors
///
/// See [`prepare_text`].
pub(crate) fn tokenise_share(
    config: &DataConfig,
    run: &Path,
    share: Share,
    observe: &mut dyn FnMut(&TokenisingProgress),
) -> Result<()> {
    let ready = Ready::find(config, run)?;
    for text in ready.texts(config) {
        if !text.is_there(config, &ready.tokenizers, run)? {
            text.shards(config, &ready.tokenizers, run).make(share, observe)?;
        }
    }
    Ok(())
}

/// Tokenizers and splits, which must be known before a text is tokenised.
struct Ready {
    tokenizers: TokenizerPair,
    train: Split,
    validation: Option<Split>,
}

impl Ready {
    /// Examines the text, and trains the tokenizer if the run has none.
    fn obtain(
        config: &DataConfig,
        run: &Path,
        train_tokenizer: impl FnOnce(&DataConfig) -> Result<TokenizerPair>,
    ) -> Result<Self> {
        let find =
            |split| Split::find(config, split, |files, name| Fingerprint::obtain(files, name, run));
        let train = find(&config.train)?;
        let is_named = !config.validation.is_empty();
        let validation = is_named.then(|| find(&config.validation)).transpose()?;
        let tokenizers = TokenizerPair::load_or_train(run, || train_tokenizer(config))?;
        Ok(Self { tokenizers, train, validation })
    }

    /// Reads what [`Self::obtain`] wrote in another process. Writes nothing.
    fn find(config: &DataConfig, run: &Path) -> Result<Self> {
        let find = |split| {
            Split::find(config, split, |files, name| Fingerprint::compute(files, name, run))
        };
        let is_named = !config.validation.is_empty();
        Ok(Self {
            tokenizers: TokenizerPair::load(run)?,
            train: find(&config.train)?,
            validation: is_named.then(|| find(&config.validation)).transpose()?,
        })
    }

    /// Texts to tokenise, the training text first.
    fn texts<'a>(&'a self, config: &'a DataConfig) -> Vec<Text<'a>> {
        let held_out = config.text.hold_out > 0.0;
        let text = |split, part, is_trained_on| Text { split, part, is_trained_on };
        let part = if held_out { Part::Kept } else { Part::Whole };
        let validation = match &self.validation {
            Some(split) => Some(text(split, Part::Whole, false)),
            None => held_out.then(|| text(&self.train, Part::HeldOut, false)),
        };
        [text(&self.train, part, true)].into_iter().chain(validation).collect()
    }
}

/// Refuses a training text that is too short for a block and the token after it.
fn require_tokens(config: &DataConfig, train: &TextDataset) -> Result<()> {
    let length = config.text.block_length;
    if train.tokens() > length as u64 {
        return Ok(());
    }
    let message = format!(
        "is {length}, but split {:?} has {} tokens to train on and needs one more than a block: \
         set a smaller length, or use more text",
        config.train.name(),
        train.tokens()
    );
    Err(Error::Config { key: "data.text.block_length", message })
}

/// Part of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// Training text that is not held out.
    Kept,
    /// Training text that is held out for validation.
    HeldOut,
}

/// Portions of the training text for training and for validation. Their characters are counted only
/// on demand, because a text that is already tokenised need not be read.
pub(crate) struct Portions<'a> {
    config: &'a DataConfig,
    files: &'a [PathBuf],
    found: std::cell::OnceCell<(Portion, Portion)>,
}

impl<'a> Portions<'a> {
    pub(crate) fn new(config: &'a DataConfig, files: &'a [PathBuf]) -> Self {
        Self { config, files, found: std::cell::OnceCell::new() }
    }

    /// Portion for training, and portion for validation.
    pub(crate) fn get(&self) -> Result<(Portion, Portion)> {
        if let Some(found) = self.found.get() {
            return Ok(*found);
        }
        let text = &self.config.text;
        let found = if text.hold_out > 0.0 {
            let all = TextReader::new(self.files, self.config, Portion::WHOLE).characters()?;
            let kept = (all as f64 * (1.0 - text.hold_out)) as u64;
            (Portion(0, kept), Portion(kept, u64::MAX))
        } else {
            (Portion::WHOLE, Portion(0, 0))
        };
        Ok(*self.found.get_or_init(|| found))
    }
}

/// The configured tokenizer, or one that is trained on the training portion of the text.
///
/// # Errors
///
/// If a text cannot be read, or the tokenizer cannot be trained or loaded.
pub(crate) fn train_tokenizer(config: &DataConfig) -> Result<TokenizerPair> {
    let settings = &config.tokenizer;
    if let Some(path) = &settings.path {
        return Ok(TokenizerPair::joint(Tokenizer::load(path)?));
    }
    let files = files(config, &config.train)?;
    let portion = Portions::new(config, &files).get()?.0;
    let mut is_empty = true;
    let lines = TextReader::new(&files, config, portion)
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

pub(crate) fn empty(split: String, files: &[PathBuf]) -> Error {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Error::EmptyText { split, files: names.join(", ") }
}

/// Files of a split, and their fingerprint.
pub(crate) struct Split {
    pub(crate) name: String,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) text: Fingerprint,
}

impl Split {
    fn find(
        config: &DataConfig,
        split: &Corpora,
        fingerprint: impl FnOnce(&[PathBuf], &str) -> Result<Fingerprint>,
    ) -> Result<Self> {
        let files = files(config, split)?;
        let text = fingerprint(&files, &split.name())?;
        Ok(Self { name: split.name(), files, text })
    }
}

/// Text to tokenise: a part of a split.
struct Text<'a> {
    split: &'a Split,
    part: Part,
    is_trained_on: bool,
}

impl<'a> Text<'a> {
    /// Path of the text's cache in the folder `run`, and a hash of everything that determines the
    /// content of the cache.
    fn cache(&self, config: &DataConfig, tokenizers: &TokenizerPair, run: &Path) -> (PathBuf, Key) {
        let ending = if self.part == Part::HeldOut { ".held-out.bin" } else { ".bin" };
        let name = format!("{}{ending}", split_name(&self.split.name));
        let mut facts = serde_json::json!({
            "split": self.split.name,
            "part": format!("{:?}", self.part),
            "hold_out": config.text.hold_out,
            "documents": config.text.documents,
            "text": self.split.text.text_hash,
            "tokenizer": tokenizers.target().hash(),
        });
        if !config.fields.text.is_empty() {
            facts["field"] = serde_json::json!(config.fields.text);
        }
        (run.join(CACHE_FOLDER).join(name), Sha256::digest(facts.to_string().as_bytes()).into())
    }

    fn is_there(
        &self,
        config: &DataConfig,
        tokenizers: &TokenizerPair,
        run: &Path,
    ) -> Result<bool> {
        let (path, key) = self.cache(config, tokenizers, run);
        Ok(Cache::report::<serde_json::Value>(&path, &key)?.is_some())
    }

    fn shards(
        &'a self,
        config: &'a DataConfig,
        tokenizers: &'a TokenizerPair,
        run: &Path,
    ) -> TextShards<'a> {
        let (path, key) = self.cache(config, tokenizers, run);
        let portions = Portions::new(config, &self.split.files);
        let portion = move || {
            Ok(match self.part {
                Part::Whole => Portion::WHOLE,
                Part::Kept => portions.get()?.0,
                Part::HeldOut => portions.get()?.1,
            })
        };
        let shards = Shards::new(&path, &key);
        TextShards::new(self.split, config, tokenizers.target(), Box::new(portion), shards)
    }

    /// Opens the cache of the text in the folder `run`. If there is no cache for this text and
    /// tokenizer, the text is tokenised first.
    fn prepare(
        &self,
        config: &DataConfig,
        tokenizers: &TokenizerPair,
        run: &Path,
        observe: &mut dyn FnMut(&TokenisingProgress),
    ) -> Result<TextDataset> {
        let (path, key) = self.cache(config, tokenizers, run);
        let (text, end) = (&config.text, tokenizers.target().end());
        let open = || TextDataset::open(&path, &key, text, end, &config.batching);
        let make = || {
            let shards = self.shards(config, tokenizers, run);
            shards.make(Share::WHOLE, observe)?;
            shards.merge(&path, &key)
        };
        Shards::new(&path, &key).open_or_make(&path, open, make)
    }
}
