//! Tests of claims about sentences, with models so small that they take seconds.

use taper_experiments::{
    Ablation, Clause, ClauseTranslator, Gaze, HeldOut, PronounReader, Referred, SenseReader,
    told_apart, translated,
};
use taper_model::Positions;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Checks that only the last word decides whether `it` is the animal or the place, also for nouns
/// that training shows only in sentences with one noun. The last word is read in the first layer,
/// and heads of the second layer look at the noun.
#[test]
fn it_is_the_animal_or_the_street_by_the_last_word() -> TestResult {
    let pairs = Referred::pairs(HeldOut::Choosing, 128);
    let fresh = Referred::pairs(HeldOut::Final, 128);
    let nouns = |pairs: &[[Referred; 2]]| {
        pairs.iter().flatten().map(|one| one.noun).collect::<std::collections::HashSet<_>>()
    };
    assert!(nouns(&pairs).is_disjoint(&nouns(&fresh)));
    for [mood, shape] in pairs.iter().chain(&fresh) {
        let last = mood.words.len() - 1;
        assert_eq!(mood.words[..last], shape.words[..last]);
        assert_eq!((Some(mood.noun), Some(shape.noun)), (shape.other, mood.other));
    }
    let untrained = PronounReader::train(0, 1)?.understood(&pairs, &[])?;
    assert!(untrained.pairs < 0.05, "{untrained:?}");
    let reader = PronounReader::train(2500, 1)?;
    let whole = reader.understood(&pairs, &[])?;
    // A model that does not read the last word can be right for half of the sentences, but for none
    // of the pairs.
    assert!(whole.sentences > 0.8 && whole.pairs > 0.6, "{whole:?}");
    // No settings were chosen with these nouns.
    let of_fresh = reader.understood(&fresh, &[])?;
    assert!(of_fresh.sentences > 0.8 && of_fresh.pairs > 0.6, "{of_fresh:?}");
    let gazes = reader.gazes(&pairs)?;
    let (heads, half) = (PronounReader::heads(), gazes.len() / 2);
    let blind = reader.understood(&pairs, &heads[..half])?;
    assert!(blind.pairs < 0.5 * whole.pairs, "without the first layer's heads: {blind:?}");
    // In the first layer, `it` or the nouns attend to the last word more than in an untrained
    // model.
    let reads = |gazes: &[Gaze]| {
        let of_head = |gaze: &Gaze| gaze.adjective.max(gaze.adjective_from_nouns);
        gazes[..half].iter().map(of_head).sum::<f64>() / half as f64
    };
    let by_chance = reads(&PronounReader::train(0, 1)?.gazes(&pairs)?);
    assert!(reads(&gazes) > 1.5 * by_chance, "{by_chance}: {gazes:?}");
    assert!(gazes[half..].iter().any(|gaze| gaze.noun > 0.5 + gaze.other), "{gazes:?}");
    let ablation = Ablation::measure(&reader, &pairs)?;
    assert_eq!((ablation.without_two.len(), ablation.two_alone.len()), (28, 16));
    let missed = ablation.without[ablation.decisive()];
    assert!(missed.sentences < whole.sentences, "{missed:?} {whole:?}");
    Ok(())
}

/// Checks that the vector of "bank" itself says nothing about money and rivers, while the states
/// after the layers tell the two senses apart. They do so even in sentences whose nouns and verbs
/// never occur together with "bank" in training.
#[test]
fn states_tell_the_senses_of_bank_apart() -> TestResult {
    let [known, asked] = SenseReader::sentences(200);
    let words = |sentences: &[Vec<&'static str>]| {
        sentences.iter().flatten().copied().collect::<std::collections::HashSet<_>>()
    };
    let common = words(&known).intersection(&words(&asked)).count();
    // The common words are "and", "at", "by" and "bank"; each subject has four nouns and two verbs.
    assert_eq!((common, words(&asked).len()), (4, 4 + 2 * 6));
    let shares = |reader: &SenseReader| -> Result<Vec<f64>, taper_theory::TheoryError> {
        let points = reader.vectors(&known)?.into_iter().zip(reader.vectors(&asked)?);
        Ok(points.map(|(known, asked)| told_apart(&known, &asked)).collect())
    };
    // The held-out words are few. With one draw of their vectors, the states of "bank" can
    // therefore be closer to one of the senses by chance. The mean over many draws does not have
    // this fault.
    let mut untrained = vec![0.0; 4];
    for seed in 1..=16 {
        let shares = shares(&SenseReader::train(0, seed)?)?;
        untrained.iter_mut().zip(shares).for_each(|(mean, share)| *mean += share / 16.0);
    }
    assert!((untrained[3] - 0.5).abs() < 0.15, "{untrained:?}");
    let trained = shares(&SenseReader::train(300, 1)?)?;
    // The vector of "bank" itself is the same in all sentences, trained or not.
    assert_eq!((untrained[0], trained[0]), (0.5, 0.5));
    assert!(trained[1] < 0.65 && trained[3] > 0.9, "{trained:?}");
    Ok(())
}

/// Checks that without positions, a sentence and the sentence with subject and object exchanged get
/// the same translation, so no pair is translated right. With positions, each sentence gets
/// its own translation, and words attend to the words that they translate.
#[test]
fn only_positions_tell_who_hits_whom() -> TestResult {
    let hits = Clause::new("我", "打", "他");
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

    let loves = Clause::new("我", "爱", "AI");
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
