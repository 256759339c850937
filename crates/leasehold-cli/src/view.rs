//! A lock as people and programs see it.

pub(crate) mod table;

use std::time::Duration;

use leasehold::Snapshot;
use leasehold::core::WallTime;
use leasehold::store::redis::Strict;
use leasehold::store::{Claim, ClientRecord, Holder, Quarantine, Revocation, Vote, Waiter};
use serde::Serialize;
use serde_json::Value;

use crate::duration::human;
use crate::output::{clock, escape, rfc3339};

/// The JSON object of kind `lock`.
#[derive(Debug, Serialize)]
pub(crate) struct LockObject {
    schema: &'static str,
    name: String,
    state: &'static str,
    holders: Vec<HolderObject>,
    waiters: Vec<WaiterObject>,
    fence: Option<String>,
    /// Only for a semaphore: how many permits there are, and how many are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits_taken: Option<u32>,
    /// Only for a quorum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    votes: Vec<VoteObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantine: Option<QuarantineObject>,
}

/// Why a store that forgot its grants grants nothing new.
#[derive(Debug, Serialize)]
struct QuarantineObject {
    since_ms: Option<u64>,
    left_ms: u64,
}

#[derive(Debug, Serialize)]
struct VoteObject {
    node: String,
    holder_hint: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct HolderObject {
    token_hint: String,
    host: Option<String>,
    pid: Option<u32>,
    user: Option<String>,
    command: Option<String>,
    why: Option<String>,
    since: Option<String>,
    ttl_ms: Option<u64>,
    ttl_left_ms: Option<u64>,
    renewed_ms_ago: Option<u64>,
    fence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<AskedObject>,
    #[serde(flatten)]
    share: ShareObject,
}

/// A request to let go.
#[derive(Debug, Serialize)]
pub(crate) struct AskedObject {
    by: String,
    why: String,
    at: String,
}

impl AskedObject {
    pub(crate) fn new(revoked: &Revocation) -> Self {
        let Revocation { by, reason, at, .. } = revoked;
        Self { by: by.clone(), why: reason.clone(), at: rfc3339(*at) }
    }
}

/// How a lock is held or waited for. Empty if the claim is for the whole lock.
#[derive(Debug, Default, Serialize)]
struct ShareObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
}

impl ShareObject {
    fn new(claim: Claim) -> Self {
        match claim {
            Claim::Shared => Self { shared: Some(true), permits: None },
            Claim::Permits { want, .. } => Self { shared: None, permits: Some(want) },
            _ => Self::default(),
        }
    }
}

#[derive(Debug, Serialize)]
struct WaiterObject {
    position: usize,
    host: Option<String>,
    pid: Option<u32>,
    user: Option<String>,
    command: Option<String>,
    since: Option<String>,
    #[serde(flatten)]
    share: ShareObject,
}

impl LockObject {
    /// The lock called `name`, as it was seen.
    pub(crate) fn new(name: &str, seen: &Snapshot) -> Self {
        Self {
            schema: "leasehold.v1.lock",
            name: name.to_owned(),
            state: state(seen),
            holders: seen.holders.iter().map(HolderObject::new).collect(),
            waiters: (1..).zip(&seen.waiters).map(|(at, who)| WaiterObject::new(at, who)).collect(),
            fence: seen.fencing.map(|fence| fence.to_string()),
            permits: seen.permits.map(|permits| permits.of),
            permits_taken: seen.permits.map(|permits| permits.taken),
            votes: seen.votes.iter().map(VoteObject::new).collect(),
            quarantine: seen.quarantine.as_ref().map(QuarantineObject::new),
        }
    }
}

impl QuarantineObject {
    fn new(quarantine: &Quarantine) -> Self {
        let Quarantine { since, left, .. } = quarantine;
        Self { since_ms: since.map(millis), left_ms: millis(*left) }
    }
}

impl VoteObject {
    fn new(vote: &Vote) -> Self {
        Self {
            node: vote.node.clone(),
            holder_hint: vote.holder_hint(),
            error: vote.holder.as_ref().err().cloned(),
        }
    }
}

impl HolderObject {
    fn new(holder: &Holder) -> Self {
        let client = holder.client.as_ref();
        Self {
            token_hint: holder.token_hint(),
            host: client.map(|client| client.host.clone()),
            pid: client.map(|client| client.pid),
            user: client.map(|client| client.user.clone()),
            command: client.map(|client| client.command.clone()),
            why: why(holder).map(str::to_owned),
            since: holder.since.map(rfc3339),
            ttl_ms: holder.ttl.map(millis),
            ttl_left_ms: holder.ttl_left.map(millis),
            renewed_ms_ago: holder.renewed_ago().map(millis),
            fence: fence(holder),
            asked: holder.revoked.as_deref().map(AskedObject::new),
            share: ShareObject::new(holder.claim),
        }
    }
}

impl WaiterObject {
    fn new(position: usize, waiter: &Waiter) -> Self {
        let client = waiter.client.as_ref();
        Self {
            position,
            host: client.map(|client| client.host.clone()),
            pid: client.map(|client| client.pid),
            user: client.map(|client| client.user.clone()),
            command: client.map(|client| client.command.clone()),
            since: waiter.since.map(rfc3339),
            share: ShareObject::new(waiter.claim),
        }
    }
}

/// The first holder as an object, for errors about a taken lock.
pub(crate) fn first_holder(seen: &Snapshot) -> Option<Value> {
    serde_json::to_value(HolderObject::new(seen.holders.first()?)).ok()
}

/// `free`, `held`, `idle`, or `quarantined`: no holder is known, and the store grants nothing.
pub(crate) fn state(seen: &Snapshot) -> &'static str {
    match &seen.holders[..] {
        [] if in_the_way(seen).is_some() => "quarantined",
        [] => "free",
        _ if is_idle(seen) => "idle",
        _ => "held",
    }
}

/// Whether the lock is kept taken although the work of its holders has ended.
pub(crate) fn is_idle(seen: &Snapshot) -> bool {
    !seen.holders.is_empty() && seen.holders.iter().all(|holder| holder.idle)
}

/// The quarantine that keeps the lock from being granted although no holder is known.
pub(crate) fn in_the_way(seen: &Snapshot) -> Option<&Quarantine> {
    seen.quarantine.as_ref().filter(|_| seen.holders.is_empty())
}

/// Whether a quarantine lasts longer than it should.
pub(crate) fn is_too_long(quarantine: &Quarantine) -> bool {
    quarantine.left > Strict::STANDARD.quarantine()
}

/// Why the store grants nothing new, and what to do if that takes too long.
pub(crate) fn reason(quarantine: &Quarantine) -> String {
    let by_hand = "; that is longer than any quarantine: the server's clock was set back, or \
                   somebody changed the end of the quarantine. The server cannot show holders that \
                   it forgot: wait 65 s by your own clock, then run `HDEL :lh:epoch until` in that \
                   database, see GUARANTEES.md";
    format!("{quarantine}{}", if is_too_long(quarantine) { by_hand } else { "" })
}

/// Whether nobody holds the lock or waits for it.
pub(crate) fn is_unused(seen: &Snapshot) -> bool {
    seen.holders.is_empty() && seen.waiting == 0
}

/// Whether all holders are shown.
pub(crate) fn shows_all(seen: &Snapshot) -> bool {
    seen.holders.len() < Snapshot::HOLDERS_SHOWN_MAX
}

/// Says that not all holders may be shown.
pub(crate) fn left_out() -> String {
    format!("there may be more holders: the store shows at most {}", Snapshot::HOLDERS_SHOWN_MAX)
}

/// Whether the holder may be a client of another library. A client of Leasehold leaves a record,
/// unless its program disables that.
pub(crate) fn may_be_foreign(holder: &Holder) -> bool {
    holder.client.is_none()
}

/// Whether the lease never ends by itself: then Leasehold did not take it.
pub(crate) fn is_endless(seen: &Snapshot) -> bool {
    seen.holders.iter().any(|holder| holder.ttl_left.is_none())
}

/// A span in whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn fence(holder: &Holder) -> Option<String> {
    holder.fencing.map(|block| block.first.to_string())
}

/// `ci-7 pid 4121 (leasehold run ./deploy.sh, user ci)`.
pub(crate) fn who(client: Option<&ClientRecord>) -> String {
    client.map_or_else(
        || "a client that left no record".to_owned(),
        |client| {
            format!(
                "{} pid {} ({}, user {})",
                escape(&client.host),
                client.pid,
                escape(&client.command),
                escape(&client.user)
            )
        },
    )
}

/// `asked to let go by ada@web-1 (why: deploy)`.
pub(crate) fn asked(revoked: &Revocation) -> String {
    let (by, why) = (escape(&revoked.by), escape(&revoked.reason));
    format!("asked to let go by {by} (why: {why})")
}

/// `14:02:11 (3m 12s)`.
pub(crate) fn since(since: WallTime, now: WallTime) -> String {
    let span = Duration::from_micros(now.as_unix_micros().saturating_sub(since.as_unix_micros()));
    format!("{} ({})", clock(since, now), human(span))
}

/// The holder, or why nobody can get the lock: at most two lines for a person who waits. `None` if
/// the lock is free.
pub(crate) fn card(
    name: &str,
    seen: &Snapshot,
    now: WallTime,
    us: Option<usize>,
) -> Option<String> {
    let Some(holder) = seen.holders.first() else {
        let quarantine = seen.quarantine.as_ref()?;
        return Some(format!("`{}` is not granted: {}", escape(name), reason(quarantine)));
    };
    let how = if is_idle(seen) { "kept taken" } else { "held" };
    let mut text = format!("`{}` is {how} by {}", escape(name), who(holder.client.as_ref()));
    if let others @ 1.. = seen.holders.len() - 1 {
        text.push_str(&format!(" and {others} more"));
    }
    text.extend(sharing(seen).map(|sharing| format!(" ({sharing})")));
    if let Some(time) = holder.since {
        text.push_str(&format!(" since {}", since(time, now)));
    }
    let mut facts = Vec::new();
    facts.extend(why(holder).map(|why| format!("why: {}", escape(why))));
    facts.push(lease(holder));
    facts.extend(fence(holder).map(|fence| format!("fence {fence}")));
    if let Some(position) = us {
        facts.push(format!("you are #{position} of {} in line", seen.waiting.max(1)));
    } else if seen.waiting > 0 {
        facts.push(format!("{} in line", seen.waiting));
    }
    text.push('\n');
    text.push_str(&facts.join("   "));
    Some(text)
}

/// A line for a person about work that is done once per period: who did it, and when others may do
/// it again. `None` if the work was not done, as far as the store tells. `words` name the lock in a
/// command line.
pub(crate) fn done(name: &str, words: &str, seen: &Snapshot, now: WallTime) -> Option<String> {
    let holder = seen.holders.first().filter(|holder| holder.idle)?;
    let (name, who) = (escape(name), who(holder.client.as_ref()));
    let began = holder.since.map(|time| format!(", who began at {}", since(time, now)));
    let again = holder.ttl_left.map(|left| format!("in {}, or ", human(left)));
    let (began, again) = (began.unwrap_or_default(), again.unwrap_or_default());
    Some(format!(
        "`{name}` was done by {who}{began}; nothing was run; it may run again {again}at once after \
         `leasehold unlock {words} --force --why TEXT`"
    ))
}

/// How several holders have the key: `shared`, or `3 of 5 permits taken`.
fn sharing(seen: &Snapshot) -> Option<String> {
    if let Some(permits) = seen.permits {
        return Some(format!("{} of {} permits taken", permits.taken, permits.of));
    }
    let is_shared = seen.holders.iter().any(|holder| holder.claim == Claim::Shared);
    is_shared.then(|| "shared".to_owned())
}

/// The part of the key that a holder has or a waiter wants, as ` (shared)`. Empty for all of it.
fn wish(claim: Claim) -> String {
    match claim {
        Claim::Shared => " (shared)".to_owned(),
        Claim::Permits { want: 1, .. } => " (1 permit)".to_owned(),
        Claim::Permits { want, .. } => format!(" ({want} permits)"),
        _ => String::new(),
    }
}

/// When a lock that is only kept taken becomes free. `None` if work holds it.
pub(crate) fn kept(seen: &Snapshot) -> Option<String> {
    is_idle(seen).then(|| seen.holders.first().map(lease)).flatten()
}

/// How to free a lock that no work holds. `words` name it in a command line.
pub(crate) fn way_out(words: &str) -> String {
    format!("`leasehold unlock {words} --force --why TEXT` frees it now")
}

fn lease(holder: &Holder) -> String {
    let Some(left) = holder.ttl_left else {
        // A key of another application looks like this, too.
        return "lease without an end: from another client library, or not a lock".to_owned();
    };
    if holder.idle {
        return format!("free in {} at the latest; no work holds it", human(left));
    }
    let mut text = format!("free in {} unless its holder renews it", human(left));
    if let (Some(ttl), Some(ago)) = (holder.ttl, holder.renewed_ago()) {
        text.push_str(&format!("   ttl {}, renewed {} ago", span(ttl), tenths(ago)));
    }
    text
}

/// The holder's reason, if it gave one.
fn why(holder: &Holder) -> Option<&str> {
    holder.why.as_deref().filter(|why| !why.is_empty())
}

/// A span in whole units if possible: `10s` and not `10.0s`.
pub(crate) fn span(span: Duration) -> String {
    let is_whole = span.subsec_nanos() == 0 && span.as_secs() < 60;
    if is_whole { format!("{}s", span.as_secs()) } else { human(span) }
}

/// A span in which a fraction of a second matters: `0.4s`.
fn tenths(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("0.{}s", span.subsec_millis() / 100),
        _ => human(span),
    }
}

/// Everything known about a lock, for people.
pub(crate) fn text(name: &str, seen: &Snapshot, now: WallTime) -> String {
    let sharing = sharing(seen).map(|sharing| format!(", {sharing}")).unwrap_or_default();
    let mut out = format!("{}: {}{sharing}\n", escape(name), state(seen));
    if let Some(quarantine) = &seen.quarantine {
        out.push_str(&format!("  store    {}\n", reason(quarantine)));
    }
    for holder in &seen.holders {
        let who = who(holder.client.as_ref());
        out.push_str(&format!("  holder   {who}{}\n", wish(holder.claim)));
        if let Some(time) = holder.since {
            out.push_str(&format!("  since    {}\n", since(time, now)));
        }
        if let Some(why) = why(holder) {
            out.push_str(&format!("  why      {}\n", escape(why)));
        }
        out.push_str(&format!("  lease    {}\n", lease(holder).trim_start_matches("lease ")));
        if let Some(fence) = fence(holder) {
            out.push_str(&format!("  fence    {fence}\n"));
        }
        if let Some(revoked) = &holder.revoked {
            let at = since(revoked.at, now);
            out.push_str(&format!("  revoke   {} at {at}\n", asked(revoked)));
        }
        out.push_str(&format!("  token    {}…\n", escape(&holder.token_hint())));
    }
    match (&seen.holders[..], seen.fencing) {
        ([], Some(fence)) => out.push_str(&format!("  fence    {fence} (of the latest grant)\n")),
        ([], None) if seen.quarantine.is_none() => {
            out.push_str("  fence    none: no fenced grant in the last 10 minutes\n");
        }
        _ => {}
    }
    if seen.waiting > 0 {
        out.push_str(&format!("  waiting  {}\n", seen.waiting));
    }
    for (position, waiter) in (1..).zip(&seen.waiters) {
        let time = waiter.since.map(|time| format!(" since {}", since(time, now)));
        let (who, wish) = (who(waiter.client.as_ref()), wish(waiter.claim));
        out.push_str(&format!("    {position}. {who}{wish}{}\n", time.unwrap_or_default()));
    }
    out.push_str(&votes(&seen.votes));
    out
}

/// The holder at each node of a quorum, one line each; empty for a single store.
fn votes(votes: &[Vote]) -> String {
    let width = votes.iter().map(|vote| escape(&vote.node).chars().count()).max();
    let heads = ["  nodes    "].into_iter().chain(std::iter::repeat("           "));
    let line = |(head, vote): (&str, &Vote)| {
        let shown = match (&vote.holder, vote.holder_hint()) {
            (Err(error), _) => escape(error),
            (Ok(_), Some(hint)) => format!("{}…", escape(&hint)),
            (Ok(_), None) => "nobody".to_owned(),
        };
        format!("{head}{:width$}  {shown}\n", escape(&vote.node), width = width.unwrap_or_default())
    };
    heads.zip(votes).map(line).collect()
}

#[cfg(test)]
mod tests;
