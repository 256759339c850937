//! A small blocking client, with which tests inspect a server.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use super::PATIENCE;

/// The answer of a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// No value.
    Nil,
    /// A number.
    Int(i64),
    /// A status such as `OK`.
    Status(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An error, which begins with its code.
    Error(String),
    /// Several answers.
    Array(Vec<Self>),
}

impl Reply {
    /// The value as a number, also from a text.
    ///
    /// # Panics
    ///
    /// If it is not a number.
    #[must_use]
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            _ => self.text().parse().unwrap_or_else(|_| panic!("{self:?} is not a number")),
        }
    }

    /// The value as a text.
    ///
    /// # Panics
    ///
    /// If it is not text.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) => text.clone(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => panic!("{self:?} is not text"),
        }
    }

    /// The elements of an array.
    ///
    /// # Panics
    ///
    /// If it is not an array.
    #[must_use]
    #[track_caller]
    pub fn array(&self) -> &[Self] {
        match self {
            Self::Array(replies) => replies,
            _ => panic!("{self:?} is not an array"),
        }
    }

    /// The elements of an array of texts.
    ///
    /// # Panics
    ///
    /// If it is not an array of texts.
    #[must_use]
    #[track_caller]
    pub fn texts(&self) -> Vec<String> {
        self.array().iter().map(Self::text).collect()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Status(text) => f.write_str(text),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Error(text) => write!(f, "error: {text}"),
            Self::Array(replies) => f.debug_list().entries(replies).finish(),
        }
    }
}

/// A connection that sends one request at a time.
#[derive(Debug)]
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to 127.0.0.1.
    pub(super) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Whether the server has not closed the connection.
    pub(super) fn is_open(&self) -> bool {
        let stream = self.stream.get_ref();
        if stream.set_nonblocking(true).is_err() {
            return false;
        }
        // No request is open, so only the end of the connection can arrive.
        let seen = stream.peek(&mut [0]);
        let silent = matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        silent && stream.set_nonblocking(false).is_ok()
    }

    /// Sends a request, and waits for the answer.
    pub(super) fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            write!(request, "${}\r\n", arg.len())?;
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        read(&mut self.stream)
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let Some(line) = line.strip_suffix("\r\n") else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, format!("a reply of `{line}`"));
    let (kind, rest) = line.split_at_checked(1).ok_or_else(nonsense)?;
    let number = || rest.parse::<i64>().map_err(|_| nonsense());
    Ok(match kind {
        "+" => Reply::Status(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Int(number()?),
        "$" => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Bytes(bytes)
            }
            Err(_) => Reply::Nil,
        },
        "*" => match usize::try_from(number()?) {
            Ok(length) => {
                Reply::Array((0..length).map(|_| read(stream)).collect::<Result<_, _>>()?)
            }
            Err(_) => Reply::Nil,
        },
        _ => return Err(nonsense()),
    })
}
