//! Leasehold, the yardstick of the bench, and other libraries.

use super::Language;

/// A library with its settings.
#[derive(Debug)]
pub(crate) struct Subject {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// How it waits, if that can be set.
    pub(crate) waits: &'static str,
    pub(crate) by: By,
    /// The argument that chooses it in its program.
    library: &'static str,
    /// The pause between its tries that its program is told to make; 0 for the library's own pause.
    poll_ms: u64,
    /// The longest time between two of its tries; 0 if it is woken.
    pub(crate) period_ms: u64,
    /// The text before the name in the key of its lock in Redis.
    key_prefix: &'static str,
    /// The file that pins its version, and the text before the version there.
    pin: (&'static str, &'static str),
    pub(crate) contends: Contends,
    /// Whether it locks over several independent servers.
    pub(crate) has_quorum: bool,
}

/// The maker of the program of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// `leasehold-bench`.
    Us,
    Others(Language),
}

/// The scenarios in which a subject takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contends {
    /// In all scenarios.
    Always,
    /// Only in scenarios without contention, since it cannot wait.
    Never,
    /// Only in scenarios with contention, since it is another subject with other pauses.
    Only,
    /// Only where clients read and write under one key.
    Readers,
    /// Only where clients want permits of one key.
    Permits,
}

impl Subject {
    pub(crate) fn arguments(&self, address: &str, ttl_ms: u64) -> Vec<String> {
        let (ttl, poll) = (ttl_ms.to_string(), self.poll_ms.to_string());
        vec![self.library.to_owned(), address.to_owned(), ttl, poll]
    }

    /// The key in Redis of a lock.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.key_prefix)
    }

    /// Its version, from the file that pins it.
    pub(crate) fn version(&self, read: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let (path, before) = self.pin;
        let text = read(path).ok_or_else(|| format!("cannot read {path}"))?;
        let after = text.split_once(before).map(|(_, after)| after);
        let start = after.and_then(|text| text.split_once(|c: char| c.is_ascii_digit()));
        let (Some(after), Some((before, _))) = (after, start) else {
            return Err(format!("{path} does not pin {}", self.name));
        };
        let version = after[before.len()..].split(|c: char| c.is_whitespace() || "\"<".contains(c));
        Ok(version.into_iter().next().unwrap_or_default().to_owned())
    }
}

const GO: (Language, &str) = (Language::Go, "interop/go/go.mod");
const JAVA: (Language, &str) = (Language::Java, "interop/java/pom.xml");
const NODE: (Language, &str) = (Language::Node, "interop/node/package.json");
const PYTHON: (Language, &str) = (Language::Python, "interop/python/requirements.txt");
const RUST: (Language, &str) = (Language::Rust, "interop/rust/Cargo.lock");

/// The values that most subjects share, with the program of Leasehold.
const BASE: Subject = Subject {
    name: "leasehold",
    title: "**Leasehold**",
    waits: "in line",
    by: By::Us,
    library: "leasehold",
    poll_ms: 0,
    period_ms: 0,
    key_prefix: "",
    pin: ("Cargo.toml", "[workspace.package]\nversion = "),
    contends: Contends::Always,
    has_quorum: false,
};

/// A library of others: its language, the file with its version, and the text before the version.
const fn of(
    (language, file): (Language, &'static str),
    library: &'static str,
    pin: &'static str,
) -> Subject {
    let (by, pin) = (By::Others(language), (file, pin));
    Subject { name: library, title: library, library, by, pin, ..BASE }
}

const fn polls(subject: Subject, waits: &'static str, period_ms: u64) -> Subject {
    Subject { waits, period_ms, ..subject }
}

/// The same library with short pauses.
const fn quick(subject: Subject, name: &'static str, poll_ms: u64, waits: &'static str) -> Subject {
    Subject { name, poll_ms, waits, period_ms: poll_ms, contends: Contends::Only, ..subject }
}

const GO_ZERO: Subject =
    polls(of(GO, "go-zero", "zeromicro/go-zero v"), "cannot wait; asked every 10 ms", 10);
const REDSYNC: Subject = Subject {
    has_quorum: true,
    ..polls(of(GO, "redsync", "go-redsync/redsync/v4 v"), "polls every 50 to 250 ms", 250)
};
const BSM: Subject = Subject {
    title: "bsm/redislock",
    ..polls(of(GO, "bsm", "bsm/redislock v"), "polls every 100 ms", 100)
};
const RUEIDIS: Subject = Subject {
    waits: "is woken",
    key_prefix: "rueidislock:0:",
    ..of(GO, "rueidislock", "redis/rueidis v")
};

const REDIS_PY: Subject = polls(of(PYTHON, "redis-py", "redis=="), "polls every 100 ms", 100);
const PYTHON_REDIS_LOCK: Subject = Subject {
    waits: "is woken",
    key_prefix: "lock:",
    ..of(PYTHON, "python-redis-lock", "python-redis-lock==")
};

const RSLOCK: Subject = Subject {
    has_quorum: true,
    ..polls(of(RUST, "rslock", "name = \"rslock\""), "polls, up to 200 ms apart", 200)
};
const RLOCK: Subject = polls(of(RUST, "rlock", "name = \"rlock\""), "polls every 100 ms", 100);

const REDLOCK: Subject = Subject {
    has_quorum: true,
    ..polls(of(NODE, "node-redlock", "\"redlock\":"), "polls every 100 to 300 ms", 300)
};
const SEMAPHORE: Subject = Subject {
    has_quorum: true,
    key_prefix: "mutex:",
    ..polls(of(NODE, "redis-semaphore", "\"redis-semaphore\":"), "polls every 10 ms", 10)
};

const fn java(library: &'static str, title: &'static str, pin: &'static str) -> Subject {
    Subject { title, waits: "is woken", ..of(JAVA, library, pin) }
}

const fn redisson(library: &'static str, title: &'static str) -> Subject {
    java(library, title, "<artifactId>redisson</artifactId>")
}

/// A subject that lets several clients have one key.
const fn shares(subject: Subject, library: &'static str, contends: Contends) -> Subject {
    Subject { name: library, library, contends, ..subject }
}

/// Curator, which is not on the bench, since the bench's server is Redis.
pub(crate) static CURATOR: Subject =
    java("curator", "Curator `InterProcessMutex`", "<artifactId>curator-recipes</artifactId>");

/// All subjects of the bench, in the order of the tables.
pub(crate) static SUBJECTS: [Subject; 28] = [
    Subject { has_quorum: true, ..BASE },
    Subject {
        name: "leasehold-unfenced",
        title: "**Leasehold**, unfenced, no line",
        waits: "is woken, and polls up to 250 ms apart",
        library: "leasehold-unfenced",
        period_ms: 100,
        ..BASE
    },
    Subject {
        name: "bare",
        title: "*yardstick*: bare `SET NX PX`",
        waits: "cannot wait",
        library: "bare",
        pin: ("Cargo.lock", "name = \"redis\"\n"),
        contends: Contends::Never,
        ..BASE
    },
    GO_ZERO,
    quick(GO_ZERO, "go-zero-quick", 1, "cannot wait; asked every 1 ms"),
    REDSYNC,
    quick(REDSYNC, "redsync-quick", 1, "polls every 1 ms"),
    BSM,
    quick(BSM, "bsm-quick", 1, "polls every 1 ms"),
    RUEIDIS,
    RSLOCK,
    quick(RSLOCK, "rslock-quick", 2, "polls, up to 2 ms apart"),
    RLOCK,
    quick(RLOCK, "rlock-quick", 1, "polls every 1 ms"),
    REDIS_PY,
    quick(REDIS_PY, "redis-py-quick", 1, "polls every 1 ms"),
    PYTHON_REDIS_LOCK,
    REDLOCK,
    quick(REDLOCK, "node-redlock-quick", 2, "polls every 1 to 3 ms"),
    SEMAPHORE,
    quick(SEMAPHORE, "redis-semaphore-quick", 1, "polls every 1 ms"),
    redisson("redisson", "Redisson `RLock`"),
    redisson("redisson-fair", "Redisson `RFairLock`"),
    redisson("redisson-fenced", "Redisson `RFencedLock`"),
    shares(
        Subject { title: "**Leasehold** `RwLock`", ..BASE },
        "leasehold-rwlock",
        Contends::Readers,
    ),
    shares(redisson("", "Redisson `RReadWriteLock`"), "redisson-rwlock", Contends::Readers),
    shares(
        Subject { title: "**Leasehold** `Semaphore`", ..BASE },
        "leasehold-semaphore",
        Contends::Permits,
    ),
    shares(
        redisson("", "Redisson `RPermitExpirableSemaphore`"),
        "redisson-semaphore",
        Contends::Permits,
    ),
];

/// The subjects of that name, and of that library with other settings.
pub(crate) fn named(name: &str) -> Result<Vec<&'static Subject>, String> {
    let of = |it: &&Subject| it.name == name || it.library == name;
    let found: Vec<_> = SUBJECTS.iter().filter(of).collect();
    if found.is_empty() {
        let names = SUBJECTS.each_ref().map(|subject| subject.name).join(", ");
        return Err(format!("no rival {name}; there are {names}"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_a_version_in_the_file_that_pins_it() {
        for subject in SUBJECTS.iter().chain([&CURATOR]) {
            let version = subject.version(crate::read).expect("it is pinned");
            let is_version = version.split('.').count() >= 3
                && version.starts_with(|c: char| c.is_ascii_digit())
                && !version.contains(' ');
            assert!(is_version, "{}: {version}", subject.name);
        }
        let nothing = |_: &str| Some("name = nothing 1.2.3".to_owned());
        assert!(RSLOCK.version(nothing).is_err());
    }

    #[test]
    fn a_name_means_a_library_with_all_its_settings_or_one_of_them() {
        let names = |name| named(name).map(|all| all.iter().map(|it| it.name).collect::<Vec<_>>());
        assert_eq!(names("bsm"), Ok(vec!["bsm", "bsm-quick"]));
        assert_eq!(names("bsm-quick"), Ok(vec!["bsm-quick"]));
        assert!(names("zookeeper").is_err_and(|error| error.contains("there are leasehold,")));
    }
}
