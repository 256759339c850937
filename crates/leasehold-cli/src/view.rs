//! A lock as people and programs see it.

use std::time::Duration;

use leasehold::Snapshot;
use leasehold::core::WallTime;
use leasehold::store::{ClientRecord, Holder, Quarantine, Vote, Waiter};
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
    /// Of a quorum only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    votes: Vec<VoteObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantine: Option<QuarantineObject>,
}

/// Why nothing new is granted, by a store that forgot what it had granted.
#[derive(Debug, Serialize)]
struct QuarantineObject {
    since_ms: Option<u64>,
    left_ms: Option<u64>,
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
    ttl_left_ms: Option<u64>,
    fence: Option<String>,
}

#[derive(Debug, Serialize)]
struct WaiterObject {
    position: usize,
    host: Option<String>,
    pid: Option<u32>,
    user: Option<String>,
    command: Option<String>,
    since: Option<String>,
}

impl LockObject {
    /// The lock of that name, as it was seen.
    pub(crate) fn new(name: &str, seen: &Snapshot) -> Self {
        Self {
            schema: "leasehold.v1.lock",
            name: name.to_owned(),
            state: state(seen),
            holders: seen.holders.iter().map(HolderObject::new).collect(),
            waiters: (1..).zip(&seen.waiters).map(|(at, who)| WaiterObject::new(at, who)).collect(),
            fence: seen.fencing.map(|fence| fence.to_string()),
            votes: seen.votes.iter().map(VoteObject::new).collect(),
            quarantine: seen.quarantine.as_ref().map(QuarantineObject::new),
        }
    }
}

impl QuarantineObject {
    fn new(quarantine: &Quarantine) -> Self {
        let Quarantine { since, left } = quarantine;
        Self { since_ms: since.map(millis), left_ms: left.map(millis) }
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
            why: holder.why.clone(),
            since: holder.since.map(rfc3339),
            ttl_left_ms: holder.ttl_left.map(millis),
            fence: fence(holder),
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
        }
    }
}

/// The first holder as an object, for errors about a lock that is taken.
pub(crate) fn first_holder(seen: &Snapshot) -> Option<Value> {
    serde_json::to_value(HolderObject::new(seen.holders.first()?)).ok()
}

/// `free`, `held`, `idle`, or `quarantined`: nobody is known to hold it, and it is not granted.
pub(crate) fn state(seen: &Snapshot) -> &'static str {
    match &seen.holders[..] {
        [] if seen.quarantine.is_some() => "quarantined",
        [] => "free",
        holders if holders.iter().all(|holder| holder.idle) => "idle",
        _ => "held",
    }
}

/// Whether it frees itself never, whatever becomes of its holder: it was not taken by us.
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

/// `ci-7 pid 4121 (./deploy.sh, user ci)`.
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

/// `14:02:11 (3m 12s)`.
pub(crate) fn since(since: WallTime, now: WallTime) -> String {
    let span = Duration::from_micros(now.as_unix_micros().saturating_sub(since.as_unix_micros()));
    format!("{} ({})", clock(since, now), human(span))
}

/// Who holds it, or why nobody may: two lines at most for a person who waits. Nothing if nobody
/// does.
pub(crate) fn card(
    name: &str,
    seen: &Snapshot,
    now: WallTime,
    us: Option<usize>,
) -> Option<String> {
    let Some(holder) = seen.holders.first() else {
        let quarantine = seen.quarantine.as_ref()?;
        return Some(format!("`{}` is not granted: {quarantine}", escape(name)));
    };
    let mut text = format!("`{}` is held by {}", escape(name), who(holder.client.as_ref()));
    if let Some(time) = holder.since {
        text.push_str(&format!(" since {}", since(time, now)));
    }
    let mut facts = Vec::new();
    facts.extend(holder.why.as_deref().map(|why| format!("why: {}", escape(why))));
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

fn lease(holder: &Holder) -> String {
    holder.ttl_left.map_or_else(
        // A key of another application looks like this, too.
        || "lease without an end: a foreign client's, or data that is no lock".to_owned(),
        |left| format!("free in {} unless its holder renews it", human(left)),
    )
}

/// All that is known of a lock, for people.
pub(crate) fn text(name: &str, seen: &Snapshot, now: WallTime) -> String {
    let mut out = format!("{}: {}\n", escape(name), state(seen));
    if let Some(quarantine) = &seen.quarantine {
        out.push_str(&format!("  store    {quarantine}\n"));
    }
    for holder in &seen.holders {
        out.push_str(&format!("  holder   {}\n", who(holder.client.as_ref())));
        if let Some(time) = holder.since {
            out.push_str(&format!("  since    {}\n", since(time, now)));
        }
        if let Some(why) = &holder.why {
            out.push_str(&format!("  why      {}\n", escape(why)));
        }
        out.push_str(&format!("  lease    {}\n", lease(holder).trim_start_matches("lease ")));
        if let Some(fence) = fence(holder) {
            out.push_str(&format!("  fence    {fence}\n"));
        }
        out.push_str(&format!("  token    {}…\n", escape(&holder.token_hint())));
    }
    if let (true, Some(fence)) = (seen.holders.is_empty(), seen.fencing) {
        out.push_str(&format!("  fence    {fence} (the last one)\n"));
    }
    if seen.waiting > 0 {
        out.push_str(&format!("  waiting  {}\n", seen.waiting));
    }
    for (position, waiter) in (1..).zip(&seen.waiters) {
        let time = waiter.since.map(|time| format!(" since {}", since(time, now)));
        let who = who(waiter.client.as_ref());
        out.push_str(&format!("    {position}. {who}{}\n", time.unwrap_or_default()));
    }
    out.push_str(&votes(&seen.votes));
    out
}

/// Who has the key at each node of a quorum, a line for each; nothing for a single store.
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

/// The heads of [`row`].
pub(crate) const COLUMNS: [&str; 6] = ["NAME", "STATE", "HOLDER", "HELD FOR", "WAITING", "WHY"];

/// A lock as a line of a table.
pub(crate) fn row(name: &str, seen: &Snapshot, now: WallTime) -> [String; 6] {
    let holder = seen.holders.first();
    let client = holder.and_then(|holder| holder.client.as_ref());
    let held_for = holder.and_then(|holder| holder.since).map(|since| {
        human(Duration::from_micros(now.as_unix_micros().saturating_sub(since.as_unix_micros())))
    });
    [
        escape(name),
        state(seen).to_owned(),
        client.map_or_else(
            || if holder.is_some() { "?".to_owned() } else { String::new() },
            |client| format!("{}:{} {}", escape(&client.host), client.pid, escape(&client.user)),
        ),
        held_for.unwrap_or_default(),
        if seen.waiting == 0 { String::new() } else { seen.waiting.to_string() },
        holder.and_then(|holder| holder.why.as_deref()).map(escape).unwrap_or_default(),
    ]
}

/// How long a reason in a table may be at least, and where nothing says how wide a line is at most.
const WHY_CHARS: (usize, usize) = (10, 60);

/// The lines of a table, columns lined up by characters, the last one cut to a line of `columns`.
pub(crate) fn table(rows: &[[String; 6]], columns: Option<usize>) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let before: usize = widths[..5].iter().map(|width| width + 2).sum();
    let (least, most) = WHY_CHARS;
    let why = columns.map_or(most, |columns| columns.saturating_sub(before).max(least));
    let mut out = String::new();
    for row in rows {
        let cells = row[..5].iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let cells: Vec<String> = cells.chain([cut(&row[5], why)]).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use leasehold::FencingToken;
    use leasehold::core::FencingBlock;
    use leasehold::core::token::ClientId;
    use serde_json::json;

    use super::*;

    const NOW: WallTime = WallTime::from_unix_micros(1_700_000_192_000_000);
    const THEN: WallTime = WallTime::from_unix_micros(1_700_000_000_000_000);

    fn client(pid: u32) -> ClientRecord {
        ClientRecord {
            id: ClientId::from_random([0; ClientId::CHARS]),
            host: "ci-7".to_owned(),
            pid,
            user: "ci".to_owned(),
            command: "./deploy.sh\x1b[2J".to_owned(),
        }
    }

    fn seen() -> Snapshot {
        let fence = FencingToken::new(8812).expect("not zero");
        Snapshot {
            holders: vec![Holder {
                token: b"abcdefghijklmnop".to_vec(),
                client: Some(client(4121)),
                why: Some("release\n2".to_owned()),
                since: Some(THEN),
                ttl_left: Some(Duration::from_millis(26_500)),
                fencing: Some(FencingBlock { first: fence, count: 1 }),
                idle: false,
            }],
            waiters: vec![
                Waiter { id: None, client: Some(client(5)), since: Some(THEN) },
                Waiter { id: None, client: None, since: None },
            ],
            waiting: 2,
            fencing: Some(fence),
            votes: Vec::new(),
            quarantine: None,
        }
    }

    #[test]
    fn the_lock_object_has_exactly_the_pinned_fields() {
        let object = serde_json::to_value(LockObject::new("deploy", &seen())).expect("JSON");
        let expected = json!({
            "schema": "leasehold.v1.lock",
            "name": "deploy",
            "state": "held",
            "holders": [{
                "token_hint": "abcd", "host": "ci-7", "pid": 4121, "user": "ci",
                "command": "./deploy.sh\u{1b}[2J", "why": "release\n2",
                "since": "2023-11-14T22:13:20.000Z", "ttl_left_ms": 26500, "fence": "8812",
            }],
            "waiters": [
                {
                    "position": 1, "host": "ci-7", "pid": 5, "user": "ci",
                    "command": "./deploy.sh\u{1b}[2J", "since": "2023-11-14T22:13:20.000Z",
                },
                {
                    "position": 2, "host": null, "pid": null, "user": null, "command": null,
                    "since": null,
                },
            ],
            "fence": "8812",
        });
        assert_eq!(object, expected);
        let free = serde_json::to_value(LockObject::new("x", &Snapshot::default())).expect("JSON");
        assert_eq!(free["state"], "free");
        assert_eq!(free["fence"], Value::Null);
    }

    #[test]
    fn of_a_quorum_it_is_shown_who_has_it_where_and_no_more_of_the_token() {
        let vote = |node: &str, holder| Vote { node: node.to_owned(), holder };
        let votes = vec![
            vote("redis://a/0", Ok(Some(b"abcdefghijklmnop".to_vec()))),
            vote("redis://bb/0", Ok(None)),
            vote("redis://c/0", Err("no server\x1b[2J listens there".to_owned())),
            vote("redis://d/0", Ok(Some(b"secret".to_vec()))),
        ];
        let seen = Snapshot { votes, ..seen() };
        let object = serde_json::to_value(LockObject::new("deploy", &seen)).expect("JSON");
        let expected = json!([
            { "node": "redis://a/0", "holder_hint": "abcd", "error": null },
            { "node": "redis://bb/0", "holder_hint": null, "error": null },
            {
                "node": "redis://c/0", "holder_hint": null,
                "error": "no server\u{1b}[2J listens there",
            },
            { "node": "redis://d/0", "holder_hint": "", "error": null },
        ]);
        assert_eq!(object["votes"], expected);
        let lines = "  nodes    redis://a/0   abcd…\n           redis://bb/0  nobody\n           \
                     redis://c/0   no server\\u{1b}[2J listens there\n           \
                     redis://d/0   …\n";
        assert!(text("deploy", &seen, NOW).ends_with(lines), "{}", text("deploy", &seen, NOW));
    }

    #[test]
    fn the_card_says_who_since_when_why_and_where_we_stand_and_escapes_it_all() {
        let text = card("deploy", &seen(), NOW, Some(2)).expect("held");
        for part in [
            "`deploy` is held by ci-7 pid 4121 (./deploy.sh\\u{1b}[2J, user ci) since ",
            "(3m 12s)",
            "why: release\\n2",
            "free in 26s unless its holder renews it",
            "fence 8812",
            "you are #2 of 2 in line",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(text.lines().count(), 2);
        assert_eq!(card("deploy", &Snapshot::default(), NOW, None), None);
    }

    /// At three in the morning: nobody holds it, and nobody gets it.
    #[test]
    fn a_store_that_forgot_is_said_to_be_in_the_way() {
        let (since, left) = (Duration::from_millis(12_900), Duration::from_millis(52_100));
        let quarantine = Some(Quarantine { since: Some(since), left: Some(left) });
        let seen = Snapshot { quarantine, ..Snapshot::default() };
        let why = "the store is new, restarted or forgot its data (noticed 12 s ago); \
                   no new locks for 53 s more";
        let card = card("x", &seen, NOW, None).expect("there is something to say");
        assert_eq!(card, format!("`x` is not granted: {why}"));
        let text = text("x", &seen, NOW);
        assert_eq!(text, format!("x: quarantined\n  store    {why}\n"));
        let object = serde_json::to_value(LockObject::new("x", &seen)).expect("JSON");
        assert_eq!(object["state"], "quarantined");
        assert_eq!(object["quarantine"], json!({ "since_ms": 12_900, "left_ms": 52_100 }));
        let held = Snapshot { quarantine, ..tests::seen() };
        assert_eq!(state(&held), "held");
        assert!(super::text("x", &held, NOW).contains(why));
    }

    #[test]
    fn a_foreign_holder_is_shown_as_such() {
        let mut seen = seen();
        seen.holders[0].client = None;
        seen.holders[0].ttl_left = None;
        seen.holders[0].token = b"\xff\x1babcdefghijklmnop".to_vec();
        let text = text("x", &seen, NOW);
        assert!(text.contains("a client that left no record"), "{text}");
        assert!(
            text.contains("without an end: a foreign client's, or data that is no lock"),
            "{text}"
        );
        assert!(text.contains("\\u{1b}ab…") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_table_lines_up() {
        let rows = [COLUMNS.map(str::to_owned), row("deploy/prod", &seen(), NOW)];
        let text = table(&rows, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("STATE"), lines[1].find("held"));
        assert_eq!(lines[0].find("WHY"), lines[1].find("release"));
        let mut wordy = rows;
        wordy[1][5] = "x".repeat(200);
        for (columns, length) in [(None, 60), (Some(80), 80 - text.find("WHY").expect("a head"))] {
            let text = table(&wordy, columns);
            let why = text.lines().nth(1).and_then(|line| line.split_once("xx")).expect("cut").1;
            assert_eq!(why.chars().count() + 2, length, "{text}");
            assert!(why.ends_with("x…"), "{text}");
        }
        assert!(table(&wordy, Some(1)).contains("  xxxxxxxxx…\n"));
    }
}
