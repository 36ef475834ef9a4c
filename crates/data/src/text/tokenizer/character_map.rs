//! Replaces characters by their normal forms, as in SentencePiece (Kudo and Richardson 2018,
//! section 3.3). At each place of the text, from left to right, the longest string that the map
//! contains is replaced by its normal form. If the map contains no string that begins there, the
//! character stays.
//!
//! The library `tokenizers` applies the same map to each grapheme, and replaces a whole grapheme by
//! the normal form of its shortest prefix in the map. So it drops, for example, the accent of a
//! full-width letter with an accent.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokenizers::normalizers::Sequence;
use tokenizers::{NormalizerWrapper, Tokenizer};

/// Compiled map of characters to their normal forms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CharacterMap {
    /// Trie of the strings that are replaced, as a double array (Aoe 1989) in the layout of
    /// Darts-clone. A unit is a node of the trie, or the value of a string.
    units: Vec<u32>,
    /// Normal forms, each followed by a zero byte.
    forms: String,
    /// Texts that are not normalised, such as added tokens. Longer texts come first.
    kept: Vec<String>,
}

/// Normalised text, with the place of each part in the original text.
#[derive(Debug, Default)]
pub(super) struct Normalized {
    text: String,
    /// End of each part: its index in the normalised text, and its index in the original text. Both
    /// are in ascending order.
    ends: Vec<(usize, usize)>,
}

impl CharacterMap {
    /// Removes the map of characters from the normalizer of `inner`, and returns it. The normalizer
    /// keeps its other steps. `None` if there is no map. The returned map does not change added
    /// tokens.
    ///
    /// # Errors
    ///
    /// If the map is damaged.
    pub(super) fn taken_from(inner: &mut Tokenizer) -> Result<Option<Self>, String> {
        let steps: Vec<NormalizerWrapper> = match inner.get_normalizer() {
            Some(NormalizerWrapper::Sequence(steps)) => steps.as_ref().to_vec(),
            Some(alone) => vec![alone.clone()],
            None => return Ok(None),
        };
        let Some((NormalizerWrapper::Precompiled(first), rest)) = steps.split_first() else {
            return Ok(None);
        };
        let written = serde_json::to_value(first).map_err(|error| error.to_string())?;
        let bytes = written["precompiled_charsmap"].as_str().map(|text| BASE64.decode(text));
        let Some(Ok(bytes)) = bytes else {
            return Err("the map of characters is not in Base64".to_owned());
        };
        let added = inner.get_added_tokens_decoder();
        let kept = added.into_values().map(|token| token.content).collect();
        let map = Self::read(&bytes, kept)?;
        let rest = Sequence::new(rest.to_vec());
        let rest = Some(NormalizerWrapper::Sequence(rest));
        inner.with_normalizer(rest).map_err(|error| error.to_string())?;
        Ok(Some(map))
    }

    /// Reads a compiled map: the number of bytes of the double array (u32), the array (u32 each),
    /// and the normal forms. Integers are little-endian. `kept` are the texts that are not
    /// normalised.
    fn read(bytes: &[u8], mut kept: Vec<String>) -> Result<Self, String> {
        let damaged = || "the map of characters is damaged".to_owned();
        let (size, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (units, forms) = rest.split_at_checked(size).ok_or_else(damaged)?;
        let (units, []) = units.as_chunks() else {
            return Err(damaged());
        };
        let units: Vec<u32> = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        let forms = String::from_utf8(forms.to_vec()).map_err(|_| damaged())?;
        if units.is_empty() || !forms.ends_with('\0') {
            return Err(damaged());
        }
        kept.retain(|text| !text.is_empty());
        kept.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Ok(Self { units, forms, kept })
    }

    /// Number of bytes of the longest prefix of `text` that the map contains, and its normal form.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut longest_leaf = None;
        let mut place = offset(*self.units.first()?);
        for (length, &byte) in (1..).zip(text.as_bytes()) {
            place ^= usize::from(byte);
            // The label of a node is the byte that leads to it.
            let Some(&unit) = self.units.get(place).filter(|unit| label(**unit) == u32::from(byte))
            else {
                break;
            };
            place ^= offset(unit);
            if has_leaf(unit) {
                let leaf = self.units.get(place)?;
                longest_leaf = Some((length, (leaf & !(1 << 31)) as usize));
            }
        }
        let (length, start) = longest_leaf?;
        let form = self.forms.get(start..)?;
        Some((length, &form[..form.find('\0')?])).filter(|_| text.is_char_boundary(length))
    }

    /// Normalises `text`. After each part, calls `part` with the number of bytes of the normalised
    /// text so far, and the number of bytes of the original text so far.
    fn replace(&self, text: &str, mut part: impl FnMut(usize, usize)) -> String {
        let mut normal = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(first) = text[at..].chars().next() {
            let rest = &text[at..];
            let is_kept = |one: &&String| rest.starts_with(one.as_str());
            let (length, form) = match self.kept.iter().find(is_kept) {
                Some(kept) => (kept.len(), kept.as_str()),
                None => self.longest(rest).unwrap_or_else(|| {
                    let length = first.len_utf8();
                    (length, &rest[..length])
                }),
            };
            normal.push_str(form);
            at += length;
            part(normal.len(), at);
        }
        normal
    }

    /// Normalised text.
    pub(super) fn text(&self, text: &str) -> String {
        self.replace(text, |_, _| {})
    }

    /// Normalised text, with the places of its parts in the original text.
    pub(super) fn normalize(&self, text: &str) -> Normalized {
        let mut ends = Vec::with_capacity(text.len());
        let text = self.replace(text, |normal, original| ends.push((normal, original)));
        Normalized { text, ends }
    }
}

impl Normalized {
    /// Normalised text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Byte range of the original text from which the byte range `bytes` of the normalised text was
    /// made. It includes bytes after this range that normalisation omitted.
    pub(super) fn original(&self, bytes: Range<usize>) -> Range<usize> {
        // Number of parts that end at or before the byte `place` of the normalised text.
        let parts = |place: usize| self.ends.partition_point(|&(normal, _)| normal <= place);
        let end_of = |parts: usize| parts.checked_sub(1).map_or(0, |last| self.ends[last].1);
        let start = end_of(parts(bytes.start));
        let within = self.ends.get(self.ends.partition_point(|&(normal, _)| normal < bytes.end));
        match within.filter(|_| !bytes.is_empty()) {
            Some(&(normal, _)) => start..end_of(parts(normal)),
            None => start..start,
        }
    }
}

/// True if a string ends at a node. The value of the string is then in a separate unit.
const fn has_leaf(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

/// Byte that leads to a node. If the unit is not a node but a value, the result is larger than any
/// byte.
const fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xFF)
}

/// Number from which the indices of a node's children are computed: from the node at the index
/// `place`, a byte leads to the child at the index `place ^ offset ^ byte`.
const fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map and the normal forms of texts, computed by the package `sentencepiece`.
    const GOLDEN: &str = include_str!("../../../tests/golden/character_map.json");

    fn golden(kept: &[&str]) -> (CharacterMap, Vec<(String, String)>) {
        let mut file: serde_json::Value = serde_json::from_str(GOLDEN).expect("JSON");
        let bytes = BASE64.decode(file["map"].as_str().expect("a map")).expect("Base64");
        let kept = kept.iter().map(|&text| text.to_owned()).collect();
        let map = CharacterMap::read(&bytes, kept).expect("a map");
        (map, serde_json::from_value(file["cases"].take()).expect("pairs of texts"))
    }

    #[test]
    fn texts_have_the_normal_forms_of_the_package() {
        let (map, cases) = golden(&[]);
        assert!(cases.len() > 1900, "{}", cases.len());
        for (text, normal) in cases {
            assert_eq!(map.text(&text), normal, "{text:?}");
        }
    }

    #[test]
    fn parts_come_from_whole_characters_of_the_original() {
        let (map, cases) = golden(&[]);
        for (text, normal) in cases {
            let mapped = map.normalize(&text);
            assert_eq!(mapped.text(), normal);
            assert_eq!(mapped.original(0..normal.len()).end, text.len(), "{text:?}");
            let mut before = 0;
            for (at, character) in normal.char_indices() {
                let part = mapped.original(at..at + character.len_utf8());
                assert!(part.start >= before && part.start < part.end, "{text:?}: {part:?}");
                assert!(normal.contains(&map.text(&text[part.clone()])), "{text:?}: {part:?}");
                before = part.start;
            }
        }
        let mapped = map.normalize("x\u{3000}㍿。");
        assert_eq!(mapped.text(), "x 株式会社。");
        assert_eq!(mapped.original(1..2), 1..4);
        assert_eq!(mapped.original(5..8), 4..7);
        assert_eq!(mapped.original(14..17), 7..10);
        assert_eq!(mapped.original(3..3), 4..4);
    }

    #[test]
    fn added_tokens_stay() {
        let (map, _) = golden(&["<Ａ>", "aa", "a"]);
        assert_eq!(map.text("Ａ<Ａ>abcaaabc"), "A<Ａ>abcaaabc");
        assert_eq!(map.text("bc…"), "bc...");
    }

    #[test]
    fn a_damaged_map_is_refused() {
        let file: serde_json::Value = serde_json::from_str(GOLDEN).expect("JSON");
        let bytes = BASE64.decode(file["map"].as_str().expect("a map")).expect("Base64");
        for end in [0, 3, 4, 40, bytes.len() - 1] {
            assert!(CharacterMap::read(&bytes[..end], Vec::new()).is_err(), "{end}");
        }
        // With a damaged array, no text leads to a place outside the array.
        for place in (4..1028).step_by(3) {
            let mut wrong = bytes.clone();
            wrong[place] ^= 0xFF;
            let map = CharacterMap::read(&wrong, Vec::new()).expect("the sizes are right");
            map.text("Ａabc e\u{302}\u{301} ﷺ");
        }
    }
}
