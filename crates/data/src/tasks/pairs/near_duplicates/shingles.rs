//! Shingles of a pair, which are overlapping pieces of its text that all have the same length. The
//! sets of shingles show how much two pairs have in common (Broder 1997, "On the resemblance and
//! containment of documents").

use crate::Draws;
use crate::tasks::pairs::modifiers::letters::is_ideographic;

/// Number of characters of a shingle.
const CHARACTERS: usize = 5;

/// Number of characters of a shingle that consists of ideographs. An ideograph carries as much
/// information as several letters.
const IDEOGRAPHS: usize = 2;

/// Number that distinguishes these random draws from others of the same seed (see [`Draws::new`]).
/// The draws serve as a hash function of shingles.
const PURPOSE: u64 = 13;

/// Hashes of all shingles of a pair. Repeated shingles are included.
///
/// Case is ignored, and every run of punctuation and white space counts as one space. So pairs that
/// differ only in this way have the same shingles.
pub(crate) fn shingles(source: &str, target: &str) -> Vec<u64> {
    let mut hashes = Vec::with_capacity(source.len() + target.len() + 4);
    let mut characters = Vec::with_capacity(source.len().max(target.len()) + 2);
    for (text, side) in [(source, 0), (target, 1)] {
        normalise(text, &mut characters);
        push_hashes(&characters, Draws::new(0, side, PURPOSE), &mut hashes);
    }
    hashes
}

/// Hashes of the shingles of a pair, sorted, without repetitions.
pub(crate) fn shingle_set(source: &str, target: &str) -> Vec<u64> {
    let mut set = shingles(source, target);
    set.sort_unstable();
    set.dedup();
    set
}

/// True if the Jaccard index of two sets is at least `threshold`. The index is the size of the
/// intersection divided by the size of the union. Both sets must be sorted.
pub(crate) fn are_near(one: &[u64], other: &[u64], threshold: f64) -> bool {
    let (shorter, longer) = (one.len().min(other.len()), one.len().max(other.len()));
    // The intersection is no larger than the smaller set.
    if (shorter as f64) < threshold * longer as f64 {
        return false;
    }
    let (mut common, mut at) = (0, 0);
    for hash in one {
        while at < other.len() && other[at] < *hash {
            at += 1;
        }
        common += usize::from(other.get(at) == Some(hash));
    }
    common as f64 >= threshold * (one.len() + other.len() - common) as f64
}

/// Converts a text to its letters and digits in lower case, with one space between words and at
/// both ends. A text without letters and digits keeps its other characters.
fn normalise(text: &str, characters: &mut Vec<char>) {
    characters.clear();
    characters.push(' ');
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            characters.push(character.to_ascii_lowercase());
        } else if !character.is_ascii() && character.is_alphanumeric() {
            match is_ideographic(character) {
                true => characters.push(character),
                false => characters.extend(character.to_lowercase()),
            }
        } else if characters.last() != Some(&' ') {
            characters.push(' ');
        }
    }
    if characters.len() == 1 {
        characters.extend(text.chars().filter(|character| !character.is_whitespace()));
    }
    if characters.last() != Some(&' ') {
        characters.push(' ');
    }
}

/// Hash of a sequence that `word` extends. `hash` is the hash of the sequence without `word`.
pub(super) fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

fn push_hashes(characters: &[char], draws: Draws, hashes: &mut Vec<u64>) {
    let mut is_ideograph_before = false;
    for (place, &character) in characters.iter().enumerate() {
        let is_ideograph = is_ideographic(character);
        let width = if is_ideograph || is_ideograph_before { IDEOGRAPHS } else { CHARACTERS };
        is_ideograph_before = is_ideograph;
        let end = place + 1;
        if end < width && end < characters.len() {
            continue;
        }
        let piece = &characters[end.saturating_sub(width)..end];
        let piece = piece.iter().fold(0, |hash, &one| mixed(hash, u64::from(one)));
        hashes.push(draws.bits(piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jaccard index, computed directly from its definition.
    fn jaccard(one: &[u64], other: &[u64]) -> f64 {
        let common = one.iter().filter(|hash| other.contains(hash)).count();
        common as f64 / (one.len() + other.len() - common) as f64
    }

    #[test]
    fn shingles_are_those_counted_by_hand() {
        // " abcd " on one side, " x " on the other.
        assert_eq!(shingle_set("Abcd!", "x").len(), 2 + 1);
        // " 我爱你 ": the four pairs of neighbouring characters, blanks included.
        assert_eq!(shingle_set("我爱你。", "x").len(), 4 + 1);
        assert_eq!(shingle_set("STOP -- that", "Halt."), shingle_set("stop that", "halt"));
        assert_ne!(shingle_set("a", "b"), shingle_set("b", "a"), "sides differ");
        // Marks alone are text, too.
        assert_ne!(shingle_set("?!", "…"), shingle_set("!!", "…"));
        assert!(!shingle_set("?", "?").is_empty());
    }

    #[test]
    fn nearness_is_the_jaccard_index() {
        let draws = Draws::new(1, 2, 3);
        for case in 0..200 {
            let set = |first: u64| {
                let size = 1 + (draws.unit(case) * 40.0) as u64;
                let mut set: Vec<u64> = (0..size).map(|one| draws.bits(first + one) % 50).collect();
                set.sort_unstable();
                set.dedup();
                set
            };
            let (one, other) = (set(1000 * case), set(1000 * case + 500));
            let exact = jaccard(&one, &other);
            assert!(are_near(&one, &other, exact - 1e-9));
            assert!(!are_near(&one, &other, exact + 1e-9));
            assert!(are_near(&one, &one, 1.0));
        }
    }
}
