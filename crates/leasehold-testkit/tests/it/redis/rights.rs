//! The rights that GUARANTEES.md lists for each feature. A user with exactly these rights can use
//! the feature. If any of them is missing, something is denied.

use std::sync::Arc;

use leasehold::store::redis::RedisConnector;
use leasehold::store::{AnyStore, Evicted, Hint, RedisStore, Released, Store};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{fence, granted, kept, released, renewed, taken};
use leasehold_testkit::conformance::{Actor, World, key, ms};
use leasehold_testkit::servers::{RedisServer, ServerOutside};

use super::scripts::{kept as all_keys, left};
use crate::stores::redis_on;

/// The rights as GUARANTEES.md writes them.
const LOCK: &str = "+eval +evalsha +get +set +del +exists +incr +incrby +decr +pexpire +pttl \
                    +time +hset +hget +hmget +hdel +zadd +zrem +zscore +zrank +zrange +zcard \
                    +zcount +zrangebyscore";
const HINTS: &str = "+publish +subscribe";
const CHANGES: &str = "+client|tracking";
const TOOLS: &str = "+scan +mget +zmscore";
const KEYS: &str = "~app:* ~{app:* ~:lh:client:*";
const CHANNELS: &str = "&:lh:inbox:*";
const DATABASE: &str = "+select";

struct Scene<'a> {
    world: &'a World,
    outside: Arc<ServerOutside>,
}

impl Scene<'_> {
    /// A store of a user with exactly these rights.
    async fn store_with(&self, rights: &str) -> AnyStore {
        self.connect(rights, 0).await.expect("the user may connect")
    }

    async fn connect(&self, rights: &str, database: u8) -> Result<AnyStore, Error> {
        let words = ["ACL", "SETUSER", "app", "reset", "resetchannels", "on", "nopass"];
        let words: Vec<_> = words.into_iter().chain(rights.split_whitespace()).collect();
        self.outside.server().command(&words);
        let url = self.outside.server().url().replace("//", "//app:any@");
        let url = format!("{url}/{database}");
        let connector = self.outside.watch(RedisConnector::new(&url).expect("a URL"));
        RedisStore::connect_with(connector, self.world.host().clone()).await.map(AnyStore::new)
    }

    fn actor(&self, store: &AnyStore) -> Actor {
        self.world.actor().through(store).watch_anew()
    }
}

fn play(test: impl AsyncFnOnce(&Scene<'_>)) {
    let server = Box::new(RedisServer::builder().with_clock().start());
    let outside = ServerOutside::new(server);
    let host = VirtualHost::new(1);
    let opener = redis_on(&outside, &host);
    host.run(async {
        let world = World::open(host.clone(), opener).await;
        test(&Scene { world: &world, outside: outside.clone() }).await;
    });
    host.drop_tasks();
}

#[test]
fn with_the_rights_to_lock_a_user_locks_renews_and_releases() {
    play(async |scene| {
        let store = scene.store_with(&format!("{LOCK} {KEYS}")).await;
        for _ in 0..2 {
            let anna = scene.actor(&store);
            granted(anna.ask(&key("app:a")).named().why("why").send().await);
            renewed(anna.renew(&key("app:a"), 10_000).await);
            let snapshot = scene.world.inspect(&key("app:a")).await;
            assert_eq!(snapshot.holders[0].client, Some(anna.record()));
            taken(scene.actor(&store).ask(&key("app:a")).send().await);
            released(anna.release(&key("app:a")).await, Released::Freed);
        }
        let other = scene.actor(&store).ask(&key("other:a")).send().await;
        assert_eq!(other.expect_err("not its key").kind(), ErrorKind::Denied);
    });
}

#[test]
fn with_the_rights_to_lock_a_user_waits_in_line() {
    play(async |scene| {
        let store = scene.store_with(&format!("{LOCK} {KEYS}")).await;
        let (anna, bert) = (scene.actor(&store), scene.actor(&store));
        granted(anna.ask(&key("app:a")).send().await);
        taken(bert.ask(&key("app:a")).join().send().await);
        released(anna.release(&key("app:a")).await, Released::HandedOver);
        granted(bert.ask(&key("app:a")).send().await);
    });
}

/// The client that releases a lock also hands it over to the waiters.
#[test]
fn with_the_rights_to_lock_a_user_renews_and_hands_over_what_others_wait_for() {
    play(async |scene| {
        let poor = scene.store_with(&format!("{LOCK} {KEYS}")).await;
        let server = scene.outside.server();
        for (name, is_reader) in [("app:a", false), ("app:b", true)] {
            let key = key(name);
            let anna = scene.actor(&poor);
            let waiters = [scene.world.actor(), scene.world.actor()];
            let ask = |waiter: &Actor| {
                let ask = waiter.ask(&key).join();
                if is_reader { ask.shared() } else { ask }
            };
            granted(anna.ask(&key).send().await);
            for waiter in &waiters {
                taken(ask(waiter).send().await);
            }
            renewed(anna.renew(&key, 10_000).await);
            released(anna.release(&key).await, Released::HandedOver);
            let holder = if is_reader { ":lh:shared" } else { waiters[0].owner().as_str() };
            assert_eq!(server.command(&["GET", name]).text(), holder);
            taken(anna.another().ask(&key).send().await);
            granted(ask(&waiters[0]).send().await);
        }
    });
}

/// After a hand-over, the server remembers for ten minutes when the line is to open.
#[test]
fn where_nobody_waits_any_more_a_lock_is_taken_and_released_without_the_rights_to_a_line() {
    play(async |scene| {
        let server = scene.outside.server();
        let (carl, dora) = (scene.world.actor(), scene.world.actor());
        let of_line = "-zadd -zrem -zscore -zrange -zcount -zrangebyscore";
        let poor = scene.store_with(&format!("{LOCK} {of_line} {KEYS}")).await;
        granted(carl.ask(&key("app:a")).send().await);
        taken(dora.ask(&key("app:a")).join().send().await);
        released(carl.open(&key("app:a")).await, Released::HandedOver);
        released(dora.release(&key("app:a")).await, Released::Freed);
        let is_left = || server.command(&["EXISTS", "{app:a}:lh:open"]).int() == 1;
        for reserve in [0, 1, 4] {
            for opens in [false, true] {
                assert!(is_left(), "otherwise this test shows nothing");
                let anna = scene.actor(&poor);
                granted(anna.ask(&key("app:a")).reserve(reserve).send().await);
                taken(scene.actor(&poor).ask(&key("app:a")).send().await);
                renewed(anna.renew(&key("app:a"), 10_000).await);
                let heir = anna.another();
                kept(anna.keep_for(&heir, &key("app:a"), 10_000, reserve).await);
                let release = async {
                    if opens {
                        heir.open(&key("app:a")).await
                    } else {
                        heir.release(&key("app:a")).await
                    }
                };
                released(release.await, Released::Freed);
            }
        }
    });
}

#[test]
fn with_the_rights_to_channels_a_user_is_woken() {
    play(async |scene| {
        let store = scene.store_with(&format!("{LOCK} {HINTS} {KEYS} {CHANNELS}")).await;
        let (anna, bert) = (scene.actor(&store), scene.actor(&store));
        granted(anna.ask(&key("app:a")).send().await);
        taken(bert.ask(&key("app:a")).join().send().await);
        scene.world.settle().await;
        released(anna.release(&key("app:a")).await, Released::HandedOver);
        bert.hint(|_| Some(())).await;
    });
}

#[test]
fn with_the_right_to_be_told_of_changes_a_user_is_woken_when_a_foreign_holder_lets_go() {
    play(async |scene| {
        let rights = format!("{LOCK} {HINTS} {CHANGES} {KEYS} {CHANNELS}");
        let store = scene.store_with(&rights).await;
        let anna = scene.actor(&store);
        let server = scene.outside.server();
        server.command(&["SET", "app:a", "foreign", "PX", "60000"]);
        for _ in 0..2 {
            taken(anna.ask(&key("app:a")).join().send().await);
            scene.world.settle().await;
        }
        server.command(&["DEL", "app:a"]);
        let is_free = |hint: &Hint| matches!(hint, Hint::MaybeFree { .. }).then_some(());
        anna.hint(is_free).await;
        granted(anna.ask(&key("app:a")).send().await);
    });
}

#[test]
fn with_the_rights_to_look_a_user_lists_inspects_and_evicts() {
    play(async |scene| {
        let store = scene.store_with(&format!("{LOCK} {TOOLS} {KEYS}")).await;
        let anna = scene.actor(&store);
        granted(anna.ask(&key("app:a")).named().send().await);
        let snapshot = store.inspect(key("app:a")).await.expect("allowed");
        assert_eq!(snapshot.holders[0].client, Some(anna.record()));
        let browse = store.browse().expect("it has tools");
        let page = browse.list("app:*", None).await.expect("allowed");
        assert_eq!(page.keys, [key("app:a")]);
        let seen = anna.owner().as_str().as_bytes().to_vec();
        let evicted = browse.evict(key("app:a"), seen, "a test".to_owned()).await;
        assert_eq!(evicted.expect("allowed"), Evicted::Evicted);
        granted(scene.actor(&store).ask(&key("app:a")).send().await);
    });
}

/// Does everything that a client does, and returns whether anything was denied.
async fn is_denied(scene: &Scene<'_>, rights: &str, name: &str) -> bool {
    let store = scene.store_with(rights).await;
    let key = &key(name);
    let mut denied = false;
    let mut note = |failed: Option<Error>| {
        denied |= failed.is_some_and(|error| error.kind() == ErrorKind::Denied);
    };
    for (reserve, why) in [(1, None), (1, None), (4, Some("why")), (0, None)] {
        let [anna, bert, carl, dora] = [(); 4].map(|()| scene.actor(&store));
        let ask = anna.ask(key).reserve(reserve);
        let ask = if let Some(why) = why { ask.why(why) } else { ask };
        note(ask.send().await.err());
        note(anna.ask(key).reserve(reserve).send().await.err());
        note(anna.renew_at_least(key, 10_000, None, reserve).await.err());
        note(bert.ask(key).join().send().await.err());
        note(carl.ask(key).watch(1_000).send().await.err());
        note(store.inspect(key.clone()).await.err());
        note(anna.release(key).await.err());
        note(bert.release(key).await.err());
        note(dora.ask(key).send().await.err());
        note(dora.release(key).await.err());
        note(carl.release(key).await.err());
        scene.world.pass(ms(20_000)).await;
    }
    // This counter is at its end, which a server reaches after 270 years.
    scene.outside.server().command(&["SET", &format!("{{{name}}}:lh:fence"), "9007199254740991"]);
    note(scene.actor(&store).ask(key).send().await.err());
    scene.world.pass(ms(20_000)).await;
    note(store.browse().expect("it has tools").list("app:*", None).await.err());
    denied
}

#[test]
fn without_any_one_of_the_rights_something_is_denied() {
    play(async |scene| {
        let all = format!("{LOCK} {TOOLS} {HINTS} {KEYS} {CHANNELS}");
        assert!(!is_denied(scene, &all, "app:all").await, "these are enough");
        // Without these rights, the server denies some requests of the store, which then goes on
        // without them.
        let optional = ["+publish", "+subscribe", "+mget", "+incr"];
        let commands = format!("{LOCK} {TOOLS}");
        for (number, right) in commands.split_whitespace().enumerate() {
            if optional.contains(&right) {
                continue;
            }
            let without = format!("{all} -{}", &right[1..]);
            let name = format!("app:{number}");
            assert!(is_denied(scene, &without, &name).await, "{right} is not needed");
        }
    });
}

#[test]
fn a_database_other_than_the_first_needs_the_right_to_choose_it() {
    play(async |scene| {
        let rights = format!("{LOCK} {KEYS}");
        let denied = scene.connect(&rights, 1).await.expect_err("it may not");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert!(denied.to_string().contains("`select`"), "{denied}");
        let store = scene.connect(&format!("{rights} {DATABASE}"), 1).await.expect("it may");
        granted(scene.actor(&store).ask(&key("app:x")).send().await);
    });
}

/// The rights in these tests are the documented ones.
#[test]
fn the_rights_stand_in_the_guarantees() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUARANTEES.md");
    let guarantees = std::fs::read_to_string(path).expect("the page is there");
    for rights in [LOCK, HINTS, CHANGES, TOOLS, KEYS, CHANNELS, DATABASE] {
        let rights = rights.split_whitespace().collect::<Vec<_>>().join(" ");
        // In a table, `|` is escaped.
        let rights = rights.replace('|', "\\|");
        assert!(guarantees.contains(&format!("`{rights}`")), "`{rights}` is not documented");
    }
}

/// A user with one missing right leaves no key behind that never expires, and no counter that
/// begins at one.
#[test]
fn a_missing_right_leaves_nothing_for_ever_and_no_low_counter() {
    let commands = [
        "decr",
        "del",
        "exists",
        "get",
        "hdel",
        "hget",
        "hmget",
        "hset",
        "incr",
        "pexpire",
        "pttl",
        "set",
        "time",
        "zadd",
        "zcard",
        "zcount",
        "zrange",
        "zrangebyscore",
        "zrank",
        "zrem",
        "zscore",
    ];
    play(async |scene| {
        let (world, server) = (scene.world, scene.outside.server());
        for command in commands {
            server.flush();
            let store = scene.store_with("~* &* +@all").await;
            let (anna, bert) = (world.actor(), world.actor().through(&store));
            let before = fence(bert.ask(&key("a")).send().await);
            released(bert.release(&key("a")).await, Released::Freed);
            server.command(&["ACL", "SETUSER", "app", &format!("-{command}")]);
            // This looks as if the counter had expired after a long idle time.
            server.command(&["DEL", "{a}:lh:fence"]);
            world.pass(ms(1)).await;
            for _ in 0..2 {
                let again = bert.another();
                if let Ok(answer) = again.ask(&key("a")).send().await {
                    assert!(fence(Ok(answer)) > before, "{command}");
                }
                server.command(&["DEL", "a"]);
            }
            granted(anna.ask(&key("b")).send().await);
            let _refused = bert.ask(&key("b")).join().why("a reason").send().await;
            let _refused = anna.through(&store).release(&key("b")).await;
            let _refused = bert.ask(&key("c")).why("a reason").reserve(0).send().await;
            for (name, ask) in [
                ("d", bert.ask(&key("d")).why("a reason")),
                ("e", bert.ask(&key("e")).shared().why("a reason")),
                ("f", bert.ask(&key("f")).permits(1, 2)),
            ] {
                // Without DEL, a script cannot undo a step, and nobody can release.
                if ask.send().await.is_err() && command != "del" {
                    assert_eq!(left(server, name), -2, "{name} is taken without {command}");
                }
            }
            for name in all_keys(server) {
                assert!(left(server, &name) > 0, "{name} has no end without {command}");
            }
        }
    });
}

/// Hints are optional.
#[test]
fn a_key_changes_hands_even_without_the_right_to_publish() {
    play(async |scene| {
        let (world, server) = (scene.world, scene.outside.server());
        let store = scene.store_with("~* +@all").await;
        let (anna, bert) = (world.actor().through(&store), world.actor().through(&store));
        granted(anna.ask(&key("a")).send().await);
        taken(bert.ask(&key("a")).join().send().await);
        released(anna.release(&key("a")).await, Released::HandedOver);
        granted(bert.ask(&key("a")).send().await);
        taken(anna.another().ask(&key("a")).watch(3_000).send().await);
        released(bert.release(&key("a")).await, Released::Freed);
        assert_eq!(left(server, "a"), -2, "free");
    });
}
