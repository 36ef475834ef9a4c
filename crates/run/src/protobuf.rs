//! Messages of Protocol Buffers, written and read field by field. Only those parts of the format
//! are supported that SentencePiece and ONNX need.

use anyhow::{Context, Result, bail};

/// Message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    /// Adds a number with a variable number of bytes: seven bits in each byte, the lowest bits
    /// first.
    fn variable(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Adds a field with a whole number.
    pub(crate) fn number(&mut self, field: u64, number: u64) {
        self.variable(field << 3);
        self.variable(number);
    }

    /// Adds a field with a 32-bit floating-point number.
    pub(crate) fn float(&mut self, field: u64, number: f32) {
        self.variable(field << 3 | 5);
        self.0.extend(number.to_le_bytes());
    }

    /// Adds a field with bytes, a text or a message.
    pub(crate) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.variable(field << 3 | 2);
        self.variable(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// Adds the header of a field with `length` bytes, without these bytes: the caller writes them
    /// directly after this message, in which no other field may follow.
    pub(crate) fn announce(&mut self, field: u64, length: u64) {
        self.variable(field << 3 | 2);
        self.variable(length);
    }
}

/// Value of a field of a message.
pub(crate) enum Value<'a> {
    Number(u64),
    Float(f32),
    Bytes(&'a [u8]),
}

/// Calls `each` with the number and the value of each field of a message, in order. Fields with a
/// 64-bit value of fixed length are skipped.
///
/// # Errors
/// If `bytes` is not a message, or `each` fails.
pub(crate) fn each_field(
    mut bytes: &[u8],
    mut each: impl FnMut(u64, Value<'_>) -> Result<()>,
) -> Result<()> {
    while !bytes.is_empty() {
        let key = number(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(number(&mut bytes)?),
            1 => {
                taken(&mut bytes, 8)?;
                continue;
            }
            2 => {
                let length = number(&mut bytes)?;
                Value::Bytes(taken(&mut bytes, usize::try_from(length)?)?)
            }
            5 => {
                let four = taken(&mut bytes, 4)?;
                Value::Float(f32::from_le_bytes(four.try_into()?))
            }
            other => bail!("a field has the wire type {other}"),
        };
        each(key >> 3, value)?;
    }
    Ok(())
}

/// Removes the first `count` bytes from `bytes`, and returns them.
fn taken<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(count).context("cut short")?;
    *bytes = rest;
    Ok(first)
}

/// Removes a number with a variable number of bytes from the beginning of `bytes`, and returns it.
/// Each byte has seven bits of it, the lowest bits first.
fn number(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for place in 0..10 {
        let byte = taken(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    bail!("a number has more than ten bytes")
}
