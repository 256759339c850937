//! The task that makes one connection, and serves it to its end.

use std::pin::pin;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::state::Shared;
use super::{CONNECT_LIMIT, connection_lost};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::redis::error;
use crate::store::redis::link::{Command, Connected, Connector, LinkError, Value};
use crate::store::within;

/// Makes one connection and serves it to its end. Dropped in the middle, by a runtime that shuts
/// down or a panic in it, the wire is told.
pub(super) struct Serving {
    pub(super) wire: Weak<Shared>,
    pub(super) generation: u64,
    pub(super) kill: Arc<Notify>,
}

impl Serving {
    pub(super) async fn serve(self, connector: Arc<dyn Connector>, host: Arc<dyn Host>) {
        let connecting = within(Arc::clone(&host), CONNECT_LIMIT, connector.connect());
        let killed = Arc::clone(&self.kill);
        let mut killed = pin!(killed.notified());
        let connected = tokio::select! {
            biased;
            () = &mut killed => return,
            connected = connecting => connected,
        };
        let Connected { link, mut io } = match connected {
            Ok(connected) => connected,
            Err(error) => return self.failed(&unavailable(error, &*connector)),
        };
        // An open port is not yet a server that answers.
        let checked = {
            let pong = link.submit(Command::new("PING"));
            let pong = within(host, CONNECT_LIMIT, async { Ok(pong.await) });
            tokio::select! {
                biased;
                () = &mut killed => return,
                pong = pong => pong.and_then(check),
                () = &mut io => Err(connection_lost()),
            }
        };
        if let Err(error) = checked {
            return self.failed(&unavailable(error, &*connector));
        }
        if let Some(wire) = self.wire.upgrade() {
            wire.opened(self.generation, link, Arc::clone(&self.kill));
        }
        tokio::select! {
            biased;
            () = &mut killed => {}
            () = &mut io => {}
        }
    }

    fn failed(&self, error: &Error) {
        if let Some(wire) = self.wire.upgrade() {
            wire.failed(self.generation, error);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.upgrade() {
            wire.ended(self.generation);
            wire.abandoned(self.generation);
        }
    }
}

/// Whether what a fresh connection answered is what a server in order answers.
fn check(pong: Result<Value, LinkError>) -> Result<(), Error> {
    match pong {
        // Who may not ping may be allowed what is needed.
        Ok(_) => Ok(()),
        Err(LinkError::Refused { code, .. }) if code == "NOPERM" => Ok(()),
        Err(failed) => Err(error::no_answer(&failed)),
    }
}

/// While connecting nothing of the user's was asked yet, so nothing is unknown, whatever the cause
/// says.
fn unavailable(error: Error, connector: &dyn Connector) -> Error {
    if error.kind() != ErrorKind::Unknown {
        return error;
    }
    let server = connector.label();
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{server} does not answer within {CONNECT_LIMIT:?}; nothing was asked, look whether \
             host and port are right, and whether the server is stopped or overloaded"
        ),
    )
}
