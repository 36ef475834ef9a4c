//! Position encodings, composed of Candle's operations.

use super::recent::Recent;
use super::wide_type;
use crate::spec::{Pairs, Turns};
use candle_core::{DType, Device, IndexOp, Result, Tensor};

/// Looks up the bias of each pair of positions; see [`crate::relative_bias()`].
///
/// # Shapes
/// The shapes of [`crate::relative_bias()`].
///
/// # Errors
/// If a bucket is not in the table.
pub fn relative_bias(
    table: &Tensor,
    buckets: &[u32],
    queries: usize,
    keys: usize,
) -> Result<Tensor> {
    let index = Tensor::from_slice(buckets, buckets.len(), table.device())?;
    table
        .index_select(&index, 0)?
        .reshape((queries, keys, table.dim(1)?))?
        .permute((2, 0, 1))?
        .contiguous()
}

/// Rotates the heads, of `head` elements each, in the first `turned` columns, in f32 or wider; see
/// [`crate::rotary()`].
///
/// # Shapes
/// `x (N, D)` → `(N, D)`.
///
/// # Errors
/// If the heads do not fit into the columns.
pub fn rotary(
    x: &Tensor,
    (positions, turns): (&[u32], Turns),
    head: usize,
    turned: usize,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let rotated = turns.width(head);
    let half = rotated / 2;
    let wide = wide_type(x.dtype());
    // Cosines and sines for all tokens, (2, N, 1, R/2): cached, because all layers use the same.
    static TABLES: Recent<(Vec<u32>, Turns, usize, DType)> = Recent::new();
    let tables = TABLES.get((positions.to_vec(), turns, half, wide), x.device(), || {
        // Computes only the angles between the smallest and the largest position. In decoding,
        // there is often only a single position.
        let first = positions.iter().min().copied().unwrap_or(0);
        let end = positions.iter().max().map_or(0, |&position| position as usize + 1);
        let (cosines, sines) = turns.angles(first as usize..end, head);
        let at: Vec<u32> = positions.iter().map(|position| position - first).collect();
        let at = Tensor::from_vec(at, rows, x.device())?;
        // Converted on the host, because Metal has no f64.
        let all = [cosines, sines].concat();
        let shape = (2, end - first as usize, 1, half);
        let all = Tensor::from_vec(all, shape, &Device::Cpu)?.to_dtype(wide)?;
        all.to_device(x.device())?.index_select(&at, 1)
    })?;
    let (cosines, sines) = (tables.i(0)?, tables.i(1)?); // (N, 1, R/2)
    let heads = turned / head;
    let all = x.narrow(1, 0, turned)?.reshape((rows, heads, head))?;
    let pairs = all.narrow(2, 0, rotated)?.contiguous()?.to_dtype(wide)?;
    // The two elements of a pair are `half` apart or adjacent, so their index is dimension 2 or 3.
    let (shape, along) = match turns.pairs() {
        Pairs::Halves => ([rows, heads, 2, half], 2),
        Pairs::Interleaved => ([rows, heads, half, 2], 3),
    };
    let pairs = pairs.reshape(&shape)?;
    let element = |number| pairs.narrow(along, number, 1)?.squeeze(along);
    let (first, second) = (element(0)?, element(1)?); // (N, H, R/2)
    let out = Tensor::stack(
        &[
            (first.broadcast_mul(&cosines)? - second.broadcast_mul(&sines)?)?,
            (second.broadcast_mul(&cosines)? + first.broadcast_mul(&sines)?)?,
        ],
        along,
    )?
    .reshape((rows, heads, rotated))?
    .to_dtype(x.dtype())?;
    let out = match rotated == head {
        true => out,
        false => Tensor::cat(&[out, all.narrow(2, rotated, head - rotated)?], 2)?,
    };
    let out = out.reshape((rows, turned))?;
    if turned == width {
        Ok(out)
    } else {
        Tensor::cat(&[out, x.narrow(1, turned, width - turned)?], 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rotates by positions so large that there is no memory for the angles of all positions before
    /// them.
    #[test]
    fn only_the_angles_between_the_positions_are_computed() -> Result<()> {
        let positions = [u32::MAX - 1, u32::MAX - 4, u32::MAX - 2];
        let values: Vec<f64> = (0..24).map(|i| f64::from(i).sin()).collect();
        let x = Tensor::from_vec(values, (3, 8), &Device::Cpu)?;
        let turns = Turns::default();
        let ours = rotary(&x, (&positions, turns), 4, 8)?.to_vec2::<f64>()?;
        let theirs = crate::rotary(None, &x, (&positions.into(), turns), 4, 8)?.to_vec2::<f64>()?;
        for (ours, theirs) in ours.concat().into_iter().zip(theirs.concat()) {
            assert!((ours - theirs).abs() < 1e-12, "{ours} {theirs}");
        }
        Ok(())
    }
}
