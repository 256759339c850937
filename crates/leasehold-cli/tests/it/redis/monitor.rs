//! The commands that a server receives, from `MONITOR`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use leasehold_testkit::servers::RedisServer;

use crate::harness::CEILING;

/// All commands that a server carries out from now on.
pub(super) struct Monitor {
    lines: BufReader<TcpStream>,
}

/// One command that a server carried out.
#[derive(Debug)]
pub(super) struct Asked {
    /// The time, in seconds on the server's clock.
    pub(super) at: f64,
    /// The address of the client, or `lua` for a command of a script.
    from: String,
    /// The command and its arguments, each in quotes.
    words: String,
}

impl Monitor {
    pub(super) fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("it runs");
        stream.set_read_timeout(Some(CEILING)).expect("a socket");
        stream.write_all(b"MONITOR\r\n").expect("it reads");
        let mut monitor = Self { lines: BufReader::new(stream) };
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    /// Waits for the next command.
    #[track_caller]
    pub(super) fn next(&mut self) -> Asked {
        let line = self.line();
        let parts = line.strip_prefix('+').and_then(|line| {
            let (at, rest) = line.split_once(" [")?;
            let (from, words) = rest.split_once("] ")?;
            let (_db, from) = from.split_once(' ')?;
            Some(Asked { at: at.parse().ok()?, from: from.to_owned(), words: words.to_owned() })
        });
        parts.unwrap_or_else(|| panic!("`{line}` is not a line of MONITOR"))
    }

    /// Waits for the next command that a client sent.
    #[track_caller]
    pub(super) fn next_request(&mut self) -> Asked {
        loop {
            let asked = self.next();
            if !asked.is_of_script() {
                return asked;
            }
        }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("something is asked");
        line.trim_end().to_owned()
    }
}

impl Asked {
    pub(super) fn is(&self, command: &str) -> bool {
        self.words.split(' ').next() == Some(&format!("\"{command}\""))
    }

    pub(super) fn is_of_script(&self) -> bool {
        self.from == "lua"
    }
}
