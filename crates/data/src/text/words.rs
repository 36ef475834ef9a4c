//! Words of a line, in formats that divide it at spaces and tabs.

/// The words of a line: what stands between ASCII spaces and tabs, as fast_align, eflomal, Moses and
/// the files of the CoNLL's shared tasks have it.
///
/// Other white space is of a word: `10\u{a0}000` is one, and so is an ideographic space.
pub fn words(line: &str) -> impl DoubleEndedIterator<Item = &str> {
    line.split([' ', '\t']).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spaces_and_tabs_divide_words() {
        let found: Vec<&str> = words("\t10\u{a0}000  I\u{3000}a\u{2003}b\u{b}c \t").collect();
        assert_eq!(found, ["10\u{a0}000", "I\u{3000}a\u{2003}b\u{b}c"]);
    }
}
