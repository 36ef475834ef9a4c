//! Writer of CTranslate2's file `model.bin`, in version 6 of its format, with little-endian
//! numbers. The file has the names, shapes, types and values of variables, and further names
//! (aliases) for some variables.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result, bail};
use half::{bf16, f16};
use taper_ops::Parameter;

use super::Quantization;

/// Version of the file format.
const VERSION: u32 = 6;
/// Ending of the names of the matrices that CTranslate2 can read in int8.
const WEIGHT: &str = "/weight";

/// Type of the values of a variable; its discriminant is the number that stands for the type in the
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueType {
    Float32 = 0,
    Int8 = 1,
    Int16 = 2,
    Int32 = 3,
    Float16 = 4,
    Bfloat16 = 5,
}

impl Quantization {
    /// True if matrices are in int8.
    fn is_int8(self) -> bool {
        matches!(self, Self::Int8 | Self::Int8Float16 | Self::Int8Bfloat16)
    }

    /// Type in which all values are written that are not in int8.
    fn float(self) -> ValueType {
        match self {
            Self::Float32 | Self::Int8 => ValueType::Float32,
            Self::Float16 | Self::Int8Float16 => ValueType::Float16,
            Self::Bfloat16 | Self::Int8Bfloat16 => ValueType::Bfloat16,
        }
    }
}

/// Values of a tensor, which is a variable with dimensions.
pub(super) enum Values<'a> {
    /// Consecutive values of a parameter, beginning with the value at this index.
    Part(&'a Parameter, usize),
    Floats(Vec<f32>),
}

/// Variable without dimensions: an attribute of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Attribute {
    Flag(bool),
    /// Number that stands for a choice, such as an activation.
    Choice(i8),
    Short(i16),
    Integer(i32),
    Float(f32),
}

enum Variable<'a> {
    Tensor(Vec<usize>, Values<'a>),
    Attribute(Attribute),
}

/// Variables of a model.
pub(super) struct Variables<'a> {
    /// Name and revision of the specification that defines the names of variables.
    specification: (&'static str, u32),
    all: BTreeMap<String, Variable<'a>>,
    /// For each alias, the name of the variable that it stands for.
    aliases: BTreeMap<String, String>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(specification: (&'static str, u32)) -> Self {
        Self { specification, all: BTreeMap::new(), aliases: BTreeMap::new() }
    }

    pub(super) fn tensor(&mut self, name: String, shape: Vec<usize>, values: Values<'a>) {
        self.all.insert(name, Variable::Tensor(shape, values));
    }

    pub(super) fn attribute(&mut self, name: String, value: Attribute) {
        self.all.insert(name, Variable::Attribute(value));
    }

    /// Makes `other` an alias of the variable `name`.
    pub(super) fn alias(&mut self, other: String, name: &str) {
        self.aliases.insert(other, name.to_owned());
    }

    /// Writes `model.bin` to `file`. Only one tensor at a time is copied in memory.
    ///
    /// # Errors
    /// When the file cannot be written, a tensor is too large for the format, or a value is too
    /// large for its type.
    pub(super) fn write(&self, quantization: Quantization, file: &mut impl Write) -> Result<()> {
        let is_int8 = |name: &str| quantization.is_int8() && name.ends_with(WEIGHT);
        let scales = self.all.keys().filter(|name| is_int8(name)).count();
        file.write_all(&VERSION.to_le_bytes())?;
        write_name(file, self.specification.0)?;
        file.write_all(&self.specification.1.to_le_bytes())?;
        file.write_all(&u32::try_from(self.all.len() + scales)?.to_le_bytes())?;
        for (name, variable) in &self.all {
            match variable {
                Variable::Attribute(value) => {
                    let (kind, bytes) = value.bytes();
                    write_variable(file, name, (&[], kind), &bytes)?;
                }
                Variable::Tensor(shape, values) if is_int8(name) => {
                    let values = values.get(shape)?;
                    let (bytes, scales) = rows_in_int8(&values, shape[1]);
                    write_variable(file, name, (shape, ValueType::Int8), &bytes)?;
                    let scales = bytes_of(&scales, ValueType::Float32);
                    let name = format!("{name}_scale");
                    write_variable(file, &name, (&shape[..1], ValueType::Float32), &scales)?;
                }
                Variable::Tensor(shape, values) => {
                    let (values, kind) = (values.get(shape)?, quantization.float());
                    if let Some(value) = values.iter().find(|value| !is_held(**value, kind)) {
                        bail!("{name}: {value} is too large for float16: take bfloat16");
                    }
                    write_variable(file, name, (shape, kind), &bytes_of(&values, kind))?;
                }
            }
        }
        file.write_all(&u32::try_from(self.aliases.len())?.to_le_bytes())?;
        for (alias, name) in &self.aliases {
            write_name(file, alias)?;
            write_name(file, name)?;
        }
        Ok(())
    }
}

impl Values<'_> {
    fn get(&self, shape: &[usize]) -> Result<Vec<f32>> {
        match self {
            Self::Floats(values) => Ok(values.clone()),
            Self::Part(parameter, start) => {
                let whole = parameter.var().as_detached_tensor().flatten_all()?;
                Ok(whole.narrow(0, *start, shape.iter().product())?.to_vec1()?)
            }
        }
    }
}

impl Attribute {
    fn bytes(self) -> (ValueType, Vec<u8>) {
        match self {
            Self::Flag(value) => (ValueType::Int8, vec![u8::from(value)]),
            Self::Choice(value) => (ValueType::Int8, value.to_le_bytes().into()),
            Self::Short(value) => (ValueType::Int16, value.to_le_bytes().into()),
            Self::Integer(value) => (ValueType::Int32, value.to_le_bytes().into()),
            Self::Float(value) => (ValueType::Float32, value.to_le_bytes().into()),
        }
    }
}

/// Writes the length of a name, the name, and a zero byte; the length includes the zero byte.
fn write_name(file: &mut impl Write, name: &str) -> Result<()> {
    file.write_all(&u16::try_from(name.len() + 1)?.to_le_bytes())?;
    file.write_all(name.as_bytes())?;
    Ok(file.write_all(&[0])?)
}

fn write_variable(
    file: &mut impl Write,
    name: &str,
    (shape, kind): (&[usize], ValueType),
    bytes: &[u8],
) -> Result<()> {
    write_name(file, name)?;
    file.write_all(&[u8::try_from(shape.len())?])?;
    for &length in shape {
        file.write_all(&u32::try_from(length)?.to_le_bytes())?;
    }
    let size = u32::try_from(bytes.len());
    let size = size.with_context(|| {
        format!("{name} is too large: the format allows at most 4 GiB per tensor")
    })?;
    file.write_all(&[kind as u8])?;
    file.write_all(&size.to_le_bytes())?;
    Ok(file.write_all(bytes)?)
}

/// Whether a finite `value` stays finite when it is rounded to the type `kind`.
fn is_held(value: f32, kind: ValueType) -> bool {
    kind != ValueType::Float16 || f16::from_f32(value).is_finite()
}

fn bytes_of(values: &[f32], kind: ValueType) -> Vec<u8> {
    let in_16 = |to_16_bits: fn(f32) -> [u8; 2]| {
        values.iter().flat_map(|&value| to_16_bits(value)).collect()
    };
    match kind {
        ValueType::Float16 => in_16(|value| f16::from_f32(value).to_le_bytes()),
        ValueType::Bfloat16 => in_16(|value| bf16::from_f32(value).to_le_bytes()),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// Rounds each row of a matrix to int8 in the same way as CTranslate2: `round(w · s)`, with halves
/// to even, where `s = 127 / max |w|` is the row's scale. Returns the rounded values and the scales
/// of the rows.
fn rows_in_int8(values: &[f32], columns: usize) -> (Vec<u8>, Vec<f32>) {
    let (mut bytes, mut scales) = (Vec::with_capacity(values.len()), Vec::new());
    for row in values.chunks_exact(columns.max(1)) {
        let largest = row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        // For a row so small that its scale would be infinite, all rounded values are 0.
        let scale = Some(127.0 / largest).filter(|scale| scale.is_finite()).unwrap_or(1.0);
        bytes.extend(row.iter().map(|value| (value * scale).round_ties_even() as i8 as u8));
        scales.push(scale);
    }
    (bytes, scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_rounded_with_scales_of_their_own() {
        let (bytes, scales) = rows_in_int8(&[1.0, -2.0, 0.5, 0.0, 0.0, 0.0], 3);
        assert_eq!(scales, [63.5, 1.0]);
        // The products with the scale are 63.5 and 31.75; a half is rounded to the even number.
        assert_eq!(bytes, [64, (-127_i8) as u8, 32, 0, 0, 0]);
    }

    #[test]
    fn the_file_is_laid_out_byte_for_byte() {
        let mut variables = Variables::new(("Spec", 7));
        variables.attribute("flag".to_owned(), Attribute::Flag(true));
        variables.tensor("x/weight".to_owned(), vec![1, 2], Values::Floats(vec![0.5, -1.0]));
        variables.alias("y/weight".to_owned(), "x/weight");
        let mut file = Vec::new();
        variables.write(Quantization::Int8, &mut file).expect("bytes");
        let mut expected = Vec::new();
        expected.extend([6, 0, 0, 0]);
        expected.extend(b"\x05\0Spec\0\x07\0\0\0\x03\0\0\0");
        expected.extend(b"\x05\0flag\0\0\x01\x01\0\0\0\x01");
        expected.extend(b"\x09\0x/weight\0\x02\x01\0\0\0\x02\0\0\0\x01\x02\0\0\0");
        expected.extend([64, (-127_i8) as u8]);
        expected.extend(b"\x0f\0x/weight_scale\0\x01\x01\0\0\0\0\x04\0\0\0");
        expected.extend(127.0_f32.to_le_bytes());
        expected.extend(b"\x01\0\0\0\x09\0y/weight\0\x09\0x/weight\0");
        assert_eq!(file, expected);
        let error = |values| {
            let mut variables = Variables::new(("Spec", 7));
            variables.tensor("x".to_owned(), vec![1], Values::Floats(values));
            variables.write(Quantization::Float16, &mut Vec::new()).unwrap_err().to_string()
        };
        assert!(error(vec![1e6]).contains("1000000 is too large for float16"));
    }
}
