//! A double click sends the same order twice. One order is placed.
//!
//! The lock alone is not enough: the second request must also see that the first has placed the
//! order.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use leasehold::{Client, Error};
use tokio::task::JoinSet;

/// The table of orders.
type Orders = Arc<Mutex<HashSet<String>>>;

/// Which request placed an order.
#[derive(Debug, PartialEq, Eq)]
pub enum Placed {
    /// This request.
    Now,
    /// An earlier request.
    Before,
}

async fn place(client: &Client, orders: &Orders, id: &str) -> Result<Placed, Error> {
    client
        .mutex(format!("order:{id}"))
        .with(async |_guard| {
            let known = orders.lock().expect("no panic").contains(id);
            // The payment provider answers here. Without the lock, both requests would have passed
            // the check by now.
            tokio::task::yield_now().await;
            if known {
                return Placed::Before;
            }
            orders.lock().expect("no panic").insert(id.to_owned());
            Placed::Now
        })
        .await
}

/// Sends the same order `clicks` times at the same moment, from as many clients. Returns how many
/// orders were placed.
pub async fn click(url: &str, clicks: usize) -> Result<usize, Error> {
    let orders = Orders::default();
    let mut requests = JoinSet::new();
    for _ in 0..clicks {
        let (client, orders) = (Client::connect(url).await?, Arc::clone(&orders));
        requests.spawn(async move { place(&client, &orders, "42").await });
    }
    let mut placed = 0;
    while let Some(request) = requests.join_next().await {
        placed += usize::from(request.expect("no request panics")? == Placed::Now);
    }
    Ok(placed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    println!("2 clicks placed {} order", click(&url, 2).await?);
    Ok(())
}
