//! One of several instances does the chores. If it crashes, the next one takes over.
//!
//! Each leader has a term, a number that is higher than that of every leader before. The ledger
//! that the chores write to refuses the orders of an earlier leader.
//!
//! ```sh
//! cargo run -p leasehold --example leader
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Error, FencingToken};
use tokio::task::JoinSet;

/// The ledger that the chores write to.
#[derive(Default)]
struct Ledger(Mutex<Vec<FencingToken>>);

impl Ledger {
    /// Writes an order of the leader of this term. Refuses it if a later leader has written.
    fn write(&self, term: FencingToken) -> bool {
        let mut orders = self.0.lock().expect("no writer panics");
        let is_current = orders.last().is_none_or(|last| *last <= term);
        if is_current {
            orders.push(term);
        }
        is_current
    }

    /// The terms of all orders, in the order in which they came.
    fn terms(&self) -> Vec<FencingToken> {
        self.0.lock().expect("no writer panics").clone()
    }
}

/// One instance: leads once, writes two orders, and crashes or resigns. Returns its term.
async fn instance(client: Client, ledger: &Ledger, crashes: bool) -> Result<FencingToken, Error> {
    let election = client.election("chores").ttl(Duration::from_secs(3)).why("http://10.0.0.7");
    let leadership = election.campaign().await?;
    let term = leadership.term();
    for _ in 0..2 {
        // The lock may be lost at any time: ask before each step, and pass the term on.
        if leadership.is_leader() {
            ledger.write(term);
        }
        tokio::task::yield_now().await;
    }
    if crashes {
        // A crashed process neither renews nor resigns. The next one leads after the ttl.
        let _token = leadership.into_guard().detach();
    } else {
        let _released = leadership.resign().await?;
    }
    Ok(term)
}

/// Lets every instance lead once. The first leader crashes. Returns how many led, the terms of all
/// orders, and whether a late order of the first leader is written.
pub async fn lead_in_turn(
    url: &str,
    instances: usize,
) -> Result<(usize, Vec<FencingToken>, bool), Error> {
    let ledger = Arc::<Ledger>::default();
    let first = instance(Client::connect(url).await?, &ledger, true).await?;
    let mut following = JoinSet::new();
    for _ in 1..instances {
        let (client, ledger) = (Client::connect(url).await?, Arc::clone(&ledger));
        following.spawn(async move { instance(client, &ledger, false).await });
    }
    let mut led = 1;
    while let Some(instance) = following.join_next().await {
        instance.expect("no instance panics")?;
        led += 1;
    }
    let is_written = ledger.write(first);
    Ok((led, ledger.terms(), is_written))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    let (led, terms, is_written) = lead_in_turn(&url, 4).await?;
    println!("{led} instances led one after the other, and wrote {} orders", terms.len());
    println!(
        "the first leader woke up late: its order was {}",
        match is_written {
            true => "written",
            false => "refused",
        }
    );
    Ok(())
}
