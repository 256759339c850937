//! A private Redis server.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long it may take to start.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// How many ports are tried, since another process may take one.
const PORTS_MAX: u32 = 5;

/// A server. Dropping this value ends it.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Result<Self, String> {
        for _ in 0..PORTS_MAX {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            let port = free.and_then(|free| free.local_addr()).map(|address| address.port());
            let port = port.map_err(|error| format!("no port is free: {error}"))?;
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn();
            let child = child.map_err(|error| format!("cannot start redis-server: {error}"))?;
            let mut server = Self { child, port };
            let until = Instant::now() + STARTS_WITHIN;
            while Instant::now() < until && matches!(server.child.try_wait(), Ok(None)) {
                if server.asked("PING").is_ok() {
                    return Ok(server);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Err("redis-server does not start; run it by hand to see why".to_owned())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Makes it silent: its connections stay open, and it answers nothing.
    pub(crate) fn stop(&self) -> Result<(), String> {
        let stopped = kill_process(Pid::from_child(&self.child), Signal::STOP);
        stopped.map_err(|error| format!("redis-server cannot be stopped: {error}"))
    }

    /// Removes all keys.
    pub(crate) fn flush(&self) -> Result<(), String> {
        self.asked("FLUSHALL").map_err(|error| format!("the server was not flushed: {error}"))
    }

    /// Sends a command that is answered by one short line.
    fn asked(&self, command: &str) -> std::io::Result<()> {
        if self.answer(command)?.starts_with('+') {
            return Ok(());
        }
        Err(std::io::Error::other("it refuses"))
    }

    /// The first line of an answer, and the text that follows if it announces one.
    fn answer(&self, command: &str) -> std::io::Result<String> {
        let mut stream = self.connected()?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let (mut reader, mut answer) = (BufReader::new(stream), String::new());
        reader.read_line(&mut answer)?;
        if let Some(length) = answer.trim_end().strip_prefix('$').and_then(|it| it.parse().ok()) {
            let mut text = vec![0; length];
            reader.read_exact(&mut text)?;
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(answer.trim_end().to_owned())
    }

    fn connected(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(STARTS_WITHIN))?;
        Ok(stream)
    }

    /// For how long a key will live, in ms.
    pub(crate) fn time_left_ms(&self, key: &str) -> Result<u64, String> {
        let answer = self.answer(&format!("PTTL {key}")).map_err(|error| error.to_string())?;
        let left = answer.strip_prefix(':').and_then(|left| left.parse().ok());
        left.ok_or_else(|| format!("PTTL of {key}: {answer}"))
    }

    /// The value of a key.
    pub(crate) fn text(&self, key: &str) -> Result<String, String> {
        self.answer(&format!("GET {key}")).map_err(|error| error.to_string())
    }

    /// How much memory all keys take, in bytes. The memory of the whole server also depends on
    /// buffers.
    pub(crate) fn memory_of_keys(&self) -> Result<u64, String> {
        let script = "local sum = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
                      sum = sum + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) end return sum";
        let answer = self.answer(&format!("EVAL \"{script}\" 0"));
        let answer = answer.map_err(|error| error.to_string())?;
        let sum = answer.strip_prefix(':').and_then(|sum| sum.parse().ok());
        sum.ok_or_else(|| format!("the memory of keys is not told: {answer}"))
    }

    /// Gives a key a new ttl.
    pub(crate) fn prolong(&self, key: &str, ttl_ms: u64) -> Result<(), String> {
        let answer = self.answer(&format!("PEXPIRE {key} {ttl_ms}"));
        match answer.map_err(|error| error.to_string())?.as_str() {
            ":1" => Ok(()),
            answer => Err(format!("the lock did not stay taken: {answer}")),
        }
    }

    /// Counts the commands that clients send during a time, without those that scripts call.
    /// MONITOR tells the two apart, and `INFO commandstats` does not. Meanwhile, `step` sends one
    /// command every now and then, which does not count.
    pub(crate) fn requests_within(
        &self,
        span: Duration,
        every: Duration,
        step: impl Fn() -> Result<(), String>,
    ) -> Result<u64, String> {
        let count = || -> std::io::Result<u64> {
            let mut stream = self.connected()?;
            stream.write_all(b"MONITOR\r\n")?;
            stream.set_read_timeout(Some(Duration::from_millis(20)))?;
            let (until, mut requests) = (Instant::now() + span, Requests::default());
            let (mut bytes, mut steps, mut next) = (vec![0; 1 << 16], 0, Instant::now());
            while Instant::now() < until {
                if Instant::now() >= next {
                    step().map_err(std::io::Error::other)?;
                    next += every;
                    steps += 1;
                }
                match stream.read(&mut bytes) {
                    Ok(0) => return Err(std::io::Error::other("the server hung up")),
                    Ok(count) => requests.read(&bytes[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(requests.count.saturating_sub(steps))
        };
        count().map_err(|error| format!("the requests cannot be counted: {error}"))
    }
}

/// Counts the lines of MONITOR that show a request.
#[derive(Default)]
struct Requests {
    count: u64,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
}

impl Requests {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte != b'\n' {
                self.rest.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.rest);
            // `+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`, or `[0 lua]` within a script.
            let mut words = line.split(' ').skip(1);
            if words.next().is_some_and(|word| word.starts_with('['))
                && words.next().is_some_and(|word| word != "lua]")
            {
                self.count += 1;
            }
            self.rest.clear();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_without_those_of_scripts_and_across_reads() {
        let mut requests = Requests::default();
        requests
            .read(b"+OK\r\n+1.5 [0 127.0.0.1:6] \"evalsha\" \"a lua]\"\r\n+1.5 [0 lua] \"set\"");
        assert_eq!(requests.count, 1);
        requests.read(b" \"k\"\r\n+1.6 [0 127.0.0.1:6] \"get\" \"k\"\r");
        assert_eq!(requests.count, 1);
        requests.read(b"\n");
        assert_eq!(requests.count, 2);
    }
}
