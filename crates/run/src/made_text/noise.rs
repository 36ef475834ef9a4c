//! Noise that is added to sentences found by beam search.

use taper_ops::rng::{Counter, mix};

/// Probability with which a word is removed.
const LEFT_OUT: f32 = 0.1;
/// Probability with which a word that was not removed is blanked.
const BLANKED: f32 = 0.1;
/// Largest number of positions by which a word moves.
const FARTHEST: f32 = 3.0;
/// Text in place of a blanked word.
const BLANK: &str = "_";

/// Numbers that give each of the three kinds of noise its own random draws.
const OF_LEAVING: u64 = 1;
const OF_BLANKING: u64 = 2;
const OF_MOVING: u64 = 3;

/// Removes each word with probability 0.1, replaces each remaining word by a blank with probability
/// 0.1, and moves words by at most three positions (Edunov et al. 2018, "Understanding
/// Back-Translation at Scale", section 3). Words are divided by spaces; in a text without spaces,
/// each character is a word. The random draws depend only on the seed and the number of the line.
pub(super) fn noised(text: &str, seed: u64, line: u64) -> String {
    let has_spaces = text.trim().contains(char::is_whitespace);
    let words: Vec<String> = match has_spaces {
        true => text.split_whitespace().map(str::to_owned).collect(),
        false => text.trim().chars().map(String::from).collect(),
    };
    let draws = |purpose| Counter::new(mix(seed, &[line, purpose]));
    let (leaving, blanking, moving) = (draws(OF_LEAVING), draws(OF_BLANKING), draws(OF_MOVING));
    let stays = |index: usize| leaving.f32_at(index as u64) >= LEFT_OUT;
    let mut kept: Vec<usize> = (0..words.len()).filter(|&index| stays(index)).collect();
    if kept.is_empty() {
        // A sentence keeps at least one word.
        kept.extend((!words.is_empty()).then_some(0));
    }
    let mut placed: Vec<(f32, &str)> = kept
        .iter()
        .enumerate()
        .map(|(place, &index)| {
            let is_blank = blanking.f32_at(index as u64) < BLANKED;
            let word = if is_blank { BLANK } else { words[index].as_str() };
            // Two words can change their order only if they are at most three positions apart.
            (place as f32 + (FARTHEST + 1.0) * moving.f32_at(index as u64), word)
        })
        .collect();
    placed.sort_by(|one, other| one.0.total_cmp(&other.0));
    let words: Vec<&str> = placed.into_iter().map(|(_, word)| word).collect();
    words.join(if has_spaces { " " } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_leaves_out_blanks_and_moves_a_little() {
        let words: Vec<String> = (0..20_000).map(|index| index.to_string()).collect();
        let text = words.join(" ");
        let noisy = noised(&text, 1, 7);
        assert_eq!(noisy, noised(&text, 1, 7));
        assert_ne!(noisy, noised(&text, 1, 8));
        let noisy_words: Vec<&str> = noisy.split(' ').collect();
        let share = noisy_words.len() as f64 / 20_000.0;
        assert!((share - 0.9).abs() < 0.01, "{share}");
        let blanks = noisy_words.iter().filter(|word| **word == BLANK).count() as f64;
        assert!((blanks / noisy_words.len() as f64 - 0.1).abs() < 0.01, "{blanks}");
        // Positions are those among the words that are not blanks, because blanks cannot be told
        // apart.
        let kept: Vec<usize> = noisy_words.iter().filter_map(|word| word.parse().ok()).collect();
        let mut sorted = kept.clone();
        sorted.sort_unstable();
        let mut moved = 0;
        for (place, word) in kept.iter().enumerate() {
            let before = sorted.binary_search(word).expect("kept");
            moved += usize::from(before != place);
            assert!(place.abs_diff(before) <= 3, "{word} from {before} to {place}");
        }
        assert!(moved > 5_000, "{moved}");
    }

    #[test]
    fn text_without_spaces_is_of_characters_and_none_is_empty() {
        let noisy = noised("你好世界你好世界你好世界", 3, 1);
        assert!(!noisy.contains(' ') && noisy.chars().count() > 5, "{noisy}");
        for line in 0..200 {
            assert!(!noised("two words", 5, line).is_empty());
            assert!(!noised("one", 5, line).is_empty());
        }
        assert_eq!(noised(" ", 5, 1), "");
    }
}
