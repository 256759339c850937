//! Protocol buffers, as far as etcd needs them: numbers, texts and messages inside messages.

use std::fmt;

/// A message that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a number that is not negative, or a count. Zero is the default and is left out.
    #[must_use]
    pub(super) fn number(mut self, field: u32, number: i64) -> Self {
        if number != 0 {
            self.push(u64::from(field) << 3);
            self.push(number.cast_unsigned());
        }
        self
    }

    #[must_use]
    pub(super) fn flag(self, field: u32, flag: bool) -> Self {
        self.number(field, i64::from(flag))
    }

    #[must_use]
    pub(super) fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.push(u64::from(field) << 3 | 2);
        self.push(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    #[must_use]
    pub(super) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds a number in groups of seven bits, the lowest first.
    fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

/// Bytes that are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer does not have the form of etcd's protocol")
    }
}

impl std::error::Error for Malformed {}

/// The value of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Result<i64, Malformed> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(Malformed),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Malformed),
        }
    }
}

/// The fields of a message, in their order. Unknown kinds of fields end it with an error.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.split_off_first().ok_or(Malformed)?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        self.0.split_off(..count).ok_or(Malformed)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let tag = self.varint()?;
        let field = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?.cast_signed()),
            1 => Value::Bytes(self.take(8)?),
            2 => {
                let count = self.varint()?;
                Value::Bytes(self.take(count)?)
            }
            5 => Value::Bytes(self.take(4)?),
            _ => return Err(Malformed),
        };
        Ok((field, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back() {
        let inner = Message::default().number(2, 150).bytes(3, b"text");
        let outer = Message::default()
            .number(1, -1)
            .number(4, 0)
            .flag(5, true)
            .message(64, &inner)
            .number(6, i64::MAX);
        let fields: Result<Vec<_>, _> = Fields::of(outer.as_bytes()).collect();
        let expected = [
            (1, Value::Number(-1)),
            (5, Value::Number(1)),
            (64, Value::Bytes(inner.as_bytes())),
            (6, Value::Number(i64::MAX)),
        ];
        assert_eq!(fields.as_deref(), Ok(&expected[..]));
        // The example of the specification: field 2 is 150.
        assert_eq!(inner.as_bytes()[..3], [0x10, 0x96, 0x01]);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused_in_bounded_time() {
        let endless = [0x80; 11];
        let table: [&[u8]; 6] =
            [&[0x08], &[0x0a, 5, 1], &endless, &[0x0b], &[0x08, 0x80], &[0x09, 1, 2]];
        for bytes in table {
            let fields: Vec<_> = Fields::of(bytes).collect();
            assert_eq!(fields.last(), Some(&Err(Malformed)), "{bytes:?}");
        }
        // Fixed sizes are skipped over.
        let fixed = [0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x15, 0, 0, 0, 0, 0x18, 7];
        assert_eq!(Fields::of(&fixed).last(), Some(Ok((3, Value::Number(7)))));
    }
}
