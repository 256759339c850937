//! Checks of the connection to a server and of its load: encryption, login, the limit of clients,
//! leftovers.

use super::gap::unanswered;
use super::keeping::no_info;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::{bytes, cause_of};
use crate::store::redis::examine::{Facts, Gap};

const ENCRYPTION: Subject = Subject {
    id: "encryption",
    why: "A person who reads the traffic learns the owner tokens, and can release others' locks.",
};

const LOGIN: Subject = Subject {
    id: "login",
    why: "Without a password, everybody who reaches the server can take and end every lock.",
};

const CLIENTS: Subject = Subject {
    id: "clients",
    why: "A server at its limit of clients refuses new connections, also for renewals.",
};

const LEFTOVERS: Subject =
    Subject { id: "leftovers", why: "A lock without a ttl is never free again by itself." };

const FOREIGN: Subject = Subject {
    id: "foreign-holders",
    why: "Other software gets no fencing tokens, so resources cannot refuse its late writes.",
};

const POWERS: Subject = Subject {
    id: "powers",
    why: "A user who may delete all data, or change the settings, can end every lock by mistake.",
};

const BUFFERS: Subject = Subject {
    id: "message-buffer",
    why: "The server disconnects a client that is too far behind. Its waiters poll until then.",
};

const CERTIFICATE: Subject = Subject {
    id: "certificate",
    why: "Once the certificate has expired, no client connects, and holders lose their locks.",
};

/// The smallest buffer for messages that is no reason for a warning.
const BUFFER_MIN: u64 = 1 << 20;

pub(super) fn encryption(facts: &Facts) -> Check {
    let place = &facts.place;
    if place.has_tls {
        ENCRYPTION.ok("the connection uses TLS")
    } else if facts.is_here() {
        ENCRYPTION.ok("the connection stays on this machine")
    } else if place.has_login {
        let evidence = "the password and the tokens go to another machine without TLS";
        ENCRYPTION.warn(evidence, "give the server a port with TLS, and write `rediss://`")
    } else {
        let evidence = "the tokens go to another machine without TLS";
        ENCRYPTION.warn(evidence, "give the server a port with TLS, and write `rediss://`")
    }
}

pub(super) fn login(facts: &Facts) -> Check {
    let place = &facts.place;
    if place.has_login {
        LOGIN.ok(format!("the client logs in as `{}`", facts.user()))
    } else if place.hosts.is_empty() {
        LOGIN.ok("no login; the permissions of the socket's file protect it")
    } else {
        LOGIN.warn(
            "the server lets everybody in without a password",
            "write an `aclfile` or the users into the server's configuration. Make an \
             administrator, and a user for locks by the rule that `leasehold doctor --print-acl` \
             prints. Write the new user into the URL of every client. Only then `ACL SETUSER \
             default off`, and save it (`ACL SAVE` or `CONFIG REWRITE`)",
        )
    }
}

/// Whether the server accepts more connections.
pub(super) fn clients(facts: &Facts) -> Check {
    let Some(now) = facts.number("connected_clients") else { return no_info(CLIENTS, facts) };
    let Some(max) = facts.number("maxclients") else {
        return CLIENTS.ok(format!("{now} clients are connected"));
    };
    let evidence = format!("{now} of {max} clients are connected");
    if now.saturating_mul(100) > max.saturating_mul(80) {
        CLIENTS.warn(
            evidence,
            format!(
                "CONFIG SET maxclients {}, and write it into the server's configuration",
                max.saturating_mul(2)
            ),
        )
    } else {
        CLIENTS.ok(evidence)
    }
}

/// Looks in a sample for locks that never end.
pub(super) fn leftovers(facts: &Facts) -> Check {
    let sample = match &facts.leftovers {
        Ok(sample) => sample,
        Err(Gap::DeniedKey) => {
            let evidence = format!("user `{}` has no right to read all locks", facts.user());
            return LEFTOVERS.unknown(evidence, "use --namespace with the prefix of this user");
        }
        Err(gap) => {
            // The sample needs both rights. The trial of all rights found which one is missing.
            let lacks = |right| facts.missing.contains(&right);
            let command = if lacks("pttl") && !lacks("scan") { "PTTL" } else { "SCAN" };
            return unanswered(LEFTOVERS, gap, facts.user(), command);
        }
    };
    let looked = sample.looked;
    if !sample.endless.is_empty() {
        let names = quoted(&sample.endless);
        return LEFTOVERS.warn(
            format!("of {looked} locks in a sample, these have no ttl: {names}"),
            "find out who takes these locks without a ttl; `leasehold unlock NAME --force --why \
             TEXT` frees one",
        );
    }
    if !sample.lasting.is_empty() {
        let names = quoted(&sample.lasting);
        return LEFTOVERS.warn(
            format!("of {looked} locks in a sample, these last for more than 24 h: {names}"),
            "find out who takes these locks for so long; `leasehold unlock NAME --force --why \
             TEXT` frees one",
        );
    }
    LEFTOVERS.ok(format!("each of {looked} locks in a sample has a ttl"))
}

fn quoted(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Whether other client software holds locks whose names Leasehold uses, too. `None` without a
/// sample. The check of leftovers says why there is none.
pub(super) fn foreign(facts: &Facts) -> Option<Check> {
    let sample = facts.leftovers.as_ref().ok()?;
    let (looked, foreign) = (sample.looked, sample.foreign);
    if foreign == 0 {
        let evidence = format!("no lock of {looked} in a sample has a holder with other software");
        return Some(FOREIGN.ok(evidence));
    }
    let names = quoted(&sample.foreign_names);
    Some(FOREIGN.warn(
        format!(
            "of {looked} locks in a sample, {foreign} have holders with other software: {names}"
        ),
        "move these programs to Leasehold; until then, do not set `Coexist::Off` for these names, \
         and do not rely on fencing tokens",
    ))
}

/// Whether this user has rights that no lock needs.
pub(super) fn powers(facts: &Facts) -> Check {
    let user = facts.user();
    match &facts.powers {
        Ok(powers) if powers.is_empty() => {
            POWERS.ok(format!("user `{user}` may run neither FLUSHALL nor CONFIG SET"))
        }
        Ok(powers) => POWERS.warn(
            format!("user `{user}` may run {}", powers.join(" and ")),
            "give the clients a user of their own, by the rule that `leasehold doctor --print-acl` \
             prints",
        ),
        Err(Gap::Denied | Gap::Absent) => POWERS.unknown(
            format!("user `{user}` has no right to `ACL`, so it is not an administrator"),
            format!("ask as an administrator: ACL DRYRUN {user} FLUSHALL"),
        ),
        Err(gap) => unanswered(POWERS, gap, user, "ACL"),
    }
}

/// Whether the messages for a client fit into its buffer. `None` without the setting, which only
/// administrators may read.
pub(super) fn buffers(facts: &Facts) -> Option<Check> {
    let setting = facts.buffers.as_ref().ok()?;
    let mut words = setting.split(' ').skip_while(|word| *word != "pubsub").skip(1);
    let hard = words.next()?.parse::<u64>().ok()?;
    let evidence = match hard {
        0 => "the messages for a client have no limit".to_owned(),
        hard => format!("a client may have up to {} of unread messages", bytes(hard)),
    };
    Some(if (1..BUFFER_MIN).contains(&hard) {
        let remedy = "CONFIG SET client-output-buffer-limit \"pubsub 32mb 8mb 60\", and write it \
                      into the server's configuration";
        BUFFERS.warn(evidence, remedy)
    } else {
        BUFFERS.ok(evidence)
    })
}

/// Checks whether the certificate is valid for long enough. `None` without TLS.
pub(super) fn certificate(facts: &Facts) -> Option<Check> {
    let remedy = "renew the certificate of the server, and let the server read it: CONFIG SET \
                  tls-cert-file PATH";
    Some(match facts.certificate.as_ref()? {
        Ok(()) => CERTIFICATE.ok("the server's certificate is valid for at least 30 more days"),
        Err(error) if cause_of(error).contains("expired") => {
            CERTIFICATE.warn("the server's certificate expires within 30 days", remedy)
        }
        Err(error) => CERTIFICATE.unknown(cause_of(error), "run the command again"),
    })
}
