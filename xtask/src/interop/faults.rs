//! What the other side sees when a holder is killed, or stands still for longer than its lock.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::contender::{Contender, Told, Turn};
use super::judge::overlaps;

/// What happens to a process while it has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`.
    Killed,
    /// It stands still until the other side has had the lock, then it goes on.
    Stopped,
}

/// The ttl of all locks. Some libraries know whole seconds only.
pub(super) const TTL: Duration = Duration::from_secs(3);

/// How long each turn lasts, so that a signal meets one.
pub(super) const HOLD: Duration = Duration::from_millis(400);

/// How long each step may take. A side that polls rarely misses some openings.
const WITHIN: Duration = Duration::from_secs(60);

/// How long both sides are watched after the one that stood still goes on.
const AFTER: Duration = Duration::from_secs(1);

const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// Lets a fault meet a holder. The other side has to get the lock afterwards, and not while the
/// lock of the holder lasts: nobody but its holder may remove it.
pub(super) fn endure(
    fault: Fault,
    victim: &mut Contender,
    other: &mut Contender,
) -> Result<(), String> {
    let lost = stop_within_a_turn(victim)?;
    if fault == Fault::Killed {
        victim.signal(Signal::KILL)?;
    }
    let later = |told: &Told| told.0.iter().find(|turn| turn.from > lost.from).copied();
    let next = wait_for("the other side does not get the lock", || other.told().map(later))?;
    if Duration::from_nanos(next.from.saturating_sub(lost.from)) < TTL / 3 {
        return Err("the lock of a holder was removed while it lasted".to_owned());
    }
    if fault == Fault::Killed {
        return Ok(());
    }
    // It may find that its lock is gone, and end. It may not release the lock of the other side.
    victim.signal(Signal::CONT)?;
    let (mut late, until) = (Told::default(), Instant::now() + AFTER);
    while Instant::now() < until {
        if let Ok(told) = victim.told() {
            late.0 = told.0.iter().filter(|turn| turn.from > lost.from).copied().collect();
        }
        other.told()?;
        std::thread::sleep(LOOKS_EVERY);
    }
    match overlaps(&[&late, other.told()?]) {
        0 => Ok(()),
        times => Err(format!("after a holder stood still, two had the lock, {times} times")),
    }
}

/// Makes a process stand still while it has the lock, and returns the turn.
fn stop_within_a_turn(victim: &mut Contender) -> Result<Turn, String> {
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        let open = wait_for("it does not get the lock", || victim.told().map(Told::open))?;
        victim.signal(Signal::STOP)?;
        // If the signal came after the turn, the end of the turn is heard now.
        std::thread::sleep(LOOKS_EVERY * 4);
        if victim.told()?.open() == Some(open) {
            return Ok(open);
        }
        victim.signal(Signal::CONT)?;
    }
    Err("no turn was long enough to be met by a signal".to_owned())
}

/// Looks until there is something.
fn wait_for<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        if let Some(found) = look()? {
            return Ok(found);
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    Err(format!("{what} within {} s", WITHIN.as_secs()))
}
