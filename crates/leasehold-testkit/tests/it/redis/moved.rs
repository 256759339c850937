//! Connections that outlive the strict server at which they were made. A proxy keeps them open, and
//! connects them to another server.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::host::Host as _;
use leasehold::store::redis::{RedisConnector, RedisStore, Strict};
use leasehold::store::{AnyStore, Claim, Quarantine};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{granted, quarantined, refused, taken};
use leasehold_testkit::conformance::{Actor, World, key, ms};
use leasehold_testkit::servers::{Proxy, RedisServer, ServerOutside};

use super::fake::{Fake, numbers, taken as taken_reply};
use super::strict::QUARANTINE;
use crate::stores::run_id;

/// Two servers with one address. The second has the data of the first.
struct Scene {
    world: World,
    proxy: Proxy,
    before: Arc<ServerOutside>,
    after: Arc<ServerOutside>,
}

impl Scene {
    fn play(test: impl AsyncFnOnce(&Self)) {
        let start = || ServerOutside::new(Box::new(RedisServer::builder().with_clock().start()));
        let (before, after) = (start(), start());
        let run_id = run_id(before.server());
        for server in [&before, &after] {
            server.server().command(&["HSET", ":lh:epoch", "run", &run_id]);
        }
        let proxy = Proxy::to(before.server().port());
        let host = VirtualHost::new(1);
        host.attach(before.clone());
        host.attach(after.clone());
        let url = proxy.url() + "/0?strict=yes";
        let (outside, opening) = (before.clone(), host.clone());
        host.run(async {
            let opener = Box::new(move || {
                let connector = outside.watch(RedisConnector::new(&url).expect("a URL"));
                let store = RedisStore::connect_with(connector, opening.clone());
                Box::pin(async move { AnyStore::new(store.await.expect("it is there")) }) as _
            });
            let world = World::open(host.clone(), opener).await;
            test(&Self { world, proxy, before, after }).await;
        });
        host.drop_tasks();
    }

    /// Puts the second server behind the address, even for open connections. This must happen while
    /// no answer is under way. Such an answer would be lost, and every later answer would be taken
    /// for the answer to the request before.
    async fn fail_over(&self) {
        self.world.settle().await;
        self.proxy.move_to(self.after.server().port());
    }

    async fn quarantine(&self, actor: &Actor, claim: Claim) -> Quarantine {
        quarantined(actor.ask(&key("b")).claim(claim).reserve(0).send().await)
    }
}

/// No new client connects, so the data still agrees with the old connections.
#[test]
fn a_server_that_took_anothers_place_with_its_data_is_noticed_over_old_connections() {
    for claim in [Claim::Exclusive, Claim::Plain] {
        Scene::play(async |scene| {
            let anna = scene.world.actor();
            granted(anna.ask(&key("a")).claim(claim).reserve(0).send().await);
            scene.fail_over().await;
            let quarantine = scene.quarantine(&anna, claim).await;
            assert_eq!(quarantine.left, QUARANTINE);
            let epoch = scene.after.server().command(&["HGET", ":lh:epoch", "run"]).text();
            assert_eq!(epoch, run_id(scene.after.server()));
        });
    }
}

#[test]
fn old_connections_and_new_ones_agree_on_one_quarantine() {
    Scene::play(async |scene| {
        let anna = scene.world.actor();
        granted(anna.ask(&key("a")).send().await);
        let connections = scene.proxy.counts().connections;
        scene.fail_over().await;
        // A client that connects now knows the second server, and gives it the script.
        let store = scene.world.open_store().await;
        let bert = scene.world.actor().through(&store);
        assert_eq!(scene.quarantine(&bert, Claim::Exclusive).await.left, QUARANTINE);
        let begun = scene.world.now();
        for _ in 0..3 {
            scene.world.pass(ms(10_000)).await;
            let since = scene.world.now().since(begun);
            for actor in [&anna, &bert] {
                let quarantine = scene.quarantine(actor, Claim::Exclusive).await;
                assert_eq!(quarantine.since, Some(since), "it does not begin anew");
            }
        }
        // Anna's asks now go over another connection, and the old connection is closed.
        assert_eq!(scene.proxy.counts().connections, connections + 2);
        scene.proxy.until(|counts| counts.open == connections + 1);
        scene.world.pass_until(begun + QUARANTINE + ms(1)).await;
        granted(anna.ask(&key("b")).send().await);
        let first = scene.before.server().command(&["HEXISTS", ":lh:epoch", "until"]);
        assert_eq!(first.int(), 0, "the first one was not asked");
    });
}

/// Makes one ask fail, because the proxy leads it to another server on every connection.
async fn mislead_one_ask(world: &World, fake: &Fake) {
    for _ in 0..3 {
        fake.answer(numbers(&[5]));
    }
    refused(world.actor().ask(&key("a")).send().await, ErrorKind::Unavailable);
    fake.clear_answers();
}

/// A proxy that switches again and again gets no more connections than a server that refuses them.
#[test]
fn connections_that_are_left_are_made_anew_with_growing_pauses() {
    let host = VirtualHost::new(1);
    let fake = Fake::on_terms(Strict::STANDARD);
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await;
        let store = AnyStore::new(store.expect("connected"));
        let world =
            World::open(host.clone(), Box::new(move || Box::pin(ready(store.clone())) as _)).await;
        // A connection that has lasted is replaced at once, since this is a failover.
        for _ in 0..3 {
            host.advance(ms(1_000)).await;
            let (started, attempts) = (host.now(), fake.attempts());
            fake.answer(numbers(&[5]));
            fake.answer(taken_reply());
            let answer = world.actor().ask(&key("a")).send().await;
            taken(answer);
            assert_eq!((host.now(), fake.attempts()), (started, attempts + 1));
        }
        host.advance(ms(1_000)).await;
        let mut last = host.now();
        // Each ask leaves two connections. Only the first connection had lasted. Half of a pause is
        // random.
        for at_least in [5, 30, 120, 410, 500, 500, 500, 500] {
            mislead_one_ask(&world, &fake).await;
            let took = host.now().since(last);
            last = host.now();
            assert!(took >= ms(at_least) && took <= ms(1_025), "{took:?}, not {at_least} ms");
        }
        fake.answer(taken_reply());
        let answer = world.actor().ask(&key("a")).send().await;
        taken(answer);
        assert!(host.now().since(last) <= ms(500), "it is itself again for so long");
    });
    host.drop_tasks();
}

#[test]
fn a_server_that_is_never_the_one_that_was_greeted_is_unavailable_in_the_end() {
    let host = VirtualHost::new(1);
    let fake = Fake::on_terms(Strict::STANDARD);
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await;
        let world = World::open(host.clone(), {
            let store = AnyStore::new(store.expect("connected"));
            Box::new(move || Box::pin(ready(store.clone())) as _)
        });
        let world = world.await;
        host.settle().await;
        let _ping = fake.seen();
        for _ in 0..3 {
            fake.answer(numbers(&[5]));
        }
        let answer = world.actor().ask(&key("a")).send().await;
        refused(answer, ErrorKind::Unavailable);
        // Each ask has the run id from the greeting of its own connection.
        let seen = fake.seen();
        let run_ids = seen.iter().map(|(_, words)| words[words.len() - 3].as_str());
        assert_eq!(Vec::from_iter(run_ids), ["run1", "run2", "run3"]);
        // Other requests on the old connections may still finish.
        assert_eq!(fake.open(), 3);
        host.advance(Duration::from_secs(1)).await;
        assert_eq!(fake.open(), 1);
        // But only a few old connections are kept, however many the store leaves in that time.
        for _ in 0..3 {
            mislead_one_ask(&world, &fake).await;
        }
        host.settle().await;
        assert_eq!(fake.open(), 5);
    });
    host.drop_tasks();
}
