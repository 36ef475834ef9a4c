//! Learns translations of words from a corpus of sentence pairs, but only translations that are
//! nearly certain.
//!
//! A word and a piece of text (a word, or a few ideographs) count as translations of each other if
//! the piece is in nearly every target whose source has the word, and seldom in other targets. This
//! is measured by Dice's coefficient (1945). Melamed (2000, "Models of Translational Equivalence
//! among Words") measures association in the same way, but in his method words compete for links
//! within a sentence. Here, a word has one translation for all sentences. A translation that
//! depends on the context is not learned.
//!
//! Words are found without a dictionary. In scripts with spaces, words are separated by spaces. In
//! other scripts, such as Chinese, every piece of up to four ideographs may be a word. Pieces that
//! are in many sentences are grammar, and no word begins or ends with one of them: "的邻居" is "邻居"
//! with a particle.

use std::collections::HashMap;

use super::letters::is_ideographic;

/// Largest number of ideographs of a word.
const IDEOGRAPHS: usize = 4;

/// A word or an ideograph that is in a larger share of all pairs than this is grammar.
const GRAMMAR: f64 = 0.04;

/// Smallest number of pairs that contain a word whose translation is learned.
const FEWEST_PAIRS: usize = 5;

/// Of the pairs whose source contains a word, at least this share must have the word's translation
/// in the target.
const LEAST_SHARE: f64 = 0.9;

/// Smallest value of Dice's coefficient 2 b / (w + t), where w is the number of pairs that contain
/// the word, t is the number of pairs that contain the translation, and b is the number of pairs
/// that contain both of them.
const LEAST_DICE: f64 = 0.5;

/// Words whose translations are nearly sure.
#[derive(Debug)]
pub(crate) struct WordPairs {
    translations: HashMap<String, String>,
}

/// The words on one side of a corpus that may have a translation.
struct Vocabulary<'a> {
    words: Vec<&'a str>,
    /// Number of pairs that contain each word.
    counts: Vec<usize>,
    /// Indices in `words` of the words of each text.
    texts: Vec<Vec<usize>>,
}

impl WordPairs {
    /// Learns from pairs of sentences. The result depends only on the pairs.
    pub(crate) fn learn(pairs: &[(String, String)]) -> Self {
        let sources = Vocabulary::count(pairs.iter().map(|pair| pair.0.as_str()));
        let targets = Vocabulary::count(pairs.iter().map(|pair| pair.1.as_str()));
        let mut pairs_with = vec![Vec::new(); sources.words.len()];
        for (pair, words) in sources.texts.iter().enumerate() {
            words.iter().for_each(|&word| pairs_with[word].push(pair));
        }
        let mut both = vec![0_usize; targets.words.len()];
        let mut translations = HashMap::new();
        for (word, pairs) in pairs_with.iter().enumerate() {
            let mut met: Vec<usize> =
                pairs.iter().flat_map(|&pair| &targets.texts[pair]).copied().collect();
            met.iter().for_each(|&piece| both[piece] += 1);
            met.sort_unstable();
            met.dedup();
            let dice = |piece: usize| {
                2.0 * both[piece] as f64 / (pairs.len() + targets.counts[piece]) as f64
            };
            // Among pieces with equal coefficients, the longest is taken, because the others are
            // parts of it and occur only within it. Among equally long pieces, the first in order
            // is taken.
            let rank = |&one: &usize, &other: &usize| {
                let length = |piece: usize| targets.words[piece].chars().count();
                let (first, second) = (dice(one), dice(other));
                first.total_cmp(&second).then_with(|| length(one).cmp(&length(other)))
            };
            let best = met.iter().copied().rev().max_by(rank);
            let is_certain = |&piece: &usize| {
                both[piece] as f64 >= LEAST_SHARE * pairs.len() as f64 && dice(piece) >= LEAST_DICE
            };
            if let Some(piece) = best.filter(is_certain) {
                let translation = targets.words[piece].to_owned();
                translations.insert(sources.words[word].to_owned(), translation);
            }
            met.iter().for_each(|&piece| both[piece] = 0);
        }
        Self { translations }
    }

    /// A word of the source and its known translation, if the target contains this translation.
    /// `drawn`, a number in [0, 1), chooses among such words. `None` if there is no such word.
    pub(crate) fn within(&self, source: &str, target: &str, drawn: f64) -> Option<(&str, &str)> {
        let there = pieces(target);
        let known = |word: &str| {
            let (word, translation) = self.translations.get_key_value(word)?;
            there
                .binary_search(&translation.as_str())
                .is_ok()
                .then_some((word.as_str(), translation.as_str()))
        };
        let known: Vec<(&str, &str)> = pieces(source).into_iter().filter_map(known).collect();
        known.get((drawn * known.len() as f64) as usize).copied()
    }
}

impl<'a> Vocabulary<'a> {
    fn count(texts: impl Iterator<Item = &'a str>) -> Self {
        let texts: Vec<Vec<&str>> = texts.map(pieces).collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        texts.iter().flatten().for_each(|piece| *counts.entry(piece).or_default() += 1);
        let most = (GRAMMAR * texts.len() as f64).max(FEWEST_PAIRS as f64) as usize;
        let is_grammar = |piece: &str| counts.get(piece).is_some_and(|&count| count > most);
        let may_be_word = |(piece, count): (&&'a str, &usize)| {
            // The first and the last ideograph, or the word itself.
            let (first, last) = (first_unit(piece), last_unit(piece));
            let may_be = *count >= FEWEST_PAIRS && !is_grammar(first) && !is_grammar(last);
            may_be.then_some(*piece)
        };
        let mut words: Vec<&str> = counts.iter().filter_map(may_be_word).collect();
        words.sort_unstable();
        let numbers: HashMap<&str, usize> =
            words.iter().enumerate().map(|(number, word)| (*word, number)).collect();
        let of_text = |text: &Vec<&str>| {
            text.iter().filter_map(|piece| numbers.get(piece)).copied().collect()
        };
        Self {
            counts: words.iter().map(|word| counts[word]).collect(),
            texts: texts.iter().map(of_text).collect(),
            words,
        }
    }
}

/// The pieces of a text that may be words, sorted, without repetitions.
fn pieces(text: &str) -> Vec<&str> {
    let bare = |word| str::trim_matches(word, |one: char| !one.is_alphanumeric());
    let words = text.split_whitespace().map(bare).filter(|word| is_word(word));
    let mut pieces: Vec<&str> = words.chain(ideographs(text)).collect();
    pieces.sort_unstable();
    pieces.dedup();
    pieces
}

/// True if a text without spaces is a word of a script with spaces, and not a number or an address.
fn is_word(text: &str) -> bool {
    let is_other = |one: char| {
        is_ideographic(one)
            || one.is_numeric()
            || (one.is_ascii_punctuation() && !matches!(one, '\'' | '-'))
    };
    !text.is_empty() && !text.contains(is_other)
}

/// All pieces of up to [`IDEOGRAPHS`] consecutive ideographs.
fn ideographs(text: &str) -> impl Iterator<Item = &str> {
    let is_letter = |one: char| is_ideographic(one) && one.is_alphabetic();
    let runs = text.split(move |one: char| !is_letter(one)).filter(|run| !run.is_empty());
    runs.flat_map(|run| {
        run.char_indices().flat_map(move |(begin, _)| {
            let ends = run[begin..].char_indices().take(IDEOGRAPHS);
            ends.map(move |(at, last)| &run[begin..begin + at + last.len_utf8()])
        })
    })
}

/// The first ideograph of a piece of ideographs; for other pieces, the whole word.
fn first_unit(piece: &str) -> &str {
    match piece.chars().next() {
        Some(first) if is_ideographic(first) => &piece[..first.len_utf8()],
        _ => piece,
    }
}

/// The last ideograph of a piece of ideographs; for other pieces, the whole word.
fn last_unit(piece: &str) -> &str {
    match piece.chars().next_back() {
        Some(last) if is_ideographic(last) => &piece[piece.len() - last.len_utf8()..],
        _ => piece,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn pairs(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        lines.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect()
    }

    /// The bundled corpus.
    fn bundled() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/everyday-en-zh");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the corpus");
        let (source, target) = (read("train.en"), read("train.zh"));
        source.lines().zip(target.lines()).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
    }

    #[test]
    fn pieces_are_words_or_short_runs_of_ideographs() {
        assert_eq!(pieces("Don't stop, A-1 a.b \u{201c}now\u{201d}!"), ["Don't", "now", "stop"]);
        assert_eq!(pieces("我爱iOS。"), ["我", "我爱", "爱"]);
        assert_eq!(pieces("हिन्दी, भाषा"), ["भाषा", "हिन्दी"], "a word keeps its signs");
        assert_eq!(
            (first_unit("的邻居"), last_unit("的邻居"), last_unit("of")),
            ("的", "居", "of")
        );
    }

    #[test]
    fn only_what_is_certain_is_known() {
        let nouns = [("dog", "Hund"), ("house", "Haus"), ("sea", "Meer"), ("bird", "Vogel")];
        let mut lines = Vec::new();
        for number in 0..400 {
            let others =
                format!("w{} x{}", number % 37, number % 41).replace(char::is_numeric, "q");
            let (english, german) = match number % 40 {
                one @ 0..4 => nouns[one],
                // The word has two translations.
                10 => ("bank", "Bank"),
                11 => ("bank", "Ufer"),
                _ => ("thing", "Ding"),
            };
            lines.push((format!("the {english} {others}."), format!("das, {german}")));
        }
        let known = WordPairs::learn(&lines).translations;
        let expected: HashMap<String, String> =
            nouns.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect();
        // "thing" is in most pairs, so it counts as grammar here.
        assert_eq!(known, expected);
        assert!(WordPairs::learn(&[]).translations.is_empty());
        let few = pairs(&[("a dog", "ein Hund"); 4]);
        assert!(WordPairs::learn(&few).translations.is_empty());
    }

    #[test]
    fn words_of_the_bundled_corpus_have_the_translations_of_a_dictionary() {
        let lines = bundled();
        let words = WordPairs::learn(&lines);
        for (word, translation) in [
            ("hospital", "医院"),
            ("apples", "苹果"),
            ("neighbor", "邻居"),
            ("doctor", "医生"),
            ("teacher", "老师"),
            ("library", "图书馆"),
            ("kitchen", "厨房"),
            ("expensive", "贵"),
            ("happy", "高兴"),
            ("dictionary", "词典"),
        ] {
            let known = words.translations.get(word).map(String::as_str);
            assert_eq!(known, Some(translation), "{word}");
        }
        assert!(words.translations.len() > 250, "{}", words.translations.len());
        assert!(!words.translations.contains_key("the"));
        // A word is taken from a pair only if the pair contains its translation.
        let (mut found, mut texts) = (0, 0);
        for (line, (source, target)) in lines.iter().enumerate().step_by(10) {
            let drawn = crate::Draws::new(1, 1, 1).unit(line as u64);
            texts += 1;
            if let Some((word, translation)) = words.within(source, target, drawn) {
                found += 1;
                assert!(source.contains(word) && target.contains(translation));
                assert_eq!(words.translations[word], translation);
            }
        }
        assert!(2 * found > texts, "{found} of {texts}");
        assert_eq!(words.within("The doctor sleeps.", "护士睡觉。", 0.0), None);
    }
}
