//! Requests whose callers give up, and requests whose connection ends.

use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::redis::RedisStore;
use leasehold::store::{BoxAnswer, Released};

use super::fake::{numbers, refused};
use super::wire::{connected, kind, release};

#[test]
fn one_request_too_many_is_refused_and_room_is_made_by_answers() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        let answers: Vec<_> = (0..65_536).map(|_| world.release("a")).collect();
        let refused = async || {
            let error = world.release("b").await.expect_err("one too many");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("65536"), "{error}");
        };
        refused().await;
        // The callers give up, but their commands still wait.
        drop(answers);
        world.host.settle().await;
        refused().await;
        world.fake.set_silent(false);
        world.host.settle().await;
        assert_eq!(world.release("b").await.expect("answered"), Released::Freed);
    });
}

/// Asks again at once, on the thread that reports the end of the connection.
struct AskingAgain {
    store: RedisStore,
    second: Mutex<Option<BoxAnswer<Released>>>,
}

impl Wake for AskingAgain {
    fn wake(self: Arc<Self>) {
        let mut second = self.second.lock().expect("no panic");
        second.get_or_insert_with(|| release(&self.store, "b"));
    }
}

#[test]
fn a_caller_that_asks_again_as_soon_as_a_connection_ends_gets_a_new_one() {
    connected(0, async |world| {
        world.fake.answer(None);
        let asking = Arc::new(AskingAgain { store: world.store.clone(), second: Mutex::default() });
        let mut first = world.release("a");
        let waker = Waker::from(Arc::clone(&asking));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        world.host.settle().await;
        let second = asking.second.lock().expect("no panic").take();
        let second = second.expect("the first has failed").await;
        assert_eq!(second.expect("the server works"), Released::Freed);
        assert_eq!(kind(first.await), ErrorKind::Unknown);
        assert_eq!(world.fake.attempts(), 2);
    });
}

/// The server has become a replica, and the connection is left. A few such connections stay open
/// for the requests that are under way, and make room for others when these are over.
#[test]
fn a_request_is_answered_over_a_connection_that_was_left_however_many_were_left_before() {
    connected(0, async |world| {
        for round in 0..8 {
            world.fake.answer(refused("READONLY You can't write against a read only replica."));
            let late = world.fake.answer_late(numbers(&[1, 0]));
            let (first, second) = (world.release("a"), world.release("b"));
            assert_eq!(kind(first.await), ErrorKind::Unavailable, "{round}");
            late.say();
            assert_eq!(second.await.expect("answered"), Released::Freed, "{round}");
            world.pass(Duration::from_secs(2)).await;
        }
    });
}
