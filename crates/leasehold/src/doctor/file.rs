//! Checks of the file of an SQLite store.

use super::Examined;
use super::check::{Check, Subject};
use super::survival::{Deployment, Kind};
use super::texts::{advice_of, bytes, cause_of};
use super::trials::{release, round_trip};
use crate::core::ttl::Ttl;
use crate::store::sqlite::examine::FileFacts;

const REACHABLE: Subject = Subject {
    id: "reachable",
    why: "Without its file, nobody gets a lock, and holders lose theirs.",
};

const FILE_SYSTEM: Subject = Subject {
    id: "file-system",
    why: "On a file system that machines share, the file locks of SQLite do not hold.",
};

const WRITES: Subject = Subject {
    id: "writes",
    why: "A lock is a write to the file, and to the log that SQLite keeps beside it.",
};

const OWNER: Subject =
    Subject { id: "owner", why: "A user who may write the file can take and end every lock." };

const SPACE: Subject =
    Subject { id: "free-space", why: "On a full disk nobody gets a lock, and none is renewed." };

const BOOT: Subject = Subject {
    id: "clock",
    why: "Leases count from the boot of the machine, and those of an earlier boot must end.",
};

const REACH: Subject = Subject {
    id: "reach",
    why: "Processes on other machines do not see the locks in a file, and take the same ones.",
};

/// The remedy if this user may make no file.
const LET_WRITE: &str = "let this user write the directory of the file, or choose another path";

/// How much space must be free.
const FREE_MIN: u64 = 16 << 20;

pub(super) fn examined(facts: &FileFacts, ttl: Ttl) -> Examined {
    let deployment = Deployment { kind: Kind::File, ..Deployment::ON_DISK };
    Examined { checks: checks(facts, ttl), deployment, refused: None }
}

fn checks(facts: &FileFacts, ttl: Ttl) -> Vec<Check> {
    let checks = [
        Some(reachable(facts)),
        round_trip(&facts.round_trips, ttl, 100, "a faster disk"),
        Some(file_system(facts)),
        Some(writes(facts)),
        facts.lease.as_ref().map(|lease| release(lease, |_| None)),
        owner(facts),
        space(facts),
        Some(boot(facts)),
        Some(REACH.ok("only processes of this machine that use this file see its locks")),
    ];
    let node = format!("sqlite:{}", facts.path.display());
    checks.into_iter().flatten().map(|check| check.at(&node)).collect()
}

fn reachable(facts: &FileFacts) -> Check {
    match &facts.unopened {
        Some(error) => REACHABLE.fail(
            cause_of(error),
            advice_of(error).unwrap_or_else(|| "correct the path in the URL".to_owned()),
        ),
        None if facts.exists => {
            REACHABLE.ok("the file is a store, and SQLite keeps a log beside it")
        }
        // The first lock would be refused.
        None if matches!(facts.shared_by, Ok(Some(_))) => {
            let evidence = "there is no file yet, and the file system is not local";
            REACHABLE.fail(evidence, "choose a path on a local disk")
        }
        None if !facts.has_boot_id => {
            let evidence = "there is no file yet, and the boot of this machine cannot be told";
            REACHABLE.fail(evidence, "mount `/proc`")
        }
        None => match &facts.no_new_file {
            None => REACHABLE.ok("there is no file yet: the first lock makes it"),
            Some(error) => REACHABLE.fail(
                format!("there is no file, and none can be made: {error}"),
                if facts.has_directory {
                    LET_WRITE
                } else {
                    "make the directory, or correct the path in the URL"
                },
            ),
        },
    }
}

fn file_system(facts: &FileFacts) -> Check {
    match &facts.shared_by {
        Ok(None) => FILE_SYSTEM.ok("the file system is local"),
        Ok(Some(name)) => {
            FILE_SYSTEM.fail(format!("the file system is {name}"), "choose a path on a local disk")
        }
        Err(error) => FILE_SYSTEM.unknown(error, "correct the path in the URL"),
    }
}

fn writes(facts: &FileFacts) -> Check {
    match &facts.no_new_file {
        None => WRITES.ok("a file was made in the directory, and removed again"),
        Some(error) => {
            WRITES.fail(format!("no file can be made in the directory: {error}"), LET_WRITE)
        }
    }
}

fn owner(facts: &FileFacts) -> Option<Check> {
    let (owner, us, mode) = facts.owner?;
    let evidence = format!("the file belongs to user {owner}, with the mode {:o}", mode & 0o777);
    Some(if mode & 0o022 != 0 {
        OWNER.warn(evidence, format!("chmod go-w {}", facts.path.display()))
    } else if owner != us {
        OWNER.warn(
            format!("{evidence}, and this is user {us}"),
            "run every process that shares the locks as one user",
        )
    } else {
        OWNER.ok(evidence)
    })
}

fn space(facts: &FileFacts) -> Option<Check> {
    let free = facts.free?;
    let evidence = format!("{} are free", bytes(free));
    let is_short = free < FREE_MIN;
    Some(if is_short { SPACE.warn(evidence, "free some space") } else { SPACE.ok(evidence) })
}

fn boot(facts: &FileFacts) -> Check {
    if facts.has_boot_id {
        BOOT.ok("the system identifies its boots, and its clock counts suspend")
    } else {
        BOOT.fail("/proc/sys/kernel/random/boot_id cannot be read", "mount /proc")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::{Error, ErrorKind};
    use crate::doctor::Verdict;

    fn healthy() -> FileFacts {
        FileFacts {
            path: "/a/locks.db".into(),
            exists: true,
            owner: Some((7, 7, 0o100_600)),
            free: Some(1 << 30),
            has_boot_id: true,
            round_trips: vec![std::time::Duration::from_micros(10); 20],
            lease: Some(Ok(true)),
            shared_by: Ok(None),
            has_directory: true,
            no_new_file: None,
            unopened: None,
        }
    }

    #[test]
    fn a_directory_is_only_to_be_made_if_there_is_none() {
        for (has_directory, remedy) in
            [(true, "let this user write"), (false, "make the directory")]
        {
            let no_new_file = Some("denied".to_owned());
            let facts = FileFacts { exists: false, has_directory, no_new_file, ..healthy() };
            let told = reachable(&facts).remedy.expect("a remedy");
            assert!(told.starts_with(remedy), "{told}");
        }
    }

    #[test]
    fn a_disk_is_short_below_16_mib_and_a_file_that_is_to_be_made_is_no_fault() {
        let verdict = |free| space(&FileFacts { free, ..healthy() }).map(|check| check.verdict);
        assert_eq!(verdict(Some((16 << 20) - 1)), Some(Verdict::Warn));
        assert_eq!(verdict(Some(16 << 20)), Some(Verdict::Ok));
        assert_eq!(verdict(None), None);
        let new = FileFacts { exists: false, owner: None, ..healthy() };
        assert!(checks(&new, Ttl::DEFAULT).iter().all(|check| check.verdict == Verdict::Ok));
    }

    #[test]
    fn a_file_that_the_first_lock_could_not_make_is_not_reachable() {
        let new = || FileFacts { exists: false, owner: None, ..healthy() };
        for facts in [
            FileFacts { shared_by: Ok(Some("NFS")), ..new() },
            FileFacts { has_boot_id: false, ..new() },
        ] {
            assert_eq!(reachable(&facts).verdict, Verdict::Fail, "{facts:?}");
        }
    }

    #[test]
    fn each_fault_of_a_file_is_named() {
        type Change = fn(&mut FileFacts);
        let table: &[(Change, &str, Verdict)] = &[
            (|it| it.shared_by = Ok(Some("NFS")), "file-system", Verdict::Fail),
            (|it| it.shared_by = Err("gone".into()), "file-system", Verdict::Unknown),
            (|it| it.no_new_file = Some("denied".into()), "writes", Verdict::Fail),
            (|it| it.owner = Some((7, 7, 0o100_620)), "owner", Verdict::Warn),
            (|it| it.owner = Some((7, 7, 0o100_602)), "owner", Verdict::Warn),
            (|it| it.owner = Some((7, 8, 0o100_600)), "owner", Verdict::Warn),
            (|it| it.free = Some(1), "free-space", Verdict::Warn),
            (|it| it.has_boot_id = false, "clock", Verdict::Fail),
            (|it| it.lease = Some(Ok(false)), "release", Verdict::Fail),
            (
                |it| it.unopened = Some(Error::new(ErrorKind::Config, "no store")),
                "reachable",
                Verdict::Fail,
            ),
            (
                |it| it.round_trips = vec![std::time::Duration::from_secs(1)],
                "round-trip",
                Verdict::Warn,
            ),
        ];
        let verdicts = |facts: &FileFacts| -> Vec<_> {
            let checks = checks(facts, Ttl::DEFAULT);
            checks.into_iter().filter(|it| it.verdict != Verdict::Ok).collect()
        };
        assert_eq!(verdicts(&healthy()), []);
        for (change, id, verdict) in table {
            let mut facts = healthy();
            change(&mut facts);
            let found = verdicts(&facts);
            let [found] = &found[..] else { panic!("{id}: {found:?}") };
            assert_eq!((found.id, found.verdict), (*id, *verdict));
            assert!(found.remedy.is_some() && found.node == "sqlite:/a/locks.db");
        }
    }
}
