//! Attention: full and sparse, within a sequence and to another, with biases.

use std::sync::Arc;
use taper_ops::{AttentionSpec, Dropout, Products, Sparse, Tape, composed};

use super::common::{check, random, values};

pub(crate) fn attention(
    queries: &[usize],
    keys: &[usize],
    causal: bool,
    alibi: bool,
    rate: f64,
) -> AttentionSpec {
    AttentionSpec {
        heads: 2,
        query_lengths: queries.into(),
        key_lengths: keys.into(),
        causal,
        sparse: None,
        query_start: 0,
        slopes: alibi.then(|| Arc::from([0.5, 0.25])),
        dropout: Dropout::new(rate, 9),
        products: Products::F32,
    }
}

#[test]
fn self_attention() {
    for (causal, alibi, rate) in [
        (false, false, 0.0),
        (true, false, 0.0),
        (true, true, 0.3),
        (false, true, 0.0),
        (false, false, 0.5),
    ] {
        let spec = attention(&[3, 1, 4], &[3, 1, 4], causal, alibi, rate);
        let inputs = [random(&[8, 18], 1), random(&[2, 5, 5], 2)];
        let name = format!("self-attention, causal {causal}, alibi {alibi}, dropout {rate}");
        check(
            &name,
            &inputs[..1],
            &|tape, v| taper_ops::self_attention(tape, &v[0], None, &spec),
            &|v| composed::self_attention(&v[0], None, &spec),
        );
        check(
            &format!("{name}, bias"),
            &inputs,
            &|tape, v| taper_ops::self_attention(tape, &v[0], Some(&v[1]), &spec),
            &|v| composed::self_attention(&v[0], Some(&v[1]), &spec),
        );
    }
}

#[test]
fn sparse_attention() {
    let window = Sparse::window(2);
    for (sparse, causal, alibi, rate) in [
        (window, true, false, 0.3),
        (window, false, true, 0.0),
        (Sparse { dilation: 2, first: 1, ..window }, true, true, 0.0),
        (Sparse { last: 1, random: 1, seed: 3, ..window }, false, false, 0.2),
        (Sparse { block: 2, random: 1, seed: 4, ..Sparse::window(1) }, true, false, 0.0),
    ] {
        let lengths = [7, 1, 3];
        let spec = AttentionSpec {
            sparse: Some(sparse),
            ..attention(&lengths, &lengths, causal, alibi, rate)
        };
        let inputs = [random(&[11, 18], 1), random(&[2, 7, 7], 2)];
        let name = format!("{sparse:?}, causal {causal}, alibi {alibi}, dropout {rate}");
        check(
            &name,
            &inputs[..1],
            &|tape, v| taper_ops::self_attention(tape, &v[0], None, &spec),
            &|v| composed::self_attention(&v[0], None, &spec),
        );
        check(
            &format!("{name}, bias"),
            &inputs,
            &|tape, v| taper_ops::self_attention(tape, &v[0], Some(&v[1]), &spec),
            &|v| composed::self_attention(&v[0], Some(&v[1]), &spec),
        );
    }
}

#[test]
fn impossible_sparse_attention_is_an_error() {
    let says = |sparse: Sparse, causal: bool, keys: usize| {
        let spec =
            AttentionSpec { sparse: Some(sparse), ..attention(&[4], &[keys], causal, false, 0.0) };
        let (query, key_value) = (random(&[4, 6], 1), random(&[keys, 12], 2));
        let result = taper_ops::cross_attention(None, &query, &key_value, None, &spec);
        result.map(|_| ()).unwrap_err().to_string()
    };
    let window = Sparse::window(2);
    for wrong in
        [Sparse::window(0), Sparse { block: 0, ..window }, Sparse { dilation: 0, ..window }]
    {
        assert!(says(wrong, false, 4).contains("at least 1"));
    }
    assert!(says(Sparse { last: 1, ..window }, true, 4).contains("global tokens at the end"));
    assert!(says(window, false, 5).contains("the last of their keys"));
}

#[test]
fn cross_attention() {
    for rate in [0.0, 0.4] {
        let spec = attention(&[2, 3, 1], &[4, 1, 3], false, false, rate);
        let inputs = [random(&[6, 6], 1), random(&[8, 12], 2), random(&[2, 3, 4], 3)];
        check(
            "cross-attention",
            &inputs[..2],
            &|tape, v| taper_ops::cross_attention(tape, &v[0], &v[1], None, &spec),
            &|v| composed::cross_attention(&v[0], &v[1], None, &spec),
        );
        check(
            "cross-attention, bias",
            &inputs,
            &|tape, v| taper_ops::cross_attention(tape, &v[0], &v[1], Some(&v[2]), &spec),
            &|v| composed::cross_attention(&v[0], &v[1], Some(&v[2]), &spec),
        );
    }
}

#[test]
fn a_source_without_queries_is_skipped() {
    let spec = attention(&[2, 0, 1], &[4, 1, 3], false, false, 0.0);
    let (query, key_value) = (random(&[3, 6], 1), random(&[8, 12], 2));
    let ours = values(
        &taper_ops::cross_attention(Some(&Tape::new()), &query, &key_value, None, &spec).unwrap(),
    );
    let theirs = values(&composed::cross_attention(&query, &key_value, None, &spec).unwrap());
    assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-12));
}

#[test]
fn relative_bias() {
    let buckets: Arc<[u32]> = [0, 1, 2, 1, 0, 2].into();
    let inputs = [random(&[4, 3], 1)];
    check(
        "relative bias",
        &inputs,
        &|tape, v| taper_ops::relative_bias(tape, &v[0], &buckets, 2, 3),
        &|v| composed::relative_bias(&v[0], &buckets, 2, 3),
    );
}
