//! A connection that remembers its latest commands.

use std::sync::{Arc, Mutex};

use leasehold::Error;
use leasehold::store::redis::{
    Command, Connected, Link, LinkConnector, LinkError, LinkFuture, RedisConnector, Subscriber,
    Terms, Value,
};

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

    fn note(&self, command: &Command) {
        let mut latest = self.latest.lock().expect("nothing panics in between");
        if latest.len() == REMEMBERED {
            latest.remove(0);
        }
        latest.push(command.clone());
    }
}

/// A connector whose connections record their commands, except those that listen to channels.
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

impl LinkConnector for RecordingConnector {
    fn connect(&self) -> LinkFuture<Result<Connected, Error>> {
        let connecting = self.inner.connect();
        let recording = Arc::clone(&self.recording);
        Box::pin(async move {
            let mut connected = connecting.await?;
            connected.link = Arc::new(RecordingLink { inner: connected.link, recording });
            Ok(connected)
        })
    }

    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>> {
        self.inner.subscribe()
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    fn terms(&self) -> Terms {
        self.inner.terms()
    }
}

struct RecordingLink {
    inner: Arc<dyn Link>,
    recording: Arc<Recording>,
}

impl Link for RecordingLink {
    fn submit(&self, command: Command) -> LinkFuture<Result<Value, LinkError>> {
        self.recording.note(&command);
        self.inner.submit(command)
    }
}
