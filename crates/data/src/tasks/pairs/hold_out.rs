//! Draws a validation set from the training text.
//!
//! Each source sentence has a hash, which also depends on the seed. The sentences with the smallest
//! hashes are held out, so the set does not depend on the order of the text. A source sentence is
//! held out with all its translations or not at all. The reader of the training text leaves out the
//! sentences that are held out.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::HELD_OUT;
use crate::draws::Draws;
use crate::files::write_atomically;
use crate::tasks::pairs::reader::held_out::fingerprint;
use crate::text::fingerprint::TEXT_FOLDER;
use crate::{Cleaner, Corpora, Corpus, DataConfig, Error, PairReader, Result, Side};

/// Purpose number of the random draws that rank sentences (see [`crate::Draws::new`]).
const PURPOSE: u64 = 5;

/// Copy of the configuration with a validation set that is drawn from the training text. The set is
/// stored in two files, one for each side, in the folder `run` that the training writes. If these
/// files exist, they are used without changes; otherwise the set is drawn by `seed` and written to
/// them. If `config.hold_out` is 0, the copy is unchanged.
///
/// # Errors
///
/// If the training text cannot be read or has too few different sentences, or the files cannot be
/// written.
pub fn hold_out(config: &DataConfig, seed: u64, run: &Path) -> Result<DataConfig> {
    if config.hold_out == 0 {
        return Ok(config.clone());
    }
    let folder = run.join(TEXT_FOLDER);
    let file = |side| folder.join(format!("{HELD_OUT}.{}", config.language(side)));
    // If both sides have the same language, both files would have the same name.
    let (source, target) = match (file(Side::Source), file(Side::Target)) {
        (source, target) if source == target => {
            (source.with_added_extension("source"), target.with_added_extension("target"))
        }
        sides => sides,
    };
    if !(source.is_file() && target.is_file()) {
        let pairs = draw(config, seed)?;
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        let text = |side: fn(&(String, String)) -> &String| {
            pairs.iter().map(|pair| format!("{}\n", side(pair))).collect::<String>()
        };
        write_atomically(&target, text(|pair| &pair.1).as_bytes())?;
        write_atomically(&source, text(|pair| &pair.0).as_bytes())?;
    }
    let (source, target) = (source.into(), target.into());
    let held_out = Corpus { source, target, name: HELD_OUT.to_owned(), ..Corpus::default() };
    Ok(DataConfig { validation: Corpora(vec![held_out]), ..config.clone() })
}

/// The pairs to hold out, in the order of their hashes. Each source begins with the tag of its
/// corpus. If a source has several translations, the first is used.
fn draw(config: &DataConfig, seed: u64) -> Result<Vec<(String, String)>> {
    let cleaner = Cleaner::new(&config.cleaning);
    let draws = Draws::new(seed, 0, PURPOSE);
    let count = usize::try_from(config.hold_out).unwrap_or(usize::MAX);
    let mut smallest: BTreeMap<u128, (String, String)> = BTreeMap::new();
    let (mut read, mut largest) = (0_u64, u128::MAX);
    for pair in PairReader::open(&DataConfig { hold_out: 0, ..config.clone() }, &config.train)? {
        let pair = pair?;
        let is_line = |text: &str| !text.contains(['\n', '\r']);
        if cleaner.check_text(&pair.source, &pair.target).is_err()
            || !is_line(&pair.source)
            || !is_line(&pair.target)
        {
            continue;
        }
        read += 1;
        let sentence = fingerprint(&pair.source);
        let rank = u128::from(draws.bits(sentence as u64)) << 64 | sentence >> 64;
        if rank < largest || smallest.len() < count {
            smallest.entry(rank).or_insert((pair.source, pair.target));
            if smallest.len() > count {
                smallest.pop_last();
            }
            largest = smallest.last_key_value().map_or(u128::MAX, |(rank, _)| *rank);
        }
    }
    if smallest.len() < count || read < 2 * config.hold_out {
        return Err(Error::Config {
            key: "data.hold_out",
            message: format!(
                "is {count}, but the training text has {read} usable pairs: hold out at most \
                 half of them"
            ),
        });
    }
    Ok(smallest.into_values().collect())
}
