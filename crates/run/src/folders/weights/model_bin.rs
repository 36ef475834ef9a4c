//! `model.bin` of CTranslate2 in version 6 of its format, little-endian. The file has the name and
//! the revision of a specification, then variables with names, shapes, types and values, then
//! further names (aliases) of some variables. `engines/ctranslate2/binary.rs` writes the same
//! format.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};

use anyhow::{Context, Result, bail};

use super::stored::{Scales, Stored};

/// Name of the file.
pub(in super::super) const MODEL_BIN: &str = "model.bin";

/// Version of the file format.
const VERSION: u64 = 6;
/// Types of values. The index of a type in this list is the number that stands for it in the file.
/// Each has its name in the format safetensors and the size of a value in bytes.
const TYPES: [(&str, usize); 6] =
    [("F32", 4), ("I8", 1), ("I16", 2), ("I32", 4), ("F16", 2), ("BF16", 2)];
/// Largest number of dimensions that is accepted. The weights of convolutions have three, and no
/// other variable of CTranslate2 has more.
const MOST_DIMENSIONS: u64 = 8;
/// Ending of the name of the variable with the scales of a quantized matrix.
const SCALES: &str = "_scale";

/// Content of a `model.bin` apart from its tensors.
#[derive(Debug)]
pub(in super::super) struct ModelBin {
    /// Name of the specification, such as `TransformerSpec`.
    pub(in super::super) specification: String,
    /// Variables without dimensions, by name.
    pub(in super::super) attributes: BTreeMap<String, Attribute>,
}

/// Value of a variable without dimensions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Attribute {
    Integer(i32),
    Float(f32),
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
        }
    }
}

/// Reads the variables of a `model.bin`, except the values of tensors. Returned names have dots in
/// place of slashes.
///
/// # Errors
/// When the file has another format, or is cut short.
pub(super) fn read(file: &File) -> Result<(ModelBin, BTreeMap<String, Stored>)> {
    let mut reader = Reader { bytes: file.metadata()?.len(), file: BufReader::new(file), at: 0 };
    let version = reader.number(4)?;
    if version != VERSION {
        bail!(
            "not a model of CTranslate2 that can be read: its format has version {version}, and \
             {VERSION} can be read, which converters write since version 2"
        );
    }
    let specification = reader.name()?;
    reader.number(4)?;
    let (mut attributes, mut tensors) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..reader.number(4)? {
        let name = reader.name()?;
        let is_other = match reader.variable().with_context(|| format!("variable {name}"))? {
            Variable::Tensor(stored) => tensors.insert(name.clone(), stored).is_none(),
            Variable::Attribute(value) => attributes.insert(name.clone(), value).is_none(),
        };
        if !is_other {
            bail!("the variable {name} is there twice");
        }
    }
    scale(&mut tensors, &mut attributes)?;
    for _ in 0..reader.number(4)? {
        let (alias, name) = (reader.name()?, reader.name()?);
        // The function `scale` has moved scales into the tensors that they belong to. If an alias
        // stands for scales, the tensor of these scales does not exist any more.
        if name.ends_with(SCALES) && !tensors.contains_key(&name) {
            continue;
        }
        let stored = tensors.get(&name).cloned();
        let stored = stored
            .with_context(|| format!("{alias} is another name of {name}, which is missing"))?;
        if tensors.insert(alias.clone(), stored).is_some() {
            bail!("the variable {alias} is there twice");
        }
    }
    if reader.at != reader.bytes {
        bail!("not a model of CTranslate2: {} bytes follow its end", reader.bytes - reader.at);
    }
    Ok((ModelBin { specification, attributes }, tensors))
}

/// Moves the scales of each tensor of integers from their own variable into the tensor.
fn scale(
    tensors: &mut BTreeMap<String, Stored>,
    attributes: &mut BTreeMap<String, Attribute>,
) -> Result<()> {
    let integers: Vec<String> = tensors
        .iter()
        .filter(|(_, stored)| matches!(stored.dtype.as_str(), "I8" | "I16"))
        .map(|(name, _)| name.clone())
        .collect();
    for name in integers {
        let scales_name = format!("{name}{SCALES}");
        let scales = match (attributes.remove(&scales_name), tensors.remove(&scales_name)) {
            (Some(Attribute::Float(scale)), None) => Scales::All(scale),
            (None, Some(scales)) => {
                let rows = tensors[&name].shape[0];
                if scales.dtype != "F32" || scales.shape != [rows] {
                    bail!(
                        "{scales_name} has type {} and shape {:?}: {name} has {rows} rows, with a scale in F32 each",
                        scales.dtype,
                        scales.shape
                    );
                }
                Scales::Rows(scales.start)
            }
            _ => continue,
        };
        if let Some(stored) = tensors.get_mut(&name) {
            stored.scales = Some(scales);
        }
    }
    Ok(())
}

enum Variable {
    Tensor(Stored),
    Attribute(Attribute),
}

/// Reader that knows its position in a file, and so how many bytes are left.
struct Reader<'a> {
    file: BufReader<&'a File>,
    at: u64,
    /// Size of the file in bytes.
    bytes: u64,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<Vec<u8>> {
        self.require(count as u64)?;
        let mut taken = vec![0; count];
        self.file.read_exact(&mut taken)?;
        self.at += count as u64;
        Ok(taken)
    }

    fn require(&self, count: u64) -> Result<()> {
        let left = self.bytes - self.at;
        if count > left {
            bail!(
                "not a model of CTranslate2, or cut short: {count} bytes should follow, not {left}"
            );
        }
        Ok(())
    }

    /// Reads an unsigned integer of `width` bytes.
    fn number(&mut self, width: usize) -> Result<u64> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Reads a name. In the file, a name is stored as its length in bytes, then the name, then a
    /// zero byte, which the length includes.
    fn name(&mut self) -> Result<String> {
        let length = self.number(2)? as usize;
        let mut name = self.take(length)?;
        if name.pop() != Some(0) {
            bail!("not a model of CTranslate2: a name does not end with a zero");
        }
        let name =
            String::from_utf8(name).context("not a model of CTranslate2: a name is not UTF-8")?;
        Ok(name.replace('/', "."))
    }

    /// Reads a variable: for a tensor, its shape, type and position in the file, without its
    /// values; for an attribute, its value.
    fn variable(&mut self) -> Result<Variable> {
        let dimensions = self.number(1)?;
        if dimensions > MOST_DIMENSIONS {
            bail!("it has {dimensions} dimensions");
        }
        let shape = (0..dimensions).map(|_| Ok(self.number(4)? as usize));
        let shape = shape.collect::<Result<Vec<usize>>>()?;
        let (kind, size) = (self.number(1)?, self.number(4)?);
        let kind = usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind));
        let &(dtype, width) = kind.context("it has an unknown type")?;
        let expected = shape.iter().try_fold(width, |bytes, &size| bytes.checked_mul(size));
        if expected.map(|bytes| bytes as u64) != Some(size) {
            bail!("it has shape {shape:?} and type {dtype}, but {size} bytes");
        }
        self.require(size)?;
        if shape.is_empty() {
            let bytes = self.take(width)?;
            return Ok(Variable::Attribute(attribute(dtype, &bytes)));
        }
        let stored = Stored::new(dtype.to_owned(), shape, self.at);
        self.file.seek_relative(i64::try_from(size)?)?;
        self.at += size;
        Ok(Variable::Tensor(stored))
    }
}

/// Value of a variable without dimensions, of the type `dtype` and with the bytes `bytes`.
fn attribute(dtype: &str, bytes: &[u8]) -> Attribute {
    match (dtype, bytes) {
        ("F32", &[a, b, c, d]) => Attribute::Float(f32::from_le_bytes([a, b, c, d])),
        ("F16", &[a, b]) => Attribute::Float(half::f16::from_le_bytes([a, b]).to_f32()),
        ("BF16", &[a, b]) => Attribute::Float(half::bf16::from_le_bytes([a, b]).to_f32()),
        (_, &[a, b, c, d]) => Attribute::Integer(i32::from_le_bytes([a, b, c, d])),
        (_, &[a, b]) => Attribute::Integer(i16::from_le_bytes([a, b]).into()),
        _ => Attribute::Integer(bytes.first().map_or(0, |&byte| (byte as i8).into())),
    }
}
