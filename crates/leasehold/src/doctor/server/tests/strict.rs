//! Tests of what the checks say about strict mode.

use super::*;
use crate::store::redis::terms::record::Act;

fn act(is_on: bool) -> Act {
    Act::read(if is_on { b"on 1 anna@web" } else { b"off 1 anna@web" }).expect("a record")
}

/// Sets what the URL expects, and whether the database is strict. The server has no file.
fn strictly(it: &mut Facts, expected: Strictness, is_on: bool) {
    it.expected = expected;
    let is_strict = is_on && expected == Strictness::AsDatabase;
    it.terms.strict = if is_strict { Strictness::Yes(Strict::STANDARD) } else { expected };
    it.epoch = Ok(Epoch { is_used: true, act: Some(act(is_on)) });
    it.quarantine = Ok(None);
    it.fsync = Err(refused("ERR WAITAOF cannot be used without appendonly"));
}

#[test]
fn a_url_that_fits_its_database_has_no_fault_and_a_restart_without_a_file_is_covered() {
    for (expected, has_log) in [(YES, false), (YES, true), (Strictness::AsDatabase, true)] {
        let fits = |it: &mut Facts| {
            strictly(it, expected, true);
            if has_log {
                it.fsync = Ok((1, millis(3)));
            }
        };
        assert_eq!(faults(fits), []);
        let mut facts = healthy();
        fits(&mut facts);
        assert!(deployment(&[facts], &[]).is_strict);
        let quarantined = faults(|it| {
            fits(it);
            it.quarantine = Ok(Some(millis(9_000)));
        });
        assert_eq!((quarantined[0].id, quarantined[0].verdict), ("strict", Verdict::Warn));
        assert!(quarantined[0].evidence.contains("nothing new for 9000 ms"), "{quarantined:?}");
    }
}

#[test]
fn a_switch_that_a_restart_forgets_covers_no_restart() {
    let forgets: Change = |it| strictly(it, Strictness::AsDatabase, true);
    let found = faults(forgets);
    let seen: Vec<_> = found.iter().map(|check| (check.id, check.verdict)).collect();
    assert_eq!(seen, [("persistence", Verdict::Warn), ("strict", Verdict::Warn)]);
    for check in found {
        let remedy = check.remedy.as_deref();
        assert_eq!(remedy, Some("add `?strict=yes` to the URL of every client"), "{check:?}");
    }
    let mut facts = healthy();
    forgets(&mut facts);
    assert!(!deployment(&[facts], &[]).is_strict);
}

#[test]
fn a_url_that_does_not_fit_its_database_is_named() {
    use Verdict::{Fail, Unknown, Warn};
    fn with_file(it: &mut Facts, expected: Strictness, is_on: bool) {
        strictly(it, expected, is_on);
        it.fsync = Ok((1, millis(3)));
    }
    let table: [(Change, Verdict, &str); 7] = [
        (|it| with_file(it, Strictness::No, true), Fail, "or `leasehold strict off` with this URL"),
        (|it| with_file(it, YES, false), Warn, "`leasehold strict on` with this URL"),
        (|it| with_file(it, YES, false), Warn, "clients without `strict=yes` are not kept out"),
        (
            |it| {
                with_file(it, YES, false);
                it.epoch = Ok(Epoch::default());
                it.quarantine = Ok(Some(millis(65_000)));
            },
            Warn,
            "let a first client wait",
        ),
        (|it| it.epoch = Err(refused("WRONGTYPE no hash")), Fail, "TYPE :lh:epoch"),
        (|it| it.epoch = Err(Gap::DeniedKey), Unknown, "ACL SETUSER app +hmget ~:lh:epoch"),
        (|it| it.epoch = Err(Gap::Absent), Unknown, "HMGET"),
    ];
    for (change, verdict, words) in table {
        let found = faults(change);
        let [check] = &found[..] else { panic!("{words}: {found:?}") };
        assert_eq!((check.id, check.verdict), ("strict", verdict), "{check:?}");
        let remedy = check.remedy.as_deref().expect("a remedy");
        assert!(check.evidence.contains(words) || remedy.contains(words), "{words}: {check:?}");
    }
    for expected in [Strictness::No, Strictness::AsDatabase] {
        assert_eq!(faults(|it| with_file(it, expected, false)), []);
    }
}

/// Otherwise the command would leave a login out, or switch one node of a quorum alone. Clients
/// refuse such a quorum.
#[test]
fn the_command_that_switches_is_one_that_works() {
    for (has_login, is_in_quorum, words) in [
        (false, false, "`leasehold strict on --url redis://h:6379/0`"),
        (true, false, "`leasehold strict on` with this URL"),
        (false, true, "`leasehold strict on` with the URLs of all nodes"),
        (true, true, "`leasehold strict on` with the URLs of all nodes"),
    ] {
        let place = |it: &mut Facts| {
            (it.place.has_login, it.place.is_in_quorum) = (has_login, is_in_quorum);
        };
        let without_file = |it: &mut Facts| {
            place(it);
            strictly(it, Strictness::AsDatabase, false);
        };
        let without_switch = |it: &mut Facts| {
            place(it);
            strictly(it, YES, false);
        };
        let ids = [faults(without_file), faults(without_switch)].map(|found| {
            let told =
                |check: &&Check| check.remedy.as_deref().is_some_and(|it| it.contains(words));
            found.iter().filter(told).map(|check| check.id).collect::<Vec<_>>()
        });
        assert_eq!(ids, [["persistence"], ["strict"]], "{words}");
    }
}

#[test]
fn a_user_without_info_is_refused_by_a_strict_database() {
    for (expected, is_on, words) in [
        (Strictness::AsDatabase, true, "strict, and this user has no right to INFO"),
        (YES, true, "the database is strict, and this user has no right to INFO"),
        (YES, false, "this URL says `strict=yes`, and this user has no right to INFO"),
    ] {
        let found = faults(|it| {
            strictly(it, expected, is_on);
            (it.info, it.quarantine) = (Err(Gap::Denied), Err(Gap::NotAsked));
        });
        let check = found.iter().find(|it| it.id == "strict").expect("it is a fault");
        assert_eq!(check.verdict, Verdict::Fail, "{check:?}");
        assert!(check.evidence.contains(words), "{check:?}");
        assert_eq!(check.remedy.as_deref(), Some("ACL SETUSER app +info"));
    }
}
