//! Tokenised pairs in a temporary file, so that they are tokenised once and read repeatedly.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rayon::prelude::*;
use taper_data::{RawPair, TokenizerPair};

use super::lexicon::{Bitext, TokenPair};

/// Number of pairs that are tokenised together, in parallel.
const TOKENISED_TOGETHER: usize = 4096;
/// Limit on the pairs that are read together: they have at most this many combinations of a source
/// token and a target token.
const COMBINATIONS: usize = 1 << 22;

/// Temporary file of pairs: for each, the lengths of source and target, and the ids of both, all as
/// little-endian u32. The file is removed when the value is dropped. If the process is killed
/// before, the file remains until the incomplete files in its folder are removed.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    path: PathBuf,
}

impl Drop for Spool {
    fn drop(&mut self) {
        // A file that remains does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

impl Spool {
    /// Tokenises `pairs` into a file in `folder`. Pairs with an empty side, or with more than
    /// `longest` tokens on a side, are omitted. `observe` is called with the number of pairs that
    /// have been read.
    ///
    /// # Errors
    /// When the pairs cannot be read or tokenised, or the file cannot be written.
    pub(super) fn new(
        folder: &Path,
        pairs: impl Iterator<Item = taper_data::Result<RawPair>>,
        tokenizers: &TokenizerPair,
        longest: usize,
        observe: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let path = folder.join(format!("shortlist.{}.partial", std::process::id()));
        let context = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path).with_context(context)?;
        let spool = Self { file, path: path.clone() };
        let mut writer = BufWriter::with_capacity(1 << 20, &spool.file);
        let (mut pairs, mut done) = (pairs.peekable(), 0);
        while pairs.peek().is_some() {
            let texts: Vec<RawPair> =
                pairs.by_ref().take(TOKENISED_TOGETHER).collect::<taper_data::Result<_>>()?;
            done += texts.len() as u64;
            let ids = |pair: &RawPair| -> Result<TokenPair> {
                let source = tokenizers.source().encode(&pair.source)?;
                Ok(TokenPair { source, target: tokenizers.target().encode(&pair.target)? })
            };
            let tokenised: Vec<TokenPair> = texts.par_iter().map(ids).collect::<Result<_>>()?;
            for pair in tokenised {
                let lengths = [pair.source.len(), pair.target.len()];
                if lengths.iter().all(|length| (1..=longest).contains(length)) {
                    write_pair(&mut writer, &pair).with_context(context)?;
                }
            }
            observe(done);
        }
        writer.flush().with_context(context)?;
        drop(writer);
        Ok(spool)
    }
}

fn write_pair(file: &mut impl Write, TokenPair { source, target }: &TokenPair) -> Result<()> {
    let lengths = [source.len() as u32, target.len() as u32];
    for number in lengths.iter().chain(source).chain(target) {
        file.write_all(&number.to_le_bytes())?;
    }
    Ok(())
}

/// Reads the next pair; `None` at the end of the file.
fn next_pair(file: &mut impl Read) -> Result<Option<TokenPair>> {
    let mut lengths = [0; 8];
    let read = file.read(&mut lengths[..1])?;
    if read == 0 {
        return Ok(None);
    }
    file.read_exact(&mut lengths[1..])?;
    let [source, target] = numbers(&lengths)[..] else { return Ok(None) };
    let mut bytes = vec![0; 4 * (source as usize + target as usize)];
    file.read_exact(&mut bytes)?;
    let mut source_ids = numbers(&bytes);
    let target = source_ids.split_off(source as usize);
    Ok(Some(TokenPair { source: source_ids, target }))
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

impl Bitext for Spool {
    fn read(&mut self, read: &mut dyn FnMut(&[TokenPair]) -> Result<()>) -> Result<()> {
        let context = || format!("cannot read {}", self.path.display());
        (&self.file).rewind().with_context(context)?;
        let mut file = BufReader::with_capacity(1 << 20, &self.file);
        let (mut pairs, mut combinations) = (Vec::new(), 0);
        while let Some(pair) = next_pair(&mut file).with_context(context)? {
            combinations += pair.source.len().saturating_add(1) * pair.target.len();
            pairs.push(pair);
            if combinations >= COMBINATIONS {
                read(&pairs)?;
                pairs.clear();
                combinations = 0;
            }
        }
        if pairs.is_empty() { Ok(()) } else { read(&pairs) }
    }
}
