//! Vocabulary shortlist of a run: for each source token, the target tokens that translations may
//! contain. They are chosen by translation probabilities that are estimated from the training text.

mod file;
mod lexicon;
mod spool;

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow, ensure};
use taper_data::{Corpora, PairReader, TokenizerPair, hexadecimal};
use taper_decoding::Shortlist;

use crate::advice::{Action, Advice};
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;
use crate::tasks::entry;
use lexicon::{KEPT, Lexicon};
use spool::Spool;

pub use file::ShortlistHeader;

/// Name of a shortlist's file in the folder of a run.
pub(crate) const SHORTLIST_FILE: &str = "shortlist.bin";

/// Settings for making a shortlist.
#[derive(Debug, Clone)]
pub struct ShortlistSettings {
    /// Number of likeliest translations of each source token that are listed.
    pub best: usize,
    /// Number of the most frequent target tokens, which every translation may contain.
    pub frequent: usize,
    /// Number of iterations that estimate probabilities.
    pub iterations: usize,
    /// Split of the run's data with the pairs from which probabilities are estimated; `None` for
    /// the training text.
    pub split: Option<String>,
}

impl Default for ShortlistSettings {
    fn default() -> Self {
        Self { best: 50, frequent: 100, iterations: 5, split: None }
    }
}

/// Progress of making a shortlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortlistProgress {
    /// Iteration, from 1; 0 while pairs are tokenised.
    pub iteration: usize,
    /// Number of pairs that are done in this iteration.
    pub pairs: u64,
}

/// Result of [`make_shortlist`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeShortlist {
    /// Path of the file.
    pub path: PathBuf,
    /// Size of the file in bytes.
    pub bytes: usize,
    /// Description of the shortlist.
    pub header: ShortlistHeader,
    /// Number of source tokens with at least one translation.
    pub translated: usize,
}

/// Makes the shortlist of the run at `root` from its training text. The file replaces an earlier
/// one, and appears only when it is complete. The same text gives the same file.
///
/// # Errors
/// When the run does not translate, or has several directions, a setting is impossible, the text
/// cannot be read, or the folder cannot be written to.
pub fn make_shortlist(
    root: &Path,
    settings: &ShortlistSettings,
    observe: &mut dyn FnMut(ShortlistProgress),
) -> Result<MadeShortlist> {
    let folder = RunFolder::open(root)?;
    let config = folder.load_config(&[])?;
    ensure!(
        entry(config.task).translates,
        "{}: a shortlist is for translation, but the task of the run is {}",
        root.display(),
        config.task
    );
    ensure!(
        !config.data.is_multilingual(),
        "{}: the run has several directions of translation, and a shortlist has one",
        root.display()
    );
    let ShortlistSettings { best, frequent, iterations, split } = settings;
    ensure!(*best > 0 && *iterations > 0, "a shortlist needs at least one token and iteration");
    ensure!(
        *best <= KEPT,
        "a shortlist has at most {KEPT} translations of a source token, and {best} are requested"
    );
    let tokenizers = config.task.load_tokenizers(root)?;
    let corpora: Corpora = match split {
        Some(name) if *name != config.data.train.name() => config.data.split(name),
        _ => config.data.train.clone(),
    };
    let pairs = PairReader::open(&config.data, &corpora)?;
    let longest = config.data.cleaning.max_tokens;
    let mut progress = |iteration, pairs| observe(ShortlistProgress { iteration, pairs });
    let mut pairs = Spool::new(root, pairs, &tokenizers, longest, &mut |pairs| progress(0, pairs))?;
    let sizes = tokenizers.vocabulary_sizes();
    let lexicon = Lexicon::estimate(&mut pairs, sizes, *iterations, &mut progress)?;
    ensure!(lexicon.pairs > 0, "{}: no pair has at most {longest} tokens", corpora.name());
    let header = ShortlistHeader {
        best: *best,
        frequent: *frequent,
        iterations: *iterations,
        pairs: lexicon.pairs,
        ..ShortlistHeader::new(tokenizers.hash(), sizes)
    };
    let shortlist = from_lexicon(&lexicon, &tokenizers, (*best, *frequent));
    let translated = (0..sizes.0 as u32).filter(|&id| !shortlist.list(id).is_empty()).count();
    let bytes = file::to_bytes(&header, &shortlist)?;
    let path = root.join(SHORTLIST_FILE);
    write_atomically(&path, &bytes)?;
    Ok(MadeShortlist { path, bytes: bytes.len(), header, translated })
}

/// Makes the lists of a shortlist, with ids in ascending order. The list of a source token has its
/// likeliest translations and the target token with the same spelling, so that names and numbers
/// can be copied. One more list has the most frequent target tokens.
fn from_lexicon(
    lexicon: &Lexicon,
    tokenizers: &TokenizerPair,
    (best, frequent): (usize, usize),
) -> Shortlist {
    let (source, target) = (tokenizers.source(), tokenizers.target());
    let (sources, targets) = tokenizers.vocabulary_sizes();
    let ascending = |mut tokens: Vec<u32>| {
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    };
    let list = |id: u32| {
        let mut tokens = lexicon.best(id, best);
        let same = if tokenizers.is_joint() {
            Some(id)
        } else {
            source.token(id).and_then(|token| target.id(&token))
        };
        // The model has no embedding for some tokens of an imported vocabulary, so translations
        // cannot contain these tokens.
        let has_row = |same: &u32| (*same as usize) < targets;
        tokens.extend(same.filter(has_row).filter(|_| !source.is_special(id)));
        ascending(tokens)
    };
    let lists = (0..sources as u32).map(list);
    Shortlist::new(ascending(lexicon.frequent(frequent)), lists)
}

/// Copies the shortlist of the run at `from`, if it has one, to the run at `to`, which has the same
/// tokenizers.
///
/// # Errors
/// When the file cannot be read or written.
pub(crate) fn copy_shortlist(from: &Path, to: &Path) -> Result<()> {
    let path = from.join(SHORTLIST_FILE);
    if !path.is_file() {
        return Ok(());
    }
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    write_atomically(&to.join(SHORTLIST_FILE), &bytes)
}

/// Shortlist from a file, with the checksum of the file. `Debug` shows only the checksum.
pub(crate) struct LoadedShortlist {
    shortlist: Shortlist,
    /// SHA-256 of the file.
    pub(crate) checksum: String,
}

impl Deref for LoadedShortlist {
    type Target = Shortlist;

    fn deref(&self) -> &Shortlist {
        &self.shortlist
    }
}

impl fmt::Debug for LoadedShortlist {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Shortlist").field(&self.checksum).finish()
    }
}

/// Shortlist of a run, which is read when it is first used.
#[derive(Debug, Clone, Default)]
pub struct RunShortlist {
    root: PathBuf,
    /// Hash of the run's tokenizers.
    tokenizers: String,
    loaded: Arc<OnceLock<Arc<LoadedShortlist>>>,
}

impl RunShortlist {
    /// Shortlist of the run at `root`, whose tokenizers have the hash `tokenizers`. Nothing is read
    /// yet.
    pub(crate) fn new(root: &Path, tokenizers: String) -> Self {
        Self { root: root.to_owned(), tokenizers, loaded: Arc::default() }
    }

    /// Returns the shortlist, and reads its file if this has not been done yet.
    ///
    /// # Errors
    /// When the run has no shortlist, or it is damaged or belongs to other tokenizers.
    pub(crate) fn get(&self) -> Result<Arc<LoadedShortlist>> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(Arc::clone(loaded));
        }
        let loaded = Arc::new(self.load().map_err(|error| {
            let make = Action::Shortlist(self.root.clone());
            Advice::new(make, "makes it from the training text").about(error)
        })?);
        Ok(Arc::clone(self.loaded.get_or_init(|| loaded)))
    }

    fn load(&self) -> Result<LoadedShortlist> {
        let path = self.root.join(SHORTLIST_FILE);
        if !path.exists() {
            return Err(anyhow!("{}: the run has no shortlist", self.root.display()));
        }
        let (header, shortlist, checksum) = file::read(&path)?;
        ensure!(
            header.tokenizers == self.tokenizers,
            "{}: the shortlist was made for other tokenizers than the run's",
            path.display()
        );
        Ok(LoadedShortlist { shortlist, checksum: hexadecimal(&checksum) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortlist_is_read_once_and_only_with_its_tokenizers() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path();
        let message = |tokenizers: &str| {
            let error = RunShortlist::new(root, tokenizers.to_owned()).get().expect_err("refused");
            format!("{error:#}")
        };
        assert!(message("own").contains("has no shortlist"), "{}", message("own"));
        let (header, lists) = (ShortlistHeader::new("own".to_owned(), (2, 9)), [vec![], vec![4]]);
        let shortlist = Shortlist::new(vec![5], lists);
        let bytes = file::to_bytes(&header, &shortlist).expect("written");
        let path = root.join(SHORTLIST_FILE);
        fs::write(&path, &bytes).expect("written");
        let own = RunShortlist::new(root, "own".to_owned());
        assert_eq!(**own.get().expect("read"), shortlist);
        assert!(message("other").contains("other tokenizers"), "{}", message("other"));
        let to = root.join("copy");
        fs::create_dir(&to).expect("folder");
        copy_shortlist(root, &to).expect("copied");
        assert_eq!(fs::read(to.join(SHORTLIST_FILE)).expect("copied"), bytes);
        fs::write(&path, &bytes[1..]).expect("written");
        assert!(message("own").contains("damaged"), "{}", message("own"));
        own.get().expect("read before");
        fs::remove_file(to.join(SHORTLIST_FILE)).expect("removed");
        copy_shortlist(&to, root).expect("nothing to copy");
    }
}
