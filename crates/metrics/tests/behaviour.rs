//! Streaming, summing, printing and the refusals.

use taper_metrics::{Bleu, BleuStatistics, Chrf, ChrfStatistics, MetricError, ReferenceCount, SIGNATURE_VERSION, Smoothing, Tokenizer};

const HYPOTHESES: [&str; 3] = ["The ferry leaves at seven.", "Nobody answered the second letter", "Rain, then 3.5 hours of sun!"];

fn references() -> Vec<Vec<&'static str>> {
    vec![
        vec!["The ferry departs at seven.", "Nobody has answered the second letter.", "Rain, and then 3.5 hours of sun."],
        vec!["At seven the ferry leaves.", "The second letter was never answered.", "First rain, then sun for 3.5 hours!"],
    ]
}

#[test]
fn summed_parts_score_like_the_whole() -> Result<(), MetricError> {
    let (bleu, chrf) = (Bleu::default(), Chrf::plus_plus());
    let references = references();
    let mut bleu_sum = BleuStatistics::new(bleu.max_order);
    let mut chrf_sum = ChrfStatistics::new(chrf.char_order + chrf.word_order);
    for (index, hypothesis) in HYPOTHESES.iter().enumerate() {
        let segment: Vec<&str> = references.iter().map(|stream| stream[index]).collect();
        let mut part = bleu.counter()?;
        part.add(hypothesis, &segment)?;
        bleu_sum.add(part.statistics())?;
        let mut part = chrf.counter()?;
        part.add(hypothesis, &segment)?;
        chrf_sum.add(part.statistics())?;
    }
    let whole = bleu.corpus(&HYPOTHESES, &references)?;
    assert!(whole.score > 10.0 && whole.score < 90.0);
    assert_eq!(bleu.score(&bleu_sum)?, whole);
    let whole = chrf.corpus(&HYPOTHESES, &references)?;
    assert!(whole.score > 10.0 && whole.score < 90.0);
    assert_eq!(chrf.score(&chrf_sum)?, whole);
    Ok(())
}

#[test]
fn a_perfect_score_prints_in_full() -> Result<(), MetricError> {
    let bleu = Bleu::default().corpus(&HYPOTHESES, &[HYPOTHESES.to_vec()])?;
    assert_eq!(
        format!("{bleu:.1}"),
        "BLEU = 100.0 100.0/100.0/100.0/100.0 \
         (BP = 1.000 ratio = 1.000 hyp_len = 19 ref_len = 19)"
    );
    assert!(bleu.line(2).starts_with(&format!("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{SIGNATURE_VERSION} = 100.00 ")));
    let chrf = Chrf::plus_plus().corpus(&HYPOTHESES, &[HYPOTHESES.to_vec()])?;
    assert_eq!(chrf.to_string(), "chrF2++ = 100.00");
    assert_eq!(chrf.line(1), format!("chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:{SIGNATURE_VERSION} = 100.0"));
    Ok(())
}

#[test]
fn unequal_line_counts_are_refused() {
    let mut references = references();
    references[1].pop();
    let error = Bleu::default().corpus(&HYPOTHESES, &references);
    let expected = MetricError::LineCount { reference: 2, expected: 3, found: 2 };
    assert_eq!(error, Err(expected.clone()));
    assert_eq!(Chrf::default().corpus(&HYPOTHESES, &references), Err(expected.clone()));
    assert_eq!(expected.to_string(), "reference 2 has 2 lines but the hypotheses have 3; line i of each must be the same segment");
}

#[test]
fn nothing_to_score_is_refused() -> Result<(), MetricError> {
    let bleu = Bleu::default();
    let empty: [&str; 0] = [];
    assert_eq!(bleu.corpus(&empty, &[vec![]]), Err(MetricError::EmptyCorpus));
    assert_eq!(bleu.corpus(&HYPOTHESES, &[]), Err(MetricError::NoReferences));
    let counter = bleu.counter()?;
    assert_eq!(bleu.score(counter.statistics()), Err(MetricError::EmptyCorpus));
    let refusal = Err(MetricError::SegmentWithoutReference { segment: 1 });
    assert_eq!(bleu.counter()?.add("a", &empty), refusal);
    assert_eq!(Chrf::default().counter()?.add("a", &empty), refusal);
    Ok(())
}

#[test]
fn options_out_of_range_are_refused() {
    let bleu = Bleu { max_order: 0, ..Bleu::default() };
    let refused = |result| matches!(result, Err(MetricError::InvalidOption { .. }));
    assert!(refused(bleu.sentence("a", &["a"]).map(|_| ())));
    let bleu = Bleu { smoothing: Smoothing::Floor(f64::NAN), ..Bleu::default() };
    assert!(refused(bleu.sentence("a", &["a"]).map(|_| ())));
    let chrf = Chrf { char_order: 0, ..Chrf::default() };
    assert!(refused(chrf.sentence("a", &["a"]).map(|_| ())));
}

#[test]
fn statistics_of_other_orders_are_refused() {
    let mismatch = Err(MetricError::OrderMismatch { expected: 4, found: 3 });
    assert_eq!(BleuStatistics::new(4).add(&BleuStatistics::new(3)), mismatch);
    assert_eq!(ChrfStatistics::new(4).add(&ChrfStatistics::new(3)), mismatch);
}

#[test]
fn tokenized_hypotheses_are_remarked_on_unless_forced() -> Result<(), MetricError> {
    let hypotheses = vec!["It rained ."; 100];
    let references = [hypotheses.clone()];
    let bleu = Bleu::default();
    assert!(bleu.corpus(&hypotheses, &references)?.looks_tokenized);
    let fewer = [hypotheses[1..].to_vec()];
    assert!(!bleu.corpus(&hypotheses[1..], &fewer)?.looks_tokenized);
    let forced = Bleu { force: true, ..bleu };
    assert!(!forced.corpus(&hypotheses, &references)?.looks_tokenized);
    Ok(())
}

#[test]
fn names_are_read_back() {
    for tokenizer in Tokenizer::ALL {
        assert_eq!(tokenizer.name().parse(), Ok(tokenizer));
    }
    assert_eq!("add-k".parse(), Ok(Smoothing::AddK(1.0)));
    let smoothing = "floor".parse().map(|floor: Smoothing| floor.with_value(0.25));
    assert_eq!(smoothing, Ok(Smoothing::Floor(0.25)));
    assert_eq!(
        "14a".parse::<Tokenizer>().map_err(|error| error.to_string()),
        Err("unknown tokenizer \"14a\"; choose one of 13a, none, char, zh, intl".to_owned())
    );
}

#[test]
fn reference_counts_that_differ_are_variable() {
    let combined = ReferenceCount::Fixed(2).combine(ReferenceCount::Fixed(1));
    assert_eq!(combined.to_string(), "var");
    assert_eq!(ReferenceCount::Unknown.combine(ReferenceCount::Fixed(2)), ReferenceCount::Fixed(2));
}
