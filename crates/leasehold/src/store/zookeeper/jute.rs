//! The encoding of ZooKeeper's messages: numbers, texts and bytes, one after the other.

/// A message that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A message that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, is_set: bool) -> Self {
        self.0.push(u8::from(is_set));
        self
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let length = i32::try_from(bytes.len()).expect("no request of ours is that long");
        let mut message = self.int(length);
        message.0.extend_from_slice(bytes);
        message
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Adds another message as it is.
    pub(super) fn then(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    /// Appends the message to `into`, after its length.
    pub(super) fn frame(&self, into: &mut Vec<u8>) {
        self.frame_behind(&[], into);
    }

    /// Appends these numbers and the message to `into`, after the length of both.
    pub(super) fn frame_behind(&self, head: &[i32], into: &mut Vec<u8>) {
        let length = size_of_val(head) + self.0.len();
        let length = u32::try_from(length).expect("no request of ours is that long");
        into.extend_from_slice(&length.to_be_bytes());
        head.iter().for_each(|number| into.extend_from_slice(&number.to_be_bytes()));
        into.extend_from_slice(&self.0);
    }
}

/// Reads a message, field by field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.take().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.take().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        let [byte] = self.take()?;
        Ok(byte != 0)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = match self.int()? {
            // The field is null. That is different from an empty field, but is read like one.
            -1 => 0,
            length => usize::try_from(length).map_err(|_| Malformed)?,
        };
        let (field, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(field)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// Reads a list. Its length is not trusted.
    pub(super) fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        let count = self.int()?;
        (0..count).map(|_| self.text().map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_read_back() {
        let message = Message::default().int(-7).long(1 << 40).flag(true).text("ü").bytes(b"");
        let mut framed = Vec::new();
        message.frame(&mut framed);
        let mut reader = Reader::new(&framed);
        assert_eq!(reader.int(), Ok(4 + 8 + 1 + 4 + 2 + 4), "the length");
        assert_eq!((reader.int(), reader.long()), (Ok(-7), Ok(1 << 40)));
        assert_eq!((reader.flag(), reader.text()), (Ok(true), Ok("ü")));
        assert_eq!((reader.bytes(), reader.int()), (Ok(&b""[..]), Err(Malformed)));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for lie in [-2, 5, i32::MAX] {
            let message = Message::default().int(lie).int(0);
            assert_eq!(Reader::new(&message.0).bytes(), Err(Malformed), "{lie}");
            if lie > 0 {
                assert_eq!(Reader::new(&message.0).texts(), Err(Malformed), "{lie}");
            }
        }
        assert_eq!(Reader::new(&Message::default().int(-1).0).bytes(), Ok(&b""[..]));
    }
}
