//! Claims about sentences, on models that take seconds.

use taper_experiments::{Ablation, Clause, ClauseTranslator, PronounReader, Referred, translated};
use taper_model::Positions;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// `it` is one noun or the other by the last word alone, for nouns without a choice in training. The
/// answer goes through heads of the first layer that look at the last word, and heads of the second
/// that look at the noun.
#[test]
fn it_is_the_animal_or_the_street_by_the_last_word() -> TestResult {
    let pairs = Referred::held_out(128);
    for [mood, shape] in &pairs {
        let last = mood.words.len() - 1;
        assert_eq!(mood.words[..last], shape.words[..last]);
        assert_eq!((Some(mood.noun), Some(shape.noun)), (shape.other, mood.other));
    }
    let untrained = PronounReader::train(0, 1)?.understood(&pairs, &[])?;
    assert!(untrained.pairs < 0.05, "{untrained:?}");
    let reader = PronounReader::train(2500, 1)?;
    let whole = reader.understood(&pairs, &[])?;
    // Whoever does not read the last word has half of the sentences, and none of the pairs.
    assert!(whole.sentences > 0.8 && whole.pairs > 0.6, "{whole:?}");
    let gazes = reader.gazes(&pairs)?;
    let (heads, half) = (PronounReader::heads(), gazes.len() / 2);
    let blind = reader.understood(&pairs, &heads[..half])?;
    assert!(blind.pairs < 0.5 * whole.pairs, "without the first layer's heads: {blind:?}");
    assert!(gazes[..half].iter().any(|gaze| gaze.adjective > 0.3), "{gazes:?}");
    assert!(gazes[half..].iter().any(|gaze| gaze.noun > 0.5 + gaze.other), "{gazes:?}");
    let ablation = Ablation::of(&reader, &pairs)?;
    let missed = ablation.without[ablation.decisive()];
    assert!(missed.sentences < whole.sentences, "{missed:?} {whole:?}");
    Ok(())
}

/// Without positions a sentence and the one with subject and object exchanged have one translation,
/// so that no pair is right; with them each has its own. Words are linked with what they translate.
#[test]
fn only_positions_tell_who_hits_whom() -> TestResult {
    let hits = Clause::of("我", "打", "他");
    assert!(hits.is_held_out() && hits.exchanged().is_held_out());
    let bag = ClauseTranslator::train(Positions::None, 400, 1)?;
    assert!(bag.difference(hits, hits.exchanged())? < 1e-4);
    assert_eq!(bag.translate(hits)?, bag.translate(hits.exchanged())?);
    let (sentences, pairs) = translated(&bag)?;
    assert!(sentences > 0.3 && sentences < 0.6 && pairs == 0.0, "{sentences} {pairs}");

    let ordered = ClauseTranslator::train(Positions::Sinusoidal, 400, 1)?;
    assert!(ordered.difference(hits, hits.exchanged())? > 1.0);
    assert_eq!(ordered.translate(hits)?, "I hit him");
    assert_eq!(ordered.translate(hits.exchanged())?, "he hits me");
    let (sentences, pairs) = translated(&ordered)?;
    assert!(sentences > 0.95 && pairs > 0.9, "{sentences} {pairs}");

    let loves = Clause::of("我", "爱", "AI");
    assert!(loves.is_held_out());
    assert_eq!(ordered.translate(loves)?, "I love AI");
    for (word, row) in ordered.attention(loves)?.iter().enumerate() {
        let largest = row.iter().copied().fold(0.0, f64::max);
        assert_eq!(row[word], largest, "{row:?}");
    }
    let aligned = ordered.aligned(&ClauseTranslator::held_out())?;
    assert!(aligned > 0.8, "{aligned}");
    Ok(())
}
