//! Tasks that wait far back in a line, and are called when they come near its front.

use std::sync::{Arc, Mutex};

use leasehold_testkit::faults::Request;

use super::{ms, play_on};
use crate::stores;

/// One task comes near the front with each grant, and it alone is called.
#[test]
fn tasks_far_back_in_a_line_of_a_file_sleep_while_others_of_their_client_are_called() {
    const WAITERS: usize = 150;
    play_on(stores::sqlite, 0, async |scene| {
        let holder = scene.calm_client().await.mutex("a").lock().await.expect("free");
        let mutex = scene.client().await.mutex("a").strict_fifo();
        let served: Arc<Mutex<Vec<_>>> = Arc::default();
        let mut tasks = Vec::new();
        for number in 0..WAITERS {
            let (host, mutex, served) = (scene.host.clone(), mutex.clone(), served.clone());
            tasks.push(scene.host.task(async move {
                let guard = mutex.lock().await.expect("in turn");
                served.lock().expect("no panic").push(number);
                host.advance(ms(5)).await;
                drop(guard);
            }));
            scene.host.settle().await;
        }
        let before = scene.faults.count(Request::Acquire);
        assert_eq!(before, WAITERS, "each took its place");
        drop(holder);
        for task in tasks {
            task.await;
        }
        assert_eq!(*served.lock().expect("no panic"), (0..WAITERS).collect::<Vec<_>>());
        let asks = scene.faults.count(Request::Acquire) - before;
        assert!(asks <= 3 * WAITERS, "{asks} asks for {WAITERS} grants");
    });
}
