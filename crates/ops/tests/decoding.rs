//! Compares operations for decoding with the same operations composed of Candle's: attention of
//! single queries, and linear layers whose weights are packed (copied to the kernel's order).

mod common;

use candle_core::{DType, Device, Result, Tensor};
use common::largest_of;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use taper_ops::rng::{Counter, mix};
use taper_ops::{
    ABSENT, Activation, AttentionShape, AttentionSpec, Cache, CachedRows, Int8Matrix, LinearSpec,
    PackedWeights, Products, Sparse, VisibleKeys, composed, cross_attention, decoding_attention,
    packed_linear,
};
#[cfg(unix)]
use taper_ops::{MappedFile, MappedValues};

fn random(shape: &[usize], key: u64, dtype: DType) -> Tensor {
    let counter = Counter::new(mix(17, &[key]));
    let values: Vec<f64> =
        (0..shape.iter().product::<usize>() as u64).map(|i| counter.normal_at(i)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    largest_of(values(a).iter().zip(values(b)).map(|(a, b)| a - b))
}

const HEADS: usize = 2;

/// Returns a shape with [`HEADS`] heads, among which the width of the queries is divided.
fn shape(query: &Tensor) -> AttentionShape {
    AttentionShape::dividing(query.dims()[1], HEADS)
}

#[test]
fn queries_see_their_source() -> Result<()> {
    // Range of rows that each query sees: some queries share a source, and one sees a single key.
    let rows: [Range<usize>; 5] = [3..9, 0..3, 3..9, 9..10, 0..3];
    for (dtype, bound) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
        let (query, key_value) = (random(&[5, 34], 1, dtype), random(&[10, 68], 2, dtype));
        let seen = VisibleKeys::Source { key_value: &key_value, rows: &rows };
        let difference = largest_difference(
            &decoding_attention(&query, seen, shape(&query))?,
            &composed::decoding_attention(&query, seen, shape(&query))?,
        );
        assert!(difference < bound, "{dtype:?}: {difference}");
    }
    Ok(())
}

/// Returns a cache with the same rows in one tensor, as on a device for which Taper has no kernels.
fn joined(text: Option<&Tensor>, steps: &[Tensor]) -> Result<Cache> {
    let mut cache = Cache::joined();
    if let Some(text) = text {
        cache.add_text(text.clone())?;
    }
    for step in steps {
        cache.add_step(step.clone())?;
    }
    Ok(cache)
}

/// Returns `seen`, the keys that queries see, but with the rows in the single tensor of `cache`.
fn in_one<'a>(seen: VisibleKeys<'a>, cache: &'a Cache) -> VisibleKeys<'a> {
    match seen {
        VisibleKeys::Past { text, history, bias, slopes, sparse, dual_chunk, .. } => {
            let kept = cache.kept().expect("rows");
            VisibleKeys::Past { kept, text, history, bias, slopes, sparse, dual_chunk }
        }
        VisibleKeys::Source { .. } => seen,
    }
}

/// Rows of texts that were read in a single pass, and of each decoding step after them.
type Rows<'a> = (Option<&'a Tensor>, &'a [Tensor]);

/// A bias, ALiBi's slopes, and a sparse pattern.
type Rules<'a> = (Option<&'a Tensor>, Option<&'a Arc<[f64]>>, Option<Sparse>);

/// Describes past keys whose rows are in separate tensors.
fn past<'a>(
    (text, steps): Rows<'a>,
    ranges: &'a [Range<usize>],
    history: &'a [Vec<u32>],
    (bias, slopes, sparse): Rules<'a>,
) -> VisibleKeys<'a> {
    let kept = CachedRows::Apart { text, steps };
    VisibleKeys::Past { kept, text: ranges, history, bias, slopes, sparse, dual_chunk: None }
}

/// Computes attention to rows in separate tensors. Checks that it is close to the composed
/// operation, and has the same bits if all rows are in one tensor.
fn attend_all_ways(
    query: &Tensor,
    seen: VisibleKeys<'_>,
    (text, steps): Rows<'_>,
    shape: AttentionShape,
    (name, bound): (&str, f64),
) -> Result<Tensor> {
    let ours = decoding_attention(query, seen, shape)?;
    let composed = composed::decoding_attention(query, seen, shape)?;
    let difference = largest_difference(&ours, &composed);
    assert!(difference < bound, "{name}: {difference}");
    let cache = joined(text, steps)?;
    let in_one = decoding_attention(query, in_one(seen, &cache), shape)?;
    assert_eq!(values(&in_one), values(&composed), "{name}: to the bit");
    Ok(ours)
}

/// Checks that heads that share keys and values give the same bits as heads that each have a copy.
#[test]
fn shared_keys_are_as_copies() -> Result<()> {
    let (rows, history) = ([0..4, 2..6, 5..6], [vec![0, 1, ABSENT], vec![1, 0, 0]]);
    for (dtype, bound) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
        let grouped = AttentionShape { scale: 0.8, ..AttentionShape::with_heads(6, 19).grouped(2) };
        let query = random(&[3, grouped.query_width()], 1, dtype);
        let text = random(&[6, 2 * grouped.key_value_width()], 2, dtype);
        let step = random(&[2, 2 * grouped.key_value_width()], 3, dtype);
        let copied = |x: &Tensor| {
            let heads = x.reshape((x.dim(0)?, 2, 2, 1, 19))?.repeat((1, 1, 1, 3, 1))?;
            heads.reshape((x.dim(0)?, 12 * 19))
        };
        let attend = |shape, text: &Tensor, step: &Tensor| -> Result<_> {
            let steps = [step.clone(), step.clone()];
            let kept = (Some(text), &steps[..]);
            let seen = past(kept, &rows, &history, (None, None, None));
            let name = format!("{dtype:?}, {shape:?}");
            Ok(values(&attend_all_ways(&query, seen, kept, shape, (&name, bound))?))
        };
        let shared = attend(grouped, &text, &step)?;
        assert_eq!(shared, attend(grouped.grouped(6), &copied(&text)?, &copied(&step)?)?);
    }
    Ok(())
}

#[test]
fn queries_see_their_past() -> Result<()> {
    for (dtype, bound) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
        // Hypotheses of a beam search that branched: three after the first step, four after the
        // second, two now.
        let blocks =
            [random(&[3, 12], 1, dtype), random(&[4, 12], 2, dtype), random(&[2, 12], 3, dtype)];
        let history = [vec![2, 2], vec![3, 1], vec![0, 1]];
        let (query, bias) = (random(&[2, 6], 4, dtype), random(&[HEADS, 1, 5], 5, dtype));
        let slopes: Arc<[f64]> = [0.5, 0.25].into();
        for (bias, slopes) in
            [(None, None), (Some(&bias), None), (None, Some(&slopes)), (Some(&bias), Some(&slopes))]
        {
            let bias = bias.map(|bias| bias.narrow(2, 0, 3)?.contiguous()).transpose()?;
            let kept = (None, &blocks[..]);
            let seen = past(kept, &[], &history, (bias.as_ref(), slopes, None));
            let name = format!("{dtype:?}");
            attend_all_ways(&query, seen, kept, shape(&query), (&name, bound))?;
        }
    }
    Ok(())
}

/// Reads texts of different lengths in a single pass, and then single tokens. Checks that the
/// results are the same as if all tokens were read step by step.
#[test]
fn texts_that_were_read_are_as_if_they_had_been_stepped() -> Result<()> {
    let slopes: Arc<[f64]> = [0.5, 0.25].into();
    for (dtype, bound) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
        let text = random(&[9, 12], 1, dtype);
        let blocks = [random(&[3, 12], 2, dtype), random(&[2, 12], 3, dtype)];
        let ranges = [2..6, 0..0, 6..7];
        let history = [vec![2, 0, ABSENT], vec![1, ABSENT, 0]];
        let (query, bias) = (random(&[3, 6], 4, dtype), random(&[HEADS, 1, 8], 5, dtype));
        for (bias, slopes) in [(None, None), (Some(&bias), None), (None, Some(&slopes))] {
            let kept = (Some(&text), &blocks[..]);
            let seen = past(kept, &ranges, &history, (bias, slopes, None));
            assert_eq!((0..3).map(|query| seen.keys(query)).collect::<Vec<_>>(), [6, 1, 2]);
            let name = format!("{dtype:?}");
            let ours = attend_all_ways(&query, seen, kept, shape(&query), (&name, bound))?;
            // Attends from the first query alone, with each of its past tokens in a separate step.
            let rows = [2, 3, 4, 5].map(|row| text.narrow(0, row, 1));
            let stepped = [blocks[0].narrow(0, 2, 1), blocks[1].narrow(0, 1, 1)];
            let stepped: Vec<Tensor> = rows.into_iter().chain(stepped).collect::<Result<_>>()?;
            let contiguous = stepped.iter().map(Tensor::contiguous).collect::<Result<Vec<_>>>()?;
            let history = vec![vec![0]; 6];
            let seen = past((None, &contiguous), &[], &history, (bias, slopes, None));
            let alone = decoding_attention(&query.narrow(0, 0, 1)?, seen, shape(&query))?;
            assert_eq!(values(&alone), values(&ours.narrow(0, 0, 1)?), "to the bit");
        }
    }
    Ok(())
}

/// Checks queries that see only a part of their past. They are compared with the operation composed
/// of Candle's, and with the last query of a whole sequence.
#[test]
fn queries_see_a_part_of_their_past() -> Result<()> {
    let window = Sparse::window(3);
    let rules = [
        window,
        Sparse { dilation: 2, first: 1, ..window },
        Sparse { block: 2, random: 1, seed: 2, ..Sparse::window(1) },
        Sparse::window(20),
    ];
    let slopes: Arc<[f64]> = [0.5, 0.25].into();
    for (dtype, bound) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
        let text = random(&[12, 12], 1, dtype);
        let blocks = [random(&[3, 12], 2, dtype), random(&[2, 12], 3, dtype)];
        let ranges = [2..9, 0..0, 6..7, 3..12];
        let history = [vec![2, 0, ABSENT, 1], vec![1, ABSENT, 0, 0]];
        let (query, bias) = (random(&[4, 6], 4, dtype), random(&[HEADS, 1, 11], 5, dtype));
        for (rule, bias, slopes) in
            [(0, None, None), (1, Some(&bias), None), (2, None, Some(&slopes)), (3, None, None)]
        {
            let kept = (Some(&text), &blocks[..]);
            let seen = |sparse| past(kept, &ranges, &history, (bias, slopes, sparse));
            let (own, name) = (seen(Some(rules[rule])), format!("{rule}, {dtype:?}"));
            let ours = attend_all_ways(&query, own, kept, shape(&query), (&name, bound))?;
            let full = decoding_attention(&query, seen(None), shape(&query))?;
            assert_eq!(values(&full) == values(&ours), rule == 3, "{rule}");
        }
        // Compares with the last query of a sequence of seven tokens.
        for rule in rules {
            let keys = text.narrow(0, 2, 7)?.contiguous()?;
            let spec = AttentionSpec {
                key_lengths: [7].into(),
                causal: true,
                sparse: Some(rule),
                query_start: 6,
                ..AttentionSpec::new(shape(&query), [1])
            };
            let query = query.narrow(0, 0, 1)?.contiguous()?;
            let whole = cross_attention(None, &query, &keys, None, &spec)?;
            let whole_text = std::slice::from_ref(&(0..7));
            let seen = past((Some(&keys), &[]), whole_text, &[], (None, None, Some(rule)));
            let difference =
                largest_difference(&decoding_attention(&query, seen, shape(&query))?, &whole);
            assert!(difference < bound, "{rule:?}, {dtype:?}: {difference}");
        }
    }
    Ok(())
}

/// Returns four rows of logits: random values; values with ties within and across blocks; equal
/// values; and values that are −∞ except for up to three tokens.
fn rows_of_logits(vocabulary: usize) -> Vec<Vec<f32>> {
    let drawn = values(&random(&[vocabulary], 5, DType::F32));
    let drawn: Vec<f32> = drawn.into_iter().map(|value| value as f32).collect();
    let ties: Vec<f32> = (0..vocabulary as u64).map(|i| (i * i * 31 % 13) as f32).collect();
    let mut few = vec![f32::NEG_INFINITY; vocabulary];
    (few[vocabulary - 1], few[vocabulary / 2], few[0]) = (-1.5, 3.0, 3.0);
    vec![drawn, ties, vec![-2.5; vocabulary], few]
}

#[test]
fn the_likeliest_are_those_of_a_sort_on_the_host() -> Result<()> {
    for vocabulary in [1, 2, 7, 1003, 50_000] {
        let rows = rows_of_logits(vocabulary);
        let logits = Tensor::new(rows.clone(), &Device::Cpu)?;
        let also: Vec<u32> = (0..4).map(|row| (row * 977 + 3) % vocabulary as u32).collect();
        for count in [0, 1, 5, 32, 100] {
            let ours = composed::likeliest(&logits, count, &also)?;
            for (row, (values, ours)) in rows.iter().zip(&ours).enumerate() {
                let mut order: Vec<u32> = (0..vocabulary as u32).collect();
                let logit = |token: u32| values[token as usize];
                order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)).then(a.cmp(&b)));
                let order = order.into_iter().take(count).map(|token| (token, logit(token)));
                let tokens = ours.tokens.iter().copied();
                assert!(tokens.eq(order), "{vocabulary}, {count}, row {row}");
                assert_eq!(ours.also, logit(also[row]));
                let exact: f64 = values.iter().map(|&x| f64::from(x).exp()).sum();
                let error = (ours.normalizer - exact.ln()).abs();
                assert!(error < 2e-6 * exact.ln().abs().max(1.0), "{vocabulary}: {error}");
            }
        }
    }
    Ok(())
}

#[test]
fn rows_that_are_no_distribution_have_no_normaliser() -> Result<()> {
    let rows = [[0.0, f32::NAN, 1.0], [0.0, f32::INFINITY, 1.0], [f32::NEG_INFINITY; 3]];
    let ours = composed::likeliest(&Tensor::new(&rows, &Device::Cpu)?, 2, &[0; 3])?;
    assert!(ours.iter().all(|row| !row.normalizer.is_finite()), "{ours:?}");
    // Even such rows have tokens of the vocabulary, each once.
    let (vocabulary, count) = (1003, 70);
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let some_wrong = (0..vocabulary).map(|i| if i % 40 == 7 { wrong } else { i as f32 });
        let rows = [vec![wrong; vocabulary], some_wrong.collect()];
        let logits = Tensor::new(rows.to_vec(), &Device::Cpu)?;
        for row in composed::likeliest(&logits, count, &[0; 2])? {
            let tokens: BTreeSet<u32> = row.tokens.iter().map(|one| one.0).collect();
            assert_eq!(tokens.len(), count, "{wrong}: {row:?}");
            assert!(tokens.last().is_some_and(|&last| (last as usize) < vocabulary), "{wrong}");
        }
    }
    let logits = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;
    assert!(composed::likeliest(&logits, 2, &[0]).is_err(), "one token for two rows");
    assert!(composed::likeliest(&logits, 2, &[0, 3]).is_err(), "a token that is not there");
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() {
    let (query, key_value) = (random(&[2, 6], 1, DType::F32), random(&[4, 12], 2, DType::F32));
    let source = |rows: &[Range<usize>], shape| {
        decoding_attention(&query, VisibleKeys::Source { key_value: &key_value, rows }, shape)
    };
    assert!(source(&[0..2, 2..4], shape(&query)).is_ok());
    assert!(source(&[0..2, 2..5], shape(&query)).is_err());
    let one = 0..2;
    assert!(source(std::slice::from_ref(&one), shape(&query)).is_err());
    assert!(source(&[0..2, 2..4], AttentionShape::dividing(6, 4)).is_err());
    assert!(source(&[0..2, 2..4], shape(&query).grouped(1)).is_err());
    let past = |history: &[Vec<u32>]| {
        let seen = VisibleKeys::Past {
            kept: CachedRows::Apart { text: None, steps: std::slice::from_ref(&key_value) },
            text: &[],
            history,
            bias: None,
            slopes: None,
            sparse: None,
            dual_chunk: None,
        };
        decoding_attention(&query, seen, shape(&query))
    };
    assert!(past(&[vec![3, 0]]).is_ok());
    assert!(past(&[vec![4, 0]]).is_err());
    assert!(past(&[vec![3]]).is_err());
    assert!(past(&[]).is_err());
    let cache = joined(Some(&key_value), std::slice::from_ref(&key_value)).expect("rows");
    let in_one = |text: &[Range<usize>], row| {
        let history = [vec![row, 0]];
        let kept = cache.kept().expect("rows");
        let (bias, slopes, sparse, dual_chunk) = (None, None, None, None);
        let history = &history;
        let seen = VisibleKeys::Past { kept, text, history, bias, slopes, sparse, dual_chunk };
        decoding_attention(&query, seen, shape(&query))
    };
    assert!(in_one(&[0..4, 1..2], 3).is_ok());
    assert!(in_one(&[0..5, 1..2], 3).is_err());
    assert!(in_one(&[0..4, 1..2], 4).is_err());
    assert!(in_one(std::slice::from_ref(&one), 3).is_err());
}

/// Tests sizes for which the summed dimension has several blocks, and every dimension ends within a
/// block.
#[test]
fn packed_weights_give_what_plain_ones_do() -> Result<()> {
    let (x, weight, bias) = (
        random(&[70, 1100], 1, DType::F32),
        random(&[333, 1100], 2, DType::F32),
        random(&[333], 3, DType::F32),
    );
    let residual = random(&[70, 333], 4, DType::F32);
    for (products, bound) in [(Products::F32, 2e-4), (Products::Bf16, 0.4)] {
        let spec = LinearSpec { activation: Activation::Relu, products, ..LinearSpec::default() };
        let packs = PackedWeights::default();
        let expected = composed::linear(&x, &weight, Some(&bias), Some(&residual), &spec)?;
        for _ in 0..2 {
            let ours = packed_linear(&packs, &x, &weight, Some(&bias), Some(&residual), &spec)?;
            let difference = largest_difference(&ours, &expected);
            assert!(difference < bound, "{products:?}: {difference}");
        }
    }
    Ok(())
}

/// Compares the operation in int8 with the operation in f32 on operands that were rounded to int8
/// and converted back. Checks that the results are the same.
#[test]
fn int8_weights_give_what_rounded_operands_do() -> Result<()> {
    let rounded = |x: &Tensor| -> Result<Tensor> {
        let values = x.flatten_all()?.to_vec1::<f32>()?;
        Tensor::from_vec(Int8Matrix::round(&values, x.dim(1)?).to_f32(), x.shape(), x.device())
    };
    for (rows, inputs, outputs) in [(1, 5, 3), (70, 1100, 333), (300, 64, 40)] {
        let (x, weight, bias) = (
            random(&[rows, inputs], 1, DType::F32),
            random(&[outputs, inputs], 2, DType::F32),
            random(&[outputs], 3, DType::F32),
        );
        let residual = random(&[rows, outputs], 4, DType::F32);
        for (products, activation) in
            [(Products::F32, Activation::Relu), (Products::Bf16, Activation::Gelu)]
        {
            let spec = LinearSpec { activation, products, ..LinearSpec::default() };
            let in_f32 = LinearSpec { products: Products::F32, ..spec };
            let (x_rounded, weight_rounded) = (rounded(&x)?, rounded(&weight)?);
            let (bias, residual) = (Some(&bias), Some(&residual));
            let expected = composed::linear(&x_rounded, &weight_rounded, bias, residual, &in_f32)?;
            let packs = PackedWeights::int8();
            for _ in 0..2 {
                let ours = packed_linear(&packs, &x, &weight, bias, residual, &spec)?;
                let difference = largest_difference(&ours, &expected);
                assert!(difference < 2e-4, "{rows}×{inputs}×{outputs}: {difference}");
            }
        }
    }
    Ok(())
}

/// Checks that, with a kernel that packs its operands, the bits of a row's result do not depend on
/// other rows.
#[test]
fn rows_do_not_see_each_other() -> Result<()> {
    let int8 = [(Products::F32, true)];
    for (products, is_int8) in
        int8.into_iter().chain([Products::F32, Products::Bf16].map(|p| (p, false)))
    {
        if !is_int8 && taper_ops::Kernel::best(products) == taper_ops::Kernel::Gemm {
            continue;
        }
        let (x, weight) = (random(&[100, 1100], 1, DType::F32), random(&[90, 1100], 2, DType::F32));
        let spec = LinearSpec { products, ..LinearSpec::default() };
        let packs = if is_int8 { PackedWeights::int8() } else { PackedWeights::default() };
        let together = packed_linear(&packs, &x, &weight, None, None, &spec)?.to_vec2::<f32>()?;
        for row in [0, 17, 31, 32, 95, 99] {
            let alone = packed_linear(
                &packs,
                &x.narrow(0, row, 1)?.contiguous()?,
                &weight,
                None,
                None,
                &spec,
            )?
            .to_vec2::<f32>()?;
            assert_eq!(alone[0], together[row], "{products:?}, int8 {is_int8}: row {row}");
        }
    }
    Ok(())
}

/// Returns the values of a weight in a mapped file, which has no name any more.
#[cfg(unix)]
fn in_file(weight: &Tensor) -> MappedValues {
    let path = std::env::temp_dir().join(format!("taper-weight-{}", std::process::id()));
    let values = weight.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = MappedFile::new(&std::fs::File::open(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.values(0..bytes.len()).unwrap()
}

/// Compares weights whose values are in a file, before and after they are packed, with weights in
/// memory.
#[cfg(unix)]
#[test]
fn weights_in_a_file_give_the_same_bits() -> Result<()> {
    for products in [Products::F32, Products::Bf16] {
        for (inputs, outputs) in [(70, 900), (1100, 90), (3, 5)] {
            let weight = random(&[outputs, inputs], 2, DType::F32);
            let in_file = in_file(&weight);
            let (in_memory, mapped) = (PackedWeights::default(), PackedWeights::default());
            let left = weight.copy()?;
            let is_packed = taper_ops::Kernel::best(products) != taper_ops::Kernel::Gemm;
            assert_eq!(mapped.replace_by(&left, products, &in_file)?, is_packed);
            assert_eq!(mapped.is_mapped(&left), is_packed);
            let spec = LinearSpec { products, ..LinearSpec::default() };
            let bias = random(&[outputs], 3, DType::F32);
            // More products than are made before the weight is packed.
            for rows in [1, 32, 33, 100].into_iter().cycle().take(12) {
                let x = random(&[rows, inputs], rows as u64, DType::F32);
                let [ours, expected] =
                    [(&mapped, &left), (&in_memory, &weight)].map(|(packs, weight)| {
                        packed_linear(packs, &x, weight, Some(&bias), None, &spec)
                    });
                let [ours, expected] = [ours?.to_vec2::<f32>()?, expected?.to_vec2::<f32>()?];
                assert_eq!(ours, expected, "{products:?} {rows}×{inputs}×{outputs}");
            }
            let rows = [4, 0, 4];
            assert_eq!(
                values(&mapped.rows(&left, &rows)?),
                values(&in_memory.rows(&weight, &rows)?)
            );
            assert!(mapped.rows(&left, &[outputs as u32]).is_err());
        }
    }
    Ok(())
}

#[test]
fn every_kernel() {
    common::again_through_every_kernel("every_kernel");
}
