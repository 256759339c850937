//! Which types and futures may cross threads.

use std::future::Future;

use leasehold::{Client, Error, Guard, Lease, Lost, Mutex};

fn is_shareable<T: Send + Sync + 'static>() {}
fn is_spawnable<F: Future + Send + 'static>(_: F) {}

#[test]
fn clients_mutexes_guards_and_errors_cross_threads() {
    is_shareable::<Client>();
    is_shareable::<Mutex>();
    is_shareable::<Guard>();
    is_shareable::<Lease>();
    is_shareable::<Error>();
    is_shareable::<Lost>();
}

#[tokio::test]
async fn futures_can_be_spawned() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let mutex = client.mutex("a");
    let guard = mutex.lock().await?;
    is_spawnable(guard.lost());
    is_spawnable(async move { guard.renew().await });
    let other = mutex.clone();
    is_spawnable(async move { other.lock().await });
    let other = mutex.clone();
    is_spawnable(async move { other.with(async |guard| guard.fencing_token()).await });
    is_spawnable(client.shutdown(std::time::Duration::ZERO));
    Ok(())
}
