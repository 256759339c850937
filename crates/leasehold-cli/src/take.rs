//! Takes a lock for a person: with messages during the wait, and open to interruption.

use std::pin::pin;
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::store::Quarantine;
use leasehold::{
    Client, Election, Error, ErrorKind, Guard, Mutex, Once, Run, RwLock, Semaphore, Snapshot,
};
use rustix::process::Signal;

use crate::duration::human;
use crate::exit::{Exit, Failure};
use crate::patience::Patience;
use crate::signals::Signals;
use crate::stderr;
use crate::talk::{Level, Talk};
use crate::view;
use crate::wait_message::WaitMessage;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    Never,
    /// For at most this long.
    AtMost(Duration),
    /// Until the lock is ours.
    ForEver,
}

/// The part of a lock that is taken: the whole, a share, or permits.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// The lock, alone.
    Alone(Mutex),
    /// The lock, shared with others.
    Shared(RwLock),
    /// Permits of a semaphore.
    Permits(Semaphore),
    /// A term of an election. A campaign waits for ever.
    Term(Election),
    /// The right to work that is done once per period. Never waits.
    Once(Once),
}

impl Wanted {
    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        match (self, wait) {
            (Self::Alone(mutex), Wait::Never) => mutex.try_lock().await,
            (Self::Alone(mutex), Wait::AtMost(limit)) => mutex.lock_timeout(limit).await.map(Some),
            (Self::Alone(mutex), Wait::ForEver) => mutex.lock().await.map(Some),
            (Self::Shared(lock), Wait::Never) => lock.try_read().await,
            (Self::Shared(lock), Wait::AtMost(limit)) => lock.read_timeout(limit).await.map(Some),
            (Self::Shared(lock), Wait::ForEver) => lock.read().await.map(Some),
            (Self::Permits(semaphore), Wait::Never) => semaphore.try_acquire().await,
            (Self::Permits(semaphore), Wait::AtMost(limit)) => {
                semaphore.acquire_timeout(limit).await.map(Some)
            }
            (Self::Permits(semaphore), Wait::ForEver) => semaphore.acquire().await.map(Some),
            (Self::Term(election), _) => election.campaign().await.map(|it| Some(it.into_guard())),
            (Self::Once(once), _) => Ok(once.start().await?.map(Run::into_guard)),
        }
    }
}

/// A request for a lock.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// The name of the lock.
    pub(crate) name: &'a str,
    /// How long to wait for the lock.
    pub(crate) wait: Wait,
    /// The remaining retries while the store cannot be reached.
    pub(crate) patience: Patience,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The lock is ours.
    Granted(Guard),
    /// Another client holds the lock; the failure says which.
    Busy(Failure),
    /// We were told to stop. We hold nothing, and have left the line or are leaving it.
    Interrupted(Signal),
}

/// How long leaving the line, or releasing, may delay our end.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);

/// Takes what is wanted.
pub(crate) async fn take(
    client: &Client,
    asked: Asked<'_>,
    wanted: &Wanted,
    signals: &mut Signals,
    talk: &Talk,
) -> Result<Taken, Failure> {
    let Asked { name, wait, mut patience } = asked;
    let began = SystemHost.now();
    loop {
        let answer = match ask(client, (name, wait), wanted, signals, talk).await {
            Ok(answer) => answer,
            Err(signal) => return Ok(Taken::Interrupted(signal)),
        };
        let error = match answer {
            Ok(Some(guard)) => {
                let waited_ms = view::millis(SystemHost.now().since(began));
                let fence = guard.fencing_token().map(tracing::field::display);
                tracing::info!(name, waited_ms, fence, "acquired");
                return Ok(Taken::Granted(guard));
            }
            Ok(None) if matches!(wanted, Wanted::Once(_)) => {
                return Ok(Taken::Busy(skipped(client, name).await));
            }
            Ok(None) => return Ok(Taken::Busy(busy(client, name, wait).await)),
            Err(error) if error.kind() == ErrorKind::WaitElapsed => {
                return Ok(Taken::Busy(busy(client, name, wait).await));
            }
            Err(error) => error,
        };
        if (error.kind(), wait) == (ErrorKind::Unavailable, Wait::Never)
            && let Some(quarantined) = quarantined(client, name).await
        {
            return Err(quarantined);
        }
        let again = tokio::select! {
            biased;
            signal = signals.interrupt() => return Ok(Taken::Interrupted(signal)),
            again = patience.try_again(&error, name, talk) => again,
        };
        if !again {
            return Err(Failure::from(error).about(name));
        }
    }
}

/// Asks once, with messages meanwhile. `Err` means that we were told to stop.
async fn ask(
    client: &Client,
    (name, wait): (&str, Wait),
    wanted: &Wanted,
    signals: &mut Signals,
    talk: &Talk,
) -> Result<Result<Option<Guard>, Error>, Signal> {
    let limit = match wait {
        Wait::AtMost(limit) => Some(limit),
        Wait::Never | Wait::ForEver => None,
    };
    let mut message = WaitMessage::new(client, name, limit, talk);
    let answer = {
        let mut asking = pin!(wanted.take(wait));
        let mut talking = pin!(message.run());
        tokio::select! {
            biased;
            signal = signals.interrupt() => Err(signal),
            answer = &mut asking => Ok(answer),
            never = &mut talking, if wait != Wait::Never => match never {},
        }
    };
    if message.clear() {
        // Otherwise the command could write behind the status line, and we would clear its text.
        stderr::catch_up(DRAIN).await;
    }
    answer
}

/// How long a look at the holder may take. A quorum waits for a silent node for a second.
const LOOK: Duration = Duration::from_millis(1_500);

/// The state of the lock, if the store answers in time.
async fn look(client: &Client, name: &str) -> Option<Snapshot> {
    tokio::time::timeout(LOOK, client.inspect(name)).await.ok()?.ok()
}

/// The failure for a quarantined store, if it is quarantined, with advice.
async fn quarantined(client: &Client, name: &str) -> Option<Failure> {
    let seen = look(client, name).await?;
    let quarantine = view::in_the_way(&seen)?;
    let card = view::card(name, &seen, SystemHost.wall(), None)?;
    let message = format!("{card}; {}", after_quarantine(quarantine));
    let kind = ErrorKind::Unavailable;
    Some(Failure::new(Exit::Code(kind.exit_code()), kind.as_str(), message).about(name))
}

fn after_quarantine(quarantine: &Quarantine) -> &'static str {
    if view::is_too_long(quarantine) {
        "nothing was acquired"
    } else {
        "nothing was acquired; use -w 2m to wait"
    }
}

/// The failure that names the holder, with advice.
async fn busy(client: &Client, name: &str, wait: Wait) -> Failure {
    let seen = look(client, name).await;
    let holder = seen.as_ref().and_then(view::first_holder);
    let is_endless = seen.as_ref().is_some_and(view::is_endless);
    let quarantine = seen.as_ref().and_then(view::in_the_way).copied();
    let card = seen.and_then(|seen| view::card(name, &seen, SystemHost.wall(), None));
    let card = card.unwrap_or_else(|| format!("`{}` was taken", crate::output::escape(name)));
    let word = crate::output::shell_word(name);
    let message = match wait {
        Wait::AtMost(limit) => {
            let advice = match quarantine {
                Some(quarantine) => after_quarantine(&quarantine).to_owned(),
                None => format!(
                    "nothing was acquired; `leasehold inspect {word}` shows who holds it now"
                ),
            };
            format!("gave up after {}: {card}\n{advice}", human(limit))
        }
        // One line: a cron job prints this every minute.
        Wait::Never | Wait::ForEver => {
            let first = card.lines().next().unwrap_or_default();
            let advice = if is_endless {
                "its lease has no end: it is from another client library, or the key is not a \
                 lock; nothing was acquired; check what the key holds before you wait"
            } else if let Some(quarantine) = &quarantine {
                after_quarantine(quarantine)
            } else {
                "nothing was acquired; use -w 1m to wait"
            };
            format!("{first}; {advice}")
        }
    };
    // A caller that did not wait got its answer; a caller that waited in vain has failed.
    let (kind, level) = match wait {
        Wait::AtMost(_) => (ErrorKind::WaitElapsed.as_str(), Level::Error),
        Wait::Never | Wait::ForEver => ("taken", Level::Info),
    };
    Failure { holder, level, ..Failure::new(Exit::TAKEN, kind, message).about(name) }
}

/// The failure for work that is done once per period, and that another process does or has done. It
/// says until when.
async fn skipped(client: &Client, name: &str) -> Failure {
    let seen = look(client, name).await;
    let message = seen.as_ref().and_then(|seen| view::done(name, seen, SystemHost.wall()));
    let message = message.unwrap_or_else(|| {
        let card = seen.as_ref().and_then(|seen| view::card(name, seen, SystemHost.wall(), None));
        let card = card.unwrap_or_else(|| format!("`{}` was taken", crate::output::escape(name)));
        format!("{}; nothing was run", card.lines().next().unwrap_or_default())
    });
    let holder = seen.as_ref().and_then(view::first_holder);
    let level = Level::Info;
    Failure { holder, level, ..Failure::new(Exit::TAKEN, "taken", message).about(name) }
}
