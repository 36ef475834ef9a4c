//! Rotary positions of one batch. Each query and each key has one rotation. In dual chunk
//! attention, in which positions restart in each chunk of tokens, queries have several rotations.

use crate::Pass;
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::{AttentionShape, DualChunk, Turns, composed, rotary};

/// Rotations of the queries and keys of a batch.
#[derive(Debug, Clone)]
pub(crate) struct RotaryPositions {
    turns: Turns,
    /// Position of each token, for the rotation of its key and the first rotation of its query.
    at: Arc<[u32]>,
    /// Chunks of dual chunk attention and, for each further rotation of the queries, the position
    /// of each query; `None` if queries have a single rotation.
    chunks: Option<(DualChunk, [Arc<[u32]>; DualChunk::ROTATIONS - 1])>,
}

impl RotaryPositions {
    /// Makes the rotations of tokens at the positions `at` of their sequences. If all tokens are in
    /// the first chunk, queries have a single rotation, as without chunks.
    pub(crate) fn new(turns: Turns, chunks: Option<DualChunk>, at: Arc<[u32]>) -> Self {
        let last = at.iter().max().map_or(0, |&last| last as usize);
        let Some(chunks) = chunks.filter(|chunks| last >= chunks.chunk) else {
            return Self { turns, at, chunks: None };
        };
        let positions = |of_token: &dyn Fn(usize) -> usize| -> Arc<[u32]> {
            at.iter().map(|&token| of_token(token as usize) as u32).collect()
        };
        let further =
            std::array::from_fn(|index| positions(&|token| chunks.queries(token)[index + 1]));
        Self { turns, at: positions(&|token| chunks.key(token)), chunks: Some((chunks, further)) }
    }

    /// Chunks of dual chunk attention; `None` if each query has a single rotation.
    pub(crate) fn dual_chunk(&self) -> Option<DualChunk> {
        self.chunks.as_ref().map(|(chunks, _)| *chunks)
    }

    /// Rotates the queries and keys in `qkv`. A row begins with the query. If `keys` is 1, the key
    /// follows and is rotated too; if `keys` is 0, the query is also the key.
    ///
    /// # Shapes
    /// `qkv (N, Q + …)` → `(N, Q + …)` for N tokens, where Q is the width of all query heads. With
    /// several rotations of the query, the result is `(N, 3·Q + …)`.
    pub(crate) fn rotate(
        &self,
        qkv: &Tensor,
        (shape, keys): (AttentionShape, usize),
        pass: &Pass,
    ) -> Result<Tensor> {
        let (head, width) = (shape.head_width, shape.query_width());
        let turned = width + keys * shape.key_value_width();
        let Some((_, further)) = &self.chunks else {
            return rotary(pass.tape(), qkv, (&self.at, self.turns), head, turned);
        };
        composed::on_tape(pass.tape(), "rotary", &[qkv], |inputs| {
            let turn = |x: &Tensor, at: &Arc<[u32]>, turned: usize| {
                composed::rotary(x, (at, self.turns), head, turned)
            };
            let first = turn(&inputs[0], &self.at, turned)?;
            let query = inputs[0].narrow(1, 0, width)?.contiguous()?;
            let mut parts = vec![first.narrow(1, 0, width)?];
            for at in further {
                parts.push(turn(&query, at, width)?);
            }
            parts.push(first.narrow(1, width, first.dim(1)? - width)?);
            Tensor::cat(&parts, 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};
    use taper_ops::rng::Counter;
    use taper_ops::{
        AttentionSpec, Cache, CachedRows, VisibleKeys, decoding_attention, self_attention,
    };

    type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

    /// Four heads of six elements; two heads share a key.
    fn shape() -> AttentionShape {
        AttentionShape::with_heads(4, 6).grouped(2)
    }

    fn chunks(chunk: usize, window: usize, trained: usize) -> DualChunk {
        DualChunk { chunk, window, trained }
    }

    /// Returns entry `M[i][j]`, for query i and key j, of the matrix of relative positions of An et
    /// al. 2024 (section 3.3, figure 2), by the paper's definition.
    fn distance(chunk_rule: DualChunk, i: usize, j: usize) -> usize {
        let (s, w, c) = (chunk_rule.chunk, chunk_rule.window, chunk_rule.trained);
        let key = j % s;
        match i / s - j / s {
            0 => i % s - key,
            1 if i % s < w => s + i % s - key,
            _ => c - 1 - key,
        }
    }

    fn random(rows: usize, width: usize) -> Vec<Vec<f64>> {
        let counter = Counter::new(11);
        let row = |row| (0..width).map(|at| counter.normal_at((row * width + at) as u64)).collect();
        (0..rows).map(row).collect()
    }

    /// Computes softmax attention directly from the matrix of relative positions: for each key,
    /// each query is rotated by the distance that the matrix has for the two.
    fn brute_force(qkv: &[Vec<f64>], lengths: &[usize], chunk_rule: DualChunk) -> Vec<f64> {
        let (shape, half) = (shape(), shape().head_width / 2);
        let (width, keys) = (shape.query_width(), shape.key_value_width());
        let (mut out, mut first) = (Vec::new(), 0);
        for &length in lengths {
            for i in 0..length {
                for head in 0..shape.heads {
                    let shared = width + head / shape.group() * shape.head_width;
                    let query = &qkv[first + i][head * shape.head_width..];
                    let score = |j: usize| -> f64 {
                        let (key, distance) =
                            (&qkv[first + j][shared..], distance(chunk_rule, i, j) as f64);
                        let pair = |p: usize| {
                            let exponent = -2.0 * p as f64 / shape.head_width as f64;
                            let (sine, cosine) = (distance * 10_000_f64.powf(exponent)).sin_cos();
                            let (a, b) = (query[p], query[p + half]);
                            (a * cosine - b * sine) * key[p]
                                + (b * cosine + a * sine) * key[p + half]
                        };
                        (0..half).map(pair).sum::<f64>() * shape.scale
                    };
                    let weights: Vec<f64> = (0..=i).map(|j| score(j).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    out.extend((0..shape.head_width).map(|at| {
                        let value = |j: usize| qkv[first + j][shared + keys + at];
                        weights.iter().enumerate().map(|(j, w)| w * value(j)).sum::<f64>() / total
                    }));
                }
            }
            first += length;
        }
        out
    }

    fn largest(ours: &Tensor, theirs: &[f64]) -> Result<f64> {
        let ours = ours.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
        assert_eq!(ours.len(), theirs.len());
        // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum.
        let apart = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs());
        Ok(apart.max_by(f64::total_cmp).unwrap_or(0.0))
    }

    /// Computes attention from each query to a cache with the tokens up to the query's token. In
    /// the first result, the rows of the cache are separate tensors; in the second, they are one
    /// tensor.
    fn decoded(qkv: &Tensor, lengths: &[usize], spec: &AttentionSpec) -> Result<[Tensor; 2]> {
        let width = spec.queries_width();
        let query = qkv.narrow(1, 0, width)?.contiguous()?;
        let key_value = qkv.narrow(1, width, qkv.dim(1)? - width)?.contiguous()?;
        let mut first = 0;
        let mut visible = Vec::new();
        for &length in lengths {
            visible.extend((0..length).map(|i| first..first + i + 1));
            first += length;
        }
        let mut cache = Cache::joined();
        cache.add_text(key_value.clone())?;
        let attend = |kept| {
            let visible_keys = VisibleKeys::Past {
                kept,
                text: &visible,
                history: &[],
                bias: None,
                slopes: None,
                sparse: None,
                dual_chunk: spec.dual_chunk,
            };
            decoding_attention(&query, visible_keys, spec.shape)
        };
        let apart = attend(CachedRows::Apart { text: Some(&key_value), steps: &[] })?;
        let Some(cached_rows) = cache.kept() else { candle_core::bail!("an empty cache") };
        Ok([apart, attend(cached_rows)?])
    }

    /// Compares the fused operation (one in place of several of Candle's), the plain Candle
    /// operations and decoding with the brute-force calculation.
    #[test]
    fn attention_is_that_of_the_matrix_of_relative_positions() -> TestResult {
        for (chunk_rule, lengths) in [
            (chunks(6, 4, 10), vec![12]),
            (chunks(6, 4, 10), vec![40, 3, 7, 6]),
            (chunks(5, 0, 9), vec![23, 1]),
            (chunks(7, 2, 20), vec![90]),
            (chunks(1, 0, 1), vec![5]),
            (chunks(48, 16, 64), vec![333, 40]),
            (chunks(150, 50, 200), vec![700]),
        ] {
            assert_eq!(chunk_rule.fault(), None);
            let rows: usize = lengths.iter().sum();
            let plain = random(rows, shape().projected_width());
            let expected = brute_force(&plain, &lengths, chunk_rule);
            let at: Arc<[u32]> = lengths.iter().flat_map(|&length| 0..length as u32).collect();
            let positions = RotaryPositions::new(Turns::default(), Some(chunk_rule), at);
            let spec = AttentionSpec {
                causal: true,
                dual_chunk: positions.dual_chunk(),
                ..AttentionSpec::new(shape(), lengths.clone())
            };
            for (dtype, bound) in [(DType::F64, 1e-10), (DType::F32, 2e-5)] {
                let qkv = Tensor::new(plain.clone(), &Device::Cpu)?.to_dtype(dtype)?;
                let qkv = positions.rotate(&qkv, (shape(), 1), &Pass::evaluate())?;
                let fused = self_attention(None, &qkv, None, &spec)?;
                let composed = composed::self_attention(&qkv, None, &spec)?;
                let [apart, joined] = decoded(&qkv, &lengths, &spec)?;
                for (name, ours) in
                    [("whole", fused), ("composed", composed), ("apart", apart), ("joined", joined)]
                {
                    let error = largest(&ours, &expected)?;
                    assert!(
                        error < bound,
                        "{name}, {chunk_rule:?}, {lengths:?}, {dtype:?}: {error}"
                    );
                }
            }
        }
        Ok(())
    }

    /// Checks that the distance of a key in another chunk differs from the true distance, so that
    /// attention by true distances would fail the test above.
    #[test]
    fn distances_beyond_the_window_are_not_the_true_ones() {
        let chunk_rule = chunks(6, 4, 10);
        assert_eq!(
            [distance(chunk_rule, 9, 2), distance(chunk_rule, 10, 2), distance(chunk_rule, 30, 2)],
            [7, 7, 7]
        );
        assert_eq!(
            [distance(chunk_rule, 11, 5), distance(chunk_rule, 12, 5), distance(chunk_rule, 12, 6)],
            [4, 4, 6]
        );
    }
}
