//! Turns requests of the store contract into script calls.

use super::step::Step;
use super::{
    ACQUIRE, ACQUIRE_PLAIN, ACQUIRE_PLAIN_STRICTLY, ACQUIRE_STRICTLY, EVICT, INSPECT, LIVING,
    RELEASE, RELEASE_PLAIN, RENEW, RESIZE, REVOKE, Script,
};
use crate::core::line::Stance;
use crate::store::redis::codec::command::{Command, Digits};
use crate::store::redis::keys::Keys;
use crate::store::redis::wire::known::Strictly;
use crate::store::{Ask, Claim, OnRelease, PlaceTerms, Snapshot};

/// One try of a step at one lock.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) step: &'a Step,
    /// Whether the fencing counter of the key may have been lost or set back since this client last
    /// used it.
    pub(super) cold: bool,
    /// How an acquire is strict; `None` if it is not.
    pub(super) strictly: Option<&'a Strictly>,
    /// Whether a release or an eviction only wakes the next waiter, and never hands the key over.
    pub(super) wakes: bool,
    /// The tag of the client's shard channel, if it has one.
    pub(super) tag: Option<u32>,
}

impl Call<'_> {
    /// The call by the hash of its script, for a server that has seen the script.
    pub(super) fn by_hash(self) -> Command {
        self.complete(self.script().by_hash())
    }

    /// The call with the whole script, for a server that has not seen it.
    pub(super) fn in_full(self) -> Command {
        self.complete(self.script().in_full())
    }

    /// The script that does the step.
    pub(super) fn script(self) -> &'static Script {
        match (self.step, self.is_plain(), self.strictly) {
            (Step::Acquire(_), true, Some(_)) => &ACQUIRE_PLAIN_STRICTLY,
            (Step::Acquire(_), false, Some(_)) => &ACQUIRE_STRICTLY,
            (Step::Acquire(_), true, None) => &ACQUIRE_PLAIN,
            (Step::Acquire(_), false, None) => &ACQUIRE,
            (Step::Renew(_), ..) => &RENEW,
            (Step::Release(..), true, _) => &RELEASE_PLAIN,
            (Step::Release(..), false, _) => &RELEASE,
            (Step::Evict { .. }, ..) => &EVICT,
            (Step::Revoke { .. }, ..) => &REVOKE,
            (Step::Resize { .. }, ..) => &RESIZE,
            (Step::Inspect(_), ..) => &INSPECT,
            (Step::Living(_), ..) => &LIVING,
        }
    }

    /// Whether the lock has no companion keys that matter here.
    fn is_plain(self) -> bool {
        match self.step {
            Step::Acquire(ask) => ask.claim == Claim::Plain && ask.reserve == 0,
            Step::Release(lease, on_release) => {
                lease.claim == Claim::Plain && *on_release == OnRelease::Free
            }
            _ => false,
        }
    }

    /// Adds keys and arguments, as the headers of the scripts list them.
    fn complete(self, command: Command) -> Command {
        let Self { step, cold, strictly, wakes, tag } = self;
        let keys = Keys::of(step.key());
        let is_strict = matches!(step, Step::Acquire(_)) && strictly.is_some();
        let command = match (self.is_plain(), is_strict) {
            (false, false) => keys.add_to(command),
            (true, false) => keys.add_lock_to(command),
            (false, true) => keys.add_strictly_to(command),
            (true, true) => keys.add_lock_strictly_to(command),
        };
        match step {
            Step::Acquire(ask) if self.is_plain() => {
                strict(command.arg(ask.owner.as_str()).number(ask.ttl.as_millis()), strictly)
            }
            Step::Acquire(ask) => strict(acquire(command, (ask, tag), cold), strictly),
            Step::Renew(renewal) => command
                .arg(renewal.lease.owner.as_str())
                .number(renewal.ttl.as_millis())
                .number(renewal.reserve.into())
                .number(renewal.at_least.map_or(0, |at_least| at_least.get()))
                .number(cold.into())
                .number(renewal.idle.into()),
            Step::Release(lease, on_release) => {
                let command = command.arg(lease.owner.as_str());
                let (command, opens) = match on_release {
                    OnRelease::Free => (command, false),
                    OnRelease::Open => (command, true),
                    OnRelease::FreeAndWake => return command.arg("wake"),
                    OnRelease::KeepIfAlone { owner, ttl, reserve, opens } => {
                        let command = command
                            .number(ttl.as_millis())
                            .number((*reserve).into())
                            .number(cold.into())
                            .arg(owner.as_str());
                        (command, *opens)
                    }
                    OnRelease::Downgrade { owner, ttl } => {
                        return command.arg("share").number(ttl.as_millis()).arg(owner.as_str());
                    }
                };
                match () {
                    () if self.is_plain() => command,
                    () if wakes => command.arg("wake"),
                    () if opens => command,
                    () => command.arg("hand"),
                }
            }
            Step::Evict { seen, .. } => {
                let command = command.arg(seen);
                if wakes { command.arg("wake") } else { command }
            }
            Step::Revoke { seen, request, .. } => command.arg(seen).arg(request),
            Step::Resize { of, .. } => command.number((*of).into()),
            Step::Inspect(_) => command.number(Snapshot::WAITERS_SHOWN_MAX as u64),
            Step::Living(_) => command,
        }
    }
}

/// An acquire request without a script, for a lock without companion keys. Its answer is the old
/// value of the key. So a repeated request looks different from a request that finds the key taken.
pub(super) fn set(ask: &Ask) -> Command {
    let command = Command::new("SET").arg(ask.key.as_str()).lock_is_last().arg(ask.owner.as_str());
    command.arg("NX").arg("GET").arg("PX").number(ask.ttl.as_millis())
}

/// Adds the last three arguments, which strict.lua reads.
fn strict(command: Command, strictly: Option<&Strictly>) -> Command {
    let Some(Strictly { process, strict }) = strictly else { return command };
    let quarantine = strict.quarantine().as_nanos().div_ceil(1_000_000);
    let command = command.arg(&*process.run_id).arg(&*process.replid);
    command.number(u64::try_from(quarantine).expect("a minute or so"))
}

fn acquire(command: Command, (ask, tag): (&Ask, Option<u32>), cold: bool) -> Command {
    let command = command
        .arg(ask.owner.as_str())
        .number(ask.ttl.as_millis())
        .number(ask.reserve.into())
        .number(cold.into());
    let command = match ask.note.as_ref().map(|note| note.why.as_deref()) {
        // An empty reason is a reason too.
        Some(Some(why)) => command.joined(&["=", why]),
        Some(None) => command.arg("-"),
        None => command.arg(""),
    };
    let (want, of) = match ask.claim {
        Claim::Permits { want, of } => (want, of),
        _ => (0, 0),
    };
    let numbers = [want.into(), of.into()].map(Digits::of);
    let [want, of] = numbers.each_ref().map(Digits::as_str);
    let command = match ask.line.place() {
        Some(PlaceTerms { waiter_ttl, handed_ttl, ask_no, inbox, stance }) => {
            let stance: &[&str] = match (stance, ask.claim) {
                (Stance::Watching, _) => &["w"],
                (Stance::Joined, Claim::Shared) => &["s"],
                (Stance::Joined, Claim::Permits { .. }) => &["p", want],
                (Stance::Joined, Claim::Exclusive | Claim::Plain) => &["j"],
            };
            let numbers =
                [waiter_ttl.as_millis(), handed_ttl.as_millis(), ask_no.into()].map(Digits::of);
            let [waiter_ms, handed_ms, ask_no] = numbers.each_ref().map(Digits::as_str);
            let tag = tag.map(|tag| Digits::of(tag.into()));
            let tag = tag.as_ref().map_or(["", "", ""], |tag| ["{", tag.as_str(), "}"]);
            // One argument, because the server is slower with each one.
            let terms = ["|", waiter_ms, "|", handed_ms, "|", ask_no, "|"];
            command.joined(&[stance, &terms, &tag, &[inbox.as_str()]].concat())
        }
        None if ask.claim.is_alone() => return command,
        None => command.arg(""),
    };
    match ask.claim {
        Claim::Exclusive | Claim::Plain => command,
        Claim::Shared => command.arg("s"),
        Claim::Permits { .. } => command.joined(&["p", want, "/", of]),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::key::Key;
    use crate::core::token::{ClientId, FencingToken, OwnerToken};
    use crate::core::ttl::Ttl;
    use crate::store::redis::terms::Strict;
    use crate::store::redis::wire::known::ServerProcess;
    use crate::store::{LeaseId, Line, Note, Renewal};

    fn ttl(ms: u64) -> Ttl {
        Ttl::new(Duration::from_millis(ms)).expect("within bounds")
    }

    fn lease() -> LeaseId {
        LeaseId {
            key: Key::new("a").expect("a name"),
            owner: OwnerToken::new("anna").expect("a token"),
            claim: Claim::Exclusive,
        }
    }

    fn ask(line: Line, why: Option<&str>) -> Ask {
        let LeaseId { key, owner, claim } = lease();
        let note = why.map(|why| Note { client: None, why: Some(why.into()) });
        Ask { key, owner, claim, ttl: ttl(10_000), line, note, reserve: 1 }
    }

    fn call(step: &Step) -> Call<'_> {
        Call { step, cold: false, strictly: None, wakes: false, tag: None }
    }

    /// Compares the arguments after the keys.
    #[track_caller]
    fn assert_args(call: Call<'_>, expected: &[&str]) {
        let command = call.by_hash();
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(args[2..4], ["8", "a"]);
        assert_eq!(args[4..11].iter().filter(|key| key.starts_with("{a}:lh:")).count(), 7);
        assert_eq!(args[11..], *expected);
        let full = call.in_full();
        assert!(full.args().skip(2).eq(command.args().skip(2)), "the same in full");
    }

    #[test]
    fn an_ask_says_what_acquire_lua_expects() {
        let inbox = ClientId::from_random([1; ClientId::CHARS]);
        let stand = ask(Line::None, None);
        assert_args(call(&Step::Acquire(stand.clone())), &["anna", "10000", "1", "0", ""]);
        let (waiter_ttl, handed_ttl) = (ttl(3_000), ttl(2_000));
        let join = Line::Join { waiter_ttl, handed_ttl, ask_no: 7, inbox: inbox.clone() };
        assert_args(
            Call { cold: true, ..call(&Step::Acquire(ask(join, Some("a | b")))) },
            &["anna", "10000", "1", "1", "=a | b", "j|3000|2000|7|BBBBBBBBBBBB"],
        );
        let unexplained = Ask { note: Some(Note { client: None, why: None }), ..stand.clone() };
        assert_args(call(&Step::Acquire(unexplained)), &["anna", "10000", "1", "0", "-"]);
        let shared = Ask { claim: Claim::Shared, ..stand.clone() };
        assert_args(call(&Step::Acquire(shared)), &["anna", "10000", "1", "0", "", "", "s"]);
        let line = Line::Join { waiter_ttl, handed_ttl, ask_no: 7, inbox: inbox.clone() };
        let permits = Ask { claim: Claim::Permits { want: 2, of: 5 }, ..ask(line, None) };
        assert_args(
            call(&Step::Acquire(permits)),
            &["anna", "10000", "1", "0", "", "p2|3000|2000|7|BBBBBBBBBBBB", "p2/5"],
        );
        assert_args(
            Call {
                tag: Some(41),
                ..call(&Step::Acquire(ask(Line::Watch { waiter_ttl, ask_no: 1, inbox }, None)))
            },
            &["anna", "10000", "1", "0", "", "w|3000|3000|1|{41}BBBBBBBBBBBB"],
        );
    }

    #[test]
    fn the_other_requests_say_what_their_scripts_expect() {
        let (lease, key) = (lease(), lease().key);
        let at_least = FencingToken::new(9);
        let renewal = |at_least, idle| {
            Step::Renew(Renewal { lease: lease.clone(), ttl: ttl(10), at_least, reserve: 4, idle })
        };
        assert_args(
            Call { cold: true, ..call(&renewal(at_least, false)) },
            &["anna", "10", "4", "9", "1", "0"],
        );
        assert_args(call(&renewal(None, false)), &["anna", "10", "4", "0", "0", "0"]);
        assert_args(call(&renewal(None, true)), &["anna", "10", "4", "0", "0", "1"]);
        let release = |on_release: &OnRelease| Step::Release(lease.clone(), on_release.clone());
        assert_args(call(&release(&OnRelease::Open)), &["anna"]);
        assert_args(call(&release(&OnRelease::Free)), &["anna", "hand"]);
        assert_args(call(&release(&OnRelease::FreeAndWake)), &["anna", "wake"]);
        let owner = OwnerToken::new("anna-2").expect("a token");
        let keep = OnRelease::KeepIfAlone { owner, ttl: ttl(20), reserve: 2, opens: false };
        let kept = ["anna", "20", "2", "0", "anna-2"];
        assert_args(call(&release(&keep)), &[&kept[..], &["hand"]].concat());
        for (on_release, args) in [
            (OnRelease::Free, &["anna", "wake"][..]),
            (OnRelease::FreeAndWake, &["anna", "wake"][..]),
            (keep, &[&kept[..], &["wake"]].concat()[..]),
        ] {
            assert_args(Call { wakes: true, ..call(&release(&on_release)) }, args);
        }
        let evict = Step::Evict { key: key.clone(), seen: b"x y".to_vec() };
        assert_args(call(&evict), &["x y"]);
        assert_args(Call { wakes: true, ..call(&evict) }, &["x y", "wake"]);
        let owner = OwnerToken::new("anna-2").expect("a token");
        let downgrade = OnRelease::Downgrade { owner, ttl: ttl(20) };
        assert_args(call(&release(&downgrade)), &["anna", "share", "20", "anna-2"]);
        let (seen, request) = (b"anna".to_vec(), "ben@web|noon".to_owned());
        let revoke = Step::Revoke { key: key.clone(), seen, request };
        assert_args(call(&revoke), &["anna", "ben@web|noon"]);
        assert_args(call(&Step::Resize { key: key.clone(), of: 5 }), &["5"]);
        assert_args(call(&Step::Inspect(key.clone())), &["100"]);
        assert_args(call(&Step::Living(key)), &[]);
    }

    #[test]
    fn a_plain_lock_is_one_command_or_script_and_its_release_a_script_of_one_key() {
        let plain = Ask { claim: Claim::Plain, reserve: 0, ..ask(Line::None, None) };
        let command = set(&plain);
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(args, ["SET", "a", "anna", "NX", "GET", "PX", "10000"]);
        let command = call(&Step::Acquire(plain)).by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        assert_eq!(args, ["1", "a", "anna", "10000"]);
        let lease = LeaseId { claim: Claim::Plain, ..lease() };
        let release = Step::Release(lease, OnRelease::Free);
        let command = Call { wakes: true, ..call(&release) }.by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        assert_eq!(args, ["1", "a", "anna"]);
    }

    #[test]
    fn a_strict_ask_ends_with_the_process_it_relies_on_and_is_never_a_command() {
        let process = ServerProcess { run_id: "a1b2".into(), replid: "c3d4".into() };
        let strictly = Strictly { process, strict: Strict::STANDARD };
        let strictly = Some(&strictly);
        let step = Step::Acquire(ask(Line::None, None));
        let command = Call { strictly, ..call(&step) }.by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        let keys = [&args[..2], &args[9..10]].concat();
        assert_eq!(keys, ["9", "a", ":lh:epoch"]);
        assert_eq!(args[10..], ["anna", "10000", "1", "0", "", "a1b2", "c3d4", "65000"]);
        let plain = Ask { claim: Claim::Plain, reserve: 0, ..ask(Line::None, None) };
        let step = Step::Acquire(plain);
        let command = Call { strictly, ..call(&step) }.by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        let expected = ["2", "a", ":lh:epoch", "anna", "10000", "a1b2", "c3d4", "65000"];
        assert_eq!(args, expected);
    }
}
