//! Relative position bias: a number that is added to attention scores (Raffel et al. 2020, section
//! 2.1). Distances between query and key are divided into buckets, and a table has a number for
//! each bucket.

use crate::composed::{self, on_tape};
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::shared::Write;
use crate::tape::{Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// Computes the bias of every head for all pairs of `queries` queries and `keys` keys. `buckets`
/// has the index of the bucket of each pair, row by row.
///
/// # Shapes
/// `table (buckets, H)` → `(H, queries, keys)`.
///
/// # Errors
/// If `buckets` does not have one element for each pair, or a bucket is not in the table.
pub fn relative_bias(
    tape: Option<&Tape>,
    table: &Tensor,
    buckets: &Arc<[u32]>,
    queries: usize,
    keys: usize,
) -> Result<Tensor> {
    let (count, heads) = table.dims2()?;
    if buckets.len() != queries * keys || buckets.iter().any(|&bucket| bucket as usize >= count) {
        candle_core::bail!(
            "relative bias: {} buckets do not fit {queries} queries and {keys} keys, or the table \
             {:?} lacks one of these buckets",
            buckets.len(),
            table.shape()
        );
    }
    if !is_fused(tape, &[table])? {
        return on_tape(tape, "relative bias", &[table], |v| {
            composed::relative_bias(&v[0], buckets, queries, keys)
        });
    }
    for_float!(table, T => forward::<T>(tape, table, buckets, (heads, queries, keys)))
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    table: &Tensor,
    buckets: &Arc<[u32]>,
    shape: (usize, usize, usize),
) -> Result<Tensor> {
    let heads = shape.0;
    let host = Host::new(table)?;
    let values = host.elements::<T>()?;
    let of_head = |head| buckets.iter().map(move |&bucket| values[bucket as usize * heads + head]);
    let out: Vec<T> = (0..heads).flat_map(of_head).collect();
    let out = Tensor::from_vec(out, shape, table.device())?;
    if let Some(tape) = tape {
        let (input, buckets) = (Slot::from(table), buckets.clone());
        tape.record::<T>("relative bias", &[table], &out, move |adjoint, adjoints| {
            adjoints.add_with(input, |out: &mut [T], write| {
                if write == Write::Replace {
                    out.fill(T::default());
                }
                for (head, adjoint) in adjoint.chunks_exact(buckets.len().max(1)).enumerate() {
                    for (&bucket, adjoint) in buckets.iter().zip(adjoint) {
                        out[bucket as usize * heads + head] += *adjoint;
                    }
                }
                Ok(())
            })
        })?;
    }
    Ok(out)
}
