//! Any text can be scored: a score is a number from 0 to 100, and a text is a perfect translation of itself.
//!
//! A few thousand cases run with the other tests; a million with
//! `cargo test --release -p taper-metrics --test hostile -- --ignored`.

use taper_hostile::assault_with_text;
use taper_metrics::{Bleu, Chrf, Tokenizer};

fn texts(cases: u32) {
    for tokenizer in Tokenizer::ALL {
        let bleu = Bleu { tokenizer, ..Bleu::default() };
        assault_with_text(cases, 4, |lines| {
            let half = lines.len() / 2;
            let (left, right) = (&lines[..half], &lines[half..2 * half]);
            if half == 0 {
                return;
            }
            for chrf in [Chrf::default(), Chrf::plus_plus()] {
                let score = chrf.corpus(left, &[right.to_vec()]).unwrap().score;
                assert!((0.0..=100.0 + 1e-9).contains(&score), "{score}");
            }
            let score = bleu.corpus(left, &[right.to_vec()]).unwrap().score;
            assert!((0.0..=100.0 + 1e-9).contains(&score), "{score}");
            let perfect = bleu.corpus(left, &[left.to_vec()]).unwrap();
            assert!(perfect.brevity_penalty <= 1.0 && perfect.score <= 100.0 + 1e-9, "{perfect}");
        });
    }
}

#[test]
fn any_text_can_be_scored() {
    texts(1_000);
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn a_million_texts_can_be_scored() {
    texts(1_000_000);
}
