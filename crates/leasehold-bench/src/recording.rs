//! A connection that remembers its latest commands.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use leasehold::Error;
use leasehold::store::redis::{Access, Connector, Opening, RedisConnector, Stream};
use leasehold_testkit::protocol::{Command, Requests};

/// How many of the latest commands are remembered.
const REMEMBERED: usize = 2;

/// The commands that were sent.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    latest: Mutex<Vec<Command>>,
}

impl Recording {
    /// The latest two commands, in order.
    pub(crate) fn latest(&self) -> Vec<Command> {
        self.latest.lock().expect("nothing panics in between").clone()
    }

    fn note(&self, command: Command) {
        let mut latest = self.latest.lock().expect("nothing panics in between");
        if latest.len() == REMEMBERED {
            latest.remove(0);
        }
        latest.push(command);
    }
}

/// A connector whose connections record their commands, except those that make a connection or
/// listen to channels.
pub(crate) struct RecordingConnector {
    inner: RedisConnector,
    recording: Arc<Recording>,
}

impl RecordingConnector {
    pub(crate) fn new(url: &str) -> Result<(Self, Arc<Recording>), Error> {
        let recording = Arc::<Recording>::default();
        let connector =
            Self { inner: RedisConnector::new(url)?, recording: Arc::clone(&recording) };
        Ok((connector, recording))
    }
}

impl Connector for RecordingConnector {
    fn open(&self) -> Opening {
        let (opening, recording) = (self.inner.open(), Arc::clone(&self.recording));
        Box::pin(async move {
            let (stream, requests) = (opening.await?, Requests::default());
            let recorded: Box<dyn Stream> = Box::new(Recorded { stream, requests, recording });
            Ok(recorded)
        })
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    fn access(&self) -> Access {
        self.inner.access()
    }
}

struct Recorded {
    stream: Box<dyn Stream>,
    requests: Requests,
    recording: Arc<Recording>,
}

impl Stream for Recorded {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_read(cx, into)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(self.stream.poll_write(cx, bytes))?;
        self.requests.push(&bytes[..count]);
        while let Some(command) = self.requests.take() {
            if !command.is_of_the_connection() {
                self.recording.note(command);
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }
}
