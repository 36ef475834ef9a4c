//! Header of a safetensors file: the names, types and shapes of its tensors. Tensors may also have
//! types that cannot be read as weights.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;

use anyhow::{Context, Result, bail};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::stored::{Stored, width};

/// Largest size of a header that the format allows, in bytes.
const MOST_BYTES: u64 = 100_000_000;

/// Entry of the header for one tensor.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// Reads the names, types, shapes and positions of all tensors in a safetensors file.
///
/// # Errors
/// When the file has another format, or is truncated.
pub(super) fn heads(mut file: &File) -> Result<Vec<(String, Stored)>> {
    let bytes = file.metadata()?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).context("not a safetensors file: it has no head")?;
    let length = u64::from_le_bytes(length);
    if length > MOST_BYTES || length > bytes.saturating_sub(8) {
        bail!(
            "not a safetensors file, or cut short: its head should have {length} bytes, the whole \
             file has {bytes}"
        );
    }
    let mut head = Vec::new();
    file.take(length).read_to_end(&mut head)?;
    let head: Unique<Value> =
        serde_json::from_slice(&head).context("not a safetensors file: its head cannot be read")?;
    let (first, data) = (8 + length, bytes - 8 - length);
    let mut tensors = Vec::with_capacity(head.0.len());
    let mut places = Vec::with_capacity(head.0.len());
    for (name, entry) in head.0 {
        if name == "__metadata__" {
            continue;
        }
        let Entry { dtype, shape, data_offsets: [start, end] } = serde_json::from_value(entry)
            .with_context(|| {
                format!(
                    "not a safetensors file: the entry of tensor {name} in its head cannot be read"
                )
            })?;
        if start > end || end > data {
            bail!(
                "cut short, or not a safetensors file: tensor {name} should have the bytes from \
                 {start} to {end} of {data}"
            );
        }
        let count = shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size));
        let expected = count.zip(width(&dtype)).map(|(count, width)| count.checked_mul(width));
        if width(&dtype).is_some() && expected.flatten() != usize::try_from(end - start).ok() {
            bail!(
                "not a safetensors file: tensor {name} of shape {shape:?} and type {dtype} has {} \
                 bytes",
                end - start
            );
        }
        places.push((start, end));
        tensors.push((name, Stored::new(dtype, shape, first + start)));
    }
    // The format allows neither gaps between tensors nor bytes that belong to two tensors.
    places.sort_unstable();
    let mut last = 0;
    for (start, end) in places {
        if start != last {
            bail!(
                "not a safetensors file: a tensor begins at byte {start}, and another ends at {last}"
            );
        }
        last = end;
    }
    if last < data {
        bail!("not a safetensors file: {} bytes after its last tensor", data - last);
    }
    Ok(tensors)
}

/// Entries of a JSON object, in the order of the file. A repeated key is an error; a map would
/// silently keep only the last entry.
pub(super) struct Unique<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Unique<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let (mut entries, mut names) = (Vec::new(), std::collections::HashSet::new());
                while let Some((key, value)) = map.next_entry::<String, T>()? {
                    if !names.insert(key.clone()) {
                        return Err(A::Error::custom(format!("{key:?} is there twice")));
                    }
                    entries.push((key, value));
                }
                Ok(Unique(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}
