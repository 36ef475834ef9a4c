//! Header of a file that PyTorch has saved. The file is an archive that contains a pickle with
//! names, types and shapes of tensors, and files with their raw values.
//!
//! Candle reads the pickle without running code from it. The objects that it returns are
//! interpreted here, because Candle's own interpretation panics or prints if an object is
//! unexpected. The number of objects is also limited here, because a pickle of a few bytes can
//! request copies of copies without end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, Cursor, Read};

use anyhow::{Context, Result, anyhow, bail};
use candle_core::pickle::{Object, Stack};
use zip::{CompressionMethod, ZipArchive};

use super::stored::{Stored, width};

/// Largest size in bytes of the pickle with names and shapes.
const MOST_BYTES: u64 = 1 << 26;
/// Largest number of objects that are counted while the pickle is read. Each time that an operation
/// of the pickle changes an object, this object and all objects inside it are counted again.
const MOST_OBJECTS: usize = 100_000_000;
/// Largest number of objects inside an object that the pickle stores for later use (in its memo).
/// It is limited because each use copies all of them.
const MOST_COPIED: usize = 1000;
/// Largest depth to which objects can be nested.
const DEEPEST: usize = 100;

/// Reads the names, types, shapes and positions of all tensors in a file that PyTorch has saved.
///
/// # Errors
/// When the file has another format, or the values of a tensor are not in row-major order.
pub(super) fn heads(file: &File) -> Result<Vec<(String, Stored)>> {
    let mut archive = ZipArchive::new(file).context(
        "not an archive of PyTorch 1.6 or later: load it with PyTorch, and save it with \
         save_pretrained",
    )?;
    let names: Vec<String> = archive
        .file_names()
        .map(|name| name.map(|name| name.into_owned()))
        .collect::<std::result::Result<_, _>>()?;
    let Some(root) = names.iter().find_map(|name| name.strip_suffix("data.pkl")) else {
        bail!("not an archive of PyTorch: it has no data.pkl");
    };
    let mut bytes = Vec::new();
    let pickle = archive.by_name(&format!("{root}data.pkl"))?;
    if pickle.compression() != CompressionMethod::Stored || pickle.size() > MOST_BYTES {
        bail!("not an archive of PyTorch: data.pkl is compressed, or too large");
    }
    pickle.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let object = unpickled(&bytes).context(
        "its data.pkl cannot be read: load it with PyTorch, and save it with save_pretrained",
    )?;
    let Object::Dict(entries) = object else {
        bail!("has no dictionary of tensors, but something else: save its state_dict");
    };
    let mut starts = BTreeMap::new();
    let mut tensors = Vec::new();
    for (name, object) in &entries {
        let Object::Unicode(name) = name else { continue };
        // Entries that are not tensors, such as version numbers, are skipped.
        let Some(tensor) = tensor_of(object) else { continue };
        let storage = tensor.storage;
        let (start, length) = match starts.get(storage) {
            Some(&known) => known,
            None => {
                let file = archive
                    .by_name(&format!("{root}data/{storage}"))
                    .with_context(|| format!("cannot find the values of tensor {name}"))?;
                let start =
                    file.data_start().context("the archive does not say where the values begin")?;
                if file.compression() != CompressionMethod::Stored {
                    bail!("the values of tensor {name} are compressed");
                }
                *starts.entry(storage).or_insert((start, file.size()))
            }
        };
        let stored = stored(name, tensor, start, length)?;
        tensors.push((name.clone(), stored));
    }
    // Sorted by name. A name that occurs twice is refused by the caller.
    tensors.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(tensors)
}

/// Position of a tensor in the file. Its storage, which may also have values of other tensors,
/// begins at the byte `start` and has `length` bytes.
///
/// # Errors
/// When the values of the tensor are not in row-major order, or are incomplete.
fn stored(name: &str, tensor: Tensor<'_>, start: u64, length: u64) -> Result<Stored> {
    let Tensor { dtype, offset, shape, strides, .. } = tensor;
    let mut stored = Stored::new(dtype.to_owned(), shape, start);
    if let Some(width) = width(dtype) {
        if strides != row_major(&stored.shape) {
            bail!("the values of tensor {name} do not lie in order: call .contiguous() on it");
        }
        let count = stored.shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size));
        let end = count.and_then(|count| count.checked_add(offset)?.checked_mul(width));
        if end.is_none_or(|end| end as u64 > length) {
            bail!("tensor {name} of shape {:?} has more values than are there", stored.shape);
        }
        stored.start += (offset * width) as u64;
    }
    Ok(stored)
}

/// Stride of each dimension, in elements, of a tensor with values in row-major order.
fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at].saturating_mul(shape[at].max(1));
    }
    strides
}

/// Tensor as a pickle describes it.
struct Tensor<'a> {
    /// Name of its type in the format safetensors.
    dtype: &'a str,
    storage: &'a str,
    /// Index of its first element in its storage.
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// Tensor that `object` describes. The object must be a call of `torch._utils._rebuild_tensor_v2`
/// or `_rebuild_parameter`; `None` for other objects.
fn tensor_of(object: &Object) -> Option<Tensor<'_>> {
    let Object::Reduce { callable, args } = object else { return None };
    let (Object::Class { class_name, .. }, Object::Tuple(args)) = (&**callable, &**args) else {
        return None;
    };
    match (class_name.as_str(), args.as_slice()) {
        ("_rebuild_parameter", [inner @ Object::Reduce { .. }, ..]) => tensor_of(inner),
        ("_rebuild_tensor_v2", [Object::PersistentLoad(storage), offset, shape, strides, ..]) => {
            let Object::Tuple(storage) = &**storage else { return None };
            let [_, Object::Class { class_name, .. }, Object::Unicode(storage), ..] =
                storage.as_slice()
            else {
                return None;
            };
            let dtype = match class_name.as_str() {
                "FloatStorage" => "F32",
                "DoubleStorage" => "F64",
                "HalfStorage" => "F16",
                "BFloat16Storage" => "BF16",
                other => other.strip_suffix("Storage").unwrap_or(other),
            };
            let (shape, strides) = (counts(shape)?, counts(strides)?);
            Some(Tensor { dtype, storage, offset: count(offset)?, shape, strides })
        }
        _ => None,
    }
}

fn count(object: &Object) -> Option<usize> {
    match object {
        Object::Int(count) => usize::try_from(*count).ok(),
        Object::Long(count) => usize::try_from(*count).ok(),
        _ => None,
    }
}

fn counts(object: &Object) -> Option<Vec<usize>> {
    match object {
        Object::Tuple(all) => all.iter().map(count).collect(),
        _ => None,
    }
}

/// Object that the pickle `bytes` describes.
fn unpickled(bytes: &[u8]) -> Result<Object> {
    let (mut stack, mut reader) = (Stack::empty(), Cursor::new(bytes));
    let mut looked = 0;
    loop {
        let operation = reader.fill_buf()?.first().copied();
        // This operation reads a text that is preceded by its length. The length is checked, so
        // that not more memory is allocated than the pickle has bytes.
        if operation == Some(b'X') {
            let at = reader.position() as usize;
            let length = bytes.get(at + 1..at + 5).and_then(|four| four.try_into().ok());
            let length = length.map_or(usize::MAX, |four| u32::from_le_bytes(four) as usize);
            if length > bytes.len() {
                bail!("it is cut short");
            }
        }
        // The types of Candle's errors are misleading here, because they are about computations, so
        // only their text is kept.
        if stack.read(&mut reader).map_err(|error| anyhow!("{error}"))? {
            return stack.finalize().map_err(|error| anyhow!("{error}"));
        }
        // The operations in the first branch put objects into other objects. The operations in the
        // second branch store objects in the memo, or copy them from it.
        if let Some(b't' | 0x85..=0x87 | b'R' | b'Q' | b'b' | 0x81 | b's' | b'u' | b'a' | b'e') =
            operation
            && let Some(top) = stack.stack().last()
        {
            look(top, DEEPEST, &mut looked)?;
        } else if let Some(b'q' | b'r' | b'h' | b'j') = operation
            && let Some(top) = stack.stack().last()
        {
            let before = looked;
            look(top, DEEPEST, &mut looked)?;
            if looked - before > MOST_COPIED {
                bail!("it copies large objects");
            }
        }
    }
}

/// Counts `object` and all objects inside it, and adds the number to `looked`. Refuses too many
/// objects, and objects that are nested too deeply; `deeper` is the number of levels that are still
/// allowed.
fn look(object: &Object, deeper: usize, looked: &mut usize) -> Result<()> {
    *looked += 1;
    if deeper == 0 || *looked > MOST_OBJECTS {
        bail!("its objects lie too deep within each other, or are too many");
    }
    let mut each = |object: &Object| look(object, deeper - 1, looked);
    match object {
        Object::Tuple(all) | Object::List(all) => all.iter().try_for_each(each),
        Object::Dict(all) => all.iter().try_for_each(|(key, value)| {
            each(key)?;
            each(value)
        }),
        Object::Reduce { callable, args } | Object::Build { callable, args } => {
            each(callable)?;
            each(args)
        }
        Object::PersistentLoad(inner) => each(inner),
        _ => Ok(()),
    }
}
