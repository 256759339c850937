//! The common uses of a lock, each run on the SQLite store.

#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/balance.rs"]
mod balance;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/certificate.rs"]
mod certificate;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/cron_once.rs"]
mod cron_once;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/fenced_write.rs"]
mod fenced_write;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/leader.rs"]
mod leader;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/licences.rs"]
mod licences;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/order_once.rs"]
mod order_once;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/own_store.rs"]
mod own_store;
#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../examples/stock.rs"]
mod stock;

use leasehold::host::SystemHost;
use leasehold::{Client, Error};
use tokio::task::JoinSet;

/// A new store for a test, and the directory of its file.
fn embedded() -> (tempfile::TempDir, String) {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}", scratch.path().join("locks.db").display());
    (scratch, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_is_never_oversold_with_the_lock_and_oversold_without() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    assert_eq!(stock::sell_with_lock(&url, 8, 20).await?, 20);
    assert_eq!(stock::sell_without_lock(1).await, 2, "two were sold of one");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_double_click_places_one_order() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    assert_eq!(order_once::click(&url, 6).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_debits_never_overdraw_an_account() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    assert_eq!(balance::debit_all(&url, 15, 100).await?, (10, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_job_runs_on_one_host() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    assert_eq!(cron_once::start_everywhere(&url, 5).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_of_a_paused_holder_is_refused() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    let (went_through, text) = fenced_write::write_late(&url).await?;
    assert!(!went_through);
    assert_eq!(text, "written by the new holder");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_a_certificate_and_never_get_a_mixed_pair() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    assert_eq!(certificate::renew_with_lock(&url, 4, 20).await?, 0);
    assert!(!certificate::renew_without_lock().await, "it was read between the two steps");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_licences_are_used_and_never_more() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    assert_eq!(licences::run_with_permits(&url, 3, 4).await?, 3);
    assert_eq!(licences::run_without_permits(12).await, 12);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_lead_one_after_the_other_also_after_a_crash() -> Result<(), Error> {
    let (_scratch, url) = embedded();
    let (led, terms, is_written) = leader::lead_in_turn(&url, 4).await?;
    assert_eq!((led, terms.len()), (4, 8), "each of them wrote both orders");
    assert!(terms.chunks(2).all(|term| term[0] == term[1]), "two led at a time: {terms:?}");
    assert!(terms.is_sorted() && !is_written, "an earlier leader was obeyed: {terms:?}");
    Ok(())
}

/// Requests for one key come while the task that worked on earlier ones is about to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_ones_own_answers_every_request_of_many_threads() {
    let store = own_store::Table::new(SystemHost::shared()).store();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        clients.spawn(async move {
            let client = Client::with_store(store).connect().await.expect("in memory");
            let mutex = client.mutex("a");
            for _ in 0..2_000 {
                drop(mutex.try_lock().await.expect("every request is answered"));
            }
        });
    }
    clients.join_all().await;
}

#[tokio::test]
async fn a_store_of_ones_own_is_locked_and_waited_for() -> Result<(), Error> {
    own_store::lock_twice().await
}
