//! Many clients want one lock at the same time.

use leasehold::host::SystemHost;
use leasehold::store::{Quorum, RedisStore};
use leasehold::{Client, Coexist, Identity};
use leasehold_compat::redsync::{Mutex, Redsync};
use leasehold_testkit::servers::RedisServer;

use super::world::{NAME, Nodes, play_on_new};
use crate::inside::Inside;
use crate::race::{MARK, Second, URL};
use crate::world::ms;

async fn redsync(nodes: &Nodes) -> Mutex<RedisStore> {
    nodes.mutex().await.with_tries(1_000).with_shuffle_pools(true)
}

fn play_redsync(nodes: &Nodes, mutex: Mutex<RedisStore>, inside: &Inside) {
    let (host, inside) = (nodes.host.clone(), inside.clone());
    let _goes_on = nodes.host.task(async move {
        loop {
            mutex.lock().await.expect("in some of so many tries");
            inside.enter(0);
            host.advance(ms(3)).await;
            inside.leave();
            assert!(mutex.unlock().await.expect("it is ours"));
            host.advance(ms(40)).await;
        }
    });
}

/// Leasehold's own quorum on the same servers.
async fn leasehold(nodes: &Nodes) -> leasehold::Mutex {
    let quorum = Quorum::connect(nodes.stores().await, nodes.host.clone()).await;
    let builder = Client::with_store(quorum.expect("most are there")).host(nodes.host.clone());
    let client = builder.identity(Identity::anonymous()).connect().await.expect("connected");
    client.mutex(NAME).coexist(Coexist::On)
}

fn play_leasehold(nodes: &Nodes, mutex: leasehold::Mutex, inside: &Inside) {
    let (host, inside) = (nodes.host.clone(), inside.clone());
    let _goes_on = nodes.host.task(async move {
        loop {
            let guard = mutex.lock().await.expect("in turn");
            inside.enter(1);
            host.advance(ms(3)).await;
            inside.leave();
            let _released = guard.release().await.expect("asked");
            host.advance(ms(40)).await;
        }
    });
}

/// The recipe itself, one node after another.
async fn with_recipe(nodes: &Nodes, alive: &[usize], rounds: u32, inside: &Inside) {
    for round in 0..rounds {
        let value = format!("theirs{round}");
        let got = alive.iter().filter(|node| nodes.takes(**node, &value, 5_000)).count();
        if got >= 2 {
            inside.enter(2);
            nodes.pass(ms(3)).await;
            inside.leave();
        }
        for node in alive {
            nodes.releases(*node, &value);
        }
        nodes.pass(ms(17)).await;
    }
}

/// X0: no two participants are ever inside together, and each has its turns.
#[test]
fn redsync_and_leaseholds_quorum_and_the_recipe_take_turns() {
    for one_is_down in [false, true] {
        play_on_new(3, async |nodes| {
            let inside = Inside::of(3);
            let redsyncs = [redsync(nodes).await, redsync(nodes).await, redsync(nodes).await];
            let leaseholds = [leasehold(nodes).await, leasehold(nodes).await];
            let alive: &[_] = if one_is_down { &[0, 2] } else { &[0, 1, 2] };
            // Kill it while nobody holds the lock, because redsync's `unlock` fails if one of the
            // two nodes that granted it is gone.
            if one_is_down {
                nodes.server(1).kill();
            }
            redsyncs.into_iter().for_each(|mutex| play_redsync(nodes, mutex, &inside));
            leaseholds.into_iter().for_each(|mutex| play_leasehold(nodes, mutex, &inside));
            with_recipe(nodes, alive, 60, &inside).await;
            inside.assert_shared();
        });
    }
}

const ROUNDS: u32 = 60;

async fn mutex(urls: &str) -> Mutex<RedisStore> {
    let mut stores = Vec::new();
    for url in urls.split(' ') {
        let store = RedisStore::connect(url, SystemHost::shared()).await;
        stores.push(store.expect("the server is there"));
    }
    Redsync::new(stores).new_mutex(NAME).with_expiry(ms(60_000))
}

/// Executes orders line by line, and reports each result.
async fn second(urls: &str) {
    let mutex = mutex(urls).await;
    println!("\n{MARK}true");
    for word in std::io::stdin().lines() {
        let answer = match word.expect("a line").as_str() {
            "try" => mutex.try_lock().await.is_ok(),
            "unlock" => mutex.unlock().await.unwrap_or(false),
            other => panic!("`{other}` is not understood"),
        };
        println!("\n{MARK}{answer}");
    }
}

#[tokio::test]
async fn at_most_one_of_two_processes_that_try_at_once_has_the_lock() {
    if let Ok(urls) = std::env::var(URL) {
        return second(&urls).await;
    }
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let urls = servers.each_ref().map(RedisServer::url).join(" ");
    let mine = mutex(&urls).await;
    let test = "redsync::contention::at_most_one_of_two_processes_that_try_at_once_has_the_lock";
    let mut other = Second::start(&urls, test);
    assert!(other.answer(), "it is ready");
    let mut won = [0, 0];
    for round in 0..ROUNDS {
        other.tell("try");
        // The other process starts first every second time, since the order takes time to arrive.
        let theirs_first = (round % 2 == 0).then(|| other.answer());
        let is_mine = mine.try_lock().await.is_ok();
        let is_theirs = theirs_first.unwrap_or_else(|| other.answer());
        // If the votes are split, nobody has a quorum.
        assert!(!(is_mine && is_theirs), "round {round}: one has it, and not both");
        won[0] += u32::from(is_mine);
        won[1] += u32::from(is_theirs);
        let unlocked = mine.unlock().await.unwrap_or(false);
        other.tell("unlock");
        assert_eq!((unlocked, other.answer()), (is_mine, is_theirs), "round {round}");
        for server in &servers {
            let keys = server.command(&["KEYS", "*"]).texts();
            assert!(keys.is_empty(), "round {round}: {keys:?}");
        }
    }
    assert!(won.iter().all(|won| *won > 0), "each has it at times, {won:?} of {ROUNDS}");
}
