//! The session of a store. Makes a new one when the old one has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

use super::connect::{Opened, ZookeeperConnector};
use super::driver::Driver;
use super::session::{Board, Session};
use crate::core::error::{Error, ErrorKind};
use crate::host::{Host, random_u32};
use crate::store::net::{ConnectPause, Home, unless_right};
use crate::unpoisoned::Unpoisoned;

/// How many earlier sessions are remembered. No server keeps more of them, because each session
/// lasts for a while.
const EARLIER_MAX: usize = 64;

pub(super) struct Wire {
    pub(super) host: Arc<dyn Host>,
    pub(super) connector: ZookeeperConnector,
    /// The news of all sessions.
    pub(super) board: Arc<Board>,
    slot: Arc<Slot>,
}

/// The session, and the pause before the next one.
#[derive(Default)]
struct Slot {
    session: Unpoisoned<Current>,
    /// Locked while a session is begun.
    pause: Mutex<ConnectPause>,
}

#[derive(Default)]
struct Current {
    session: Option<Arc<Session>>,
    /// The numbers of earlier sessions. The servers may still know a session that this client gave
    /// up during an outage.
    earlier: VecDeque<i64>,
    /// Whether the store is gone.
    is_closed: bool,
}

impl Wire {
    pub(super) fn new(connector: ZookeeperConnector, host: Arc<dyn Host>) -> Self {
        Self { host, connector, board: Arc::default(), slot: Arc::default() }
    }

    /// Whether this store had this session, and uses it no more.
    pub(super) fn has_given_up(&self, session: i64) -> bool {
        self.slot.session.lock().earlier.contains(&session)
    }

    /// The session. Makes a new one if no session is alive.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Error> {
        if let Some(session) = self.slot.living() {
            return Ok(session);
        }
        // The host connects, not the caller. The caller might not poll for a while, and all
        // renewals would wait.
        let (tell, told) = oneshot::channel();
        let (slot, board) = (Arc::clone(&self.slot), Arc::clone(&self.board));
        let (host, connector) = (Arc::clone(&self.host), self.connector.clone());
        let making = async move {
            let _gone = tell.send(slot.make(&host, connector, board).await);
        };
        Home::Host.spawn(&self.host, Box::pin(making));
        told.await.unwrap_or_else(|_| Err(no_session()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let mut current = self.slot.session.lock();
        current.is_closed = true;
        let session = current.session.take();
        drop(current);
        if let Some(session) = session.filter(|session| !session.is_over()) {
            session.close();
        }
    }
}

impl Slot {
    fn living(&self) -> Option<Arc<Session>> {
        let current = self.session.lock();
        current.session.as_ref().filter(|session| !session.is_over()).cloned()
    }

    /// Begins a session, if nobody has begun one meanwhile.
    async fn make(
        &self,
        host: &Arc<dyn Host>,
        connector: ZookeeperConnector,
        board: Arc<Board>,
    ) -> Result<Arc<Session>, Error> {
        let mut pause = self.pause.lock().await;
        if let Some(session) = self.living() {
            return Ok(session);
        }
        pause.check(host.now())?;
        // A random first server, so that clients spread over the servers.
        let first = random_u32(&**host) as usize;
        let opened = connector.connect(host, first, (None, 0)).await;
        match opened.and_then(|opened| opened.ok_or_else(no_session)) {
            Ok(opened) => {
                *pause = ConnectPause::default();
                let session = begin(host, connector, opened, board);
                let mut current = self.session.lock();
                if current.is_closed {
                    drop(current);
                    session.close();
                    return Err(no_session());
                }
                if let Some(earlier) = current.session.replace(Arc::clone(&session)) {
                    if current.earlier.len() == EARLIER_MAX {
                        current.earlier.pop_front();
                    }
                    current.earlier.push_back(earlier.id);
                }
                Ok(session)
            }
            Err(error) => {
                let error = unless_right(self.session.lock().session.is_some(), error);
                pause.failed(&**host, &error);
                Err(error)
            }
        }
    }
}

/// Begins to work on a connection. Writes news to the board.
fn begin(
    host: &Arc<dyn Host>,
    connector: ZookeeperConnector,
    opened: Opened,
    board: Arc<Board>,
) -> Arc<Session> {
    let label = connector.label().into();
    let (session, ends) = Session::new(host, (opened.ticket.id, opened.timeout), label, board);
    let driver = Driver::new(host, connector, &opened, ends);
    Home::Host.spawn(host, Box::pin(driver.run(opened)));
    Arc::new(session)
}

fn no_session() -> Error {
    let message = "the server began no session; no request was sent; try again";
    Error::new(ErrorKind::Unavailable, message)
}
