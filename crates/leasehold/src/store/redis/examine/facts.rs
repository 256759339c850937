//! The facts that an examination found about one server. Plain values, without any judgement.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::error::Error;
use crate::core::moment::{Moment, WallTime};
use crate::store::net::shown;
use crate::store::redis::codec::command::Value;
use crate::store::redis::terms::record::Act;
use crate::store::redis::terms::{Strictness, Terms};

/// The answer to a question, or why there is none.
pub(crate) type Answer<T> = Result<T, Gap>;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// The user has no right to the command.
    Denied,
    /// The user has no right to the key.
    DeniedKey,
    /// The user has no right to the channel.
    DeniedChannel,
    /// The server does not know the command.
    Absent,
    /// The server refused for another reason. Both texts are escaped.
    Refused { code: String, text: String },
    /// No answer came in time.
    Silent,
    /// The connection ended, twice.
    Closed,
    /// The answer is not of the expected kind.
    Strange,
    /// The question was not asked, because an earlier one failed.
    NotAsked,
}

/// The facts about one server.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) place: Place,
    /// The strict mode that the URL expects.
    pub(crate) expected: Strictness,
    /// The terms of a client with this URL, once the database was asked.
    pub(crate) terms: Terms,
    /// Why no connection could be used.
    pub(crate) unreached: Option<Error>,
    /// Whether the connection ended, or an answer was missing, after the login.
    pub(crate) fell_silent: bool,
    /// The commands at which a connection ended or fell silent, while a new one worked.
    pub(crate) ended_at: Vec<String>,
    pub(crate) round_trips: Vec<Duration>,
    pub(crate) hello: Answer<Info>,
    pub(crate) info: Answer<Info>,
    /// The first word of the answer to ROLE.
    pub(crate) role: Answer<String>,
    /// The setting `appendfsync`.
    pub(crate) appendfsync: Answer<String>,
    /// The run id of the process behind a second connection.
    pub(crate) second_run_id: Answer<String>,
    /// The id of one connection, asked twice.
    pub(crate) client_ids: Answer<[i64; 2]>,
    /// The server's clock: several readings, the last one some time after the others.
    pub(crate) clock: Answer<Vec<Reading>>,
    /// A write of a canary key.
    pub(crate) write: Answer<()>,
    pub(crate) expiry: Answer<Expiry>,
    pub(crate) release: Answer<Release>,
    /// The command that deletes by token, if scripts are missing and the server has such a command.
    pub(crate) release_without_script: Option<&'static str>,
    /// The commands that the user has no right to run, or that the server does not know.
    pub(crate) missing: Vec<&'static str>,
    /// Whether a message arrived on the channel that it was published to.
    pub(crate) message: Answer<bool>,
    /// Whether the user may use shard channels, at a node of a cluster.
    pub(crate) shard_channels: Answer<()>,
    /// How many replicas confirmed the write.
    pub(crate) wait: Answer<i64>,
    /// The copies that the URL wants, and those that the server made of a write; `None` if it wants
    /// none.
    pub(crate) copies: Option<Answer<Copied>>,
    /// How many disks of this server confirmed the write, and how long that took.
    pub(crate) fsync: Answer<(i64, Duration)>,
    /// The record of the database about strict mode.
    pub(crate) epoch: Answer<Epoch>,
    /// How long the quarantine of a strict server will last, if there is one.
    pub(crate) quarantine: Answer<Option<Duration>>,
    pub(crate) leftovers: Answer<Leftovers>,
    /// The dangerous commands that this user may run. They can end all locks, and no lock needs
    /// them.
    pub(crate) powers: Answer<Vec<&'static str>>,
    /// The setting `client-output-buffer-limit`.
    pub(crate) buffers: Answer<String>,
    /// Whether the server's certificate can be used in 30 days, or why not; `None` without TLS.
    pub(crate) certificate: Option<Result<(), Error>>,
    /// Whether the mark of each node is on this server, in the order of the nodes.
    pub(crate) marks: Vec<Answer<bool>>,
    /// The answers of each sentinel; empty without sentinels.
    pub(crate) sentinels: Vec<SentinelFacts>,
    /// The answers of the server as a node of the cluster in the URL; `None` if the URL names no
    /// cluster.
    pub(crate) membership: Option<Membership>,
}

/// The copies that the server made of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// How many replicas the client wants.
    pub(crate) wanted: i64,
    /// How many replicas confirmed the write: on their disks if the URL wants grants on disk.
    pub(crate) replicas: i64,
    /// Whether this server wrote it to its own disk in time, or need not.
    pub(crate) is_on_disk: bool,
}

/// The answers of a node about its cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The fields of CLUSTER INFO.
    pub(crate) info: Answer<Info>,
    /// The settings of the server whose names begin with `cluster-`.
    pub(crate) settings: Answer<Info>,
}

/// The data in `:lh:epoch`, as far as it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// Whether a strict client has used the database.
    pub(crate) is_used: bool,
    /// The last time that somebody switched it.
    pub(crate) act: Option<Act>,
}

/// The way to a server, as its URL says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The URL without a login.
    pub(crate) label: String,
    /// The hosts of the URL; empty for a socket.
    pub(crate) hosts: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) db: u32,
    pub(crate) has_login: bool,
    pub(crate) has_tls: bool,
    /// Whether sentinels name the server.
    pub(crate) has_sentinels: bool,
    /// The number of the URL that leads to the server. The nodes of a cluster share it.
    pub(crate) url: usize,
    /// Whether the server is a node of a quorum.
    pub(crate) is_in_quorum: bool,
}

/// One reading of the server's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) sent: Moment,
    pub(crate) heard: Moment,
    /// Our time of day when the answer came.
    pub(crate) wall: WallTime,
    /// The server's time of day.
    pub(crate) said: WallTime,
}

/// A key that was written with a short time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// Whether the key was there before its end; `None` if the check came too late.
    pub(crate) was_there: Option<bool>,
    /// Whether the key was still there after its end.
    pub(crate) stayed: bool,
}

/// A key that was deleted with a wrong token, and then with the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) by_wrong_token: bool,
    pub(crate) by_right_token: bool,
}

/// A sample of the locks of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// How many locks were looked at.
    pub(crate) looked: usize,
    /// The names of locks without an end, escaped.
    pub(crate) endless: Vec<String>,
    /// The names of locks that end later than the longest ttl allows, escaped.
    pub(crate) lasting: Vec<String>,
    /// How many locks have a holder with other client software, and names of some, escaped.
    pub(crate) foreign: usize,
    pub(crate) foreign_names: Vec<String>,
}

/// The answers of one sentinel about the primary.
#[derive(Debug)]
pub(crate) struct SentinelFacts {
    pub(crate) label: String,
    /// The fields of SENTINEL MASTER, or why there are none.
    pub(crate) primary: Result<Info, Error>,
    /// Whether the sentinel says that enough sentinels can agree on a failover.
    pub(crate) has_quorum: Answer<bool>,
}

/// Names and values, escaped: the answer to INFO, HELLO or SENTINEL MASTER.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info(BTreeMap<String, String>);

impl Info {
    /// Reads lines of the form `name:value`.
    pub(super) fn of_lines(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(name, value)| (shown(name), shown(value.trim()))).collect())
    }

    /// Reads alternating names and values.
    pub(super) fn of_pairs(values: &[Value]) -> Self {
        let pairs = values.chunks_exact(2).filter_map(|pair| match pair {
            [Value::Bytes(name), Value::Bytes(value)] => {
                let text = |bytes: &[u8]| shown(&String::from_utf8_lossy(bytes));
                Some((text(name), text(value)))
            }
            _ => None,
        });
        Self(pairs.collect())
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The same info with one value replaced.
    #[cfg(test)]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }
}

impl Facts {
    /// The facts before the first question.
    pub(crate) fn unasked(place: Place, terms: Terms) -> Self {
        Self {
            place,
            expected: terms.strict,
            terms,
            unreached: None,
            fell_silent: false,
            ended_at: Vec::new(),
            round_trips: Vec::new(),
            hello: Err(Gap::NotAsked),
            info: Err(Gap::NotAsked),
            role: Err(Gap::NotAsked),
            appendfsync: Err(Gap::NotAsked),
            second_run_id: Err(Gap::NotAsked),
            client_ids: Err(Gap::NotAsked),
            clock: Err(Gap::NotAsked),
            write: Err(Gap::NotAsked),
            expiry: Err(Gap::NotAsked),
            release: Err(Gap::NotAsked),
            release_without_script: None,
            missing: Vec::new(),
            message: Err(Gap::NotAsked),
            shard_channels: Err(Gap::NotAsked),
            wait: Err(Gap::NotAsked),
            copies: None,
            fsync: Err(Gap::NotAsked),
            epoch: Err(Gap::NotAsked),
            quarantine: Err(Gap::NotAsked),
            leftovers: Err(Gap::NotAsked),
            powers: Err(Gap::NotAsked),
            buffers: Err(Gap::NotAsked),
            certificate: None,
            marks: Vec::new(),
            sentinels: Vec::new(),
            membership: None,
        }
    }

    /// A text of INFO.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.info.as_ref().ok()?.text(name)
    }

    /// A number of INFO.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.info.as_ref().ok()?.number(name)
    }

    /// Whether the server has an append-only file. The answer to WAITAOF tells this without a right
    /// to INFO.
    pub(crate) fn has_log(&self) -> Option<bool> {
        match &self.fsync {
            Ok(_) => Some(true),
            Err(Gap::Refused { text, .. }) if text.contains("appendonly") => Some(false),
            Err(_) => self.number("aof_enabled").map(|enabled| enabled == 1),
        }
    }

    /// Whether nothing leaves this machine. Sentinels may name a primary on another machine.
    pub(crate) fn is_here(&self) -> bool {
        let mut primaries = self.sentinels.iter().filter_map(|it| it.primary.as_ref().ok());
        let is_here = |primary: &Info| primary.text("ip").is_some_and(is_loopback);
        // After a failover, sentinels may name different primaries.
        let are_primaries_here = primaries.next().is_some_and(is_here) && primaries.all(is_here);
        self.place.is_here() && (!self.place.has_sentinels || are_primaries_here)
    }

    /// Whether the server says that it stands alone, is a node of a cluster, or is a sentinel.
    /// Valkey calls that `server_mode` in INFO, and Redis `redis_mode`.
    pub(crate) fn mode(&self) -> Option<&str> {
        let of_hello = self.hello.as_ref().ok().and_then(|hello| hello.text("mode"));
        of_hello.or_else(|| self.text("redis_mode")).or_else(|| self.text("server_mode"))
    }

    /// The user of the URL, or the default one.
    pub(crate) fn user(&self) -> &str {
        self.place.user.as_deref().unwrap_or("default")
    }
}

impl Place {
    /// Whether all hosts of the URL are this machine.
    fn is_here(&self) -> bool {
        self.hosts.iter().all(|host| is_loopback(host))
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_read_and_escaped() {
        let info = Info::of_lines(b"# Server\r\nrun_id:ab\r\nx:\x1b[31m\r\nempty:\r\nn:7\r\n");
        assert_eq!(info.text("run_id"), Some("ab"));
        assert_eq!(info.text("x"), Some("\\u{1b}[31m"));
        assert_eq!((info.text("empty"), info.text("none")), (None, None));
        assert_eq!((info.number("n"), info.number("run_id")), (Some(7), None));
        let bytes = |text: &str| Value::Bytes(text.into());
        let pairs = [bytes("a"), bytes("1"), bytes("b"), Value::Int(2), bytes("torn")];
        let info = Info::of_pairs(&pairs);
        assert_eq!((info.number("a"), info.text("b")), (Some(1), None));
    }

    #[test]
    fn a_socket_and_a_loopback_address_are_on_this_machine() {
        for (host, here) in
            [("127.0.0.1", true), ("::1", true), ("localhost", true), ("10.0.0.1", false)]
        {
            let place = Place { hosts: vec![host.to_owned()], ..Place::default() };
            assert_eq!(place.is_here(), here, "{host}");
        }
        assert!(Place::default().is_here());
    }

    /// Each host may be the one that is asked.
    #[test]
    fn of_several_hosts_all_must_be_on_this_machine() {
        for (hosts, here) in [
            (["localhost", "127.0.0.1"], true),
            (["localhost", "10.0.0.1"], false),
            (["10.0.0.1", "::1"], false),
        ] {
            let place = Place { hosts: hosts.map(str::to_owned).into(), ..Place::default() };
            assert_eq!(place.is_here(), here, "{hosts:?}");
        }
    }

    fn facts(fsync: Answer<(i64, Duration)>, info: &[(&str, &str)]) -> Facts {
        let info = info.iter().fold(Info::default(), |info, (name, value)| info.with(name, value));
        Facts { fsync, info: Ok(info), ..Facts::unasked(Place::default(), Terms::default()) }
    }

    #[test]
    fn an_append_only_file_is_known_by_waitaof_or_by_info() {
        let refused =
            |text: &str| Err(Gap::Refused { code: "ERR".to_owned(), text: text.to_owned() });
        let no_log = "ERR WAITAOF cannot be used when appendonly is disabled";
        let (yes, no) = ([("aof_enabled", "1")], [("aof_enabled", "0")]);
        for (fsync, info, has_log) in [
            (Ok((1, Duration::ZERO)), &no[..], Some(true)),
            (Ok((0, Duration::ZERO)), &[], Some(true)),
            (refused(no_log), &yes, Some(false)),
            (refused("ERR another reason"), &yes, Some(true)),
            (Err(Gap::Absent), &yes, Some(true)),
            (Err(Gap::Denied), &no, Some(false)),
            (Err(Gap::Denied), &[], None),
        ] {
            assert_eq!(facts(fsync.clone(), info).has_log(), has_log, "{fsync:?} {info:?}");
        }
    }

    #[test]
    fn the_mode_of_a_server_is_known_by_hello_or_by_info_of_redis_or_valkey() {
        let mode = |hello: Answer<Info>, info: &[(&str, &str)]| {
            let facts = Facts { hello, ..facts(Err(Gap::NotAsked), info) };
            facts.mode().map(str::to_owned)
        };
        let hello = Ok(Info::default().with("mode", "cluster"));
        assert_eq!(mode(hello, &[("redis_mode", "standalone")]).as_deref(), Some("cluster"));
        for name in ["redis_mode", "server_mode"] {
            let of_info = mode(Err(Gap::Absent), &[(name, "sentinel")]);
            assert_eq!(of_info.as_deref(), Some("sentinel"), "{name}");
        }
        assert_eq!(mode(Err(Gap::Absent), &[]), None);
    }
}
