//! Adds typing errors to texts.

use crate::Draws;

use super::letters::is_ideographic;

/// Number of letters of a text for each typing error.
const LETTERS_PER_ERROR: f64 = 25.0;

/// Number of random numbers that determine an error: its place, its kind, and the choice of a
/// letter.
const DRAWS_PER_ERROR: u64 = 3;

/// Neighbours of each key on a QWERTY keyboard.
const NEIGHBOURS: [(char, &str); 26] = [
    ('a', "qwsz"),
    ('b', "vghn"),
    ('c', "xdfv"),
    ('d', "serfcx"),
    ('e', "wsdr"),
    ('f', "drtgvc"),
    ('g', "ftyhbv"),
    ('h', "gyujnb"),
    ('i', "ujko"),
    ('j', "huikmn"),
    ('k', "jiolm"),
    ('l', "kop"),
    ('m', "njk"),
    ('n', "bhjm"),
    ('o', "iklp"),
    ('p', "ol"),
    ('q', "wa"),
    ('r', "edft"),
    ('s', "awedxz"),
    ('t', "rfgy"),
    ('u', "yhji"),
    ('v', "cfgb"),
    ('w', "qase"),
    ('x', "zsdc"),
    ('y', "tghu"),
    ('z', "asx"),
];

/// Letters that look alike in Latin, Cyrillic and Greek (from the confusables of Unicode Technical
/// Standard 39).
const LOOK_ALIKES: [&str; 22] = [
    "aаα", "cсϲ", "eе", "iіι", "jј", "oоο", "pрρ", "sѕ", "uυ", "vν", "xхχ", "yуγ", "AАΑ", "BВΒ",
    "EЕΕ", "HНΗ", "KКΚ", "MМΜ", "OОΟ", "PРΡ", "TТΤ", "XХΧ",
];

/// A letter of `choices` other than `other_than`, chosen by `drawn`, a random number in [0, 1).
fn one_of(choices: &str, other_than: char, drawn: f64) -> Option<char> {
    let count = choices.chars().filter(|&one| one != other_than).count();
    choices.chars().filter(|&one| one != other_than).nth((drawn * count as f64) as usize)
}

/// A letter whose key is next to the key of `letter`, in the same case.
fn neighbour(letter: char, drawn: f64) -> Option<char> {
    let lower = letter.to_ascii_lowercase();
    let (_, keys) = NEIGHBOURS.iter().find(|(key, _)| *key == lower)?;
    let key = one_of(keys, lower, drawn)?;
    Some(if letter.is_ascii_uppercase() { key.to_ascii_uppercase() } else { key })
}

/// A letter of another script that looks like `letter`.
fn look_alike(letter: char, drawn: f64) -> Option<char> {
    let letters = LOOK_ALIKES.iter().find(|letters| letters.contains(letter))?;
    one_of(letters, letter, drawn)
}

/// The text with typing errors. `None` if it has no letters in which errors can be made.
pub(crate) fn with_typos(text: &str, draws: Draws) -> Option<String> {
    let mut characters: Vec<char> = text.chars().collect();
    let can_err = |letter: &char| letter.is_alphabetic() && !is_ideographic(*letter);
    let letters = characters.iter().filter(|letter| can_err(letter)).count();
    let errors = ((letters as f64 / LETTERS_PER_ERROR) as u64).max(1);
    for error in 0..errors {
        let [place, kind, choice] =
            [0, 1, 2].map(|which| draws.unit(DRAWS_PER_ERROR * error + which));
        let places: Vec<usize> =
            (0..characters.len()).filter(|&place| can_err(&characters[place])).collect();
        let place = *places.get((place * places.len() as f64) as usize)?;
        err(&mut characters, place, kind, choice);
    }
    let changed: String = characters.into_iter().collect();
    (changed != text).then_some(changed)
}

/// Makes an error at the letter with the index `place`.
fn err(characters: &mut Vec<char>, place: usize, kind: f64, choice: f64) {
    let letter = characters[place];
    let next = characters.get(place + 1).copied();
    let other = match kind {
        ..0.35 => neighbour(letter, choice),
        0.35..0.5 => look_alike(letter, choice),
        _ => None,
    };
    match (other, kind) {
        (Some(other), _) => characters[place] = other,
        // Two letters are also exchanged if no neighbouring or similar letter was found above.
        (None, ..0.7) if next.is_some_and(|next| next.is_alphabetic() && next != letter) => {
            characters.swap(place, place + 1);
        }
        (None, ..0.85) => characters.insert(place, letter),
        // A letter is removed only before another letter, so at least one letter of a word remains.
        (None, _) if next.is_some_and(char::is_alphabetic) => drop(characters.remove(place)),
        (None, _) => characters.insert(place, letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_few_and_of_every_kind() {
        let text = "The quick brown fox jumps over the lazy dog, and nobody sees it go by.";
        let made: Vec<String> =
            (0..200).filter_map(|line| with_typos(text, Draws::new(1, 0, line))).collect();
        assert!(made.len() > 190);
        let length = |text: &str| text.chars().count();
        assert!(made.iter().any(|one| length(one) > length(text)));
        assert!(made.iter().any(|one| length(one) < length(text)));
        assert!(made.iter().any(|one| !one.is_ascii()));
        for one in &made {
            let words = |text: &str| text.split(' ').count();
            assert_eq!(words(one), words(text), "{one}");
            assert!(length(one).abs_diff(length(text)) <= 2, "{one}");
        }
    }

    #[test]
    fn scripts_without_keys_are_left_alone_or_exchanged() {
        assert_eq!(with_typos("我喜欢猫。 12", Draws::new(1, 0, 0)), None);
        for line in 0..50 {
            let made = with_typos("ქართული ენა", Draws::new(1, 0, line)).expect("changed");
            assert_eq!(made.split(' ').count(), 2, "{made}");
        }
    }

    #[test]
    fn every_letter_is_beside_those_beside_it() {
        for (key, beside) in NEIGHBOURS {
            for other in beside.chars() {
                let back = NEIGHBOURS.iter().find(|(key, _)| *key == other).expect("a key").1;
                assert!(back.contains(key), "{key} is beside {other}");
            }
        }
    }
}
