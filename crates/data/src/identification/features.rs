//! Features of a text that identify its language: n-grams of characters, and whole words.

/// Longest n-gram.
const LONGEST: usize = 4;

/// Number of characters of a text that are examined; more would hardly change the result.
const EXAMINED: usize = 120;

/// Character between words.
const SEPARATOR: char = ' ';

/// Odd constant of multiplicative hashing: 2^64 divided by the golden ratio (Knuth 1973).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Words of a text in lower case, with a separator before and after each word. If the text ends in
/// the middle of a word, or is cut off there, no separator follows the last word.
#[derive(Debug)]
pub(super) struct Features(Vec<char>);

/// True if a character is part of a word: a letter, or a combining mark, such as the vowel signs of
/// many scripts.
fn is_of_word(character: char) -> bool {
    match character {
        'a'..='z' | 'A'..='Z' => true,
        '\0'..='\u{7f}' => false,
        // Joiners are parts of words in Persian and in the scripts of India.
        '\u{200c}' | '\u{200d}' => true,
        // Scripts with marks among their letters.
        '\u{300}'..='\u{36f}' | '\u{590}'..='\u{1cff}' => !character.is_numeric(),
        other => other.is_alphabetic(),
    }
}

fn mixed(hash: u64, character: char) -> u64 {
    (hash.rotate_left(5) ^ u64::from(character)).wrapping_mul(GOLDEN)
}

/// Index of the vector of a feature with the hash `hash`, among `rows` vectors.
fn row_of(hash: u64, rows: usize) -> usize {
    // The upper half of a product depends on all bits of its factors.
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(GOLDEN) >> 32;
    ((mixed * rows as u64) >> 32) as usize
}

impl Features {
    /// Features of the beginning of `text`.
    pub(super) fn extract(text: &str) -> Self {
        let mut words = vec![SEPARATOR];
        for character in text.chars() {
            if words.len() > EXAMINED {
                break;
            }
            match character {
                one if !is_of_word(one) => {
                    if words.last() != Some(&SEPARATOR) {
                        words.push(SEPARATOR);
                    }
                }
                one if one.is_ascii() => words.push(one.to_ascii_lowercase()),
                one => words.extend(one.to_lowercase()),
            }
        }
        // A word at the end of the text may have been cut off: it has no separator after it.
        Self(words)
    }

    /// Calls `each` with the index of each feature's vector, among `rows` vectors.
    pub(super) fn each(&self, rows: usize, mut each: impl FnMut(usize)) {
        for (start, &first) in self.0.iter().enumerate() {
            let mut hash = 0;
            for (length, &character) in (1..=LONGEST).zip(&self.0[start..]) {
                hash = mixed(hash, character);
                // A separator alone is not a feature.
                if length > 1 || first != SEPARATOR {
                    each(row_of(hash ^ length as u64, rows));
                }
            }
            if first == SEPARATOR {
                let rest = &self.0[start + 1..];
                let Some(end) = rest.iter().position(|&one| one == SEPARATOR) else { continue };
                // A word with fewer letters is already a feature: together with the separators
                // around it, it is one of the n-grams.
                if end + 2 > LONGEST {
                    let hash = rest[..end].iter().fold(1, |hash, &one| mixed(hash, one));
                    each(row_of(hash, rows));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<usize> {
        let mut rows = Vec::new();
        Features::extract(text).each(1 << 20, |row| rows.push(row));
        rows
    }

    #[test]
    fn features_are_of_letters_alone() {
        assert_eq!(
            Features::extract("It's 5 °C, isn't it?").0.iter().collect::<String>(),
            " it s c isn t it "
        );
        assert_eq!(Features::extract("हिन्दी").0.len(), 7);
        assert_eq!(rows("Two words!"), rows("TWO\twords."));
        assert!(rows("1 + 1").is_empty());
        // Three letters and two separators: three n-grams of length 1, four of length 2, three of
        // length 3, two of length 4, and a word.
        assert_eq!(rows("cat ").len(), 13);
        // A word at the end of a text may have been cut off, so it does not count as a whole word.
        assert_eq!(rows("cat").len(), 9);
        assert_eq!(rows(&"word ".repeat(100)), rows(&"word ".repeat(50)));
    }
}
