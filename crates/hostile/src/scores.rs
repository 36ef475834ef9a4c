//! Checks that any text, even hostile text, gets valid scores by all metrics.

use taper_metrics::{Bleu, Chrf, Ter, Tokenizer};

/// Scores the first half of the lines against the second half, with every metric, and with
/// `tokenizer` for BLEU.
///
/// # Panics
/// If a score is invalid, or a text does not have the best score against itself.
pub fn scores(tokenizer: Tokenizer, lines: &[String]) {
    let half = lines.len() / 2;
    if half == 0 {
        return;
    }
    let (left, right) = (&lines[..half], [lines[half..2 * half].to_vec()]);
    for chrf in [Chrf::default(), Chrf::plus_plus()] {
        let score = chrf.corpus(left, &right).unwrap().score;
        assert!((0.0..=100.0 + 1e-9).contains(&score), "{score}");
    }
    let bleu = Bleu { tokenizer, ..Bleu::default() };
    let score = bleu.corpus(left, &right).unwrap().score;
    assert!((0.0..=100.0 + 1e-9).contains(&score), "{score}");
    let perfect = bleu.corpus(left, &[left.to_vec()]).unwrap();
    // Only texts that have n-grams of every order get the full BLEU score: a line of fewer than
    // four tokens has no 4-grams.
    if perfect.totals.iter().all(|&total| total > 0) {
        assert!((perfect.score - 100.0).abs() < 1e-9, "{perfect}");
    }
    let ter = Ter::default();
    let score = ter.corpus(left, &right).unwrap().score;
    assert!(score.is_finite() && score >= 0.0, "{score}");
    assert_eq!(
        ter.corpus(left, &[left.to_vec()]).unwrap().score,
        0.0,
        "no edit makes a text itself"
    );
}
