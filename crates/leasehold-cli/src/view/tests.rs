//! How a lock is shown.

use leasehold::FencingToken;
use leasehold::core::FencingBlock;
use leasehold::core::token::ClientId;
use leasehold::store::PermitsTaken;
use serde_json::json;

use super::table::{COLUMNS, LAST, row, table};
use super::*;

const NOW: WallTime = WallTime::from_unix_micros(1_700_000_192_000_000);
const THEN: WallTime = WallTime::from_unix_micros(1_700_000_000_000_000);

fn client(pid: u32) -> ClientRecord {
    let mut client = ClientRecord::new(ClientId::from_random([0; ClientId::CHARS]));
    client.host = "ci-7".to_owned();
    client.pid = pid;
    client.user = "ci".to_owned();
    client.command = "./deploy.sh\x1b[2J".to_owned();
    client
}

fn seen() -> Snapshot {
    let fence = FencingToken::new(8812).expect("not zero");
    let mut holder = Holder::new(b"abcdefghijklmnop");
    holder.client = Some(client(4121));
    holder.why = Some("release\n2".to_owned());
    holder.since = Some(THEN);
    holder.ttl = Some(Duration::from_secs(30));
    holder.ttl_left = Some(Duration::from_millis(26_500));
    holder.fencing = Some(FencingBlock { first: fence, count: 1 });
    let mut waiter = Waiter::default();
    waiter.client = Some(client(5));
    waiter.since = Some(THEN);
    let mut seen = Snapshot::default();
    seen.holders = vec![holder];
    seen.waiters = vec![waiter, Waiter::default()];
    seen.waiting = 2;
    seen.fencing = Some(fence);
    seen
}

fn quarantined(quarantine: Quarantine) -> Snapshot {
    let mut seen = Snapshot::default();
    seen.quarantine = Some(quarantine);
    seen
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
            "since": "2023-11-14T22:13:20.000Z", "ttl_ms": 30000, "ttl_left_ms": 26500,
            "renewed_ms_ago": 3500, "fence": "8812",
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
fn the_view_of_a_quorum_shows_who_has_which_node_and_no_more_of_the_token() {
    let mut seen = seen();
    seen.votes = vec![
        Vote::new("redis://a/0", Ok(Some(b"abcdefghijklmnop".to_vec()))),
        Vote::new("redis://bb/0", Ok(None)),
        Vote::new("redis://c/0", Err("no server\x1b[2J listens there".to_owned())),
        Vote::new("redis://d/0", Ok(Some(b"secret".to_vec()))),
    ];
    let object = serde_json::to_value(LockObject::new("deploy", &seen)).expect("JSON");
    let expected = json!([
        { "node": "redis://a/0", "holder_hint": "abcd", "error": null },
        { "node": "redis://bb/0", "holder_hint": null, "error": null },
        {
            "node": "redis://c/0", "holder_hint": null,
            "error": "no server\u{1b}[2J listens there",
        },
        { "node": "redis://d/0", "holder_hint": "se", "error": null },
    ]);
    assert_eq!(object["votes"], expected);
    let lines = "  nodes    redis://a/0   abcd…\n           redis://bb/0  nobody\n           \
                 redis://c/0   no server\\u{1b}[2J listens there\n           \
                 redis://d/0   se…\n";
    assert!(text("deploy", &seen, NOW).ends_with(lines), "{}", text("deploy", &seen, NOW));
}

#[test]
fn the_card_shows_the_holder_the_reason_and_our_position_all_escaped() {
    let text = card("deploy", &seen(), NOW, Some(2)).expect("held");
    for part in [
        "`deploy` is held by ci-7 pid 4121 (./deploy.sh\\u{1b}[2J, user ci) since ",
        "(3m 12s)",
        "why: release\\n2",
        "free in 26s unless its holder renews it   ttl 30s, renewed 3.5s ago",
        "fence 8812",
        "you are #2 of 2 in line",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(text.lines().count(), 2);
    assert_eq!(card("deploy", &Snapshot::default(), NOW, None), None);
}

#[test]
fn holders_that_share_a_lock_and_owners_of_permits_are_shown_as_such() {
    let mut seen = seen();
    seen.holders.push(Holder::new(b"zyxwvutsrqponmlk"));
    let with = |claim, permits| {
        let mut seen = seen.clone();
        seen.holders.iter_mut().for_each(|holder| holder.claim = claim);
        seen.waiters.iter_mut().for_each(|waiter| waiter.claim = claim);
        seen.permits = permits;
        seen
    };
    let shared = with(Claim::Shared, None);
    assert!(text("x", &shared, NOW).starts_with("x: held, shared\n  holder   ci-7 pid 4121 "));
    assert!(
        text("x", &shared, NOW).contains("1. ci-7 pid 5 (./deploy.sh\\u{1b}[2J, user ci) (shared)")
    );
    assert!(
        card("x", &shared, NOW, None)
            .expect("held")
            .contains("user ci) and 1 more (shared) since ")
    );
    assert_eq!(row("x", &shared, NOW)[1], "held by 2");
    let object = serde_json::to_value(LockObject::new("x", &shared)).expect("JSON");
    assert_eq!((&object["holders"][1]["shared"], &object["permits"]), (&json!(true), &Value::Null));

    let permits = with(Claim::Permits { want: 2, of: 5 }, Some(PermitsTaken::new(4, 5)));
    assert!(text("x", &permits, NOW).starts_with("x: held, 4 of 5 permits taken\n"));
    assert!(text("x", &permits, NOW).contains("user ci) (2 permits)\n"));
    let card = card("x", &permits, NOW, None).expect("held");
    assert!(card.contains("user ci) and 1 more (4 of 5 permits taken) since "), "{card}");
    assert_eq!(row("x", &permits, NOW)[1], "held 4/5");
    let object = serde_json::to_value(LockObject::new("x", &permits)).expect("JSON");
    assert_eq!((&object["permits"], &object["permits_taken"]), (&json!(5), &json!(4)));
    assert_eq!((&object["holders"][0]["permits"], &object["state"]), (&json!(2), &json!("held")));
    assert_eq!(object["waiters"][1]["permits"], json!(2));
}

/// At three in the morning, a user must understand why nobody holds the lock and nobody gets it.
#[test]
fn a_store_that_forgot_is_said_to_be_in_the_way() {
    let (since, left) = (Duration::from_millis(12_900), Duration::from_millis(52_100));
    let quarantine = Quarantine::new(Some(since), left);
    let seen = quarantined(quarantine);
    let why = "the store is new, was restarted, or forgot its data (noticed 12 s ago); \
               no new locks for 53 s more";
    let card = card("x", &seen, NOW, None).expect("there is something to say");
    assert_eq!(card, format!("`x` is not granted: {why}"));
    let text = text("x", &seen, NOW);
    assert_eq!(text, format!("x: quarantined\n  store    {why}\n"));
    let object = serde_json::to_value(LockObject::new("x", &seen)).expect("JSON");
    assert_eq!(object["state"], "quarantined");
    assert_eq!(object["quarantine"], json!({ "since_ms": 12_900, "left_ms": 52_100 }));
    let seen = quarantined(Quarantine::new(None, Duration::from_hours(24)));
    let card = super::card("x", &seen, NOW, None).expect("there is something to say");
    assert!(card.contains("86400 s more; that is longer than any quarantine"), "{card}");
    assert!(card.contains("`HDEL :lh:epoch until`"), "{card}");
    let mut held = tests::seen();
    held.quarantine = Some(quarantine);
    assert_eq!(state(&held), "held");
    assert!(super::text("x", &held, NOW).contains(why));
}

#[test]
fn a_foreign_holder_is_shown_as_such() {
    let mut seen = seen();
    seen.holders[0].client = None;
    seen.holders[0].ttl = None;
    seen.holders[0].ttl_left = None;
    seen.holders[0].token = b"\xff\x1babcdefghijklmnop".to_vec();
    let text = text("x", &seen, NOW);
    assert!(text.contains("a client that left no record"), "{text}");
    assert!(text.contains("without an end: from another client library, or not a lock"), "{text}");
    assert!(text.contains("0xff1b6162…") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_table_lines_up() {
    let rows = [COLUMNS.map(str::to_owned), row("deploy/prod", &seen(), NOW)];
    let text = table(&rows, None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].find("STATE"), lines[1].find("held"));
    assert_eq!(lines[0].find("WHY"), lines[1].find("release"));
    let mut wordy = rows;
    wordy[1][LAST] = "x".repeat(200);
    for (columns, length) in [(None, 60), (Some(130), 130 - text.find("WHY").expect("a head"))] {
        let text = table(&wordy, columns);
        let why = text.lines().nth(1).and_then(|line| line.split_once("xx")).expect("cut").1;
        assert_eq!(why.chars().count() + 2, length, "{text}");
        assert!(why.ends_with("x…"), "{text}");
    }
    assert!(table(&wordy, Some(1)).contains("  xxxxxxxxx…\n"));
}

#[test]
fn a_lease_says_when_it_was_renewed_where_that_is_known() {
    let mut holder = Holder::new(b"abcdefghijklmnop");
    holder.ttl_left = Some(Duration::from_millis(9_600));
    assert_eq!(lease(&holder), "free in 9.6s unless its holder renews it");
    for (ttl, says) in [
        (Duration::from_secs(10), "   ttl 10s, renewed 0.4s ago"),
        (Duration::from_millis(10_500), "   ttl 10s, renewed 0.9s ago"),
        (Duration::from_mins(2), "   ttl 2m 0s, renewed 1m 50s ago"),
        // The ttl is not the reported one: then the time of the renewal is unknown.
        (Duration::from_secs(9), "renews it"),
    ] {
        holder.ttl = Some(ttl);
        assert!(lease(&holder).ends_with(says), "{}", lease(&holder));
    }
}

#[test]
fn a_lock_that_is_only_kept_taken_is_not_said_to_be_renewed() {
    let mut seen = seen();
    seen.holders[0].idle = true;
    seen.holders[0].ttl_left = Some(Duration::from_mins(54));
    let lease = "free in 54m 0s at the latest; no work holds it";
    let card = card("x", &seen, NOW, None).expect("kept");
    assert!(card.starts_with("`x` is kept taken by ci-7 pid 4121 ("), "{card}");
    assert!(card.contains(lease) && !card.contains("renew"), "{card}");
    assert!(text("x", &seen, NOW).contains(&format!("  lease    {lease}\n")));
    assert_eq!(kept(&seen).as_deref(), Some(lease));
    seen.holders.push(Holder::new(b"zyxwvutsrqponmlk"));
    assert_eq!((state(&seen), kept(&seen)), ("held", None), "one of two works");
    assert_eq!((state(&Snapshot::default()), kept(&Snapshot::default())), ("free", None));
}

#[test]
fn a_name_without_a_fenced_grant_is_shown_as_such() {
    let unknown = "x: free\n  fence    none: no fenced grant in the last 10 minutes\n";
    assert_eq!(text("x", &Snapshot::default(), NOW), unknown);
}

#[test]
fn an_empty_reason_is_none() {
    let mut seen = seen();
    seen.holders[0].why = Some(String::new());
    let object = serde_json::to_value(LockObject::new("x", &seen)).expect("JSON");
    assert_eq!(object["holders"][0]["why"], Value::Null);
    assert!(!text("x", &seen, NOW).contains("why"), "{}", text("x", &seen, NOW));
    assert!(!card("x", &seen, NOW, None).expect("held").contains("why"));
}
