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
    let mut has_others = false;
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
                has_others = true;
            }
            largest = smallest.last_key_value().map_or(u128::MAX, |(rank, _)| *rank);
        } else {
            has_others |= rank > largest;
        }
    }
    let refused = |message: String| Err(Error::Config { key: "data.hold_out", message });
    if read < config.hold_out.saturating_mul(2) {
        return refused(format!(
            "is {count}, but the training text has {read} usable pairs: hold out at most half of \
             them"
        ));
    }
    // All pairs with a source are held out together.
    if !has_others {
        return refused(format!(
            "is {count}, but the {read} usable pairs of the training text have {} different \
             sources: hold out fewer than that",
            smallest.len()
        ));
    }
    Ok(smallest.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_what_is_too_few() {
        let folder = tempfile::tempdir().expect("folder");
        let text = |language: &str, line: fn(usize) -> String| {
            let lines: String = (0..20).map(line).collect();
            std::fs::write(folder.path().join(format!("train.{language}")), lines).expect("write");
        };
        text("en", |at| format!("one of three {}\n", at % 3));
        text("de", |at| format!("translation {at}\n"));
        let drawn = |hold_out| {
            let dir = folder.path().to_owned();
            draw(&DataConfig { dir, hold_out, ..DataConfig::default() }, 1)
        };
        assert_eq!(drawn(2).expect("enough").len(), 2);
        let refused = |hold_out| drawn(hold_out).expect_err("refused").to_string();
        for hold_out in [3, 10] {
            assert!(refused(hold_out).contains("20 usable pairs of the training text have 3 diff"));
        }
        for hold_out in [11, u64::MAX] {
            assert!(refused(hold_out).contains("has 20 usable pairs: hold out at most half"));
        }
    }
}
