//! Any text can be scored. BLEU and chrF are numbers from 0 to 100, TER is a number of at least 0,
//! and the TER of a text against itself is 0.
//!
//! A few thousand cases run with the other tests; a million with
//! `cargo test --release -p taper-hostile --test scores -- --ignored`.

use taper_hostile::assault_with_text;
use taper_hostile::scores::scores;
use taper_metrics::Tokenizer;

fn texts(cases: u32) {
    for tokenizer in Tokenizer::ALL {
        assault_with_text(cases, 4, |lines| scores(tokenizer, lines));
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
