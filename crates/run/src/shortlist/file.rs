//! File format of shortlists. A shortlist limits the target tokens that a translation can contain.
//! One list has target tokens that every translation may contain. For each source token, a list has
//! target tokens that are allowed if the source contains this token.
//!
//! A file begins with a line of JSON, the [`ShortlistHeader`]. Then comes the list for every
//! translation, and after it the lists of the source tokens, in the order of their ids. The file
//! ends with the SHA-256 of all bytes before it.
//!
//! The token ids in a list are ascending. A list is stored as its length, its first id, and then,
//! for each further id, the difference from the id before it. These numbers are encoded in LEB128,
//! so that most of them take one or two bytes.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use taper_data::read_regular;
use taper_decoding::Shortlist;

/// Version of the format.
const FORMAT: u32 = 1;
/// Number of bytes of the checksum.
const CHECKSUM: usize = 32;
/// Largest size of a file: 1 GiB.
const LARGEST: u64 = 1 << 30;

/// Description of a shortlist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortlistHeader {
    /// Version of the format.
    pub(super) shortlist: u32,
    /// Hash of the tokenizers that have assigned the token ids in the lists. With other tokenizers,
    /// the lists are useless.
    pub tokenizers: String,
    /// Sizes of the vocabularies of source and target.
    pub vocabularies: [usize; 2],
    /// Largest number of tokens that were put into the list of a source token because they are its
    /// likeliest translations. The list can have one more token: the target token with the same
    /// spelling as the source token.
    pub best: usize,
    /// Number of target tokens that were requested for the list of tokens that every translation
    /// may contain. These are the tokens that are most frequent in the training text.
    pub frequent: usize,
    /// Number of iterations in which probabilities were estimated.
    pub iterations: usize,
    /// Number of sentence pairs from which the probabilities were estimated.
    pub pairs: u64,
}

impl ShortlistHeader {
    /// Makes the header of the present format.
    pub(super) fn new(tokenizers: String, (source, target): (usize, usize)) -> Self {
        let vocabularies = [source, target];
        let (shortlist, best, frequent, iterations, pairs) = (FORMAT, 0, 0, 0, 0);
        Self { shortlist, tokenizers, vocabularies, best, frequent, iterations, pairs }
    }
}

/// Bytes of the file of `shortlist`. Its lists must be ascending.
pub(super) fn to_bytes(header: &ShortlistHeader, shortlist: &Shortlist) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(header)?;
    bytes.push(b'\n');
    write_list(&mut bytes, shortlist.always());
    (0..header.vocabularies[0]).for_each(|id| write_list(&mut bytes, shortlist.list(id as u32)));
    let checksum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&checksum);
    Ok(bytes)
}

/// Reads the file of a shortlist. Also returns the checksum of the file.
///
/// # Errors
/// When there is no such file, or it is damaged or from a later version.
pub(super) fn read(path: &Path) -> Result<(ShortlistHeader, Shortlist, [u8; CHECKSUM])> {
    let bytes = read_regular(path, LARGEST).with_context(|| path.display().to_string())?;
    from_bytes(&bytes).with_context(|| path.display().to_string())
}

fn from_bytes(bytes: &[u8]) -> Result<(ShortlistHeader, Shortlist, [u8; CHECKSUM])> {
    let Some((content, checksum)) = bytes.split_last_chunk::<CHECKSUM>() else {
        bail!("too short for a shortlist");
    };
    ensure!(
        Sha256::digest(content)[..] == checksum[..],
        "its checksum does not match: the file is damaged, or no shortlist"
    );
    let end = content.iter().position(|&byte| byte == b'\n').context("it has no header")?;
    let (header, lists) = content.split_at(end + 1);
    let header: ShortlistHeader = serde_json::from_slice(header).context("its header")?;
    ensure!(
        header.shortlist == FORMAT,
        "its format has version {}, and this program reads version {FORMAT}",
        header.shortlist
    );
    let [sources, targets] = header.vocabularies;
    let mut lists = Reader { bytes: lists, targets };
    let always = lists.next_list()?;
    let mut of_sources = Vec::new();
    for _ in 0..sources {
        of_sources.push(lists.next_list()?);
    }
    ensure!(lists.bytes.is_empty(), "it has more lists than source tokens");
    Ok((header, Shortlist::new(always, of_sources), *checksum))
}

fn write_list(bytes: &mut Vec<u8>, list: &[u32]) {
    write_number(bytes, list.len() as u32);
    let mut before = 0;
    for &id in list {
        write_number(bytes, id.wrapping_sub(before));
        before = id;
    }
}

fn write_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reader of lists of ids below `targets`.
struct Reader<'a> {
    bytes: &'a [u8],
    targets: usize,
}

impl Reader<'_> {
    fn next_list(&mut self) -> Result<Vec<u32>> {
        let length = self.number()? as usize;
        // Each id takes at least one byte.
        ensure!(length <= self.bytes.len(), "a list is longer than the file");
        let (mut list, mut id) = (Vec::with_capacity(length), 0_u32);
        for index in 0..length {
            let step = self.number()?;
            ensure!(index == 0 || step > 0, "a list is not ascending");
            id = id
                .checked_add(step)
                .filter(|&id| (id as usize) < self.targets)
                .with_context(|| format!("a list has an id that is not below {}", self.targets))?;
            list.push(id);
        }
        Ok(list)
    }

    fn number(&mut self) -> Result<u32> {
        let mut number = 0;
        for shift in [0, 7, 14, 21, 28] {
            let (&byte, rest) = self.bytes.split_first().context("it ends within a list")?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(number).context("a number is too large");
            }
        }
        bail!("a number is too long")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (ShortlistHeader, Shortlist) {
        let header =
            ShortlistHeader { best: 3, ..ShortlistHeader::new("hash".into(), (4, 70_000)) };
        let lists = [vec![], vec![0, 1, 69_999], vec![300], vec![5, 130, 20_000]];
        (header, Shortlist::new(vec![3, 200], lists))
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let (header, shortlist) = example();
        let bytes = to_bytes(&header, &shortlist).expect("written");
        let (header_read, read, checksum) = from_bytes(&bytes).expect("read");
        assert_eq!((header_read, read), (header, shortlist));
        assert!(bytes.ends_with(&checksum));
    }

    #[test]
    fn a_damaged_file_is_refused_and_never_panics() {
        let (header, shortlist) = example();
        let bytes = to_bytes(&header, &shortlist).expect("written");
        for place in 0..bytes.len() {
            from_bytes(&bytes[..place]).expect_err("cut");
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x41;
            from_bytes(&damaged).expect_err("damaged");
            // With a checksum that matches, the lists are still checked.
            damaged.truncate(bytes.len() - CHECKSUM);
            let checksum = Sha256::digest(&damaged);
            damaged.extend_from_slice(&checksum);
            if let Ok((header, read, _)) = from_bytes(&damaged) {
                let [sources, targets] = header.vocabularies;
                let lists = (0..sources as u32).flat_map(|source| read.list(source));
                assert!(lists.chain(read.always()).all(|&id| (id as usize) < targets));
            }
        }
    }
}
