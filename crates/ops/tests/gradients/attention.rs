//! Tests attention: full and sparse, self-attention and cross-attention, with and without a bias.

use candle_core::{Tensor, Var};
use std::sync::Arc;
use taper_ops::{AttentionShape, AttentionSpec, Dropout, Sparse, Tape, composed};

use super::common::{adjoint, check, random, values};

pub(crate) fn attention(
    queries: &[usize],
    keys: &[usize],
    causal: bool,
    alibi: bool,
    rate: f64,
) -> AttentionSpec {
    AttentionSpec {
        key_lengths: keys.into(),
        causal,
        slopes: alibi.then(|| Arc::from([0.5, 0.25])),
        dropout: Dropout::new(rate, 9),
        ..AttentionSpec::new(AttentionShape::with_heads(2, 3), queries)
    }
}

/// Checks self-attention without a bias, and with the second of `inputs` as the bias.
fn check_self_attention(name: &str, inputs: &[Var], spec: &AttentionSpec) {
    check(
        name,
        &inputs[..1],
        &|tape, v| taper_ops::self_attention(tape, &v[0], None, spec),
        &|v| composed::self_attention(&v[0], None, spec),
    );
    check(
        &format!("{name}, bias"),
        inputs,
        &|tape, v| taper_ops::self_attention(tape, &v[0], Some(&v[1]), spec),
        &|v| composed::self_attention(&v[0], Some(&v[1]), spec),
    );
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
        check_self_attention(&name, &inputs, &spec);
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
        check_self_attention(&name, &inputs, &spec);
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

/// Tests heads in groups that share keys and values. The multiplier of scores is not the usual one.
#[test]
fn grouped_heads() {
    for (heads, key_value_heads, causal, rate) in
        [(4, 2, true, 0.3), (6, 2, false, 0.0), (3, 1, true, 0.0)]
    {
        let shape = AttentionShape { heads, key_value_heads, head_width: 2, scale: 0.9 };
        let slopes = causal.then(|| (1..=heads).map(|head| 1.0 / head as f64).collect());
        let plain = attention(&[3, 1, 4], &[3, 1, 4], causal, false, rate);
        let spec = AttentionSpec { shape, slopes, ..plain };
        let inputs = [random(&[8, shape.projected_width()], 1), random(&[heads, 5, 5], 2)];
        check(
            &format!("{shape:?}, causal {causal}"),
            &inputs,
            &|tape, v| taper_ops::self_attention(tape, &v[0], Some(&v[1]), &spec),
            &|v| composed::self_attention(&v[0], Some(&v[1]), &spec),
        );
        let spec = AttentionSpec { shape, ..attention(&[2, 3, 1], &[4, 1, 3], false, false, rate) };
        let keys = random(&[8, 2 * shape.key_value_width()], 4);
        check(
            &format!("{shape:?}, to another sequence"),
            &[random(&[6, shape.query_width()], 3), keys],
            &|tape, v| taper_ops::cross_attention(tape, &v[0], &v[1], None, &spec),
            &|v| composed::cross_attention(&v[0], &v[1], None, &spec),
        );
    }
}

/// Checks that shared keys and values give the same as a copy for each head. Their gradients must
/// be sums over these copies.
#[test]
fn grouped_heads_are_heads_with_copies() {
    let grouped = AttentionShape::with_heads(4, 2).grouped(2);
    let spec = |shape| AttentionSpec { shape, ..attention(&[5, 2], &[5, 2], true, false, 0.2) };
    let qkv = random(&[7, grouped.projected_width()], 1);
    let copies = composed::on_tape(None, "copies", &[&qkv], |inputs| {
        let part = |first, count| inputs[0].narrow(1, first, count);
        let heads = [0, 0, 1, 1, 2, 2, 3, 3].map(|head| part(8 + 2 * head, 2));
        let heads = heads.into_iter().collect::<candle_core::Result<Vec<_>>>()?;
        let all: Vec<Tensor> = [part(0, 8)?].into_iter().chain(heads).collect();
        Tensor::cat(&all, 1)
    });
    let copies = Var::from_tensor(&copies.unwrap()).unwrap();
    let run = |input: &Var, shape| {
        let tape = Tape::new();
        let out = taper_ops::self_attention(Some(&tape), input, None, &spec(shape)).unwrap();
        let gradients = tape.differentiate(&out, &adjoint(&out)).unwrap();
        (values(&out), gradients.get(input).unwrap().unwrap().to_vec2::<f64>().unwrap())
    };
    let (shared, gradients) = run(&qkv, grouped);
    let (copied, gradients_of_copies) = run(&copies, AttentionShape::with_heads(4, 2));
    assert_eq!(shared, copied);
    for (ours, copies) in gradients.iter().zip(gradients_of_copies) {
        assert_eq!(ours[..8], copies[..8]);
        for (column, ours) in ours[8..].iter().enumerate() {
            let first = 8 + column / 2 * 4 + column % 2;
            assert!((ours - copies[first] - copies[first + 2]).abs() < 1e-12);
        }
    }
}

#[test]
fn impossible_shapes_are_errors() {
    let says = |shape, columns| {
        let spec = AttentionSpec { shape, ..attention(&[4], &[4], true, false, 0.0) };
        let result = taper_ops::self_attention(None, &random(&[4, columns], 1), None, &spec);
        result.map(|_| ()).unwrap_err().to_string()
    };
    let shape = AttentionShape::with_heads(4, 2);
    assert!(says(shape.grouped(3), 20).contains("3 heads of keys and values do not divide 4"));
    assert!(says(shape.grouped(0), 8).contains("at least 1"));
    assert!(says(shape.grouped(2), 24).contains("projections of width 24 do not fit"));
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
