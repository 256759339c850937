//! Checks of a server's clock: it runs at our rate, and keys end on time.

use std::time::Duration;

use super::gap::unanswered;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::span;
use crate::store::redis::examine::{Facts, Reading};

const CLOCK: Subject = Subject {
    id: "clock",
    why: "The server's clock ends the leases. If it jumps ahead, a lock ends early; if it stands \
          still, no lock ends.",
};

const OFFSET: Subject = Subject {
    id: "clock-offset",
    why: "Fencing tokens begin at the server's time, so a server that replaces another one must \
          not be behind it.",
};

const EXPIRY: Subject =
    Subject { id: "expiry", why: "A lock whose holder died is free only when its key expires." };

/// How far a clock may stray in addition to 1 % of the time that passed.
const TOLERANCE: Duration = Duration::from_millis(2);

/// The largest offset without a warning.
const OFFSET_MAX: Duration = Duration::from_secs(1);

const TIME_SERVICE: &str = "run a time service on the machine of the server that slews the clock: \
                            `chronyd` without `makestep`, or `ntpd -x`";

/// Whether the clock moves, and as fast as ours.
pub(super) fn rate(facts: &Facts) -> Check {
    let readings = match &facts.clock {
        Ok(readings) => readings,
        Err(gap) => return unanswered(CLOCK, gap, facts.user(), "TIME"),
    };
    let (Some(first), Some(last)) = (readings.first(), readings.last()) else {
        return CLOCK.unknown("the clock was not read", "run the command again");
    };
    let before = |one: &Reading| one.said.as_unix_micros();
    let least = last.sent.since(first.heard);
    let most = last.heard.since(first.sent);
    let passed = format!("{} passed here", span(least));
    let moved = Duration::from_micros(before(last).saturating_sub(before(first)));
    if before(last) < before(first) {
        return CLOCK.fail(
            format!("the server's clock went back while {passed}"),
            format!("stop the program that sets this clock; {TIME_SERVICE}"),
        );
    }
    let evidence = format!("the server's clock moved by {} while {passed}", span(moved));
    // A server may add the steady clock to a time of day that stands still.
    if moved + TOLERANCE < least / 10 {
        return CLOCK.fail(
            format!("the time of day stands still: {evidence}"),
            "restart the server; if it stands still again, change the clock source of its machine",
        );
    }
    let is_slow = moved + moved / 100 + TOLERANCE < least;
    let is_fast = moved > most + most / 100 + TOLERANCE;
    if is_slow || is_fast {
        return CLOCK.warn(evidence, TIME_SERVICE);
    }
    CLOCK.ok(evidence)
}

/// How far the server's time of day is ahead of ours, in µs, and how exactly we know it.
pub(super) fn offset_us(facts: &Facts) -> Option<(i64, u64)> {
    let readings = facts.clock.as_ref().ok()?;
    let best = readings.iter().min_by_key(|reading| reading.heard.since(reading.sent))?;
    let trip = u64::try_from(best.heard.since(best.sent).as_micros()).ok()?;
    let said = i64::try_from(best.said.as_unix_micros()).ok()?;
    let ours = i64::try_from(best.wall.as_unix_micros()).ok()?;
    Some((said.saturating_sub(ours), trip))
}

pub(super) fn offset(facts: &Facts) -> Option<Check> {
    let (offset, trip) = offset_us(facts)?;
    let size = Duration::from_micros(offset.unsigned_abs());
    let side = if offset < 0 { "behind" } else { "ahead of" };
    let evidence = format!(
        "the server's time of day is {} {side} that of this machine, give or take {}",
        span(size),
        span(Duration::from_micros(trip))
    );
    let is_far = size > OFFSET_MAX + Duration::from_micros(trip);
    Some(if is_far { OFFSET.warn(evidence, TIME_SERVICE) } else { OFFSET.ok(evidence) })
}

pub(super) fn expiry(facts: &Facts) -> Check {
    let expiry = match &facts.expiry {
        Ok(expiry) => expiry,
        Err(gap) => return unanswered(EXPIRY, gap, facts.user(), "SET"),
    };
    if expiry.stayed {
        return EXPIRY.fail(
            "a key with a ttl of 200 ms was still there after its end",
            "check the clock of the server; use Redis or Valkey instead of an emulator",
        );
    }
    match expiry.was_there {
        Some(false) => EXPIRY.fail(
            "a key with a ttl of 200 ms was gone at once",
            "check the clock of the server, and whether somebody else deletes keys",
        ),
        Some(true) => EXPIRY.ok("a key with a ttl of 200 ms was there at first, and then gone"),
        None => EXPIRY.ok("a key with a ttl of 200 ms was gone after its end"),
    }
}
