//! Finds the ends of requests and replies in a stream of bytes.

/// Follows requests and replies of the Redis protocol byte by byte.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    /// The current line so far.
    line: Vec<u8>,
    /// How many bytes of the current bulk string are missing.
    body: usize,
    /// How many parts each open array still lacks, outermost array first.
    open: Vec<usize>,
}

impl Frames {
    /// Whether the next byte begins a frame.
    pub(super) fn is_between(&self) -> bool {
        self.line.is_empty() && self.body == 0 && self.open.is_empty()
    }

    /// Takes one byte. Returns whether it ends an outermost frame.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        if self.body > 0 {
            self.body -= 1;
            return self.body == 0 && self.part_ends();
        }
        self.line.push(byte);
        if byte != b'\n' {
            return false;
        }
        let line = std::mem::take(&mut self.line);
        let number = || std::str::from_utf8(&line[1..]).ok()?.trim_end().parse::<usize>().ok();
        let parts = match line[0] {
            b'$' | b'!' | b'=' => {
                // A length of minus one has no body.
                self.body = number().map_or(0, |length| length + 2);
                if self.body > 0 {
                    return false;
                }
                0
            }
            b'*' | b'~' | b'>' => number().unwrap_or(0),
            b'%' => number().unwrap_or(0) * 2,
            // This is a status, a number or an error. A line of nonsense counts as a frame too.
            _ => 0,
        };
        if parts > 0 {
            self.open.push(parts);
            return false;
        }
        self.part_ends()
    }

    /// How many frames end in `bytes`.
    pub(super) fn count(&mut self, bytes: &[u8]) -> u64 {
        bytes.iter().map(|byte| u64::from(self.take(*byte))).sum()
    }

    fn part_ends(&mut self) -> bool {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_kind_are_told_apart() {
        // Columns: the bytes, how many frames end in them, whether another frame has begun.
        let table: [(&[u8], u64, bool); 12] = [
            (b"+OK\r\n", 1, false),
            (b"-ERR no\r\n:1\r\n", 2, false),
            (b"$-1\r\n$0\r\n\r\n$3\r\n\r\n+\r\n", 3, false),
            (b"*-1\r\n*0\r\n", 2, false),
            (b"*2\r\n$4\r\nPING\r\n$1\r\nx\r\n", 1, false),
            (b"*2\r\n*1\r\n:1\r\n*2\r\n+a\r\n$-1\r\n", 1, false),
            (b"%1\r\n+a\r\n:1\r\n>2\r\n+a\r\n+b\r\n", 2, false),
            (b"PING\r\n\r\n", 2, false),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", 2, false),
            (b"$3\r\nab", 0, true),
            (b"*2\r\n+a\r\n", 0, true),
            (b"", 0, false),
        ];
        for (bytes, ended, begun) in table {
            let mut frames = Frames::default();
            let shown = bytes.escape_ascii();
            assert_eq!(frames.count(bytes), ended, "{shown}");
            assert_eq!(!frames.is_between(), begun, "{shown}");
        }
    }
}
