//! Several workers sell from one stock: never too much with the lock, too much without it.
//!
//! ```sh
//! cargo run -p leasehold --example stock              # an SQLite store in a temporary file
//! cargo run -p leasehold --example stock -- URL       # any other
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold::{Client, Error};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// A table in a database. The application reads it in one step and writes it in another.
#[derive(Default)]
struct Warehouse {
    left: AtomicI64,
    sold: AtomicI64,
}

impl Warehouse {
    fn with(left: i64) -> Arc<Self> {
        Arc::new(Self { left: left.into(), ..Self::default() })
    }

    async fn read(&self) -> i64 {
        tokio::task::yield_now().await;
        self.left.load(Ordering::SeqCst)
    }

    async fn write(&self, left: i64) {
        tokio::task::yield_now().await;
        self.left.store(left, Ordering::SeqCst);
        self.sold.fetch_add(1, Ordering::SeqCst);
    }

    fn sold(&self) -> i64 {
        self.sold.load(Ordering::SeqCst)
    }
}

/// Sells with the lock. Each worker has its own client, as each process would. Returns how many
/// pieces of `stock` were sold.
pub async fn sell_with_lock(url: &str, workers: usize, stock: i64) -> Result<i64, Error> {
    let warehouse = Warehouse::with(stock);
    let mut selling = JoinSet::new();
    for _ in 0..workers {
        let mutex = Client::connect(url).await?.mutex("stock:sku-1");
        let warehouse = Arc::clone(&warehouse);
        selling.spawn(async move {
            loop {
                let guard = mutex.lock().await?;
                let left = warehouse.read().await;
                if left == 0 {
                    let _released = guard.release().await?;
                    return Ok::<(), Error>(());
                }
                warehouse.write(left - 1).await;
                let _released = guard.release().await?;
            }
        });
    }
    while let Some(worker) = selling.join_next().await {
        worker.expect("no worker panics")?;
    }
    Ok(warehouse.sold())
}

/// Sells without the lock. Both workers pause between reading and writing until the other has read
/// too.
pub async fn sell_without_lock(stock: i64) -> i64 {
    let warehouse = Warehouse::with(stock);
    let both_have_read = Arc::new(Barrier::new(2));
    let worker = || {
        let (warehouse, both_have_read) = (Arc::clone(&warehouse), Arc::clone(&both_have_read));
        async move {
            let left = warehouse.read().await;
            both_have_read.wait().await;
            if left > 0 {
                warehouse.write(left - 1).await;
            }
        }
    };
    tokio::join!(worker(), worker());
    warehouse.sold()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    println!("with the lock:    8 workers sold {} of 20", sell_with_lock(&url, 8, 20).await?);
    println!("without the lock: 2 workers sold {} of 1", sell_without_lock(1).await);
    Ok(())
}
