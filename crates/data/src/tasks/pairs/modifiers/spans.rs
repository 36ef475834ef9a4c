//! Adds the same text to source and target, so that a model learns to copy it. Also changes the
//! spaces between Chinese or Japanese characters.

use crate::Draws;

use super::letters::{is_ideographic, joined, without_end_punctuation};

/// Emoji of several kinds: faces, hands, people with modifiers, things, signs and flags.
const EMOJI: [&str; 40] = [
    "😀",
    "😂",
    "🤣",
    "😊",
    "😍",
    "😘",
    "😎",
    "🤔",
    "😢",
    "😭",
    "😡",
    "😱",
    "🙄",
    "😴",
    "🤗",
    "🙏",
    "👍",
    "👎",
    "👏",
    "💪",
    "👋",
    "👍🏽",
    "👩‍💻",
    "🤷‍♀️",
    "❤️",
    "💔",
    "🔥",
    "🎉",
    "✨",
    "⭐",
    "☀️",
    "🌍",
    "🐱",
    "🍕",
    "🚀",
    "⚠️",
    "✅",
    "❌",
    "🇩🇪",
    "🇨🇳",
];

/// Letters of several scripts, from which random words are made.
const ALPHABETS: [&str; 8] = [
    "bcdfghjklmnpqrstvwxz",
    "abcdefghijklmnopqrstuvwxyz",
    "бгджзклмнпрстфхцчшщыэюя",
    "αβγδεζηθικλμνξπρστφχψω",
    "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ",
    "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ",
    "కఖగఘచఛజఝటఠడఢతథదధనపఫబభమయరలవశషసహ",
    "가나다라마바사아자차카타파하거너더러머버서어저처커터퍼허",
];

/// The item of a list that a random number in [0, 1) chooses.
fn one_of<T: Copy>(items: &[T], drawn: f64) -> T {
    items[(drawn * items.len() as f64) as usize]
}

/// String of `count` random letters of an alphabet. They are chosen by successive random numbers,
/// the first of which has the index `first`.
fn letters(alphabet: &str, count: usize, draws: Draws, first: u64) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    (first..).take(count).map(|index| one_of(&alphabet, draws.unit(index))).collect()
}

/// Adds the same emoji before or after both sides.
pub(super) fn with_emoji(source: &str, target: &str, draws: Draws) -> (String, String) {
    let count = 1 + (draws.unit(1) * draws.unit(2) * 3.0) as u64;
    let emoji: String = (3..3 + count).map(|index| one_of(&EMOJI, draws.unit(index))).collect();
    match draws.unit(0) < 0.2 {
        true => (format!("{emoji} {source}"), format!("{emoji} {target}")),
        false => (format!("{source} {emoji}"), format!("{target} {emoji}")),
    }
}

/// Text that no model knows: a code, a number, an address, or a word.
fn unknown_span(draws: Draws) -> String {
    let digits = |count, first| letters("0123456789", count, draws, first);
    let length = 3 + (draws.unit(2) * 6.0) as usize;
    let word = |alphabet: &str| letters(alphabet, length, draws, 10);
    match draws.unit(1) {
        ..0.2 => format!("{}-{}", word(ALPHABETS[0]).to_uppercase(), digits(length, 30)),
        0.2..0.35 => format!("{}.{}", digits(length, 30), digits(2, 50)),
        0.35..0.45 => format!("{}@{}.org", word(ALPHABETS[1]), digits(2, 30)),
        0.45..0.55 => format!("https://{}.net/{}", word(ALPHABETS[1]), digits(3, 30)),
        _ => word(one_of(&ALPHABETS, draws.unit(3))),
    }
}

/// Adds the same unknown text to both sides. It is at the start, or at the end before the final
/// punctuation.
pub(super) fn with_unknown_span(source: &str, target: &str, draws: Draws) -> (String, String) {
    let span = unknown_span(draws);
    if draws.unit(0) < 0.3 {
        return (joined(&span, source), joined(&span, target));
    }
    let behind = |text: &str| match without_end_punctuation(text) {
        Some(plain) => format!("{} {span}{}", plain, &text.trim_end()[plain.len()..]),
        None => joined(text, &span),
    };
    (behind(source), behind(target))
}

/// The share of the boundaries between ideographs at which a space is added.
const SPACED: f64 = 0.3;

/// Removes the spaces next to ideographs. If there are no such spaces, adds some between adjacent
/// ideographs; `None` if no two ideographs are adjacent.
pub(super) fn with_other_spaces(text: &str, draws: Draws) -> Option<String> {
    let characters: Vec<char> = text.trim().chars().collect();
    let is_ideograph = |place: usize| characters.get(place).copied().is_some_and(is_ideographic);
    // True for a space that is removed: the nearest character that is no space, before it or after
    // it, is an ideograph.
    let is_lost = |place: usize| {
        let before = (0..place).rev().find(|&before| characters[before] != ' ');
        let after = (place..characters.len()).find(|&after| characters[after] != ' ');
        characters[place] == ' ' && [before, after].iter().flatten().any(|&one| is_ideograph(one))
    };
    let mut changed = String::with_capacity(text.len());
    changed.extend((0..characters.len()).filter(|&place| !is_lost(place)).map(|at| characters[at]));
    if changed.chars().count() < characters.len() {
        return Some(changed);
    }
    let between: Vec<usize> = (1..characters.len())
        .filter(|&place| is_ideograph(place - 1) && is_ideograph(place))
        .collect();
    let always = *between.get((draws.unit(1) * between.len() as f64) as usize)?;
    changed.clear();
    for (place, character) in characters.iter().enumerate() {
        let is_drawn = || between.contains(&place) && draws.unit(2 + place as u64) < SPACED;
        if place == always || is_drawn() {
            changed.push(' ');
        }
        changed.push(*character);
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_text_is_on_both_sides() {
        let added = |whole: &str, text: &str| -> String {
            let text = text.trim_end_matches(['.', '。']);
            let rest = whole.replace(text, "");
            rest.trim_matches(['.', '。', ' ']).to_owned()
        };
        let mut spans = BTreeSet::new();
        for line in 0..200 {
            for with in [with_emoji, with_unknown_span] {
                let (source, target) = with("A cat sat.", "猫坐着。", Draws::new(3, 1, line));
                let span = added(&source, "A cat sat.");
                assert_eq!(span, added(&target, "猫坐着。"), "{source} | {target}");
                assert!(!span.is_empty());
                spans.insert(span);
            }
        }
        assert!(spans.len() > 200, "{}", spans.len());
    }

    #[test]
    fn spaces_are_lost_or_put_between_ideographs_alone() {
        let draws = Draws::new(3, 1, 0);
        let other = |text| with_other_spaces(text, draws);
        assert_eq!(other("我 用 Python 3 写 程序").as_deref(), Some("我用Python 3写程序"));
        assert_eq!(other("no such letters"), None);
        assert_eq!(other("我"), None);
        let spaced = other("我喜欢猫和狗").expect("changed");
        assert!(spaced.contains(' ') && spaced.replace(' ', "") == "我喜欢猫和狗", "{spaced}");
    }
}
