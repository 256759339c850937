//! Turns requests of the store contract into script calls.

use super::{
    ACQUIRE, ACQUIRE_PLAIN, ACQUIRE_PLAIN_STRICTLY, ACQUIRE_STRICTLY, EVICT, INSPECT, LIVING,
    RELEASE, RELEASE_PLAIN, RENEW, RESIZE, REVOKE, Script,
};
use crate::core::key::Key;
use crate::core::line::Stance;
use crate::core::ttl::Ttl;
use crate::store::redis::codec::command::{Command, Digits};
use crate::store::redis::keys::Keys;
use crate::store::redis::wire::known::Strictly;
use crate::store::{Ask, Claim, LeaseId, OnRelease, PlaceTerms, Renewal, Snapshot};

/// One step at one lock. `cold`: since this client last used it, the fencing counter of the key may
/// have been lost or set back. `tag`: of the shard channel of the client, if it has one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    Acquire {
        ask: &'a Ask,
        cold: bool,
        strictly: Option<&'a Strictly>,
        tag: Option<u32>,
    },
    Renew {
        renewal: &'a Renewal,
        cold: bool,
    },
    /// `wakes`: the release never hands the key over, even if somebody waits.
    Release {
        lease: &'a LeaseId,
        on_release: &'a OnRelease,
        cold: bool,
        wakes: bool,
    },
    Evict {
        key: &'a Key,
        seen: &'a [u8],
        wakes: bool,
    },
    Revoke {
        key: &'a Key,
        seen: &'a [u8],
        request: &'a str,
    },
    Resize {
        key: &'a Key,
        of: u32,
    },
    Inspect {
        key: &'a Key,
    },
    Living {
        key: &'a Key,
    },
}

impl<'a> Call<'a> {
    /// The call by the hash of its script, for a server that has seen the script.
    pub(super) fn by_hash(self) -> Command {
        self.complete(self.script().by_hash())
    }

    /// The call with the whole script, for a server that has not seen it.
    pub(super) fn in_full(self) -> Command {
        self.complete(self.script().in_full())
    }

    /// The key of the lock.
    pub(super) fn key(self) -> &'a Key {
        match self {
            Self::Acquire { ask, .. } => &ask.key,
            Self::Renew { renewal, .. } => &renewal.lease.key,
            Self::Release { lease, .. } => &lease.key,
            Self::Evict { key, .. }
            | Self::Revoke { key, .. }
            | Self::Resize { key, .. }
            | Self::Inspect { key }
            | Self::Living { key } => key,
        }
    }

    /// The script that does the step.
    pub(super) fn script(self) -> &'static Script {
        match self {
            Self::Acquire { strictly: Some(_), .. } if self.is_plain() => &ACQUIRE_PLAIN_STRICTLY,
            Self::Acquire { strictly: Some(_), .. } => &ACQUIRE_STRICTLY,
            Self::Acquire { .. } if self.is_plain() => &ACQUIRE_PLAIN,
            Self::Acquire { .. } => &ACQUIRE,
            Self::Renew { .. } => &RENEW,
            Self::Release { .. } if self.is_plain() => &RELEASE_PLAIN,
            Self::Release { .. } => &RELEASE,
            Self::Evict { .. } => &EVICT,
            Self::Revoke { .. } => &REVOKE,
            Self::Resize { .. } => &RESIZE,
            Self::Inspect { .. } => &INSPECT,
            Self::Living { .. } => &LIVING,
        }
    }

    /// Whether the lock has no companion keys that matter here.
    fn is_plain(self) -> bool {
        match self {
            Self::Acquire { ask, .. } => ask.claim == Claim::Plain && ask.reserve == 0,
            Self::Release { lease, on_release, .. } => {
                lease.claim == Claim::Plain && *on_release == OnRelease::Free
            }
            _ => false,
        }
    }

    /// Adds keys and arguments, as the headers of the scripts list them.
    fn complete(self, command: Command) -> Command {
        let keys = Keys::of(self.key());
        let is_strict = matches!(self, Self::Acquire { strictly: Some(_), .. });
        let command = match (self.is_plain(), is_strict) {
            (false, false) => keys.add_to(command),
            (true, false) => keys.add_lock_to(command),
            (false, true) => keys.add_strictly_to(command),
            (true, true) => keys.add_lock_strictly_to(command),
        };
        match self {
            Self::Acquire { ask, strictly, .. } if self.is_plain() => {
                strict(command.arg(ask.owner.as_str()).number(millis(ask.ttl)), strictly)
            }
            Self::Acquire { ask, cold, strictly, tag } => {
                strict(acquire(command, (ask, tag), cold), strictly)
            }
            Self::Renew { renewal, cold } => command
                .arg(renewal.lease.owner.as_str())
                .number(millis(renewal.ttl))
                .number(renewal.reserve.into())
                .number(renewal.at_least.map_or(0, |at_least| at_least.get()))
                .number(cold.into())
                .number(renewal.idle.into()),
            Self::Release { lease, on_release, cold, wakes } => {
                let command = command.arg(lease.owner.as_str());
                let (command, opens) = match on_release {
                    OnRelease::Free => (command, false),
                    OnRelease::Open => (command, true),
                    OnRelease::FreeAndWake => return command.arg("wake"),
                    OnRelease::KeepIfAlone { owner, ttl, reserve, opens } => {
                        let command = command
                            .number(millis(*ttl))
                            .number((*reserve).into())
                            .number(cold.into())
                            .arg(owner.as_str());
                        (command, *opens)
                    }
                    OnRelease::Downgrade { owner, ttl } => {
                        return command.arg("share").number(millis(*ttl)).arg(owner.as_str());
                    }
                };
                match () {
                    () if self.is_plain() => command,
                    () if wakes => command.arg("wake"),
                    () if opens => command,
                    () => command.arg("hand"),
                }
            }
            Self::Evict { seen, wakes, .. } => {
                let command = command.arg(seen);
                if wakes { command.arg("wake") } else { command }
            }
            Self::Revoke { seen, request, .. } => command.arg(seen).arg(request),
            Self::Resize { of, .. } => command.number(of.into()),
            Self::Inspect { .. } => command.number(Snapshot::WAITERS_SHOWN_MAX as u64),
            Self::Living { .. } => command,
        }
    }
}

/// An acquire request without a script, for a lock without companion keys. Its answer is the old
/// value of the key. So a repeated request looks different from a request that finds the key taken.
pub(super) fn set(ask: &Ask) -> Command {
    let command = Command::new("SET").arg(ask.key.as_str()).lock_is_last().arg(ask.owner.as_str());
    command.arg("NX").arg("GET").arg("PX").number(millis(ask.ttl))
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
        .number(millis(ask.ttl))
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
            let numbers = [millis(waiter_ttl), millis(handed_ttl), ask_no.into()].map(Digits::of);
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

/// Whole milliseconds, rounded up, so that the server never keeps a lease for less than its holder
/// expects.
pub(super) fn millis(ttl: Ttl) -> u64 {
    u64::try_from(ttl.get().as_nanos().div_ceil(1_000_000)).expect("a ttl is at most 48 h")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::token::{ClientId, FencingToken, OwnerToken};
    use crate::store::redis::terms::Strict;
    use crate::store::redis::wire::known::ServerProcess;
    use crate::store::{Claim, Line, Note};

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
        assert_args(
            Call::Acquire { ask: &stand, cold: false, strictly: None, tag: None },
            &["anna", "10000", "1", "0", ""],
        );
        let (waiter_ttl, handed_ttl) = (ttl(3_000), ttl(2_000));
        let join = Line::Join { waiter_ttl, handed_ttl, ask_no: 7, inbox: inbox.clone() };
        assert_args(
            Call::Acquire { ask: &ask(join, Some("a | b")), cold: true, strictly: None, tag: None },
            &["anna", "10000", "1", "1", "=a | b", "j|3000|2000|7|BBBBBBBBBBBB"],
        );
        let unexplained = Ask { note: Some(Note { client: None, why: None }), ..stand.clone() };
        assert_args(
            Call::Acquire { ask: &unexplained, cold: false, strictly: None, tag: None },
            &["anna", "10000", "1", "0", "-"],
        );
        let shared = Ask { claim: Claim::Shared, ..stand.clone() };
        assert_args(
            Call::Acquire { ask: &shared, cold: false, strictly: None, tag: None },
            &["anna", "10000", "1", "0", "", "", "s"],
        );
        let line = Line::Join { waiter_ttl, handed_ttl, ask_no: 7, inbox: inbox.clone() };
        let permits = Ask { claim: Claim::Permits { want: 2, of: 5 }, ..ask(line, None) };
        assert_args(
            Call::Acquire { ask: &permits, cold: false, strictly: None, tag: None },
            &["anna", "10000", "1", "0", "", "p2|3000|2000|7|BBBBBBBBBBBB", "p2/5"],
        );
        assert_args(
            Call::Acquire {
                ask: &ask(Line::Watch { waiter_ttl, inbox }, None),
                cold: false,
                strictly: None,
                tag: Some(41),
            },
            &["anna", "10000", "1", "0", "", "w|3000|3000|0|{41}BBBBBBBBBBBB"],
        );
    }

    #[test]
    fn the_other_requests_say_what_their_scripts_expect() {
        let (lease, key) = (lease(), lease().key);
        let at_least = FencingToken::new(9);
        let renewal = |at_least| Renewal {
            lease: lease.clone(),
            ttl: ttl(10),
            at_least,
            reserve: 4,
            idle: false,
        };
        assert_args(
            Call::Renew { renewal: &renewal(at_least), cold: true },
            &["anna", "10", "4", "9", "1", "0"],
        );
        assert_args(
            Call::Renew { renewal: &renewal(None), cold: false },
            &["anna", "10", "4", "0", "0", "0"],
        );
        assert_args(
            Call::Renew { renewal: &Renewal { idle: true, ..renewal(None) }, cold: false },
            &["anna", "10", "4", "0", "0", "1"],
        );
        let release =
            |on_release| Call::Release { lease: &lease, on_release, cold: false, wakes: false };
        assert_args(release(&OnRelease::Open), &["anna"]);
        assert_args(release(&OnRelease::Free), &["anna", "hand"]);
        assert_args(release(&OnRelease::FreeAndWake), &["anna", "wake"]);
        let owner = OwnerToken::new("anna-2").expect("a token");
        let keep = OnRelease::KeepIfAlone { owner, ttl: ttl(20), reserve: 2, opens: false };
        assert_args(release(&keep), &["anna", "20", "2", "0", "anna-2", "hand"]);
        let strictly =
            |on_release| Call::Release { lease: &lease, on_release, cold: false, wakes: true };
        assert_args(strictly(&OnRelease::Free), &["anna", "wake"]);
        assert_args(strictly(&OnRelease::FreeAndWake), &["anna", "wake"]);
        assert_args(strictly(&keep), &["anna", "20", "2", "0", "anna-2", "wake"]);
        assert_args(Call::Evict { key: &key, seen: b"x y", wakes: false }, &["x y"]);
        assert_args(Call::Evict { key: &key, seen: b"x y", wakes: true }, &["x y", "wake"]);
        let owner = OwnerToken::new("anna-2").expect("a token");
        let downgrade = OnRelease::Downgrade { owner, ttl: ttl(20) };
        assert_args(release(&downgrade), &["anna", "share", "20", "anna-2"]);
        let revoke = Call::Revoke { key: &key, seen: b"anna", request: "ben@web|noon" };
        assert_args(revoke, &["anna", "ben@web|noon"]);
        assert_args(Call::Resize { key: &key, of: 5 }, &["5"]);
        assert_args(Call::Inspect { key: &key }, &["100"]);
        assert_args(Call::Living { key: &key }, &[]);
    }

    #[test]
    fn a_plain_lock_is_one_command_or_script_and_its_release_a_script_of_one_key() {
        let plain = Ask { claim: Claim::Plain, reserve: 0, ..ask(Line::None, None) };
        let command = set(&plain);
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(args, ["SET", "a", "anna", "NX", "GET", "PX", "10000"]);
        let command =
            Call::Acquire { ask: &plain, cold: false, strictly: None, tag: None }.by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        assert_eq!(args, ["1", "a", "anna", "10000"]);
        let lease = LeaseId { claim: Claim::Plain, ..lease() };
        let on_release = OnRelease::Free;
        let release =
            Call::Release { lease: &lease, on_release: &on_release, cold: false, wakes: true };
        let command = release.by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        assert_eq!(args, ["1", "a", "anna"]);
    }

    #[test]
    fn a_strict_ask_says_last_on_which_process_it_relies_and_never_goes_by_a_command() {
        let process = ServerProcess { run_id: "a1b2".into(), replid: "c3d4".into() };
        let strictly = Strictly { process, strict: Strict::STANDARD };
        let strictly = Some(&strictly);
        let command =
            Call::Acquire { ask: &ask(Line::None, None), cold: false, strictly, tag: None }
                .by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        let keys = [&args[..2], &args[9..10]].concat();
        assert_eq!(keys, ["9", "a", ":lh:epoch"]);
        assert_eq!(args[10..], ["anna", "10000", "1", "0", "", "a1b2", "c3d4", "65000"]);
        let plain = Ask { claim: Claim::Plain, reserve: 0, ..ask(Line::None, None) };
        let command = Call::Acquire { ask: &plain, cold: false, strictly, tag: None }.by_hash();
        let args: Vec<_> = command.args().skip(2).map(String::from_utf8_lossy).collect();
        let expected = ["2", "a", ":lh:epoch", "anna", "10000", "a1b2", "c3d4", "65000"];
        assert_eq!(args, expected);
    }

    #[test]
    fn a_server_never_keeps_a_lease_for_less_than_was_asked() {
        // nanoseconds, milliseconds
        for (nanos, ms) in [(10_000_000, 10), (10_000_001, 11), (10_999_999, 11)] {
            assert_eq!(millis(Ttl::new(Duration::from_nanos(nanos)).expect("within bounds")), ms);
        }
    }
}
