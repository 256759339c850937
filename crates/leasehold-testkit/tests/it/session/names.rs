//! The lock name in an error.

use std::time::Duration;

use leasehold::store::AnyStore;
use leasehold::{Client, Error, Identity, Key, OwnerToken};
use leasehold_testkit::faults::Fault;

use super::{Scene, ms, play};

async fn client(scene: &Scene, namespace: Option<&str>) -> Client {
    let store: AnyStore = scene.store().await;
    let builder = Client::with_store(scene.faults.decorate(store)).host(scene.host.clone());
    let builder = builder.identity(Identity::anonymous());
    let builder = match namespace {
        Some(namespace) => builder.namespace(namespace),
        None => builder,
    };
    builder.connect().await.expect("connected")
}

fn fails<T>(outcome: Result<T, Error>) -> Error {
    outcome.err().expect("it cannot go well")
}

/// The error of every call for one lock, with a store that cannot be reached.
async fn errors_about(client: &Client, name: &str) -> Vec<Error> {
    let mutex = client.mutex(name);
    let lease = client.lease(name, OwnerToken::new("a-token").expect("it is printable"));
    vec![
        fails(mutex.try_lock().await),
        fails(mutex.lock().await),
        fails(mutex.lock_timeout(ms(10)).await),
        fails(mutex.with(async |_| ()).await),
        fails(client.mutex(name).ttl(Duration::ZERO).try_lock().await),
        fails(lease.renew(ms(1_000)).await),
        fails(lease.renew(Duration::ZERO).await),
        fails(lease.release().await),
        fails(client.inspect(name).await),
    ]
}

/// An error has the name as the caller gave it, without the namespace. An invalid name is left out.
#[test]
fn an_error_names_the_lock_as_its_user_does() {
    let too_long = "x".repeat(Key::MAX_BYTES + 1);
    let long = "x".repeat(Key::MAX_BYTES);
    let table = [
        ("a", Some("a")),
        ("a:b", Some("a:b")),
        ("a\nb", Some("a\nb")),
        ("a:lh:b", Some("a:lh:b")),
        // With a namespace it is too long.
        (&long, Some(&*long)),
        ("", None),
        (&too_long, None),
    ];
    play(0..1, async |scene| {
        scene.faults.all_from_now_on(Fault::Refuse);
        for namespace in [None, Some("shop")] {
            let client = client(scene, namespace).await;
            for (name, expected) in table {
                for error in errors_about(&client, name).await {
                    assert_eq!(error.name(), expected, "{namespace:?}, {name:?}: {error}");
                }
            }
        }
    });
}

#[test]
fn a_guard_names_its_lock_without_the_namespace() {
    play(0..1, async |scene| {
        for namespace in [None, Some("shop")] {
            let client = client(scene, namespace).await;
            let guard = client.mutex("a").lock().await.expect("free");
            scene.faults.all_from_now_on(Fault::Refuse);
            assert_eq!(fails(guard.renew().await).name(), Some("a"));
            assert_eq!(fails(guard.release().await).name(), Some("a"));
            scene.faults.heal();
            scene.pass(ms(100)).await;
        }
    });
}

#[test]
fn an_error_about_no_lock_names_none() {
    play(0..1, async |scene| {
        let builder = Client::with_store(scene.store().await).host(scene.host.clone());
        assert_eq!(fails(builder.namespace("a:b").connect().await).name(), None);
        let builder = Client::with_store(scene.store().await).host(scene.host.clone());
        assert_eq!(fails(builder.ttl(Duration::ZERO).connect().await).name(), None);
        assert_eq!(fails(OwnerToken::new("")).name(), None);
    });
}
