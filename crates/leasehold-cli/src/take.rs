//! Takes a lock for a person: with messages during the wait, and open to interruption.

use std::pin::pin;
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::store::Quarantine;
use leasehold::{
    Client, Election, Error, ErrorKind, MultiGuard, MultiLock, Mutex, Once, Run, RwLock, Semaphore,
    Snapshot,
};
use rustix::process::Signal;

use crate::duration::human;
use crate::exit::{DRAIN, Exit, Failure, only};
use crate::output::escape;
use crate::patience::Patience;
use crate::settings::Settings;
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

impl Wait {
    /// The bound, if there is one.
    const fn limit(self) -> Option<Duration> {
        match self {
            Self::AtMost(limit) => Some(limit),
            Self::Never | Self::ForEver => None,
        }
    }
}

/// The thing to take: a whole lock, a share of it, permits, or several locks.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// The whole lock.
    Alone(Mutex),
    /// The lock, shared with others.
    Shared(RwLock),
    /// Permits of a semaphore.
    Permits(Semaphore),
    /// A term of an election. A campaign waits for ever.
    Term(Election),
    /// The right to work that is done once per period. Never waits.
    Once(Once),
    /// Several locks, all of them or none.
    Together(MultiLock),
}

impl Wanted {
    async fn take(&self, wait: Wait) -> Result<Option<MultiGuard>, Error> {
        let guard = match (self, wait) {
            (Self::Together(locks), Wait::Never) => return locks.try_lock().await,
            (Self::Together(locks), Wait::AtMost(limit)) => {
                return locks.lock_timeout(limit).await.map(Some);
            }
            (Self::Together(locks), Wait::ForEver) => return locks.lock().await.map(Some),
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
        };
        Ok(guard?.map(MultiGuard::from))
    }
}

/// A request for one lock, or for several together.
pub(crate) struct Asked<'a> {
    /// The store, for messages that name a command line.
    pub(crate) settings: &'a Settings,
    /// The names of the locks.
    pub(crate) names: &'a [String],
    /// How long to wait for the lock.
    pub(crate) wait: Wait,
    /// The remaining retries while the store cannot be reached.
    pub(crate) patience: Patience,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The locks are ours.
    Granted(MultiGuard),
    /// Another client holds a lock; the failure says which.
    Busy(Failure),
    /// We were told to stop. We hold nothing, and have left the line or are leaving it.
    Interrupted(Signal),
}

/// Takes what is wanted.
pub(crate) async fn take(
    client: &Client,
    mut asked: Asked<'_>,
    wanted: &Wanted,
    signals: &mut Signals,
    talk: &Talk,
) -> Result<Taken, Failure> {
    let names = asked.names;
    let began = SystemHost.now();
    loop {
        let asked_at = SystemHost.now();
        let answer = match ask(client, &asked, wanted, signals, talk).await {
            Ok(answer) => answer,
            Err(signal) => return Ok(Taken::Interrupted(signal)),
        };
        let error = match answer {
            Ok(Some(guard)) => {
                let waited_ms = view::millis(SystemHost.now().since(began));
                for guard in guard.guards() {
                    let (name, fence) = (guard.name(), guard.fencing_token());
                    let fence = fence.map(tracing::field::display);
                    tracing::info!(name, waited_ms, fence, "acquired");
                }
                return Ok(Taken::Granted(guard));
            }
            Ok(None) if matches!(wanted, Wanted::Once(_)) => {
                return Ok(Taken::Busy(skipped(client, asked.settings, &names[0]).await));
            }
            Ok(None) => return Ok(Taken::Busy(busy(client, &asked, None).await)),
            Err(error) if error.kind() == ErrorKind::WaitElapsed => {
                return Ok(Taken::Busy(busy(client, &asked, error.name()).await));
            }
            Err(error) => error,
        };
        if (error.kind(), asked.wait) == (ErrorKind::Unavailable, Wait::Never)
            && let Some(name) = error.name().or_else(|| only(names))
            && let Some(quarantined) = quarantined(client, name).await
        {
            return Err(quarantined);
        }
        let again = tokio::select! {
            biased;
            signal = signals.interrupt() => return Ok(Taken::Interrupted(signal)),
            again = asked.patience.try_again(&error, only(names), talk) => again,
        };
        if !again {
            let waited = SystemHost.now().since(asked_at);
            let told = gave_up(asked.wait, waited, &error);
            let failure = Failure::from(error).about_any(only(names));
            return Err(Failure { message: told + &failure.message, ..failure });
        }
    }
}

/// Asks once, with messages meanwhile. `Err` means that we were told to stop.
async fn ask(
    client: &Client,
    asked: &Asked<'_>,
    wanted: &Wanted,
    signals: &mut Signals,
    talk: &Talk,
) -> Result<Result<Option<MultiGuard>, Error>, Signal> {
    let Asked { settings, names, wait, .. } = *asked;
    let mut message = WaitMessage::new(client, names, wait.limit(), settings, talk);
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

/// How long reading the holder may take. A quorum waits for a silent node for a second.
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
        "nothing was acquired; try again later, or use -w 2m to wait"
    }
}

/// The words before the error of a store that was away when the time to wait was over.
fn gave_up(wait: Wait, waited: Duration, error: &Error) -> String {
    match (wait, error.kind()) {
        (Wait::AtMost(limit), kind) if waited >= limit => match kind {
            ErrorKind::Unavailable => {
                format!("gave up after {}, and nothing was acquired: ", human(limit))
            }
            // The error says what became of a request without an answer.
            ErrorKind::Unknown => format!("gave up after {}: ", human(limit)),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

/// How many wait, for a caller that would have to wait behind them.
fn in_line(waiting: u32) -> String {
    match waiting {
        0 => String::new(),
        1 => "1 waits in line; ".to_owned(),
        _ => format!("{waiting} wait in line; "),
    }
}

/// The lock in the way, if that is known, and its state. `said` is the lock that the library named.
async fn in_the_way<'a>(
    client: &Client,
    names: &'a [String],
    said: Option<&'a str>,
) -> (Option<&'a str>, Option<Snapshot>) {
    if let Some(name) = said.or_else(|| only(names)) {
        return (Some(name), look(client, name).await);
    }
    for name in names {
        match look(client, name).await {
            Some(seen) if view::state(&seen) == "free" => {}
            Some(seen) => return (Some(name), Some(seen)),
            None => break,
        }
    }
    (None, None)
}

/// The failure that names the holder, with advice.
async fn busy(client: &Client, asked: &Asked<'_>, said: Option<&str>) -> Failure {
    let (name, seen) = in_the_way(client, asked.names, said).await;
    let holder = seen.as_ref().and_then(view::first_holder);
    let is_endless = seen.as_ref().is_some_and(view::is_endless);
    let kept = seen.as_ref().and_then(view::kept);
    let quarantine = seen.as_ref().and_then(view::in_the_way).copied();
    let line = in_line(seen.as_ref().map_or(0, |seen| seen.waiting));
    let card = name.zip(seen);
    let card = card.and_then(|(name, seen)| view::card(name, &seen, SystemHost.wall(), None));
    let card = card.unwrap_or_else(|| match name {
        Some(name) => format!("`{}` was taken", escape(name)),
        None => "one of the locks was taken".to_owned(),
    });
    let word = asked.settings.words(name.unwrap_or("NAME"));
    let message = match asked.wait {
        Wait::AtMost(limit) => {
            let advice = match (quarantine, kept) {
                (Some(quarantine), _) => after_quarantine(&quarantine).to_owned(),
                (None, Some(_)) => format!("nothing was acquired; {}", view::way_out(&word)),
                (None, None) => format!(
                    "nothing was acquired; `leasehold inspect {word}` shows who holds it now"
                ),
            };
            format!("gave up after {}: {card}\n{advice}", human(limit))
        }
        // One line only, since a cron job prints this every minute.
        Wait::Never | Wait::ForEver => {
            let first = card.lines().next().unwrap_or_default();
            let advice = if is_endless {
                "its lease has no end: it is from another client library, or the key is not a \
                 lock; nothing was acquired; check what the key holds before you wait"
            } else if let Some(quarantine) = &quarantine {
                after_quarantine(quarantine)
            } else if let Some(kept) = kept {
                &format!("{kept}; nothing was acquired; {}", view::way_out(&word))
            } else {
                &format!("{line}nothing was acquired; use -w 1m to wait")
            };
            format!("{first}; {advice}")
        }
    };
    // A caller that did not wait got its answer; a caller that waited and got no lock has failed.
    let (kind, level) = match asked.wait {
        Wait::AtMost(_) => (ErrorKind::WaitElapsed.as_str(), Level::Error),
        Wait::Never | Wait::ForEver => ("taken", Level::Info),
    };
    Failure { holder, level, ..Failure::new(Exit::TAKEN, kind, message).about_any(name) }
}

/// The failure if another process does, or has done, the work that is due once per period. Says
/// when it may be done again.
async fn skipped(client: &Client, settings: &Settings, name: &str) -> Failure {
    let seen = look(client, name).await;
    let done = |seen| view::done(name, &settings.words(name), seen, SystemHost.wall());
    let message = seen.as_ref().and_then(done);
    let message = message.unwrap_or_else(|| {
        let card = seen.as_ref().and_then(|seen| view::card(name, seen, SystemHost.wall(), None));
        let card = card.unwrap_or_else(|| format!("`{}` was taken", escape(name)));
        format!("{}; nothing was run", card.lines().next().unwrap_or_default())
    });
    let holder = seen.as_ref().and_then(view::first_holder);
    let level = Level::Info;
    Failure { holder, level, ..Failure::new(Exit::TAKEN, "taken", message).about(name) }
}

#[cfg(test)]
mod tests {
    use leasehold::MultiRelease;
    use tokio::runtime::Builder;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Each kind of lock has three calls, and `run` chooses one of them by `-n` and `-w`.
    #[test]
    fn each_kind_of_lock_is_tried_or_waited_for_as_the_flags_say() {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of one thread").block_on(async {
            let client = Client::builder("memory:take").connect().await.expect("opened");
            let all = [
                Wanted::Alone(client.mutex("x")),
                Wanted::Shared(client.rwlock("x")),
                Wanted::Permits(client.semaphore("permits", 1)),
                Wanted::Together(client.lock_all(["y", "x"])),
            ];
            let lock = client.mutex("x").lock().await.expect("free");
            let permit = client.semaphore("permits", 1).acquire().await.expect("free");
            for wanted in &all {
                let tried = wanted.take(Wait::Never).await.expect("answered");
                assert!(tried.is_none(), "{wanted:?}");
                let wait = Wait::AtMost(Duration::from_millis(1));
                let elapsed = wanted.take(wait).await.expect_err("it is taken");
                assert_eq!(elapsed.kind(), ErrorKind::WaitElapsed, "{wanted:?}");
            }
            let released = [lock.release().await, permit.release().await];
            assert!(released.iter().all(Result::is_ok), "{released:?}");
            for wanted in &all {
                for wait in [Wait::Never, Wait::AtMost(HOUR), Wait::ForEver] {
                    let taken = wanted.take(wait).await.expect("answered");
                    let guard = taken.unwrap_or_else(|| panic!("{wanted:?} {wait:?}: it is free"));
                    let released = guard.release().await;
                    assert!(matches!(released, Ok(MultiRelease::Released)), "{released:?}");
                }
            }
        });
    }

    #[test]
    fn a_wait_that_ends_in_an_outage_says_that_it_gave_up() {
        let limit = Wait::AtMost(Duration::from_secs(4));
        for (wait, waited_s, kind, said) in [
            (limit, 4, ErrorKind::Unavailable, "gave up after 4.0s, and nothing was acquired: "),
            (limit, 4, ErrorKind::Unknown, "gave up after 4.0s: "),
            (limit, 4, ErrorKind::Config, ""),
            (limit, 3, ErrorKind::Unavailable, ""),
            (Wait::ForEver, 4, ErrorKind::Unavailable, ""),
            (Wait::Never, 4, ErrorKind::Unavailable, ""),
        ] {
            let told = gave_up(wait, Duration::from_secs(waited_s), &Error::new(kind, "why"));
            assert_eq!(told, said, "{wait:?} {waited_s} {kind}");
        }
    }
}
