//! A connection that is made at the moment at which a waiter gives it up.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::core::{Moment, WallTime};
use leasehold::host::{Host, Sleep, Task};
use leasehold::store::redis::RedisStore;
use leasehold::store::{Claim, LeaseId, OnRelease, Store as _};
use leasehold::{Error, ErrorKind, Key, OwnerToken};
use leasehold_testkit::VirtualHost;

use super::fake::Fake;

/// A host that runs input and output at the worst moment: after a waiter has looked, and while it
/// reads the clock. Usually another thread does this.
struct Late {
    host: Arc<VirtualHost>,
    is_late: AtomicBool,
    tasks: Mutex<Vec<Task>>,
    /// The moment at which input and output run, if the waiter is being polled.
    at: Mutex<Option<Moment>>,
    is_polled: AtomicBool,
}

impl Host for Late {
    fn now(&self) -> Moment {
        let now = self.host.now();
        let is_due = self.at.lock().expect("no panic").is_some_and(|at| now >= at);
        if is_due && self.is_polled.swap(false, Ordering::Relaxed) {
            for task in self.tasks.lock().expect("no panic").iter_mut() {
                let mut context = Context::from_waker(Waker::noop());
                assert!(task.as_mut().poll(&mut context).is_pending(), "it serves the connection");
            }
        }
        now
    }

    fn wall(&self) -> WallTime {
        self.host.wall()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        self.host.sleep_until(at)
    }

    fn spawn(&self, task: Task) {
        self.host.spawn(task);
    }

    fn spawn_io(&self, task: Task) {
        if self.is_late.load(Ordering::Relaxed) {
            self.tasks.lock().expect("no panic").push(task);
        } else {
            self.host.spawn(task);
        }
    }

    fn spawn_blocking(&self, name: &str, task: Task) -> Result<(), Error> {
        self.host.spawn_blocking(name, task)
    }

    fn random(&self, bytes: &mut [u8]) {
        self.host.random(bytes);
    }
}

#[test]
fn a_request_that_was_sent_in_the_last_moment_is_not_called_unsent() {
    let host = VirtualHost::new(0);
    let late = Arc::new(Late {
        host: Arc::clone(&host),
        is_late: AtomicBool::new(false),
        tasks: Mutex::default(),
        at: Mutex::default(),
        is_polled: AtomicBool::new(false),
    });
    let fake = Fake::default();
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), Arc::clone(&late) as Arc<dyn Host>);
        let store = store.await.expect("connected");
        fake.break_connections();
        host.settle().await;
        let _before = fake.seen();
        late.is_late.store(true, Ordering::Relaxed);
        let client = ClientId::from_random([1; ClientId::CHARS]);
        let owner = OwnerToken::from_random([2; OwnerToken::RANDOM_BYTES], &client);
        let key = Key::new("a").expect("a name");
        let lease = LeaseId { key, owner, claim: Claim::Exclusive };
        *late.at.lock().expect("no panic") = Some(host.now() + Duration::from_secs(1));
        let mut answer = pin!(store.release(lease, OnRelease::Free));
        let answer = poll_fn(|context| {
            late.is_polled.store(true, Ordering::Relaxed);
            let answer = answer.as_mut().poll(context);
            late.is_polled.store(false, Ordering::Relaxed);
            answer
        });
        let answer = answer.await;
        let sent = fake.seen().iter().any(|(_, words)| words[0].starts_with("EVAL"));
        assert!(sent, "it was sent in the last moment");
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        }
    });
    late.tasks.lock().expect("no panic").clear();
    host.drop_tasks();
}
