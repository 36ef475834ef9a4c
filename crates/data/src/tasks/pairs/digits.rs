//! Compares the digits of texts. Digits of different scripts count as equal if they have the same
//! value.

/// Code points of the digit zero of all scripts in Unicode 16, in ascending order. The other nine
/// digits of a script (general category Nd) follow its zero. Python's `unicodedata` lists the same
/// zeros, except those that are newer than its version of Unicode.
const ZEROS: [u32; 76] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66,
    0xde6, 0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90,
    0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
    0x104a0, 0x10d30, 0x10d40, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0,
    0x11650, 0x116c0, 0x116d0, 0x116da, 0x11730, 0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50,
    0x11da0, 0x11f50, 0x16130, 0x16a60, 0x16ac0, 0x16b50, 0x16d70, 0x1ccf0, 0x1d7ce, 0x1d7d8,
    0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e4f0, 0x1e5f1, 0x1e950, 0x1fbf0,
];

/// A range of code points without digits. It contains most characters of Chinese and Japanese.
const WITHOUT_DIGITS: std::ops::Range<u32> = 0x1c5a..0xa620;

/// Chinese numerals, in daily and in financial use. They are words whose value is often uncertain:
/// 一 also means "a" and "as soon as".
const CHINESE_NUMERALS: &str = "〇零一二三四五六七八九十百千万萬亿億两兩廿卅\
    壹贰貳叁參肆伍陆陸柒捌玖拾佰仟";

/// The value of a decimal digit of any script.
fn value(character: char) -> Option<usize> {
    if character.is_ascii() {
        return character.to_digit(10).map(|digit| digit as usize);
    }
    let code = u32::from(character);
    if code < ZEROS[1] || WITHOUT_DIGITS.contains(&code) {
        return None;
    }
    let zero = ZEROS[ZEROS.partition_point(|&zero| zero <= code) - 1];
    (code - zero < 10).then_some((code - zero) as usize)
}

/// The digits of a text.
#[derive(Default)]
struct Digits {
    /// Number of digits with each value.
    counts: [u32; 10],
    has_chinese_numerals: bool,
}

impl Digits {
    fn count(text: &str) -> Self {
        let mut digits = Self::default();
        if text.is_ascii() {
            for digit in text.bytes().filter(u8::is_ascii_digit) {
                digits.counts[usize::from(digit - b'0')] += 1;
            }
            return digits;
        }
        for character in text.chars() {
            match value(character) {
                Some(value) => digits.counts[value] += 1,
                None => digits.has_chinese_numerals |= is_chinese_numeral(character),
            }
        }
        digits
    }

    /// True if this text has all digits of `other`. If this text has Chinese numerals, the result
    /// is always true, because they may stand for the missing digits.
    fn covers(&self, other: &Self) -> bool {
        self.has_chinese_numerals
            || self.counts.iter().zip(&other.counts).all(|(own, other)| own >= other)
    }
}

fn is_chinese_numeral(character: char) -> bool {
    matches!(character, '\u{3007}' | '\u{4e00}'..='\u{9fff}')
        && CHINESE_NUMERALS.contains(character)
}

/// True if two texts have digits with the same values, in any order. The order is ignored because
/// languages write numbers in different orders and with different marks.
///
/// If a text has Chinese numerals, they may stand for any digits that the text lacks.
pub(crate) fn same_digits(source: &str, target: &str) -> bool {
    let (source, target) = (Digits::count(source), Digits::count(target));
    source.covers(&target) && target.covers(&source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_compared_by_value_in_every_script() {
        // The same year in several scripts: Bengali, Thai, Arabic-Indic, Persian, Devanagari, full
        // width, Khmer, Myanmar, Tamil, Gujarati, mathematical bold.
        for year in [
            "১৯৮৪",
            "๑๙๘๔",
            "١٩٨٤",
            "۱۹۸۴",
            "१९८४",
            "１９８４",
            "១៩៨៤",
            "၁၉၈၄",
            "௧௯௮௪",
            "૧૯૮૪",
            "𝟏𝟗𝟖𝟒",
        ] {
            assert!(same_digits("In 1984 it rained.", year), "{year}");
            assert!(same_digits(year, "8 and 149"), "{year}");
            assert!(!same_digits("In 1985 it rained.", year), "{year}");
            assert!(!same_digits("In 19845 it rained.", year), "{year}");
        }
        assert!(same_digits("no digits", "पाठ"));
        assert!(!same_digits("1", "ä"));
    }

    #[test]
    fn chinese_numerals_are_not_judged() {
        assert!(same_digits("I have 3 cats.", "我有三只猫。"));
        assert!(same_digits("一九八四年下雨了。", "It rained in 1984."));
        // The digits differ. 一 may stand for digits that the Chinese text lacks, but 1985 is not in
        // the English text.
        assert!(!same_digits("It rained in 1984.", "1985年的一天下雨了。"));
        assert!(!same_digits("It rained in 1984.", "1985年下雨了。"));
        assert!(!same_digits("He is 30.", "他是人。"));
    }

    #[test]
    fn zeros_begin_rows_of_ten() {
        assert!(ZEROS.is_sorted());
        let mut digits = 0;
        for character in (0..=0x1_ffff).filter_map(char::from_u32) {
            if let Some(value) = value(character) {
                digits += 1;
                assert_eq!(ZEROS.contains(&u32::from(character)), value == 0, "{character:?}");
                assert!(character.is_numeric(), "{character:?}");
            }
        }
        assert_eq!(digits, 760, "as many as Unicode 16 has");
        assert!(
            CHINESE_NUMERALS.chars().all(|one| is_chinese_numeral(one) && value(one).is_none())
        );
    }
}
