//! Tests of the buckets that a Reformer keeps while it decodes.

use super::*;
use taper_ops::rng::Counter;

/// Checks that the cache distinguishes buckets in narrow types, which lack most integers above 256
/// or 2,048.
#[test]
fn buckets_are_exact_in_every_type() -> Result<()> {
    let (heads, head, rounds) = (2, 4, 3);
    let rotations = Rotations::drawn((heads, head), (rounds, 70_000), 5);
    let reformer = Reformer::given(true, Chunks::OfBuckets(8), rotations);
    assert_eq!(reformer.digits(), 3);
    let (counter, width) = (Counter::new(3), 2 * heads * head);
    let values: Vec<f32> = (0..40 * width as u64).map(|i| counter.normal_at(i) as f32).collect();
    let queries = Tensor::from_vec(values, (40, width), &Device::Cpu)?;
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let queries = queries.to_dtype(dtype)?;
        let cached = reformer.with_buckets(&queries)?.to_dtype(DType::F32)?;
        let columns = heads * rounds * reformer.digits();
        let cached = cached.narrow(1, width, columns)?.to_vec2::<f32>()?;
        for (row, buckets) in cached.iter().zip(reformer.rotations.buckets_of_rows(&queries)?) {
            let number = |digits: &[f32]| {
                digits.iter().rev().fold(0, |number, &digit| number * DIGIT + digit as u64)
            };
            let kept: Vec<u64> = row.chunks(reformer.digits()).map(number).collect();
            let exact: Vec<u64> = buckets.into_iter().map(u64::from).collect();
            assert_eq!(kept, exact, "{dtype:?}");
        }
    }
    Ok(())
}
