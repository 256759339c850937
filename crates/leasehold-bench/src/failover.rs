//! A primary with two replicas fails over, again and again. Measures how soon a lock can be had
//! after the sentinels name the new primary, and what becomes of a lock that is held meanwhile.
//!
//! Half of the failovers are a `kill -9` of the primary, the others a command to a sentinel. In a
//! third, the held lock is granted while the replicas are stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard};
use leasehold_testkit::servers::{RedisServer, Reply, Sentinels};
use tokio::task::spawn_blocking;

use crate::figure::Report;

/// The ttl of the lock that is held.
const TTL: Duration = Duration::from_secs(6);

/// What became of a lock that was held during a failover.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The new primary has it, and the holder still holds it.
    Kept,
    /// The new primary does not have it, and the holder was told before its deadline.
    Told,
    /// Anything else.
    Wrong(&'static str),
}

pub(crate) async fn measure(rounds: usize) -> Result<Report, Error> {
    let all = blocking(|| Sentinels::builder().replicas(2).start()).await;
    let all = Arc::new(all);
    let (holder, other) = (Client::connect(&all.url()).await?, Client::connect(&all.url()).await?);
    let (mut until_granted_ms, mut fates) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let (by_kill, lagging) = (round % 2 == 1, round % 3 == 2);
        let held = grant(&all, &holder, round, lagging).await?;
        let announced = {
            let all = Arc::clone(&all);
            blocking(move || fail_over(&all, by_kill)).await
        };
        until_granted_ms.push(first_grant(&all, &other, round, announced).await);
        fates.push(fate(&all, held, round).await);
        eprintln!("round {round}: {:?} ms, {:?}", until_granted_ms.last(), fates.last());
        let all = Arc::clone(&all);
        blocking(move || all.repair()).await;
    }
    let count = |is_so: fn(&Fate) -> bool| {
        fates.iter().map(|fate| f64::from(u8::from(is_so(fate)))).sum::<f64>()
    };
    let slowest = until_granted_ms.iter().copied().fold(0.0, f64::max);
    let mut report = Report::new("failover");
    report.add("first grant after the announcement", "time", &until_granted_ms, "ms");
    report.add("first grant after the announcement", "slowest", &[slowest], "ms").at_most(1_000.0);
    report.add("held locks", "kept, as the data was", &[count(|fate| *fate == Fate::Kept)], "");
    report.add(
        "held locks",
        "told of their loss in time",
        &[count(|fate| *fate == Fate::Told)],
        "",
    );
    report
        .add("held locks", "wrong", &[count(|fate| matches!(fate, Fate::Wrong(_)))], "")
        .at_most(0.0);
    Ok(report)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("no panic")
}

/// A lock that all replicas have, or none.
async fn grant(
    all: &Sentinels,
    holder: &Client,
    round: usize,
    lagging: bool,
) -> Result<Guard, Error> {
    let primary = all.primary();
    let replicas = || all.servers().iter().filter(|server| server.port() != primary.port());
    if lagging {
        replicas().for_each(RedisServer::pause);
    }
    let held = holder.mutex(format!("bench:held:{round}")).ttl(TTL).lock().await?;
    if lagging {
        // They lose what the primary has sent since, and ask for it anew if it is still there.
        replicas().for_each(RedisServer::resume);
    } else {
        primary.command(&["WAIT", "2", "0"]);
    }
    Ok(held)
}

/// Returns when a sentinel first names another server.
fn fail_over(all: &Sentinels, by_kill: bool) -> Instant {
    let before = all.primary();
    if by_kill {
        before.kill();
    } else {
        all.ask_to_fail_over();
    }
    all.until_one_names_another(before.port());
    Instant::now()
}

/// How long after the announcement a lock was granted that the new primary has, in ms.
async fn first_grant(all: &Sentinels, client: &Client, round: usize, announced: Instant) -> f64 {
    let port = all.newest_primary();
    let new = all.servers().iter().find(|server| server.port() == port).expect("one of ours");
    for number in 0.. {
        let name = format!("bench:first:{round}:{number}");
        let mutex = client.mutex(&name);
        if let Ok(Some(guard)) = mutex.try_lock().await
            && matches!(new.look(&["EXISTS", &name]), Some(Reply::Int(1)))
        {
            let took = announced.elapsed();
            drop(guard);
            return took.as_secs_f64() * 1e3;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    unreachable!("tried for ever")
}

async fn fate(all: &Sentinels, held: Guard, round: usize) -> Fate {
    let new = all.newest_primary();
    let new = all.servers().iter().find(|server| server.port() == new).expect("one of ours");
    let value = new.look(&["EXISTS", &format!("bench:held:{round}")]);
    let (survived, left) = (matches!(value, Some(Reply::Int(1))), held.remaining());
    if survived {
        let began = Instant::now();
        while held.is_held() && began.elapsed() < left {
            if held.renew().await.is_ok() {
                drop(held);
                return Fate::Kept;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        return Fate::Wrong("its data survived, and it was lost");
    }
    match tokio::time::timeout(left + Duration::from_millis(100), held.lost()).await {
        Ok(_lost) => Fate::Told,
        Err(_) => Fate::Wrong("its data was forgotten, and nobody told the holder"),
    }
}
