//! The data on the server and the requests to it: the format of the originals, in both directions.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use leasehold::Coexist;
use leasehold::store::RedisStore;
use leasehold_compat::gozero::RedisLock;
use leasehold_compat::jedis::RedisDistributedLock;
use leasehold_testkit::servers::{PATIENCE, RedisServer, version};

use crate::world::{World, ms, play, raw};

/// Records every command that a server receives from now on.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("it runs");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(b"MONITOR\r\n").expect("it reads");
        let mut monitor = Self(BufReader::new(stream));
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    /// The commands until the server receives `ECHO` with that word. Includes the commands of
    /// scripts, but not the scripts themselves.
    fn until(&mut self, server: &RedisServer, word: &str) -> Vec<String> {
        server.command(&["ECHO", word]);
        let mut asked = Vec::new();
        loop {
            let line = self.line();
            let (_, words) = line.split_once("] ").expect("a line of MONITOR");
            if words == format!("\"ECHO\" \"{word}\"") {
                return asked;
            }
            if !words.to_uppercase().starts_with("\"EVAL") {
                asked.push(words.to_owned());
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("something is asked");
        line.trim_end().to_owned()
    }
}

/// All keys on the server.
fn keys(world: &World) -> Vec<String> {
    world.tell(&["KEYS", "*"]).texts()
}

/// Asserts that the only writing command writes the value, with or without a script.
#[track_caller]
fn assert_sets(asked: &[String], key: &str, value: &str, ttl_ms: u32) {
    const READS: [&str; 3] = ["\"GET\"", "\"EXISTS\"", "\"PING\""];
    // Before Redis 7.0, the server is asked with GET once, and refuses.
    let is_refused = |words: &str| version() < (7, 0) && words.contains("\"NX\" \"GET\"");
    let is_read = |words: &str| READS.iter().any(|read| words.starts_with(read));
    // Valkey from 9.0 is asked once whether it has the command. There is no such key.
    let probe = format!("\"DELIFEQ\" \"{{{key}}}:lh:probe\"");
    let is_write =
        |words: &&String| !is_read(words) && !is_refused(words) && !words.starts_with(&probe);
    let writes: Vec<_> = asked.iter().filter(is_write).collect();
    // With GET the server also returns the old value. It sets the key as without GET.
    let sets = ["", "\"GET\" "]
        .map(|get| format!("\"SET\" \"{key}\" \"{value}\" \"NX\" {get}\"PX\" \"{ttl_ms}\""));
    assert!(writes.len() == 1 && sets.contains(writes[0]), "{asked:?}");
}

async fn gozero(world: &World) -> RedisLock<RedisStore> {
    let lock = RedisLock::new_on(world.store().await, "job", world.host());
    lock.set_expire(5);
    lock
}

async fn jedis(world: &World) -> RedisDistributedLock<RedisStore> {
    RedisDistributedLock::new_on(world.store().await, "job", world.host())
}

#[test]
fn go_zeros_lock_is_16_letters_and_digits_under_the_very_key() {
    play(async |world| {
        let lock = gozero(world).await;
        let mut monitor = Monitor::start(world.server());
        // The first request uses a script, which shows whether the server allows scripts.
        for _ in 0..2 {
            let _looked = monitor.until(world.server(), "looked");
            assert!(lock.acquire().await.expect("an answer"));
            let asked = monitor.until(world.server(), "acquired");
            assert_eq!(keys(world), ["job"], "no companion keys");
            let value = world.value("job").expect("it is held");
            assert!(value.len() == 16 && value.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            assert_eq!(world.lasts("job"), 5_500);
            assert_eq!(world.tell(&["TYPE", "job"]).text(), "string");
            assert_sets(&asked, "job", &value, 5_500);
            let _looked = monitor.until(world.server(), "looked");
            assert!(lock.release().await.expect("an answer"));
            let asked = monitor.until(world.server(), "released");
            let is_of = |words: &&String, command| words.starts_with(command);
            let compares = asked.iter().position(|words| is_of(&words, "\"GET\" \"job\""));
            let deletes = asked.iter().position(|words| is_of(&words, "\"DEL\" \"job\""));
            assert!(compares.is_some() && compares < deletes, "{asked:?}");
            assert_eq!(keys(world), Vec::<String>::new());
        }
    });
}

#[test]
fn the_jedis_recipe_is_a_uuid_under_the_very_key() {
    play(async |world| {
        let lock = jedis(world).await;
        let mut monitor = Monitor::start(world.server());
        for _ in 0..2 {
            let _looked = monitor.until(world.server(), "looked");
            let value = lock.lock().await.expect("an answer").expect("it is free");
            let asked = monitor.until(world.server(), "acquired");
            assert_eq!(keys(world), ["job"], "no companion keys");
            assert_eq!(world.value("job").as_ref(), Some(&value));
            let groups: Vec<_> = value.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{value}");
            assert_eq!(world.lasts("job"), 5_000);
            assert_sets(&asked, "job", &value, 5_000);
            assert!(lock.release(&value).await.expect("an answer"));
            assert_eq!(keys(world), Vec::<String>::new());
        }
    });
}

#[test]
fn go_zeros_own_commands_and_this_lock_exclude_each_other() {
    play(async |world| {
        let lock = gozero(world).await;
        assert!(raw::takes_or_refreshes(world, "job", "theirs0123456789", 5_500));
        assert!(!lock.acquire().await.expect("an answer"));
        assert!(!lock.release().await.expect("an answer"));
        assert!(raw::takes_or_refreshes(world, "job", "theirs0123456789", 5_500), "anew");
        assert!(raw::releases(world, "job", "theirs0123456789"));
        assert!(lock.acquire().await.expect("an answer"));
        assert!(!raw::takes_or_refreshes(world, "job", "theirs0123456789", 5_500));
        assert!(!raw::releases(world, "job", "theirs0123456789"));
        let ours = world.value("job").expect("it is held");
        assert!(raw::takes_or_refreshes(world, "job", &ours, 9_000), "our value is one as theirs");
        assert_eq!(world.lasts("job"), 9_000);
        assert!(raw::releases(world, "job", &ours));
        assert!(!lock.release().await.expect("an answer"), "it was released");
    });
}

#[test]
fn the_recipes_own_commands_and_this_lock_exclude_each_other() {
    play(async |world| {
        let lock = jedis(world).await;
        let value = lock.lock().await.expect("an answer").expect("it is free");
        assert!(!raw::takes(world, "job", "theirs", 5_000));
        assert!(!raw::releases(world, "job", "theirs"));
        assert!(raw::releases(world, "job", &value), "our value is one as theirs");
        assert!(!lock.release(&value).await.expect("an answer"), "it was released");
        assert!(raw::takes(world, "job", "theirs", 5_000));
        assert_eq!(lock.lock().await.expect("an answer"), None);
        assert!(lock.release("theirs").await.expect("an answer"), "the value is enough to release");
        assert_eq!(world.value("job"), None);
    });
}

/// The release does not hand the key over, so that any kind of client may get it next.
#[test]
fn a_release_frees_the_key_and_tells_the_first_of_leaseholds_waiters() {
    play(async |world| {
        let lock = gozero(world).await;
        assert!(lock.acquire().await.expect("an answer"));
        let mutex = world.client().await.mutex("job").coexist(Coexist::On);
        let waiting = world.host.task(async move { mutex.lock().await.expect("in turn") });
        world.pass(ms(350)).await;
        let mut monitor = Monitor::start(world.server());
        assert!(lock.release().await.expect("an answer"));
        assert!(raw::takes(world, "job", "theirs", 100), "it has no owner");
        let asked = monitor.until(world.server(), "released");
        let hint = |words: &&String| words.starts_with("\"PUBLISH\"") && words.contains("f job");
        assert_eq!(asked.iter().filter(hint).count(), 1, "{asked:?}");
        assert!(!waiting.is_finished());
        world.pass(ms(150)).await;
        assert!(waiting.is_finished(), "when it ended");
    });
}
