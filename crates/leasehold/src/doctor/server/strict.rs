//! Checks what the database and the URL say about strict mode.

use std::time::Duration;

use super::gap::unanswered;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::span;
use crate::store::redis::Strictness;
use crate::store::redis::examine::{Epoch, Facts, Gap};

const STRICT: Subject = Subject {
    id: "strict",
    why: "A strict server grants nothing new while leases from before a restart may still run.",
};

/// Whether the database and the URL agree on strict mode, and whether the server is quarantined.
pub(super) fn strict(facts: &Facts) -> Check {
    let is_strict = facts.terms.strict.strict().is_some();
    let is_refused = is_strict && facts.info.as_ref().err() == Some(&Gap::Denied);
    let epoch = match &facts.epoch {
        Err(Gap::Denied | Gap::DeniedKey | Gap::Silent) if is_refused => {
            return refused(facts, false);
        }
        Ok(epoch) => epoch,
        Err(gap) => return unread(facts, gap),
    };
    let is_on = epoch.act.as_ref().is_some_and(|act| act.is_on);
    if is_on && facts.expected == Strictness::No {
        let evidence = "the database is switched to strict mode, and this URL says `strict=no`";
        let off = switch(facts, "off");
        return STRICT.fail(evidence, format!("leave `strict` out of the URL; or {off}"));
    }
    if is_refused {
        return refused(facts, is_on);
    }
    if !is_strict {
        return STRICT
            .ok("the database is not switched to strict mode, and this URL is not strict");
    }
    let ahead = match &facts.quarantine {
        Ok(left) => *left,
        Err(gap) => return unanswered(STRICT, gap, facts.user(), "INFO"),
    };
    let quarantine = ahead.map(|left| quarantine(epoch, left));
    if !is_on {
        let evidence = "this URL says `strict=yes`, and the database is not switched to strict \
                        mode: clients without `strict=yes` are not kept out";
        let (also, first) = quarantine.unwrap_or_default();
        let evidence = [evidence, if also.is_empty() { "" } else { "; " }, &also].concat();
        let remedy = match (is_in_cluster(facts), first) {
            (true, _) => "name the cluster as `redis+cluster://HOST,HOST`".to_owned(),
            (false, "") => switch_on(facts),
            (false, first) => format!("{}; and {first}", switch_on(facts)),
        };
        return STRICT.warn(evidence, remedy);
    }
    let forgets = "the database is switched to strict mode, and a server without an append-only \
                   file forgets that in a restart: new clients are not strict";
    match (stays_strict(facts), quarantine) {
        (true, None) => {
            STRICT.ok("the database is switched to strict mode, and there is no quarantine")
        }
        (true, Some((evidence, remedy))) => STRICT.warn(evidence, remedy),
        (false, None) => STRICT.warn(forgets, YES_IN_ALL_URLS),
        (false, Some((evidence, remedy))) => STRICT
            .warn(format!("{forgets}; {evidence}"), format!("{YES_IN_ALL_URLS}; and {remedy}")),
    }
}

/// The remedy if a restart would forget the record of a strict database.
pub(super) const YES_IN_ALL_URLS: &str = "add `?strict=yes` to the URL of every client";

/// Whether new clients with this URL are strict after a restart, too. The reason is the URL, or
/// that the server keeps the record of the database in its file.
pub(super) fn stays_strict(facts: &Facts) -> bool {
    let is_strict = facts.terms.strict.strict().is_some();
    is_strict && (facts.expected != Strictness::AsDatabase || facts.has_log() == Some(true))
}

/// The command that switches this database to strict mode.
pub(super) fn switch_on(facts: &Facts) -> String {
    switch(facts, "on")
}

/// The command that switches this database and the other nodes of its quorum. Clients refuse nodes
/// that differ.
fn switch(facts: &Facts, to: &str) -> String {
    let place = &facts.place;
    if place.is_in_quorum {
        format!("`leasehold strict {to}` with the URLs of all nodes")
    } else if place.has_login {
        // The label of the server has no password.
        format!("`leasehold strict {to}` with this URL")
    } else {
        let url = place.label.split(" (").next().unwrap_or_default();
        format!("`leasehold strict {to} --url {url}`")
    }
}

/// Whether the server is a node of a cluster. A cluster has no strict mode.
pub(super) fn is_in_cluster(facts: &Facts) -> bool {
    facts.mode() == Some("cluster")
}

/// The check if strict clients of this user are refused.
fn refused(facts: &Facts, is_on: bool) -> Check {
    let what = if is_on { "the database is strict" } else { "this URL says `strict=yes`" };
    let evidence = format!("{what}, and this user has no right to INFO: its clients are refused");
    STRICT.fail(evidence, format!("ACL SETUSER {} +info", facts.user()))
}

/// The evidence and the remedy of a quarantine.
fn quarantine(epoch: &Epoch, left: Duration) -> (String, &'static str) {
    if epoch.is_used {
        let evidence =
            format!("the server is quarantined: it grants nothing new for {}", span(left));
        return (evidence, "wait until the quarantine is over");
    }
    let evidence = format!(
        "no strict client has used this database, or it has forgotten that: the first one waits \
         for {}",
        span(left)
    );
    (evidence, "let a first client wait, as by `leasehold run NAME -- true`")
}

/// The check if the record cannot be read.
fn unread(facts: &Facts, gap: &Gap) -> Check {
    let user = facts.user();
    match gap {
        Gap::Refused { code, .. } if code == "WRONGTYPE" => STRICT.fail(
            "`:lh:epoch` of this database is not the hash of a strict server",
            "find out what wrote it (`TYPE :lh:epoch`), and DEL :lh:epoch",
        ),
        Gap::Denied | Gap::DeniedKey => STRICT.unknown(
            format!("user `{user}` has no right to read whether the database is in strict mode"),
            format!("ACL SETUSER {user} +hmget ~:lh:epoch"),
        ),
        gap => unanswered(STRICT, gap, user, "HMGET"),
    }
}
