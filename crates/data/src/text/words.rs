//! Divides a line into words, for formats in which spaces and tabs separate words.

/// Words of a line, separated by ASCII spaces and tabs, as in fast_align, eflomal, Moses and the
/// files of CoNLL's shared tasks.
///
/// Other white space is part of a word: `10\u{a0}000` is one word, and so is an ideographic space.
pub fn words(line: &str) -> impl DoubleEndedIterator<Item = &str> {
    line.split([' ', '\t']).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spaces_and_tabs_divide_words() {
        let divided: Vec<&str> = words("\t10\u{a0}000  I\u{3000}a\u{2003}b\u{b}c \t").collect();
        assert_eq!(divided, ["10\u{a0}000", "I\u{3000}a\u{2003}b\u{b}c"]);
    }
}
