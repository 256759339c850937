//! Tools find the keys in use, and evict only the leases that they saw.

use leasehold::Key;
use leasehold::store::{
    Browse, Capabilities, Evicted, LISTING_KEYS_MAX, PAGE_KEYS_MAX, Released, Store,
};

use crate::actor::Actor;
use crate::check::{granted, lost, released, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "tools find what is in use, and end only what they saw";
pub(crate) const CONTRACT: &str = "`Capabilities::browse` and `Browse`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.browse
}

async fn list(tools: &dyn Browse, pattern: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let is_first = cursor.is_none();
        let page = tools.list(pattern, cursor).await.expect("a list is answered");
        // A store that must look at all keys for a page returns all of them in one page.
        let is_single = is_first && page.next.is_none();
        assert!(page.keys.len() <= if is_single { LISTING_KEYS_MAX } else { PAGE_KEYS_MAX });
        assert_eq!(page.stopped, None);
        names.extend(page.keys.iter().map(|key| key.as_str().to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return names;
        }
    }
}

/// `*` is any run of characters, and `?` any single one. All other characters are literal.
pub(crate) async fn a_pattern_finds_what_it_matches_in_order(world: &World) {
    let anna = world.actor();
    for name in ["order:42", "order:1", "stock", "orde", "order:7", "ü", "ordinal:1", "köy"] {
        granted(anna.ask(&key(name)).send().await);
    }
    let table: [(&str, &[&str]); 8] = [
        ("*", &["köy", "orde", "order:1", "order:42", "order:7", "ordinal:1", "stock", "ü"]),
        ("order:*", &["order:1", "order:42", "order:7"]),
        ("order:?", &["order:1", "order:7"]),
        ("*:1", &["order:1", "ordinal:1"]),
        ("?", &["ü"]),
        ("k?y", &["köy"]),
        ("stock", &["stock"]),
        ("STOCK", &[]),
    ];
    for (pattern, names) in table {
        assert_eq!(list(world.browse(), pattern).await, names, "{pattern}");
        let elsewhere = world.other_store().browse().expect("tools");
        assert_eq!(list(elsewhere, pattern).await, names, "{pattern} through the other handle");
    }
}

/// The special characters of engines have no meaning here.
pub(crate) async fn a_pattern_takes_the_signs_of_engines_literally(world: &World) {
    let anna = world.actor();
    for name in ["a%", "a_", "ab", "a[b]", "a\\", "a'b", "a\"b", "a{1}", "a^"] {
        granted(anna.ask(&key(name)).send().await);
    }
    for literal in ["a%", "a_", "a[b]", "a\\", "a'b", "a\"b", "a{1}", "a^"] {
        assert_eq!(list(world.browse(), literal).await, [literal]);
    }
    assert_eq!(list(world.browse(), "a[a-z]").await, Vec::<String>::new());
    assert_eq!(list(world.browse(), "a'; DROP TABLE leases; --").await, Vec::<String>::new());
    assert_eq!(list(world.browse(), "a?").await, ["a%", "a\\", "a^", "a_", "ab"]);
}

/// Takes all of these keys, few at a time, so that a slow server answers each request in time.
async fn take_all(anna: &Actor, names: &[String]) {
    const AT_ONCE: usize = 100;
    for some in names.chunks(AT_ONCE) {
        let asks = some.iter().map(|name| anna.ask(&key(name)).ttl(600_000).send());
        for ask in asks.collect::<Vec<_>>() {
            granted(ask.await);
        }
    }
}

/// Each key comes once, and none is left out.
pub(crate) async fn a_long_list_comes_in_pages(world: &World) {
    let anna = world.actor();
    let many = 2 * PAGE_KEYS_MAX + 1;
    let names: Vec<String> = (0..many).map(|number| format!("key {number:05}")).collect();
    take_all(&anna, &names).await;
    assert_eq!(list(world.browse(), "*").await, names);
    let page = world.browse().list("key *", None).await.expect("answered");
    let first = if page.next.is_some() { PAGE_KEYS_MAX } else { many };
    assert_eq!(page.keys.len(), first);
    let after = Some(Key::new(&names[PAGE_KEYS_MAX + 2]).expect("a name"));
    let rest = world.browse().list("*", after).await.expect("answered");
    let first = rest.keys[0].as_str();
    assert_eq!(first, names[PAGE_KEYS_MAX + 3], "after the cursor");
    assert_eq!(rest.next, None);
}

/// A page that is exactly full may be the last one.
pub(crate) async fn a_full_page_says_whether_another_follows(world: &World) {
    let anna = world.actor();
    let names: Vec<_> = (0..PAGE_KEYS_MAX).map(|number| format!("key {number:05}")).collect();
    take_all(&anna, &names).await;
    assert_eq!(list(world.browse(), "*").await.len(), PAGE_KEYS_MAX);
}

/// Ended leases and dead places are not in use.
pub(crate) async fn only_keys_in_use_are_listed(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("held")).send().await);
    granted(anna.ask(&key("released")).send().await);
    released(anna.release(&key("released")).await, Released::Freed);
    granted(anna.ask(&key("expired")).ttl(1_000).send().await);
    if world.capabilities().line {
        granted(anna.ask(&key("waited for")).ttl(1_000).send().await);
        taken(bert.ask(&key("waited for")).join().send().await);
    }
    world.pass(ms(1_000) + world.slack()).await;
    let mut expected = vec!["held"];
    expected.extend(world.capabilities().line.then_some("waited for"));
    assert_eq!(list(world.browse(), "*").await, expected);
    world.pass(ms(3_000)).await;
    assert_eq!(list(world.browse(), "*").await, ["held"]);
}

async fn evict(world: &World, name: &str, seen: &[u8]) -> Evicted {
    let answer = world.browse().evict(key(name), seen.to_vec(), "a 'test' \u{1f512}".to_owned());
    answer.await.expect("an eviction is answered")
}

/// The holder learns of the eviction at its next renewal.
pub(crate) async fn an_eviction_ends_the_lease_that_was_seen(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let seen = world.inspect(&key("a")).await.holders[0].token.clone();
    assert_eq!(evict(world, "a", &seen).await, Evicted::Evicted);
    lost(anna.renew(&key("a"), 10_000).await);
    released(anna.release(&key("a")).await, Released::NotHeld);
    granted(bert.ask(&key("a")).send().await);
}

/// The lease that an operator saw may have ended before the operator decides.
pub(crate) async fn an_eviction_spares_a_holder_that_was_not_seen(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let seen = anna.owner().as_str().as_bytes();
    released(anna.release(&key("a")).await, Released::Freed);
    assert_eq!(evict(world, "a", seen).await, Evicted::Changed, "free");
    granted(bert.ask(&key("a")).ttl(1_000).send().await);
    for other in [seen, b"", b"%", b"*", b"\xff\xfe", &bert.owner().as_str().as_bytes()[..10]] {
        assert_eq!(evict(world, "a", other).await, Evicted::Changed);
    }
    crate::check::renewed(bert.renew(&key("a"), 1_000).await);
    assert_eq!(evict(world, "never used", seen).await, Evicted::Changed);
    world.pass(ms(1_000) + world.slack()).await;
    let ended = bert.owner().as_str().as_bytes();
    assert_eq!(evict(world, "a", ended).await, Evicted::Changed, "it had ended by itself");
}

/// An eviction is a release that the holder did not request.
pub(crate) async fn an_eviction_hands_over_to_the_head_of_the_line(world: &World) {
    if !world.capabilities().line {
        return;
    }
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    let before = granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    let seen = anna.owner().as_str().as_bytes().to_vec();
    assert_eq!(evict(world, "a", &seen).await, Evicted::Evicted);
    taken(carl.ask(&key("a")).send().await);
    let after = granted(bert.ask(&key("a")).send().await);
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after.first > before.first);
    }
}

/// Tools and capabilities agree, through every handle.
pub(crate) async fn the_tools_are_there_through_every_handle(world: &World) {
    assert!(world.store().browse().is_some());
    assert!(world.other_store().browse().is_some());
}
