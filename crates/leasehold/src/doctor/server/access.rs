//! Checks of the way to a server and of its load: encryption, login, room for clients, leftovers.

use super::gap::unanswered;
use super::keeping::no_info;
use crate::doctor::check::{Check, Subject};
use crate::store::redis::examine::{Facts, Gap};

const ENCRYPTION: Subject = Subject {
    id: "encryption",
    why: "Whoever reads along learns the owner tokens, and can release the locks of others.",
};

const LOGIN: Subject = Subject {
    id: "login",
    why: "Without a password, everybody who reaches the server can take and end every lock.",
};

const CLIENTS: Subject = Subject {
    id: "clients",
    why: "A server with as many clients as it takes refuses renewals of a new connection.",
};

const LEFTOVERS: Subject =
    Subject { id: "leftovers", why: "A lock without a ttl is never free again by itself." };

pub(super) fn encryption(facts: &Facts) -> Check {
    let place = &facts.place;
    if place.has_tls {
        ENCRYPTION.ok("the connection uses TLS")
    } else if place.is_here() {
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
        LOGIN.ok("no login; the socket has the permissions of a file")
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

/// Whether there is room for more connections.
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

/// Whether locks never end, in a sample.
pub(super) fn leftovers(facts: &Facts) -> Check {
    let sample = match &facts.leftovers {
        Ok(sample) => sample,
        Err(Gap::DeniedKey) => {
            let evidence = format!("user `{}` may not look at all locks", facts.user());
            return LEFTOVERS.unknown(evidence, "name the prefix of the user by --namespace");
        }
        Err(gap) => {
            // The sample takes both rights. The trial of all rights found which one is missing.
            let lacks = |right| facts.missing.contains(&right);
            let command = if lacks("pttl") && !lacks("scan") { "PTTL" } else { "SCAN" };
            return unanswered(LEFTOVERS, gap, facts.user(), command);
        }
    };
    let looked = sample.looked;
    if sample.endless.is_empty() {
        return LEFTOVERS.ok(format!("each of {looked} locks in a sample has a ttl"));
    }
    let names: Vec<_> = sample.endless.iter().map(|name| format!("`{name}`")).collect();
    LEFTOVERS.warn(
        format!("of {looked} locks in a sample, these have no ttl: {}", names.join(", ")),
        "find out who takes these locks without a ttl; `leasehold unlock NAME --force` frees one",
    )
}
