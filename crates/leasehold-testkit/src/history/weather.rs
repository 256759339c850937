//! The times at which something was wrong, and the violations that this excuses.

use std::time::Duration;

use leasehold::core::Moment;

use super::bounds::Bounds;
use super::model::{Promised, promised};

#[derive(Clone, Copy, Debug)]
pub(super) struct Spell<'a> {
    pub(super) fault: u32,
    pub(super) kind: &'a str,
    pub(super) began: Moment,
    /// `None` while the fault lasts.
    pub(super) ended: Option<Moment>,
    promised: Promised,
}

impl Spell<'_> {
    fn ended(&self) -> Moment {
        self.ended.unwrap_or(FOR_EVER)
    }
}

const FOR_EVER: Moment = Moment::from_nanos(u64::MAX);

/// The kind of the fault in which processes die.
const CRASH: &str = "client-crash";

/// Everything that was wrong in a history.
#[derive(Debug, Default)]
pub(super) struct Weather<'a> {
    pub(super) spells: Vec<Spell<'a>>,
    /// The spans in which the world was disturbed: by faults, and by stops, kills and lost grants
    /// without a fault.
    disturbed: Vec<(Moment, Moment)>,
    /// The same without the deaths of processes.
    disturbed_else: Vec<(Moment, Moment)>,
    /// When processes died.
    deaths: Vec<Moment>,
    lease: Duration,
    aftermath: Duration,
    slack: Duration,
}

impl<'a> Weather<'a> {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let (lease, aftermath, slack) = (bounds.lease(), bounds.aftermath(), bounds.slack);
        Self { lease, aftermath, slack, ..Self::default() }
    }

    /// Adds a fault. An unknown kind counts as covered, so that a wrong name fails loudly.
    pub(super) fn began(&mut self, at: Moment, fault: u32, kind: &'a str) {
        let all = Promised { windows: true, leases: true, fencing: true };
        let promised = promised(kind).unwrap_or(all);
        self.spells.push(Spell { fault, kind, began: at, ended: None, promised });
    }

    pub(super) fn ended(&mut self, at: Moment, fault: u32) {
        let spell = self.spells.iter_mut().rev().find(|spell| spell.fault == fault);
        spell.expect("a fault that ended had begun").ended = Some(at);
    }

    /// Adds a disturbance that is not a fault of its own.
    pub(super) fn disturb(&mut self, from: Moment, to: Moment) {
        self.disturbed.push((from, to));
    }

    /// Adds the death of a process.
    pub(super) fn crashed(&mut self, at: Moment) {
        self.deaths.push(at);
    }

    /// Merges the spans that faults disturbed, with their aftermath. Call this once, after all
    /// faults are known: a second call would count crashes among the other disturbances.
    pub(super) fn settle(&mut self) {
        let of = |spell: &Spell<'_>| (spell.began, spell.ended());
        let others = self.spells.iter().filter(|spell| spell.kind != CRASH).map(of);
        let mut others: Vec<_> = self.disturbed.iter().copied().chain(others).collect();
        let crashes = self.spells.iter().filter(|spell| spell.kind == CRASH).map(of);
        let deaths = self.deaths.iter().map(|at| (*at, *at));
        let mut all: Vec<_> = others.iter().copied().chain(crashes).chain(deaths).collect();
        self.disturbed = merged(&mut all, self.aftermath);
        self.disturbed_else = merged(&mut others, self.aftermath);
    }

    /// Whether a user had no right to run scripts at a moment of a span, or shortly before it. An
    /// answer from then may still be under way.
    pub(super) fn is_denied(&self, from: Moment, to: Moment) -> bool {
        let denies = |spell: &&Spell<'_>| spell.kind == "scripts-denied" && spell.began <= to;
        self.spells.iter().filter(denies).any(|spell| spell.ended() + self.slack >= from)
    }

    /// Whether nothing was wrong during a span and shortly before it.
    pub(super) fn is_calm(&self, from: Moment, to: Moment) -> bool {
        is_outside(&self.disturbed, from, to)
    }

    /// Whether nothing was wrong during a span and shortly before it, except that processes died.
    pub(super) fn is_calm_but_for_crashes(&self, from: Moment, to: Moment) -> bool {
        is_outside(&self.disturbed_else, from, to)
    }

    /// The calm parts of a span, in order.
    pub(super) fn calm(&self, from: Moment, to: Moment) -> Vec<(Moment, Moment)> {
        let mut parts = Vec::new();
        let mut start = from;
        let next = self.disturbed.partition_point(|(_, end)| *end < from);
        for (began, ended) in self.disturbed[next..].iter().take_while(|(began, _)| *began < to) {
            if *began > start {
                parts.push((start, *began));
            }
            start = *ended;
        }
        if start < to {
            parts.push((start, to));
        }
        parts
    }

    /// Whether windows are promised not to overlap at `at`, if the first of their leases was
    /// requested at `asked`.
    ///
    /// A fault that ends leases early excuses its possible effects: violations from its beginning
    /// until all leases that it met have ended. That is one ttl and the lock delay after its end.
    /// It does not meet a lease that was requested after its end.
    pub(super) fn windows_promised(&self, asked: Moment, at: Moment) -> bool {
        !self.is_met(asked, at, |promised| !promised.windows)
    }

    /// Like [`windows_promised`](Self::windows_promised), for the leases behind the windows. A
    /// strict server may forget leases, but nobody else gets their keys meanwhile.
    pub(super) fn leases_promised(&self, asked: Moment, at: Moment) -> bool {
        !self.is_met(asked, at, |promised| !promised.leases)
    }

    /// Whether leases that were asked for at `asked` or later are promised to last until `at`,
    /// however long they are.
    pub(super) fn lasting_promised(&self, asked: Moment, at: Moment) -> bool {
        let ends = |spell: &Spell<'_>| !spell.promised.windows;
        let met = |spell: &Spell<'_>| asked <= spell.ended() && spell.began <= at;
        !self.spells.iter().any(|spell| ends(spell) && met(spell))
    }

    /// Whether a store shows nothing at `at` that is older than what it showed at `from`. A server
    /// that came back with other data may show a lease again that had ended.
    pub(super) fn views_promised(&self, from: Moment, at: Moment) -> bool {
        let shows_old = |spell: &Spell<'_>| {
            !spell.promised.leases || matches!(spell.kind, "failover-copies" | "power-cut")
        };
        let met = |spell: &Spell<'_>| from <= spell.ended() && spell.began <= at;
        !self.spells.iter().any(|spell| shows_old(spell) && met(spell))
    }

    fn is_met(&self, asked: Moment, at: Moment, hurts: impl Fn(&Promised) -> bool) -> bool {
        self.spells.iter().any(|spell| {
            hurts(&spell.promised)
                && asked <= spell.ended()
                && spell.began <= at
                && at <= spell.ended() + self.lease
        })
    }

    /// Whether fencing tokens are promised to rise at `at`. After the beginning of a fault without
    /// that promise, they are not, because a counter that fell back may take any time to catch up.
    pub(super) fn fencing_promised(&self, at: Moment) -> bool {
        !self.spells.iter().any(|spell| !spell.promised.fencing && spell.began <= at)
    }

    /// Whether places in the line may end early or vanish during a fault of this kind.
    pub(super) fn hurts_places(kind: &str) -> bool {
        // A full server refuses to store places. A server whose clock jumps ends them.
        promised(kind).is_some_and(|promised| !promised.leases)
            || ["out-of-memory", "disk-full", "quota-full", "clock-step-back"].contains(&kind)
    }
}

/// Merges spans, each with the aftermath behind it.
fn merged(spans: &mut [(Moment, Moment)], aftermath: Duration) -> Vec<(Moment, Moment)> {
    spans.sort_unstable();
    let mut merged: Vec<(Moment, Moment)> = Vec::new();
    for (from, to) in spans {
        let to = *to + aftermath;
        match merged.last_mut() {
            Some(last) if *from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((*from, to)),
        }
    }
    merged
}

/// Whether a span meets none of these spans, which are merged.
fn is_outside(spans: &[(Moment, Moment)], from: Moment, to: Moment) -> bool {
    let next = spans.partition_point(|(_, end)| *end < from);
    spans.get(next).is_none_or(|(began, _)| *began > to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn weather() -> Weather<'static> {
        let mut weather = unsettled();
        weather.settle();
        weather
    }

    fn unsettled() -> Weather<'static> {
        let mut bounds = Bounds::of_ttl(Duration::from_secs(10));
        bounds.reconnect = Duration::ZERO;
        let mut weather = Weather::new(&bounds);
        weather.began(at(100), 1, "restart-empty");
        weather.ended(at(110), 1);
        weather.began(at(200), 2, "delay");
        weather.ended(at(205), 2);
        weather.disturb(at(210), at(220));
        weather
    }

    #[test]
    fn calm_begins_when_the_aftermath_is_over() {
        let weather = weather();
        // The aftermath is 10.102 s for a lease and 3.032 s for a place.
        let calm = |from, to| weather.is_calm(at(from), at(to));
        assert!(calm(0, 99) && calm(124, 199) && calm(234, 999));
        assert!(!calm(0, 100) && !calm(123, 150) && !calm(207, 208) && !calm(0, 999));
        let parts = weather.calm(at(50), at(1_000));
        let whole: Vec<_> = parts.iter().map(|(a, b)| (a.as_nanos(), b.as_nanos())).collect();
        let nanos = 1_000_000;
        let expected = [(50_000, 100_000), (123_134, 200_000), (233_134, 1_000_000)];
        assert_eq!(whole, expected.map(|(from, to)| (from * nanos, to * nanos)));
        assert_eq!(weather.calm(at(115), at(120)), []);
    }

    #[test]
    fn a_fault_that_ends_leases_excuses_only_those_that_it_met() {
        let weather = weather();
        // Columns: when the lease was asked for, the moment, whether it is promised.
        for (asked, met, promised) in [
            (99, 99, true),
            (99, 100, false),
            (99, 120, false),
            (99, 121, true),
            (110, 115, false),
            (111, 115, true),
            (199, 203, true),
        ] {
            assert_eq!(weather.windows_promised(at(asked), at(met)), promised, "{asked} {met}");
        }
    }

    #[test]
    fn a_fault_that_ends_leases_excuses_those_that_were_to_last() {
        let weather = weather();
        // Columns: when the lease was asked for, the moment, whether it is promised.
        for (asked, met, promised) in
            [(0, 99, true), (0, 100, false), (110, 500, false), (111, 500, true)]
        {
            assert_eq!(weather.lasting_promised(at(asked), at(met)), promised, "{asked} {met}");
        }
    }

    #[test]
    fn a_fault_that_lasts_on_excuses_everything_after_it() {
        let mut weather = unsettled();
        weather.began(at(300), 3, "flushall");
        weather.settle();
        assert!(!weather.windows_promised(at(5_000), at(9_000)));
        assert!(!weather.is_calm(at(9_000), at(9_001)));
        assert!(weather.fencing_promised(at(9_000)));
    }

    #[test]
    fn a_crash_disturbs_the_calm_but_not_the_calm_but_for_crashes() {
        let mut weather = unsettled();
        weather.began(at(300), 3, "client-crash");
        weather.crashed(at(300));
        weather.ended(at(301), 3);
        weather.settle();
        // The fault at 205 s and the stop at 220 s disturb both.
        for (from, to, calm, calm_else) in [
            (299, 301, false, true),
            (305, 306, false, true),
            (315, 320, true, true),
            (230, 299, false, false),
            (234, 299, true, true),
        ] {
            assert_eq!(weather.is_calm(at(from), at(to)), calm, "{from} {to}");
            let but_for_crashes = weather.is_calm_but_for_crashes(at(from), at(to));
            assert_eq!(but_for_crashes, calm_else, "{from} {to}");
        }
    }

    #[test]
    fn a_server_that_came_back_with_other_data_may_show_what_was_before() {
        let weather = weather();
        // Columns: when something was seen, when it was looked at again, whether it is promised.
        for (from, to, promised) in
            [(0, 99, true), (0, 100, false), (110, 500, false), (111, 500, true)]
        {
            assert_eq!(weather.views_promised(at(from), at(to)), promised, "{from} {to}");
        }
        for (kind, promised) in [("delay", true), ("failover-copies", false), ("power-cut", false)]
        {
            let mut weather = weather_of(kind);
            weather.settle();
            assert_eq!(weather.views_promised(at(0), at(9)), promised, "{kind}");
        }
    }

    fn weather_of(kind: &'static str) -> Weather<'static> {
        let mut weather = Weather::new(&Bounds::of_ttl(Duration::from_secs(10)));
        weather.began(at(1), 1, kind);
        weather.ended(at(2), 1);
        weather
    }
}
