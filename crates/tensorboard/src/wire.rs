//! The part of the wire format of protocol buffers that event files need.

/// A message being written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn key(&mut self, field: u32, kind: u32) {
        self.number(u64::from(field << 3 | kind));
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Appends an integer.
    pub(crate) fn integer(mut self, field: u32, value: u64) -> Self {
        self.key(field, 0);
        self.number(value);
        self
    }

    /// Appends a 64-bit float.
    pub(crate) fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends a 32-bit float.
    pub(crate) fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends text, or any bytes.
    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, 2);
        self.number(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// Appends a nested message.
    pub(crate) fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Appends 64-bit floats, packed into one field.
    pub(crate) fn doubles(self, field: u32, values: &[f64]) -> Self {
        let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(field, &packed)
    }
}

/// A field of a message being read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
    /// An integer.
    Integer(u64),
    /// A 64-bit or 32-bit number. Its value is skipped, because nothing reads it.
    Fixed,
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

/// Returns the fields of a message with their numbers, up to the first damaged field.
pub(crate) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let key = number(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Integer(number(&mut bytes)?),
            1 => take(&mut bytes, 8).map(|_| Field::Fixed)?,
            2 => {
                let length = usize::try_from(number(&mut bytes)?).ok()?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            5 => take(&mut bytes, 4).map(|_| Field::Fixed)?,
            _ => return None,
        };
        Some((key >> 3, field))
    })
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7F) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let inner = Message::default().bytes(1, "é".as_bytes());
        let message =
            Message::default().integer(2, 300).double(1, 0.5).float(3, 1.0).message(5, &inner);
        let read: Vec<_> = fields(&message.0).collect();
        assert_eq!(
            read,
            [
                (2, Field::Integer(300)),
                (1, Field::Fixed),
                (3, Field::Fixed),
                (5, Field::Bytes(&[0x0A, 2, 0xC3, 0xA9])),
            ]
        );
        assert_eq!(fields(&message.0[..1]).count(), 0, "a torn message ends");
        assert_eq!(fields(&[0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 1]).count(), 0, "no field so long");
    }
}
