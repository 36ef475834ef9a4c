//! Tests statistics that are appended, printed scores, and inputs and options that are refused.

use taper_metrics::{
    Bleu, Chrf, Metric, MetricError, ReferenceCount, SIGNATURE_VERSION, Score, Segment, Smoothing,
    Statistics, Ter, Tokenizer, ragged_segments, segments,
};

const HYPOTHESES: [&str; 3] = [
    "The ferry leaves at seven.",
    "Nobody answered the second letter",
    "Rain, then 3.5 hours of sun!",
];

fn references() -> Vec<Vec<&'static str>> {
    vec![
        vec![
            "The ferry departs at seven.",
            "Nobody has answered the second letter.",
            "Rain, and then 3.5 hours of sun.",
        ],
        vec![
            "At seven the ferry leaves.",
            "The second letter was never answered.",
            "First rain, then sun for 3.5 hours!",
        ],
    ]
}

#[test]
fn appended_parts_score_like_the_whole() -> Result<(), MetricError> {
    let metrics: [&dyn Metric; 3] = [&Bleu::default(), &Chrf::plus_plus(), &Ter::default()];
    let references = references();
    let segments = segments(&HYPOTHESES, &references)?;
    for metric in metrics {
        let mut sum = Statistics::new(metric);
        for segment in &segments {
            sum.append(&Statistics::count(metric, std::slice::from_ref(segment))?)?;
        }
        let whole = Statistics::count(metric, &segments)?;
        assert_eq!(sum, whole);
        let score = Score::new(metric, &whole)?;
        assert!(score.value > 10.0 && score.value < 90.0, "{score:?}");
    }
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
    assert!(bleu.line(2).starts_with(&format!(
        "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{SIGNATURE_VERSION} = 100.00 "
    )));
    let chrf = Chrf::plus_plus().corpus(&HYPOTHESES, &[HYPOTHESES.to_vec()])?;
    assert_eq!(chrf.to_string(), "chrF2++ = 100.00");
    assert_eq!(
        chrf.line(1),
        format!(
            "chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:{SIGNATURE_VERSION} = 100.0"
        )
    );
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
    assert_eq!(
        expected.to_string(),
        "reference 2 has 2 lines but the hypotheses have 3; line i of each must be the same segment"
    );
}

#[test]
fn nothing_to_score_is_refused() -> Result<(), MetricError> {
    let bleu = Bleu::default();
    let empty: [&str; 0] = [];
    assert_eq!(bleu.corpus(&empty, &[vec![]]), Err(MetricError::EmptyCorpus));
    assert_eq!(bleu.corpus(&HYPOTHESES, &[]), Err(MetricError::NoReferences));
    assert_eq!(bleu.score(&Statistics::new(&bleu)), Err(MetricError::EmptyCorpus));
    let refusal = MetricError::SegmentWithoutReference { segment: 1 };
    assert_eq!(bleu.sentence("a", &empty), Err(refusal.clone()));
    assert_eq!(Chrf::default().sentence("a", &empty), Err(refusal.clone()));
    assert_eq!(Ter::default().sentence("a", &empty), Err(refusal.clone()));
    let bare = Segment { hypothesis: "a", references: vec![] };
    assert_eq!(Statistics::count(&bleu, &[bare]), Err(refusal));
    let missing: [Vec<Option<&str>>; 1] = [vec![Some("a"), None]];
    assert_eq!(
        ragged_segments(&["a", "b"], &missing),
        Err(MetricError::SegmentWithoutReference { segment: 2 })
    );
    Ok(())
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |result| matches!(result, Err(MetricError::InvalidOption { .. }));
    for max_order in [0, 101, usize::MAX] {
        let bleu = Bleu { max_order, ..Bleu::default() };
        assert!(refused(bleu.sentence("a", &["a"]).map(|_| ())), "{max_order}");
    }
    let bleu = Bleu { smoothing: Smoothing::Floor(f64::NAN), ..Bleu::default() };
    assert!(refused(bleu.sentence("a", &["a"]).map(|_| ())));
    let chrf = Chrf { char_order: 0, ..Chrf::default() };
    assert!(refused(chrf.sentence("a", &["a"]).map(|_| ())));
}

#[test]
fn statistics_of_other_metrics_and_options_are_refused() {
    let bleu = Bleu::default();
    let chrf = Chrf { char_order: 4, ..Chrf::default() };
    let others: [&dyn Metric; 6] = [
        &Bleu { max_order: 3, ..bleu.clone() },
        &Bleu { tokenizer: Tokenizer::Chinese, ..bleu.clone() },
        &Bleu { lowercase: true, ..bleu.clone() },
        &chrf,
        &Chrf { lowercase: true, ..chrf.clone() },
        &Ter::default(),
    ];
    for (index, other) in others.into_iter().enumerate() {
        let found = Statistics::new(other);
        let mismatch =
            MetricError::StatisticsMismatch { expected: bleu.counted(), found: other.counted() };
        assert_eq!(Statistics::new(&bleu).append(&found), Err(mismatch.clone()), "{index}");
        assert_eq!(bleu.score(&found), Err(mismatch), "{index}");
    }
    // These chrF statistics have as many columns as those of BLEU of order 5.
    let order_5 = Bleu { max_order: 5, ..bleu };
    assert!(matches!(
        order_5.score(&Statistics::new(&chrf)),
        Err(MetricError::StatisticsMismatch { .. })
    ));
}

#[test]
fn what_is_about_sums_alone_may_change_after_counting() -> Result<(), MetricError> {
    let references = references();
    let counted = Statistics::count(&Bleu::default(), &segments(&HYPOTHESES, &references)?)?;
    let floor = Bleu { smoothing: Smoothing::Floor(0.5), effective_order: true, ..Bleu::default() };
    assert_eq!(floor.score(&counted)?, floor.corpus(&HYPOTHESES, &references)?);
    Ok(())
}

/// The whole matrix of edit distances between these two lines would take 40 GB.
#[test]
fn a_document_without_line_breaks_has_a_translation_edit_rate() -> Result<(), MetricError> {
    let words: Vec<String> = (0..100_000).map(|index| format!("w{index}")).collect();
    let mut others = words.clone();
    others[40_000] = "x".to_owned();
    others.remove(70_000);
    let score = Ter::default().sentence(&others.join(" "), &[words.join(" ")])?;
    assert_eq!((score.edits, score.reference_length), (2, 100_000.0));
    Ok(())
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
fn tokenizers_with_a_model_are_refused_with_a_way_out() {
    for name in ["ja-mecab", "ko-mecab", "spm", "flores101", "flores200", "spBLEU-1K"] {
        let message = name
            .parse::<Tokenizer>()
            .map_err(|error| error.to_string())
            .expect_err("not supported");
        assert!(
            message.contains(name) && message.contains("needs") && message.contains("`none`"),
            "{message}"
        );
    }
}

#[test]
fn reference_counts_that_differ_are_variable() {
    let combined = ReferenceCount::Fixed(2).combine(ReferenceCount::Fixed(1));
    assert_eq!(combined.to_string(), "var");
    assert_eq!(ReferenceCount::Unknown.combine(ReferenceCount::Fixed(2)), ReferenceCount::Fixed(2));
}
