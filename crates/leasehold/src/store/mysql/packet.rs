//! The packets of the protocol as values. Nothing here does any I/O.

use crate::store::sql::Row;

/// The flags that this client may set, as the protocol numbers them.
pub(super) mod flag {
    pub(in crate::store) const LONG_PASSWORD: u32 = 1;
    pub(in crate::store) const LONG_FLAG: u32 = 1 << 2;
    pub(in crate::store) const WITH_DATABASE: u32 = 1 << 3;
    pub(in crate::store) const PROTOCOL_41: u32 = 1 << 9;
    pub(in crate::store) const TLS: u32 = 1 << 11;
    pub(in crate::store) const TRANSACTIONS: u32 = 1 << 13;
    pub(in crate::store) const SECURE: u32 = 1 << 15;
    pub(in crate::store) const MULTI_STATEMENTS: u32 = 1 << 16;
    pub(in crate::store) const MULTI_RESULTS: u32 = 1 << 17;
    pub(in crate::store) const PLUGINS: u32 = 1 << 19;
}

/// The status that says that another result follows.
const MORE_RESULTS: u16 = 8;

/// A packet that is not of the form that the protocol has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The rest of a packet.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    /// A number of this many bytes, the lowest first.
    fn number(&mut self, bytes: usize) -> Result<u64, Malformed> {
        let number = self.take(bytes)?.iter().rev();
        Ok(number.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn short(&mut self) -> Result<u16, Malformed> {
        self.number(2).map(|number| number as u16)
    }

    /// A number whose first byte says how long it is.
    fn length(&mut self) -> Result<u64, Malformed> {
        match self.byte()? {
            byte @ 0..=0xfa => Ok(byte.into()),
            0xfc => self.number(2),
            0xfd => self.number(3),
            0xfe => self.number(8),
            _ => Err(Malformed),
        }
    }

    /// A text that ends with a zero, or with the packet.
    pub(super) fn until_zero(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = &self.0[..end];
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        text
    }

    /// A text after its length, or null.
    fn text(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.0.first() == Some(&0xfb) {
            self.0 = &self.0[1..];
            return Ok(None);
        }
        let length = usize::try_from(self.length()?).map_err(|_| Malformed)?;
        self.take(length).map(Some)
    }
}

/// The first message of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) flags: u32,
    /// The bytes that the password is mixed with.
    pub(super) nonce: Vec<u8>,
    pub(super) plugin: String,
}

impl Greeting {
    pub(super) fn read(packet: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Bytes(packet);
        if bytes.byte()? != 10 {
            return Err(Malformed);
        }
        let _version = bytes.until_zero();
        let _connection = bytes.take(4)?;
        let mut nonce = bytes.take(8)?.to_vec();
        bytes.byte()?;
        let low = bytes.short()?;
        let _charset_and_status = bytes.take(3)?;
        let flags = u32::from(bytes.short()?) << 16 | u32::from(low);
        let _length = bytes.byte()?;
        let _reserved = bytes.take(10)?;
        // Twelve bytes and a zero. Longer ones are for plugins that this client does not have.
        nonce.extend_from_slice(&bytes.take(13)?[..12]);
        let plugin = String::from_utf8_lossy(bytes.until_zero()).into_owned();
        Ok(Self { flags, nonce, plugin })
    }
}

/// An error of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) code: u16,
    pub(super) text: String,
}

impl Said {
    /// Reads a packet that begins with `0xff`.
    pub(super) fn read(packet: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Bytes(packet);
        bytes.byte()?;
        let code = bytes.short()?;
        let mut text = bytes.0;
        // A mark and five letters: the state of SQL, which says less than the code.
        if text.first() == Some(&b'#') {
            text = text.get(6..).unwrap_or_default();
        }
        Ok(Self { code, text: String::from_utf8_lossy(text).into_owned() })
    }
}

/// The part that a packet adds to the results.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A part of an answer.
    Part,
    /// The end of the next answer.
    Answer { rows: Vec<Row>, is_last: bool },
    /// The end of all results. The server did not carry out the requests that have no answer yet.
    Refusal(Said),
}

/// Reads the results of one message, packet by packet.
///
/// | asked | results | ends with |
/// |---|---|---|
/// | a query | its rows | their mark |
/// | a call | the rows of each query in it | a packet that begins with zero |
/// | several calls | those of each | as a call, and the last has no more results after it |
#[derive(Default)]
pub(super) struct Results {
    rows: Vec<Row>,
    /// How many values the rows have.
    values: usize,
    stage: Stage,
}

#[derive(Default)]
enum Stage {
    #[default]
    Begin,
    /// `left` descriptions of columns are still to come. A mark follows them.
    Columns {
        left: u64,
        all: usize,
    },
    Rows {
        columns: usize,
    },
}

/// The most columns that an answer has.
const COLUMNS_MAX: u64 = 64;

/// The most values that an answer has. Each takes more memory here than in its packet.
const VALUES_MAX: usize = 1 << 19;

impl Results {
    pub(super) fn take(&mut self, packet: &[u8]) -> Result<Taken, Malformed> {
        let first = *packet.first().ok_or(Malformed)?;
        // In a row, this byte would begin a text of more than 16 MB.
        let is_mark = first == 0xfe && packet.len() < 9;
        if first == 0xff {
            return Said::read(packet).map(Taken::Refusal);
        }
        match &mut self.stage {
            Stage::Begin if first == 0 => {
                let mut bytes = Bytes(&packet[1..]);
                bytes.length()?;
                bytes.length()?;
                let is_last = bytes.short()? & MORE_RESULTS == 0;
                return Ok(self.ends(is_last));
            }
            Stage::Begin => {
                let columns = Bytes(packet).length()?;
                // Rows without values take memory too, and `VALUES_MAX` does not count them.
                if columns == 0 || columns > COLUMNS_MAX {
                    return Err(Malformed);
                }
                self.stage = Stage::Columns { left: columns, all: columns as usize };
            }
            Stage::Columns { left: 0, all } if is_mark => {
                self.stage = Stage::Rows { columns: *all };
            }
            Stage::Columns { left: 0, .. } => return Err(Malformed),
            Stage::Columns { left, .. } => *left -= 1,
            Stage::Rows { .. } if is_mark => {
                let mut bytes = Bytes(&packet[1..]);
                let _warnings = bytes.short()?;
                let is_last = bytes.short()? & MORE_RESULTS == 0;
                self.stage = Stage::Begin;
                if is_last {
                    return Ok(self.ends(is_last));
                }
            }
            Stage::Rows { columns } => {
                self.values += *columns;
                if self.values > VALUES_MAX {
                    return Err(Malformed);
                }
                let mut bytes = Bytes(packet);
                let row = (0..*columns).map(|_| {
                    let text = bytes.text()?;
                    Ok(text.map(|text| String::from_utf8_lossy(text).into_owned()))
                });
                self.rows.push(row.collect::<Result<_, _>>()?);
            }
        }
        Ok(Taken::Part)
    }

    fn ends(&mut self, is_last: bool) -> Taken {
        Taken::Answer { rows: std::mem::take(&mut self.rows), is_last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

    /// The parts that the packets add to the results, without parts of answers.
    fn results(packets: &[&[u8]]) -> Result<Vec<Taken>, Malformed> {
        let mut results = Results::default();
        let all: Result<Vec<_>, _> = packets.iter().map(|packet| results.take(packet)).collect();
        all.map(|all| all.into_iter().filter(|taken| *taken != Taken::Part).collect())
    }

    /// A call's end, if another one follows.
    const MORE: &[u8] = &[0, 0, 0, 10, 0, 0, 0];

    #[test]
    fn a_call_has_rows_and_then_an_end() {
        let mark = &[0xfe, 0, 0, 10, 0];
        let row = b"\x05taken\xfb\x00";
        let call = [&[3], &b"def"[..], b"def", b"def", &[0xfe, 0, 0, 2, 0], row, mark];
        let rows = vec![vec![Some("taken".to_owned()), None, Some(String::new())]];
        let answer = |rows: &[Row], is_last| Taken::Answer { rows: rows.to_vec(), is_last };
        assert_eq!(results(&[&call[..], &[OK]].concat()), Ok(vec![answer(&rows, true)]));
        assert_eq!(results(&[OK]), Ok(vec![answer(&[], true)]));
        assert_eq!(results(&[&[1], b"def", mark]), Ok(vec![]), "it is not over");
        let two = [&call[..], &call, &[MORE], &call, &[OK]].concat();
        let both = [rows.clone(), rows.clone()].concat();
        assert_eq!(results(&two), Ok(vec![answer(&both, false), answer(&rows, true)]));
        let query = [&call[..6], &[&[0xfe, 0, 0, 2, 0]]].concat();
        assert_eq!(results(&query), Ok(vec![answer(&rows, true)]));
    }

    #[test]
    fn an_answer_of_too_many_values_is_refused() {
        let mut results = Results::default();
        for packet in [&[2][..], b"def", b"def", &[0xfe, 0, 0, 2, 0]] {
            assert_eq!(results.take(packet), Ok(Taken::Part));
        }
        for _ in 0..VALUES_MAX / 2 {
            assert_eq!(results.take(&[0xfb, 0xfb]), Ok(Taken::Part));
        }
        assert_eq!(results.take(&[0xfb, 0xfb]), Err(Malformed));
    }

    #[test]
    fn an_error_ends_the_answer_at_any_place() {
        let error = b"\xff\x2a\x04#42000No such procedure";
        let said = Said { code: 1066, text: "No such procedure".to_owned() };
        for before in [&[][..], &[&[1][..]], &[&[1], b"def", &[0xfe, 0, 0, 2, 0], b"\x01a"]] {
            let packets = [before, &[error]].concat();
            assert_eq!(results(&packets), Ok(vec![Taken::Refusal(said.clone())]));
        }
        let early = Said::read(b"\xff\x10\x04Too many connections").map(|said| said.code);
        assert_eq!(early, Ok(1040));
    }

    #[test]
    fn a_packet_that_is_cut_or_strange_is_refused() {
        for packets in [
            &[&[][..]][..],
            &[&[0xfb]],
            &[&[0]],
            &[&[65]],
            &[&[0xfc, 0, 0]],
            &[&[1], b"def", b"no mark"],
            &[&[1], b"def", &[0xfe, 0, 0, 2, 0], &[9, 1]],
            &[&[1], b"def", &[0xfe, 0, 0, 2, 0], &[0xfe, 1, 1, 1, 1, 1, 1, 1, 0x7f, 1]],
        ] {
            assert_eq!(results(packets), Err(Malformed), "{packets:?}");
        }
        assert_eq!(Said::read(&[0xff]), Err(Malformed));
    }

    #[test]
    fn a_greeting_has_twenty_bytes_to_mix_and_any_cut_is_refused() {
        let greeting = [
            &b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0\x00\x82\x21\x02\0\x08\0\x15"[..],
            &[0; 10],
            b"ijklmnopqrst\0mysql_native_password\0",
        ]
        .concat();
        let read = Greeting::read(&greeting).expect("it is whole");
        assert_eq!(read.nonce, b"abcdefghijklmnopqrst");
        assert_eq!((read.flags, &*read.plugin), (0x0008_8200, "mysql_native_password"));
        for end in 0..52 {
            assert_eq!(Greeting::read(&greeting[..end]), Err(Malformed), "{end}");
        }
    }
}
