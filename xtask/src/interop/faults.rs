//! A holder is killed, or stands still for longer than its lock lasts. Then the other side must get
//! the lock, but not before the lease has ended.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::contender::{Contender, Nanos, Turn, Turns};
use super::judge::overlaps;
use crate::rivals::now_ns;

/// An accident of a process that has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`.
    Killed,
    /// The process stands still until the other side has had the lock. Then it goes on.
    Stopped,
}

/// When the other side begins to contend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    AtOnce,
    /// When the victim stands still with the lock. Beside the other side, it may get no turns.
    Later,
}

/// The key of the lock, as the server has it.
pub(super) trait Key {
    /// How long the lock lasts, unless somebody removes it.
    fn lasts(&self) -> Result<Duration, String>;

    /// The value of the lock; the same for as long as it has the same owner.
    fn value(&self) -> Result<String, String>;
}

/// The ttl of all locks. Some libraries know whole seconds only.
pub(super) const TTL: Duration = Duration::from_secs(3);

/// How long each turn lasts, so that a signal meets one.
pub(super) const HOLD: Duration = Duration::from_millis(400);

/// How long each step may take. A side that polls rarely misses some openings.
const WITHIN: Duration = Duration::from_secs(60);

/// How long a line of a process may take until we read it.
const HEARD_WITHIN: Duration = Duration::from_millis(100);

/// How much earlier than expected a lock may end. Both clocks are of this machine.
const SLACK: Duration = Duration::from_millis(50);

const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// Injects a fault while `victim` has the lock. The other side has to get the lock afterwards, but
/// not while the lock of the victim lasts, since only its holder may remove it. Returns whether all
/// of that was seen. On a slow machine it may not be.
pub(super) fn endure(
    fault: Fault,
    victim: &mut Contender,
    (other, begins): (&mut Contender, Begins),
    key: &dyn Key,
) -> Result<bool, String> {
    victim.begin()?;
    if begins == Begins::AtOnce {
        other.begin()?;
    }
    let lost = stop_within_a_turn(victim)?;
    if begins == Begins::Later {
        other.begin()?;
    }
    let lasts = key.lasts()?.saturating_sub(SLACK);
    let ends_at = now_ns() + u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
    if fault == Fault::Killed {
        victim.signal(Signal::KILL)?;
    }
    let later = |turns: &Turns| turns.after(lost.from);
    let next = wait_for("the other side does not get the lock", other, later)?;
    let ended = victim.read().is_err();
    if ended == (fault == Fault::Stopped) {
        return Err("the holder ended by itself".to_owned());
    }
    if victim.turns().at(lost.from).is_none_or(|turn| turn.to.is_some()) {
        return Ok(false);
    }
    if next.from < ends_at {
        return Err("the lock of a holder was removed while it lasted".to_owned());
    }
    if fault == Fault::Stopped && !goes_on(victim, other, lost.from, next, key)? {
        return Ok(false);
    }
    Contender::end(&mut [victim, other]);
    let late = victim.turns().0.iter().filter(|turn| turn.from > lost.from).copied().collect();
    match overlaps(&[&Turns(late), other.turns()]) {
        0 => Ok(true),
        times => Err(format!("after a fault, two had the lock, {times} times")),
    }
}

/// Continues a process that stood still. It may find that its lock is gone, and end. It must not
/// release the lock of the other side. Returns whether the turn of the other side was long enough
/// to judge that.
fn goes_on(
    victim: &mut Contender,
    other: &mut Contender,
    lost: Nanos,
    next: Turn,
    key: &dyn Key,
) -> Result<bool, String> {
    let before = key.value()?;
    victim.signal(Signal::CONT)?;
    let until = Instant::now() + WITHIN;
    let is_silent = |victim: &mut Contender| {
        let ended = victim.read().is_err();
        !ended && victim.turns().at(lost).is_some_and(|turn| turn.to.is_none())
    };
    while is_silent(victim) {
        if Instant::now() > until {
            return Err("a stopped holder does not continue".to_owned());
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    std::thread::sleep(HEARD_WITHIN);
    let after = key.value()?;
    std::thread::sleep(HEARD_WITHIN);
    other.read()?;
    let lasted = other.turns().at(next.from).is_some_and(|turn| turn.to.is_none());
    if lasted && before != after {
        return Err("a holder that stood still removed the lock of the other side".to_owned());
    }
    Ok(lasted)
}

/// Makes a process stand still while it has the lock, and returns the turn.
fn stop_within_a_turn(victim: &mut Contender) -> Result<Turn, String> {
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        let open = wait_for("a holder does not get the lock", victim, Turns::open)?;
        victim.signal(Signal::STOP)?;
        // If the signal came after the turn, we read the end of the turn now.
        std::thread::sleep(HEARD_WITHIN);
        victim.read()?;
        if victim.turns().open() == Some(open) {
            return Ok(open);
        }
        victim.signal(Signal::CONT)?;
    }
    Err("no turn was long enough to be met by a signal".to_owned())
}

/// Reads until there is a turn that `find` accepts.
fn wait_for(
    what: &str,
    contender: &mut Contender,
    look: impl Fn(&Turns) -> Option<Turn>,
) -> Result<Turn, String> {
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        contender.read()?;
        if let Some(found) = look(contender.turns()) {
            return Ok(found);
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    Err(format!("{what} within {} s", WITHIN.as_secs()))
}
