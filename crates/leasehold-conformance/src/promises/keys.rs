//! Every name and every text is kept as it is.

use leasehold::store::{Acquired, Capabilities, Note, Released};
use leasehold::{Error, ErrorKind, OwnerToken};

use crate::check::{granted, released, renewed, taken};
use crate::world::{World, key};

pub(crate) const PROMISE: &str = "every name and every text is taken as it is";
pub(crate) const CONTRACT: &str = "`Ask::key` and `Ask::owner`";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// Names with a meaning for an engine, a shell or a terminal, and names that look alike.
const HOSTILE: &str = "a A a% a_ a* a? a[b] a[^b] % _ * ? ' '' \" \\ a\\ `a` {a} {a}b {} }{ a:b \
    : a/b / ../../etc/passwd - --help 0 00 1e3 NULL null true x'00' $(rm) <b> KEYS a;b a,b \
    \u{e9} e\u{301} ß ss SS İ ı i \u{1f512} \u{1f468}\u{200d}\u{1f469} \u{202e}abc \u{feff}a \
    \u{fffd} \u{10ffff} 漢字 नमस्ते";

/// More such names, with blanks in them.
const HOSTILE_WITH_BLANKS: [&str; 6] =
    ["a ", " a", "'; DROP TABLE leases; --", "a' OR '1'='1", "a\u{a0}", "a\u{2028}b"];

fn hostile_names() -> Vec<String> {
    let names = HOSTILE.split(' ').chain(HOSTILE_WITH_BLANKS).map(str::to_owned);
    let long = ["x".repeat(512), "x".repeat(511), "ü".repeat(256), "%".repeat(512)];
    names.chain(long).collect()
}

/// Whether a store refuses a name that a cluster cannot keep, because its keys would not share a
/// slot.
fn is_scattered(name: &str, answer: &Result<Acquired, Error>) -> bool {
    let is_odd = matches!(name, "{}" | "}{");
    is_odd && answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Config)
}

/// Each name is a lock of its own, and no name causes an error.
pub(crate) async fn no_two_names_are_one_lock(world: &World) {
    let mut holders = Vec::new();
    for name in hostile_names() {
        let actor = world.actor();
        let answer = actor.ask(&key(&name)).named().send().await;
        if !is_scattered(&name, &answer) {
            granted(answer);
            holders.push((actor, key(&name)));
        }
    }
    let other = world.actor();
    for (holder, key) in &holders {
        taken(other.ask(key).send().await);
        renewed(holder.renew(key, 10_000).await);
        let snapshot = world.inspect(key).await;
        assert_eq!(snapshot.holders[0].token, holder.owner().as_str().as_bytes(), "{key:?}");
    }
    for (holder, key) in &holders {
        released(holder.release(key).await, Released::Freed);
        granted(other.ask(key).send().await);
    }
}

/// The tools find each key by its own name.
pub(crate) async fn every_name_is_listed_as_it_is(world: &World) {
    if !world.capabilities().browse {
        return;
    }
    let anna = world.actor();
    let mut names = Vec::new();
    for name in hostile_names() {
        let answer = anna.ask(&key(&name)).send().await;
        if !is_scattered(&name, &answer) {
            granted(answer);
            names.push(name);
        }
    }
    names.sort_unstable();
    let page = world.browse().list("*", None).await.expect("answered");
    let listed: Vec<_> = page.keys.iter().map(|key| key.as_str().to_owned()).collect();
    assert_eq!(listed, names);
    for name in &names {
        let page = world.browse().list(name, None).await.expect("answered");
        assert!(page.keys.iter().any(|key| key.as_str() == name), "{name:?} matches itself");
    }
}

/// This holds for any text.
pub(crate) async fn every_reason_is_shown_as_it_was_given(world: &World) {
    let longest = "\u{1f512}".repeat(Note::WHY_BYTES_MAX / 4);
    let reasons = [
        "nightly report",
        "",
        " ",
        "it's \"mine\"; DROP TABLE leases; --",
        "two\nlines\tand a tab",
        "\u{1b}[31mred\u{1b}[0m",
        "before\0after",
        "\u{202e}backwards",
        &longest,
    ];
    for (number, reason) in reasons.into_iter().enumerate() {
        let (key, anna) = (key(&format!("key {number}")), world.actor());
        granted(anna.ask(&key).named().why(reason).send().await);
        let snapshot = world.inspect(&key).await;
        assert_eq!(snapshot.holders[0].why.as_deref(), Some(reason));
        assert_eq!(snapshot.holders[0].client, Some(anna.record()));
    }
}

/// This holds for any token that another library may write.
pub(crate) async fn every_foreign_token_is_an_owner(world: &World) {
    let longest = "~".repeat(OwnerToken::MAX_BYTES);
    let tokens = [
        "x",
        "0",
        "'",
        "\"",
        "%",
        "\\",
        "{}",
        "a:b",
        "NULL",
        "6fa459ea-ee8a-3ca4-894e",
        "123456789012345678901234567890",
        "ABCDEFGHIJKLMNOPQRSTUV.too-long-for-us",
        &longest,
    ];
    for (number, text) in tokens.into_iter().enumerate() {
        let key = key(&format!("key {number}"));
        let owner = OwnerToken::new(text).expect("printable");
        let foreign = world.actor().with_token(owner);
        let block = granted(foreign.ask(&key).send().await);
        assert_eq!(granted(foreign.ask(&key).send().await), block);
        let snapshot = world.inspect(&key).await;
        assert_eq!(snapshot.holders[0].token, text.as_bytes());
        assert_eq!(snapshot.holders[0].client, None);
        taken(world.actor().ask(&key).send().await);
        renewed(foreign.renew(&key, 10_000).await);
        if world.capabilities().line {
            let waiting = world.actor();
            taken(waiting.ask(&key).join().send().await);
            released(foreign.release(&key).await, Released::HandedOver);
            granted(waiting.ask(&key).send().await);
        } else {
            released(foreign.release(&key).await, Released::Freed);
        }
    }
}
