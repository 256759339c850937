//! The pairs of libraries that contend.

use crate::rivals::subjects::CURATOR;
use crate::rivals::{By, Contends, Language, SUBJECTS, Subject};

/// One form of Leasehold, and another library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) ours: Ours,
    pub(super) theirs: &'static Subject,
    pub(super) on: On,
}

/// The server of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Redis,
    Zookeeper,
}

/// A form of Leasehold. `leasehold-bench rival` is the program of all forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    /// The mutex of the library.
    Mutex,
    /// The command: `leasehold run`.
    Run,
    /// The types of `leasehold-compat`.
    GoZero,
    Jedis,
    Redsync,
}

/// The library whose locks are hashes, so that no other library can share them.
pub(super) const OF_ANOTHER_TYPE: &str = "redisson";

impl Ours {
    /// The argument of the program that chooses this form.
    pub(super) const fn library(self) -> &'static str {
        match self {
            Self::Mutex => "leasehold",
            Self::Run => "leasehold-run",
            Self::GoZero => "compat-go-zero",
            Self::Jedis => "compat-jedis",
            Self::Redsync => "compat-redsync",
        }
    }
}

impl Pair {
    /// Its name in the table, and on the command line.
    pub(super) fn name(&self) -> String {
        match self.ours {
            Ours::Mutex => self.theirs.name.to_owned(),
            ours => format!("{}+{}", self.theirs.name, ours.library()),
        }
    }

    /// Whether our side can keep up. The command starts a process for each lock.
    pub(super) fn is_quick(&self) -> bool {
        self.ours != Ours::Run
    }

    /// Whether both sides only look at the key now and then. The side that releases the lock takes
    /// it again before the other side looks.
    pub(super) fn both_poll(&self) -> bool {
        !matches!(self.ours, Ours::Mutex | Ours::Run)
    }

    /// Whether a lock of ours outlasts a program that is killed. A lock of the command does not:
    /// the command releases it when the standard input of its child ends.
    pub(super) fn lock_outlasts_its_program(&self) -> bool {
        self.ours != Ours::Run
    }
}

/// Whether a library gets its turns when others compete for the key. A library without its turns
/// looks at the key once per ttl, unless a client of the same library signals a release.
pub(super) fn has_turns(theirs: &Subject) -> bool {
    theirs.name != "python-redis-lock"
}

/// All pairs: the mutex with every library whose locks are plain strings, the other forms with the
/// libraries that they replace or are likely to meet, and the mutex with Curator.
pub(super) fn all() -> Vec<Pair> {
    let others = |subject: &&Subject| {
        matches!(subject.by, By::Others(language) if language != Language::Java)
            && subject.contends == Contends::Always
    };
    let on_redis = |ours, theirs| Pair { ours, theirs, on: On::Redis };
    let mutex = SUBJECTS.iter().filter(others).map(|theirs| on_redis(Ours::Mutex, theirs));
    let named = |name| SUBJECTS.iter().find(|subject| subject.name == name);
    let more = [
        (Ours::Run, "redsync"),
        (Ours::GoZero, "go-zero"),
        (Ours::Jedis, "go-zero"),
        (Ours::Redsync, "redsync"),
    ];
    let more = more.into_iter().filter_map(|(ours, name)| Some(on_redis(ours, named(name)?)));
    let curator = Pair { ours: Ours::Mutex, theirs: &CURATOR, on: On::Zookeeper };
    mutex.chain(more).chain([curator]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_with_plain_keys_has_a_pair_and_so_has_every_form_of_ours() {
        let names: Vec<_> = all().iter().map(Pair::name).collect();
        assert_eq!(
            names,
            [
                "go-zero",
                "redsync",
                "bsm",
                "rueidislock",
                "rslock",
                "rlock",
                "redis-py",
                "python-redis-lock",
                "node-redlock",
                "redis-semaphore",
                "redsync+leasehold-run",
                "go-zero+compat-go-zero",
                "go-zero+compat-jedis",
                "redsync+compat-redsync",
                "curator",
            ]
        );
        assert!(SUBJECTS.iter().any(|subject| subject.name == OF_ANOTHER_TYPE));
    }
}
