//! Data on stdout, as text or JSON, and shared helpers for colours and times.

use std::io::IsTerminal;
use std::os::fd::BorrowedFd;
use std::thread::Builder;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use leasehold::core::WallTime;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, stat};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

pub(crate) use crate::escape::{escape, escape_json};
use crate::exit::{Exit, Failure};

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// On a terminal, unless the environment says otherwise.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether to colour a stream that is a `terminal`, or not.
    pub(crate) fn on(self, terminal: bool) -> bool {
        self.decide(terminal, |name| std::env::var(name).ok())
    }

    /// Decides by the conventions of <https://no-color.org> and <https://bixense.com/clicolors/>.
    fn decide(self, terminal: bool, env: impl Fn(&str) -> Option<String>) -> bool {
        let set = |name| env(name).is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if set("NO_COLOR") => false,
            Self::Auto if set("CLICOLOR_FORCE") => env("CLICOLOR_FORCE").as_deref() != Some("0"),
            Self::Auto => {
                let refused = env("CLICOLOR").as_deref() == Some("0");
                terminal && !refused && env("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// The text as one word of a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The line that makes a shell export a variable. Without a value, it makes the shell unset it.
pub(crate) fn export(name: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("export {name}={}\n", shell_word(value)),
        None => format!("unset {name}\n"),
    }
}

/// The word that names a lock to `leasehold` in a shell. Without `--name=`, a name that begins with
/// a hyphen would be a flag.
pub(crate) fn name_word(name: &str) -> String {
    let flag = if name.starts_with('-') { "--name=" } else { "" };
    format!("{flag}{}", shell_word(name))
}

/// Writes text to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write_all(rustix::stdio::stdout(), text).map_err(|error| match error {
        Errno::PIPE => without_reader(),
        error => Failure::internal(format!("cannot write to stdout: {error}")),
    })
}

/// Fails if the reader of stdout is gone.
pub(crate) fn refuse_without_reader() -> Result<(), Failure> {
    let out = rustix::stdio::stdout();
    let mut stdout = [PollFd::new(&out, PollFlags::empty())];
    let has_news = poll(&mut stdout, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    match has_news {
        Ok(1..) if stdout[0].revents().contains(PollFlags::ERR) => Err(without_reader()),
        _ => Ok(()),
    }
}

/// The failure if the reader is gone, as after `leasehold ls | head`. This process then ends as
/// other programs do.
fn without_reader() -> Failure {
    Failure::new(Exit::Signal(SIGPIPE), QUIET, String::new())
}

/// Writes a whole text to a stream, without the standard library, which reports success even if
/// stdout is not open for writing.
pub(crate) fn write_all(to: BorrowedFd<'_>, text: &str) -> Result<(), Errno> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            // Another process made the stream non-blocking.
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&to, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a stream leads to a terminal that can overwrite what it shows.
pub(crate) fn can_overwrite(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb")
}

/// Writes a whole text to stdout on a thread of its own, so that the caller can stop waiting for a
/// slow reader.
///
/// # Cancel safety
///
/// Dropping the future does not stop the write, which then ends with the process.
pub(crate) async fn write_out_aside(text: String) -> Result<(), Errno> {
    let (done, written) = oneshot::channel();
    // The caller may have stopped waiting.
    let writing = Builder::new().spawn(move || {
        let _written = done.send(write_all(rustix::stdio::stdout(), &text));
    });
    writing.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    written.await.unwrap_or(Err(Errno::IO))
}

/// Why nobody would read our output, unless the user asked for that.
///
/// Before `main` runs, the standard library opens `/dev/null` in place of a closed stream, for
/// reading and writing. A shell opens `/dev/null` for writing only. A daemon may open it for both
/// on purpose, but then it does so for stderr too. So this cannot tell if stdout and stderr are
/// both closed.
pub(crate) fn why_unread() -> Option<&'static str> {
    let mode = |stream| fcntl_getfl(stream).map(|flags| flags & OFlags::ACCMODE);
    let is_stand_in = |stream| is_null(stream) && mode(stream) == Ok(OFlags::RDWR);
    let (out, err) = (rustix::stdio::stdout(), rustix::stdio::stderr());
    match mode(out) {
        Err(_) => Some("it is closed"),
        Ok(OFlags::RDONLY) => Some("it is not open for writing"),
        Ok(_) if is_stand_in(out) && !is_stand_in(err) => {
            Some("it is closed, or /dev/null opened for reading too")
        }
        Ok(_) => None,
    }
}

fn is_null(stream: BorrowedFd<'_>) -> bool {
    let (Ok(ours), Ok(null)) = (fstat(stream), stat("/dev/null")) else { return false };
    FileType::from_raw_mode(ours.st_mode) == FileType::CharacterDevice
        && ours.st_rdev == null.st_rdev
}

/// One JSON object as a line.
pub(crate) fn json_line(object: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(object)
        .map_err(|error| Failure::internal(format!("cannot write JSON: {error}")))?;
    Ok(escape_json(&text) + "\n")
}

/// One JSON object as a line, its kind first.
pub(crate) fn object(kind: &str, fields: Value) -> String {
    let schema = format!("leasehold.v1.{kind}");
    let line = serde_json::to_string(&Tagged { schema, fields });
    escape_json(&line.expect("text and numbers are JSON")) + "\n"
}

#[derive(Serialize)]
struct Tagged {
    schema: String,
    #[serde(flatten)]
    fields: Value,
}

/// Writes one JSON object of this kind as a line to stdout.
pub(crate) fn print_object(kind: &str, fields: Value) -> Result<(), Failure> {
    print(&object(kind, fields))
}

/// The width of the terminal that a stream leads to, if it leads to one.
pub(crate) fn columns(stream: BorrowedFd<'_>) -> Option<usize> {
    let size = rustix::termios::isatty(stream).then(|| rustix::termios::tcgetwinsize(stream));
    size?.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The text, truncated to `chars` characters.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars.saturating_sub(1)).chain(['…']).collect()
}

/// The kind of a failure that is not reported.
pub(crate) const QUIET: &str = "quiet";

const SIGPIPE: i32 = rustix::process::Signal::PIPE.as_raw();

/// A time for programs: RFC 3339 in UTC, with milliseconds.
pub(crate) fn rfc3339(time: WallTime) -> String {
    timestamp(time).map_or_else(String::new, |time| format!("{time:.3}"))
}

/// A time for people, in their own time zone with its offset; without the date if it is today.
pub(crate) fn clock(time: WallTime, now: WallTime) -> String {
    local(time, now, &TimeZone::system())
}

fn local(time: WallTime, now: WallTime, zone: &TimeZone) -> String {
    let (Some(time), Some(now)) = (timestamp(time), timestamp(now)) else { return String::new() };
    let (time, now) = (time.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let form = if time.date() == now.date() { "%H:%M:%S %:z" } else { "%Y-%m-%d %H:%M:%S %:z" };
    // Truncate the time and do not round it, since it must not show a second that has not come yet.
    time.strftime(form).to_string()
}

fn timestamp(time: WallTime) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(time.as_unix_micros()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_word_is_one_word_with_any_content() {
        let table = [
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $(x)", r"'it'\''s $(x)'"),
        ];
        for (text, word) in table {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn a_name_that_begins_with_a_hyphen_is_no_flag() {
        for (name, word) in [("x", "x"), ("-x", "--name=-x"), ("-a b", "--name='-a b'")] {
            assert_eq!(name_word(name), word);
        }
    }

    #[test]
    fn colour_follows_the_flag_then_the_environment_then_the_terminal() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            }
        };
        assert!(Color::Always.decide(false, env(&[("NO_COLOR", "1")])));
        assert!(!Color::Never.decide(true, env(&[("CLICOLOR_FORCE", "1")])));
        for (pairs, terminal, on) in [
            (&[][..], true, true),
            (&[], false, false),
            (&[("NO_COLOR", "1")], true, false),
            (&[("NO_COLOR", "")], true, true),
            (&[("CLICOLOR_FORCE", "1")], false, true),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true, false),
            (&[("CLICOLOR", "0")], true, false),
            (&[("TERM", "dumb")], true, false),
            (&[("TERM", "xterm")], true, true),
        ] {
            assert_eq!(Color::Auto.decide(terminal, env(pairs)), on, "{pairs:?} {terminal}");
        }
    }

    #[test]
    fn times_are_rfc_3339_for_programs_and_short_for_people() {
        let time = WallTime::from_unix_micros(1_700_000_000_123_456);
        let later = WallTime::from_unix_micros(1_700_000_060_000_000);
        let next_day = WallTime::from_unix_micros(1_700_090_000_000_000);
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20.123Z");
        assert_eq!(local(time, later, &TimeZone::UTC), "22:13:20 +00:00");
        assert_eq!(local(time, next_day, &TimeZone::UTC), "2023-11-14 22:13:20 +00:00");
        let late = WallTime::from_unix_micros(1_700_000_000_999_999);
        assert_eq!(rfc3339(late), "2023-11-14T22:13:20.999Z");
        assert_eq!(local(late, later, &TimeZone::UTC), "22:13:20 +00:00");
        let west = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").expect("a zone");
        assert_eq!(local(time, later, &west), "17:13:20 -05:00");
    }
}
