//! Checks attention to keys and values that a cache keeps in fewer bits.

use candle_core::{DType, Device, Result, Tensor};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::rng::{Counter, mix};
use taper_ops::{
    ABSENT, AttentionShape, Cache, CacheType, CachedRows, CompactRows, Sparse, VisibleKeys,
    composed, decoding_attention,
};

fn random(shape: &[usize], key: u64, dtype: DType) -> Tensor {
    let counter = Counter::new(mix(23, &[key]));
    let values: Vec<f64> =
        (0..shape.iter().product::<usize>() as u64).map(|i| counter.normal_at(i)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Returns the largest difference; NaN if a value is NaN.
fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    let differences = values(a).into_iter().zip(values(b)).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |largest, x| if x > largest || x.is_nan() { x } else { largest })
}

/// Largest rounding error of a number as a share of the largest magnitude in its block.
fn rounding(cache_type: CacheType) -> f64 {
    match cache_type {
        CacheType::Exact => 0.0,
        CacheType::Bf16 => 1.0 / 256.0,
        CacheType::Int8 => 0.5 / 127.0,
    }
}

const COMPACT: [CacheType; 2] = [CacheType::Bf16, CacheType::Int8];

#[test]
fn each_number_is_rounded_to_the_nearest() -> Result<()> {
    for (cache_type, dtype) in COMPACT.into_iter().zip([DType::F32, DType::F64]) {
        let mut exact = random(&[7, 12], 1, dtype);
        let mut rows = CompactRows::new(&exact, 3, cache_type)?;
        let more = random(&[4, 12], 2, dtype);
        rows.push(&more)?;
        exact = Tensor::cat(&[&exact, &more], 0)?;
        assert_eq!((rows.count(), rows.width(), rows.block()), (11, 12, 3));
        let rounded = values(&rows.to_tensor()?);
        for (ours, exact) in rounded.chunks(3).zip(values(&exact).chunks(3)) {
            let largest = exact.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
            for (ours, exact) in ours.iter().zip(exact) {
                let error = (ours - exact).abs();
                assert!(error <= 1.000_01 * rounding(cache_type) * largest, "{ours}, {exact}");
            }
        }
        let chosen = rows.select(&[10, 0, 0])?.to_tensor()?;
        let index = Tensor::new(&[10u32, 0, 0], &Device::Cpu)?;
        assert_eq!(values(&chosen), values(&rows.to_tensor()?.index_select(&index, 0)?));
        assert!(rows.select(&[11]).is_err());
        assert!(rows.push(&random(&[1, 9], 3, dtype)).is_err(), "another width");
        assert!(CompactRows::new(&exact, 5, cache_type).is_err(), "blocks that do not fit");
    }
    Ok(())
}

/// Checks that a number that is not finite is never kept as a finite one.
#[test]
fn zeros_stay_zeros_and_what_is_not_finite_stays_visible() -> Result<()> {
    for cache_type in COMPACT {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let rows = Tensor::new(&[[0.0, 0.0, wrong, 1.0]], &Device::Cpu)?;
            let kept = values(&CompactRows::new(&rows, 2, cache_type)?.to_tensor()?);
            assert_eq!(kept[..2], [0.0, 0.0]);
            assert!(!kept[2].is_finite(), "{cache_type:?}: {kept:?}");
        }
        let tiny = Tensor::new(&[[1e-38f32, -3e-39, 1e-30, 1e-31]], &Device::Cpu)?;
        let kept = values(&CompactRows::new(&tiny, 2, cache_type)?.to_tensor()?);
        for (kept, exact) in kept.iter().zip(values(&tiny)) {
            assert!((kept - exact).abs() < 1e-32, "{cache_type:?}: {kept}, {exact}");
        }
    }
    Ok(())
}

/// A bias, ALiBi's slopes, and a sparse pattern.
type Rules<'a> = (Option<&'a Tensor>, Option<&'a Arc<[f64]>>, Option<Sparse>);

fn past<'a>(
    kept: CachedRows<'a>,
    text: &'a [Range<usize>],
    history: &'a [Vec<u32>],
    (bias, slopes, sparse): Rules<'a>,
) -> VisibleKeys<'a> {
    VisibleKeys::Past { kept, text, history, bias, slopes, sparse, dual_chunk: None }
}

/// Compares attention to compact rows with the operation composed of Candle's on the rounded rows,
/// and with attention to the exact rows. Some heads are as wide as a whole number of vector
/// registers, some are narrower than one register, and some are neither.
#[test]
fn queries_see_the_rounded_rows() -> Result<()> {
    let slopes: Arc<[f64]> = (0..4).map(|head| 0.5 / f64::from(1 << head)).collect();
    let ranges = [2..9, 0..0, 6..7];
    let history = [vec![2, 0, ABSENT], vec![1, ABSENT, 0]];
    for (cache_type, head_width) in COMPACT.into_iter().flat_map(|t| [32, 5, 19].map(|w| (t, w))) {
        for (dtype, bound) in [(DType::F64, 1e-6), (DType::F32, 2e-6)] {
            let shape = AttentionShape::with_heads(4, head_width).grouped(2);
            let width = 2 * shape.key_value_width();
            let text = random(&[9, width], 1, dtype);
            let steps = [random(&[3, width], 2, dtype), random(&[2, width], 3, dtype)];
            let mut cache = Cache::in_type(cache_type, head_width);
            cache.add_text(text.narrow(0, 0, 4)?.contiguous()?)?;
            cache.add_text(text.narrow(0, 4, 5)?.contiguous()?)?;
            for step in &steps {
                cache.add_step(step.clone())?;
            }
            let kept = cache.kept().expect("rows");
            let exact = CachedRows::Apart { text: Some(&text), steps: &steps };
            let query = random(&[3, shape.query_width()], 4, dtype);
            let bias = random(&[4, 1, 11], 5, dtype);
            for rules in [
                (None, None, None),
                (Some(&bias), None, None),
                (None, Some(&slopes), Some(Sparse { first: 1, ..Sparse::window(3) })),
            ] {
                let attend =
                    |kept| decoding_attention(&query, past(kept, &ranges, &history, rules), shape);
                let ours = attend(kept)?;
                let seen = past(kept, &ranges, &history, rules);
                let composed = composed::decoding_attention(&query, seen, shape)?;
                let name = format!("{cache_type:?}, {head_width} wide, {dtype:?}");
                let difference = largest_difference(&ours, &composed);
                assert!(difference < bound, "{name}: {difference}");
                let difference = largest_difference(&ours, &attend(exact)?);
                assert!(difference > 1e-5 && difference < 0.1, "{name}: {difference} from exact");
            }
            // Keeps some rows in another order, as when old tokens are dropped because the context
            // is full.
            cache.keep(&[8, 3], &[false, true])?;
            let kept = cache.kept().expect("rows");
            let ours = decoding_attention(
                &query,
                past(kept, &[1..2, 0..1, 0..2], &[vec![1, 1, 0]], (None, None, None)),
                shape,
            )?;
            let index = Tensor::new(&[8u32, 3], &Device::Cpu)?;
            let (text, steps) = (text.index_select(&index, 0)?, [steps[1].clone()]);
            let exact = CachedRows::Apart { text: Some(&text), steps: &steps };
            let exact = decoding_attention(
                &query,
                past(exact, &[1..2, 0..1, 0..2], &[vec![1, 1, 0]], (None, None, None)),
                shape,
            )?;
            assert!(largest_difference(&ours, &exact) < 0.1);
        }
    }
    Ok(())
}

#[test]
fn rows_of_another_width_of_heads_are_refused() -> Result<()> {
    let mut cache = Cache::in_type(CacheType::Int8, 4);
    cache.add_step(random(&[1, 16], 1, DType::F32))?;
    let kept = cache.kept().expect("rows");
    let query = random(&[1, 8], 2, DType::F32);
    let seen = past(kept, &[], &[], (None, None, None));
    assert!(decoding_attention(&query, seen, AttentionShape::with_heads(1, 8)).is_err());
    let history = [vec![0]];
    let seen = past(kept, &[], &history, (None, None, None));
    assert!(decoding_attention(&query, seen, AttentionShape::with_heads(1, 8)).is_err());
    assert!(decoding_attention(&query, seen, AttentionShape::with_heads(2, 4)).is_ok());
    Ok(())
}

#[test]
fn rows_without_columns_are_refused() -> Result<()> {
    for cache_type in [CacheType::Bf16, CacheType::Int8] {
        let empty = Tensor::zeros((2, 0), DType::F32, &Device::Cpu)?;
        let error = Cache::in_type(cache_type, 4).add_step(empty).unwrap_err().to_string();
        assert!(error.contains("rows of 0 columns"), "{error}");
    }
    Ok(())
}

#[test]
fn the_largest_numbers_do_not_overflow() -> Result<()> {
    for largest in [f32::MAX, -f32::MAX] {
        let rows = Tensor::new(&[[largest, 0.0, largest / 2.0, 1.0]], &Device::Cpu)?;
        let found = CompactRows::new(&rows, 4, CacheType::Int8)?.to_tensor()?.to_vec2::<f32>()?;
        assert!((found[0][0] / largest - 1.0).abs() < 1e-6, "{found:?}");
        assert!(found[0].iter().all(|value| value.is_finite()), "{found:?}");
    }
    let rows = Tensor::new(&[[f32::INFINITY, 0.0], [f32::NAN, 1.0]], &Device::Cpu)?;
    let found = CompactRows::new(&rows, 2, CacheType::Int8)?.to_tensor()?.to_vec2::<f32>()?;
    assert!(found.iter().all(|row| row.iter().any(|value| !value.is_finite())), "{found:?}");
    Ok(())
}

/// Checks that a copy of a cache does not get what is added to the original.
#[test]
fn a_copy_goes_its_own_way() -> Result<()> {
    let mut cache = Cache::in_type(CacheType::Int8, 4);
    cache.add_text(random(&[2, 8], 1, DType::F32))?;
    let copy = cache.clone();
    cache.add_text(random(&[3, 8], 2, DType::F32))?;
    let count = |cache: &Cache| match cache.kept() {
        Some(CachedRows::Compact { text: Some(text), .. }) => text.count(),
        kept => panic!("{kept:?}"),
    };
    assert_eq!((count(&cache), count(&copy)), (5, 2));
    Ok(())
}
