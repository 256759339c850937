//! The task that makes one connection and serves it until it ends.

use std::pin::pin;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::CONNECT_LIMIT;
use super::pipeline::{Connected, connect};
use super::state::Shared;
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::Host;
pub(in crate::store::redis) use crate::store::net::Home;
use crate::store::redis::connector::Connector;
use crate::store::within;

/// Makes one connection and serves it until it ends. If a runtime or a panic drops the task, the
/// wire is told.
pub(super) struct Serving {
    pub(super) wire: Weak<Shared>,
    pub(super) generation: u64,
    pub(super) not_before: Moment,
    pub(super) kill: Arc<Notify>,
}

impl Serving {
    pub(super) async fn serve(self, connector: Arc<dyn Connector>, host: Arc<dyn Host>) {
        let connecting = async {
            if host.now() < self.not_before {
                host.sleep_until(self.not_before).await;
            }
            within(Arc::clone(&host), CONNECT_LIMIT, connect(&*connector)).await
        };
        let killed = Arc::clone(&self.kill);
        let mut killed = pin!(killed.notified());
        let connected = tokio::select! {
            biased;
            () = &mut killed => return,
            connected = connecting => connected,
        };
        let Connected { pipeline, mut mover, known, .. } = match connected {
            Ok(connected) => connected,
            Err(error) => return self.failed(&unavailable(error, &*connector)),
        };
        if let Some(wire) = self.wire.upgrade() {
            wire.opened(self.generation, pipeline, known, Arc::clone(&self.kill));
        }
        // Drop this before the mover, even if a runtime drops the task. When the mover fails the
        // requests under way, their callers may ask again at once, and must find no connection.
        let _ending = self;
        tokio::select! {
            biased;
            () = &mut killed => {}
            () = &mut mover => {}
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

/// Makes an unknown outcome `Unavailable`, because no request of the user is sent while connecting.
fn unavailable(error: Error, connector: &dyn Connector) -> Error {
    if error.kind() != ErrorKind::Unknown {
        return error;
    }
    let server = connector.label();
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{server} does not answer within {CONNECT_LIMIT:?}; no request was sent; check host \
             and port, and whether the server is stopped or overloaded"
        ),
    )
}
