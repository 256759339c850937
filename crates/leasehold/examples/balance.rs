//! Concurrent debits of one account: the balance never goes below zero, and every debit is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold::{Client, Error};
use tokio::task::JoinSet;

/// Takes `amount` from the account if there is enough. Reading and writing are two steps, as in
/// most applications.
async fn debit(client: &Client, balance: &AtomicI64, amount: i64) -> Result<bool, Error> {
    client
        .mutex("account:7")
        .with(async |_guard| {
            let before = balance.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            let enough = before >= amount;
            if enough {
                balance.store(before - amount, Ordering::SeqCst);
            }
            enough
        })
        .await
}

/// Makes `times` debits of 10 at the same time. Returns how many succeeded, and the balance after
/// them.
pub async fn debit_all(url: &str, times: usize, start: i64) -> Result<(usize, i64), Error> {
    let balance = Arc::new(AtomicI64::new(start));
    let mut debits = JoinSet::new();
    for _ in 0..times {
        let (client, balance) = (Client::connect(url).await?, Arc::clone(&balance));
        debits.spawn(async move { debit(&client, &balance, 10).await });
    }
    let mut done = 0;
    while let Some(debit) = debits.join_next().await {
        done += usize::from(debit.expect("no debit panics")?);
    }
    Ok((done, balance.load(Ordering::SeqCst)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    let (done, left) = debit_all(&url, 15, 100).await?;
    println!("15 debits of 10 from 100: {done} went through, {left} is left");
    Ok(())
}
