//! Threads without an async runtime, at a real server.

use std::time::Duration;

use leasehold::blocking::block_on;
use leasehold::{Client, Release};
use leasehold_testkit::servers::RedisServer;

#[test]
fn threads_lock_wait_and_release_without_a_runtime_of_their_own() {
    const EACH: u32 = 50;
    // Use no server of the pool, since connections end on a thread of the library, perhaps after
    // this test.
    let server = RedisServer::start();
    let url = server.url();
    let count = std::sync::Mutex::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let client = block_on(Client::connect(&url)).expect("it is there");
                for turn in 0..EACH {
                    let guard = block_on(client.mutex("a").lock()).expect("granted in turn");
                    *count.try_lock().expect("nobody else holds the lock") += 1;
                    if turn % 2 == 0 {
                        assert_eq!(block_on(guard.release()).ok(), Some(Release::Released));
                    }
                }
                let ended = block_on(async { Ok(client.shutdown(Duration::from_mins(1)).await) });
                assert_eq!(ended.map(|ended| ended.not_released).ok(), Some(0));
            });
        }
    });
    assert_eq!(*count.lock().expect("no thread panicked"), 4 * EACH);
}
