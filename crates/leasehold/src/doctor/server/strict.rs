//! Checks what the database and the URL say about strict mode.

use std::time::Duration;

use super::gap::unanswered;
use super::keeping::has_log;
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
    let epoch = match &facts.epoch {
        Ok(epoch) => epoch,
        Err(gap) => return unread(facts, gap),
    };
    let is_on = epoch.act.as_ref().is_some_and(|act| act.is_on);
    if is_on && facts.expected == Strictness::No {
        let evidence = "the database is switched to strict mode, and this URL says `strict=no`";
        let remedy = "leave `strict` out of the URL; or `leasehold strict off`";
        return STRICT.fail(evidence, remedy);
    }
    if facts.terms.strict.strict().is_none() {
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
        let remedy = "leasehold strict on, with the same URLs";
        let remedy = [remedy, if first.is_empty() { "" } else { "; and " }, first].concat();
        return STRICT.warn(evidence, remedy);
    }
    if let Some((evidence, remedy)) = quarantine {
        return STRICT.warn(evidence, remedy);
    }
    let evidence = "the database is switched to strict mode, and there is no quarantine";
    if facts.expected == Strictness::AsDatabase && has_log(facts) != Some(true) {
        return STRICT.ok(format!(
            "{evidence}; write `strict=yes` into the URL, because a server without a file forgets \
             the switch in a restart"
        ));
    }
    STRICT.ok(evidence)
}

/// What a quarantine means, and what helps.
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
            format!("user `{user}` may not read whether the database is switched to strict mode"),
            format!("ACL SETUSER {user} +hmget ~:lh:epoch"),
        ),
        gap => unanswered(STRICT, gap, user, "HMGET"),
    }
}
