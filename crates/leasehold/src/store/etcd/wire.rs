//! Calls of a store: over one connection at a time, to whichever member answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, oneshot};

use super::channel::{Channel, Failure};
use super::connect::EtcdConnector;
use super::error::{Fault, explain};
use super::message::{Malformed, Message};
use super::rpc::{LeaseAnswer, Ranged, Txn, TxnDone, lease, lease_grant};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::net::{ConnectPause, Effect, Home, unless_right};
use crate::unpoisoned::Unpoisoned;

/// How long a call may take before its member counts as cut off. It is longer than the limit of any
/// request.
const CALL_LIMIT: Duration = Duration::from_millis(1_200);

/// Sends calls. No call is sent twice, unless it certainly did nothing.
pub(super) struct Wire {
    pub(super) host: Arc<dyn Host>,
    pub(super) connector: EtcdConnector,
    slot: Arc<Slot>,
}

/// The connection, and what is needed to make the next one.
struct Slot {
    channel: Unpoisoned<Option<Channel>>,
    making: Mutex<Making>,
}

struct Making {
    /// The number of the member to try first.
    first: usize,
    pause: ConnectPause,
    /// Whether the URL has led to the cluster.
    was_right: bool,
}

impl Wire {
    pub(super) fn new(connector: EtcdConnector, host: Arc<dyn Host>) -> Self {
        let making = Making { first: 0, pause: ConnectPause::default(), was_right: false };
        let slot = Slot { channel: Unpoisoned::default(), making: Mutex::new(making) };
        Self { host, connector, slot: Arc::new(slot) }
    }

    /// The connection. Makes a new one if there is none that works.
    pub(super) async fn channel(&self) -> Result<Channel, Error> {
        if let Some(channel) = self.slot.open() {
            return Ok(channel);
        }
        // The host connects, not the caller. The caller might not poll for a while, and all
        // renewals would wait.
        let (tell, told) = oneshot::channel();
        let slot = Arc::clone(&self.slot);
        let (host, connector) = (Arc::clone(&self.host), self.connector.clone());
        let connecting = async move {
            let _gone = tell.send(slot.connect(&host, &connector).await);
        };
        Home::Host.spawn(&self.host, Box::pin(connecting));
        told.await.unwrap_or_else(|_| Err(not_connected().at(&self.connector.label())))
    }

    /// Makes one call, and reads its answer.
    async fn call<T>(
        &self,
        path: &'static str,
        message: &Message,
        effect: Effect,
        read: impl Fn(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Fault> {
        let mut failure = match self.try_call(path, message).await? {
            Ok(answer) => return self.read(&answer, effect, read),
            Err(failure) => failure,
        };
        if failure.is_undone() {
            // The connection or the login was old.
            failure = match self.try_call(path, message).await? {
                Ok(answer) => return self.read(&answer, effect, read),
                Err(failure) => failure,
            };
        }
        if failure.is_lease_gone() {
            return Err(Fault::NoLease);
        }
        Err(explain(&failure, effect).at(&self.connector.label()).into())
    }

    fn read<T>(
        &self,
        answer: &Bytes,
        effect: Effect,
        read: impl Fn(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Fault> {
        let malformed = |it: Malformed| explain(&it.into(), effect).at(&self.connector.label());
        Ok(read(answer).map_err(malformed)?)
    }

    async fn try_call(
        &self,
        path: &'static str,
        message: &Message,
    ) -> Result<Result<Bytes, Failure>, Error> {
        let channel = self.channel().await?;
        let answered = self.within_limit(channel.call(path, message, CALL_LIMIT)).await;
        if answered.as_ref().is_err_and(Failure::ends_connection) {
            channel.give_up();
        }
        Ok(answered)
    }

    async fn within_limit(
        &self,
        answer: impl Future<Output = Result<Bytes, Failure>>,
    ) -> Result<Bytes, Failure> {
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.host.sleep_until(self.host.now() + CALL_LIMIT) => {
                Err(Failure::Silent(CALL_LIMIT))
            }
        }
    }

    /// Carries out a transaction.
    pub(super) async fn txn(&self, txn: &Txn) -> Result<TxnDone, Fault> {
        let effect = if txn.only_reads() { Effect::Nothing } else { Effect::Changes };
        self.call("/etcdserverpb.KV/Txn", &txn.message(), effect, TxnDone::read).await
    }

    /// Reads keys.
    pub(super) async fn range(&self, message: &Message) -> Result<Ranged, Error> {
        let path = "/etcdserverpb.KV/Range";
        plain(self.call(path, message, Effect::Nothing, Ranged::read).await)
    }

    /// Makes a lease of etcd. Returns for how many seconds.
    pub(super) async fn grant(&self, id: i64, seconds: i64) -> Result<i64, Error> {
        let message = lease_grant(id, seconds);
        let path = "/etcdserverpb.Lease/LeaseGrant";
        Ok(plain(self.call(path, &message, Effect::Nothing, LeaseAnswer::read).await)?.ttl)
    }

    /// Restarts the time of a lease of etcd.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<LeaseAnswer, Error> {
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        plain(self.call(path, &lease(id), Effect::Nothing, LeaseAnswer::read).await)
    }

    /// How many seconds a lease of etcd still lasts, rounded up. `None` if it has ended.
    pub(super) async fn seconds_left(&self, id: i64) -> Result<Option<i64>, Error> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        match self.call(path, &lease(id), Effect::Nothing, LeaseAnswer::read).await {
            Ok(answer) if answer.ttl < 0 => Ok(None),
            // The server rounds down.
            Ok(answer) => Ok(Some(answer.ttl.saturating_add(1))),
            Err(Fault::NoLease) => Ok(None),
            Err(Fault::Error(error)) => Err(error),
        }
    }

    /// Ends a lease of etcd, and the keys that it has.
    pub(super) async fn revoke(&self, id: i64) -> Result<(), Error> {
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        match self.call(path, &lease(id), Effect::Changes, |_| Ok(())).await {
            Ok(()) | Err(Fault::NoLease) => Ok(()),
            Err(Fault::Error(error)) => Err(error),
        }
    }
}

impl Slot {
    /// The connection, if it works.
    fn open(&self) -> Option<Channel> {
        self.channel.lock().as_ref().filter(|channel| channel.is_open()).cloned()
    }

    /// Makes a connection, if nobody has made one meanwhile.
    async fn connect(
        &self,
        host: &Arc<dyn Host>,
        connector: &EtcdConnector,
    ) -> Result<Channel, Error> {
        let mut making = self.making.lock().await;
        if let Some(channel) = self.open() {
            return Ok(channel);
        }
        making.pause.check(host.now())?;
        if self.channel.lock().take().is_some() {
            // The same member is tried last now, because it may be cut off, and still accept
            // connections.
            making.first += 1;
        }
        match connector.connect(host, making.first).await {
            Ok((channel, number)) => {
                (making.first, making.was_right) = (number, true);
                making.pause = ConnectPause::default();
                *self.channel.lock() = Some(channel.clone());
                Ok(channel)
            }
            Err(error) => {
                let error = unless_right(making.was_right, error);
                making.pause.failed(&**host, &error);
                Err(error)
            }
        }
    }
}

fn not_connected() -> Error {
    let message = "the task that connects has ended; no request was sent; try again";
    Error::new(ErrorKind::Unavailable, message)
}

/// The result of a call that writes no key with a lease.
fn plain<T>(answer: Result<T, Fault>) -> Result<T, Error> {
    answer.map_err(|fault| match fault {
        Fault::Error(error) => error,
        Fault::NoLease => explain(&Failure::Malformed, Effect::Nothing),
    })
}
