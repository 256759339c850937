//! The session of a store. Makes a new one when the old one has ended.

use std::sync::{Arc, Mutex as Cell, PoisonError};

use tokio::sync::{Mutex, Notify, oneshot};

use super::connect::ZookeeperConnector;
use super::session::Session;
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::{Host, random_u32};
use crate::store::net::Home;

pub(super) struct Wire {
    pub(super) host: Arc<dyn Host>,
    pub(super) connector: ZookeeperConnector,
    /// Told of the news of sessions.
    pub(super) notify: Arc<Notify>,
    making: Mutex<Making>,
    session: Cell<Option<Arc<Session>>>,
}

/// What is needed to make a session.
struct Making {
    /// Until when nothing is tried, and why.
    paused: Option<(Moment, Error)>,
    delays: Delays,
}

impl Wire {
    pub(super) fn new(connector: ZookeeperConnector, host: Arc<dyn Host>) -> Self {
        let making = Making { paused: None, delays: Backoff::DEFAULT.delays() };
        Self {
            host,
            connector,
            notify: Arc::default(),
            making: Mutex::new(making),
            session: Cell::default(),
        }
    }

    /// The session that lives, if there is one. Its connection may be interrupted.
    pub(super) fn living(&self) -> Option<Arc<Session>> {
        // Whole at every moment: single steps change it.
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.as_ref().filter(|session| !session.is_over()).cloned()
    }

    /// The session. Makes a new one if there is none that lives.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Error> {
        if let Some(session) = self.living() {
            return Ok(session);
        }
        let mut making = self.making.lock().await;
        if let Some(session) = self.living() {
            return Ok(session);
        }
        if let Some((until, why)) = &making.paused
            && self.host.now() < *until
        {
            return Err(why.clone());
        }
        match self.make().await {
            Ok(session) => {
                making.paused = None;
                making.delays.reset();
                *self.session.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::clone(&session));
                Ok(session)
            }
            Err(error) => {
                let pause = making.delays.next(random_u32(&*self.host));
                making.paused = Some((self.host.now() + pause, error.clone()));
                Err(error)
            }
        }
    }

    /// Begins a session. The connection belongs to the host, and not to the caller.
    async fn make(&self) -> Result<Arc<Session>, Error> {
        let (tell, told) = oneshot::channel();
        let (host, connector) = (Arc::clone(&self.host), self.connector.clone());
        let notify = Arc::clone(&self.notify);
        // So that clients spread over the servers.
        let first = random_u32(&*host) as usize;
        let making = async move {
            let opened = connector.connect(&host, first, (None, 0)).await;
            let session = opened.and_then(|opened| {
                let opened = opened.ok_or_else(no_session)?;
                Ok(Session::begin(&host, connector, opened, notify))
            });
            // A caller that is gone leaves a session without nodes.
            if let Err(Ok(session)) = tell.send(session) {
                session.close();
            }
        };
        Home::Host.spawn(&self.host, Box::pin(making));
        told.await.unwrap_or_else(|_| Err(no_session()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(session) = self.living() {
            session.close();
        }
    }
}

fn no_session() -> Error {
    let message = "the server began no session; no request was sent; try again";
    Error::new(ErrorKind::Unavailable, message)
}
