//! The messages between `leasehold run` and its keeper, and the socket between them.
//!
//! A frame is a letter, the length of its body, and the body. Numbers are little-endian.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use leasehold::core::Moment;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};
use rustix::process::Signal;

use super::tree::Census;
use crate::exit::Exit;

/// An order to the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start this command.
    Start(Start),
    /// Pass a signal on.
    Forward(Signal),
    /// Pass a signal on that the terminal sent to the group that the command was started in.
    ForwardOutside(Signal),
    /// Send a signal to everything, and continue suspended processes.
    SignalAll(Signal),
    /// Kill everything.
    Kill,
    /// Kill everything at this moment, unless a later order names another moment.
    KillAt(Moment),
}

/// How to start the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The process group that the command joins; zero means a new one.
    pub(crate) group: i32,
    /// How often the processes are counted.
    pub(crate) count_every: Duration,
    /// The first moment to kill everything, so that no command is ever without one.
    pub(crate) kill_at: Moment,
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
}

/// A note from the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The command has begun.
    Begun,
    /// The command could not be started; the number is the system's error.
    NotBegun(i32),
    /// The command was not started, because it would have to be killed at once.
    TooLate,
    /// The command itself ended.
    Ended(Exit),
    /// The number of processes.
    Counted(Census),
    /// No process is left.
    AllGone,
    /// The keeper has received the order to kill.
    Killing,
    /// The moment to kill has come, without an order to kill.
    KilledInTime,
    /// The keeper received a signal that is meant for us.
    Signal(Signal),
}

/// A message as bytes.
pub(crate) trait Frame: Sized {
    /// The letter and the body of the message.
    fn encode(&self) -> (u8, Vec<u8>);

    /// The message of that letter and body; `None` if they make no known message.
    fn decode(letter: u8, body: &[u8]) -> Option<Self>;
}

impl Frame for Order {
    fn encode(&self) -> (u8, Vec<u8>) {
        let signal = |signal: &Signal| signal.as_raw().to_le_bytes().to_vec();
        match self {
            Self::Start(start) => (b's', start.encode()),
            Self::Forward(it) => (b'f', signal(it)),
            Self::ForwardOutside(it) => (b'o', signal(it)),
            Self::SignalAll(it) => (b't', signal(it)),
            Self::Kill => (b'k', Vec::new()),
            Self::KillAt(at) => (b'a', at.as_nanos().to_le_bytes().to_vec()),
        }
    }

    fn decode(letter: u8, body: &[u8]) -> Option<Self> {
        let signal = || Signal::from_named_raw(number(body)?);
        Some(match letter {
            b's' => Self::Start(Start::decode(body)?),
            b'f' => Self::Forward(signal()?),
            b'o' => Self::ForwardOutside(signal()?),
            b't' => Self::SignalAll(signal()?),
            b'k' => Self::Kill,
            b'a' => Self::KillAt(Moment::from_nanos(u64::from_le_bytes(body.try_into().ok()?))),
            _ => return None,
        })
    }
}

impl Start {
    fn encode(&self) -> Vec<u8> {
        let mut body = self.group.to_le_bytes().to_vec();
        body.extend(nanos(self.count_every).to_le_bytes());
        body.extend(self.kill_at.as_nanos().to_le_bytes());
        // An argument contains no zero byte.
        for word in &self.command {
            body.extend(word.as_bytes());
            body.push(0);
        }
        body
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let (group, rest) = body.split_first_chunk()?;
        let (every, rest) = rest.split_first_chunk()?;
        let (kill_at, words) = rest.split_first_chunk()?;
        let words = words.strip_suffix(&[0])?;
        let word = |word: &[u8]| OsString::from_vec(word.to_vec());
        Some(Self {
            group: i32::from_le_bytes(*group),
            count_every: Duration::from_nanos(u64::from_le_bytes(*every)),
            kill_at: Moment::from_nanos(u64::from_le_bytes(*kill_at)),
            command: words.split(|byte| *byte == 0).map(word).collect(),
        })
    }
}

impl Frame for Note {
    fn encode(&self) -> (u8, Vec<u8>) {
        let bytes = |number: i32| number.to_le_bytes().to_vec();
        match *self {
            Self::Begun => (b'b', Vec::new()),
            Self::NotBegun(errno) => (b'n', bytes(errno)),
            Self::TooLate => (b'l', Vec::new()),
            Self::Ended(Exit::Code(code)) => (b'e', bytes(code.into())),
            Self::Ended(Exit::Signal(signal)) => (b'd', bytes(signal)),
            Self::Counted(Census { alive, took }) => {
                let mut body = alive.to_le_bytes().to_vec();
                body.extend(nanos(took).to_le_bytes());
                (b'c', body)
            }
            Self::AllGone => (b'g', Vec::new()),
            Self::Killing => (b'k', Vec::new()),
            Self::KilledInTime => (b'a', Vec::new()),
            Self::Signal(signal) => (b's', bytes(signal.as_raw())),
        }
    }

    fn decode(letter: u8, body: &[u8]) -> Option<Self> {
        Some(match letter {
            b'b' => Self::Begun,
            b'n' => Self::NotBegun(number(body)?),
            b'l' => Self::TooLate,
            b'e' => Self::Ended(Exit::Code(u8::try_from(number(body)?).ok()?)),
            b'd' => Self::Ended(Exit::Signal(number(body)?)),
            b'c' => {
                let (alive, took) = body.split_first_chunk()?;
                let took = Duration::from_nanos(u64::from_le_bytes(took.try_into().ok()?));
                Self::Counted(Census { alive: u32::from_le_bytes(*alive), took })
            }
            b'g' => Self::AllGone,
            b'k' => Self::Killing,
            b'a' => Self::KilledInTime,
            b's' => Self::Signal(Signal::from_named_raw(number(body)?)?),
            _ => return None,
        })
    }
}

fn number(body: &[u8]) -> Option<i32> {
    Some(i32::from_le_bytes(body.try_into().ok()?))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// One end of the socket. Only [`flush`](Self::flush) ever waits.
#[derive(Debug, Default)]
pub(crate) struct Link {
    to_send: Vec<u8>,
    received: Vec<u8>,
    /// The other end is gone.
    is_cut: bool,
}

impl Link {
    /// Whether the other end is gone. Messages that it sent before can still be taken.
    pub(crate) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether something waits to be sent.
    pub(crate) const fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Queues a message and sends as much as the socket takes.
    pub(crate) fn tell(&mut self, socket: impl AsFd, message: &impl Frame) {
        let (letter, body) = message.encode();
        self.to_send.push(letter);
        let length = u32::try_from(body.len()).expect("no command line is that long");
        self.to_send.extend(length.to_le_bytes());
        self.to_send.extend(body);
        self.send(socket);
    }

    /// Sends queued bytes, as many as the socket takes now.
    pub(crate) fn send(&mut self, socket: impl AsFd) {
        while !self.to_send.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&socket, &self.to_send, flags) {
                Ok(sent) => drop(self.to_send.drain(..sent)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => {
                    self.is_cut = true;
                    self.to_send.clear();
                }
            }
        }
    }

    /// Waits until all queued bytes are sent, or the other end is gone.
    pub(crate) fn flush(&mut self, socket: impl AsFd) {
        while self.has_to_send() {
            // A signal may end the wait early.
            let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None);
            self.send(&socket);
        }
    }

    /// Takes the messages that have arrived.
    pub(crate) fn take<F: Frame>(&mut self, socket: impl AsFd) -> Vec<F> {
        self.receive(socket);
        std::iter::from_fn(|| self.next()).flatten().collect()
    }

    /// Reads all bytes that have arrived, for [`take`](Self::take).
    pub(crate) fn receive(&mut self, socket: impl AsFd) {
        let mut bytes = [0; 4096];
        loop {
            match recv(&socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.is_cut = true,
                Ok((length, _)) => {
                    self.received.extend(&bytes[..length]);
                    continue;
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => self.is_cut = true,
            }
            return;
        }
    }

    /// The next whole message. The inner `None` is an unknown message.
    fn next<F: Frame>(&mut self) -> Option<Option<F>> {
        let (head, rest) = self.received.split_first_chunk::<5>()?;
        let [letter, length @ ..] = *head;
        let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
        let message = F::decode(letter, rest.get(..length)?);
        self.received.drain(..5 + length);
        Some(message)
    }
}

/// Sends a file descriptor.
pub(crate) fn hand_over(socket: impl AsFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a file descriptor that the other end sends.
pub(crate) fn take_over(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    descriptors.next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn goes_through<F: Frame + Clone + Debug + PartialEq>(messages: &[F]) {
        let (one, other) = UnixStream::pair().expect("a socket");
        let (mut here, mut there) = (Link::default(), Link::default());
        for message in messages {
            here.tell(&one, message);
            let (letter, body) = message.encode();
            assert_eq!(F::decode(letter, &body).as_ref(), Some(message));
            assert_eq!(F::decode(0, &body), None);
        }
        assert_eq!(there.take::<F>(&other), messages);
        assert!(there.take::<F>(&other).is_empty() && !there.is_cut());
        drop(one);
        assert!(there.take::<F>(&other).is_empty() && there.is_cut());
    }

    #[test]
    fn every_message_arrives_as_it_was_sent() {
        let start = |words: &[&str]| {
            Order::Start(Start {
                group: 7,
                count_every: Duration::from_millis(250),
                kill_at: Moment::from_nanos(u64::MAX - 1),
                command: words.iter().map(OsString::from).collect(),
            })
        };
        goes_through(&[
            start(&["true"]),
            start(&[""]),
            start(&["a", "", "b c", "ü"]),
            Order::Forward(Signal::USR1),
            Order::ForwardOutside(Signal::INT),
            Order::SignalAll(Signal::TERM),
            Order::Kill,
            Order::KillAt(Moment::from_nanos(u64::MAX)),
        ]);
        goes_through(&[
            Note::Begun,
            Note::NotBegun(2),
            Note::TooLate,
            Note::Ended(Exit::Code(255)),
            Note::Ended(Exit::Signal(9)),
            Note::Counted(Census { alive: 5, took: Duration::from_micros(3) }),
            Note::AllGone,
            Note::Killing,
            Note::KilledInTime,
            Note::Signal(Signal::TERM),
        ]);
    }

    #[test]
    fn a_long_command_line_arrives_in_pieces_and_nobody_waits() {
        let (one, other) = UnixStream::pair().expect("a socket");
        let (mut here, mut there) = (Link::default(), Link::default());
        let command = vec![OsString::from("x".repeat(100_000)); 20];
        let kill_at = Moment::default();
        let start = Start { group: 0, count_every: Duration::ZERO, kill_at, command };
        let order = Order::Start(start);
        here.tell(&one, &order);
        assert!(here.has_to_send(), "more than a socket holds");
        let mut arrived = Vec::new();
        while arrived.is_empty() {
            arrived = there.take::<Order>(&other);
            here.send(&one);
        }
        assert_eq!(arrived, [order]);
    }

    #[test]
    fn a_flush_sends_all_to_a_slow_reader_and_ends_when_nobody_is_there() {
        let (one, other) = UnixStream::pair().expect("a socket");
        let (mut here, mut there) = (Link::default(), Link::default());
        let note = Note::Counted(Census::default());
        let mut sent = 0;
        while !here.has_to_send() {
            here.tell(&one, &note);
            sent += 1;
        }
        here.tell(&one, &Note::AllGone);
        let arrived = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut arrived = Vec::new();
                while arrived.last() != Some(&Note::AllGone) {
                    arrived.extend(there.take::<Note>(&other));
                }
                arrived.len()
            });
            here.flush(&one);
            reader.join().expect("it reads all")
        });
        assert_eq!((arrived, here.has_to_send()), (sent + 1, false));
        while !here.has_to_send() {
            here.tell(&one, &note);
        }
        drop(other);
        here.flush(&one);
        assert!(here.is_cut());
    }

    #[test]
    fn a_descriptor_is_handed_over() {
        let (one, other) = UnixStream::pair().expect("a socket");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        hand_over(&one, writer.as_fd()).expect("it fits");
        drop(writer);
        let writer = take_over(&other).expect("it came");
        rustix::io::write(&writer, b"x").expect("the pipe");
        assert_eq!(rustix::io::read(&reader, &mut [0; 8]), Ok(1));
        drop(one);
        assert!(take_over(&other).is_err(), "nobody is there");
    }
}
