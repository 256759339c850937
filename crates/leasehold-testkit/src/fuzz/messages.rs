//! Fuzzes a waiting client with the messages of a hostile server.

use std::time::Duration;

use leasehold::Client;
use leasehold::store::RedisStore;

use super::served::Served;
use crate::VirtualHost;
use crate::protocol::Value;

/// How long the waiter waits.
const WAIT: Duration = Duration::from_secs(3);

/// Publishes each line to a client that waits for `a`. The server grants nothing. The wait must not
/// last longer than usual, and a false grant must not last.
///
/// `TOKEN` stands for the client's owner token, which a server knows. `@` begins a message on
/// another channel.
///
/// # Panics
///
/// If the wait or the shutdown does not end, or a false grant lasts.
pub fn messages(data: &[u8]) {
    let number = Value::Int;
    let taken = vec![number(0), number(500), number(0), Value::Bytes(Vec::new()), number(0)];
    let served = Served::new([].into(), Ok(Value::Array(taken)));
    served.publish(data.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect());
    let host = VirtualHost::new(1);
    host.run(async {
        let store = RedisStore::connect_with(served, host.clone()).await;
        let store = store.expect("the server lets everybody in");
        let client = Client::with_store(store).host(host.clone()).connect();
        let client = client.await.expect("the store is there");
        let mutex = client.mutex("a");
        let waiting = mutex.lock_timeout(WAIT);
        let ended = host.within(WAIT * 3, waiting).await.expect("waiting ends in time");
        if let Ok(guard) = ended {
            host.advance(Duration::from_secs(60)).await;
            assert!(!guard.is_held(), "a grant that the server denies is held for ever");
        }
        let left = client.shutdown(WAIT);
        let _left = host.within(WAIT * 3, left).await.expect("shutting down ends in time");
    });
    host.drop_tasks();
}
