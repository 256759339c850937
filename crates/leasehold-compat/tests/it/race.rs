//! Two processes that want one lock at the same moment.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use leasehold::host::SystemHost;
use leasehold::store::RedisStore;
use leasehold_compat::gozero::RedisLock;
use leasehold_testkit::servers::RedisServer;

/// Tells the second process the URL of the server, or several with spaces between.
pub(crate) const URL: &str = "LEASEHOLD_COMPAT_RACE";

/// The start of an answer of the second process, to find it in the output of the test runner.
pub(crate) const MARK: &str = "answer: ";

const ROUNDS: u32 = 100;

async fn lock(url: &str) -> RedisLock<RedisStore> {
    let store = RedisStore::connect(url, SystemHost::shared()).await.expect("the server is there");
    let lock = RedisLock::new(store, "job");
    lock.set_expire(60);
    lock
}

/// Executes orders line by line, and reports each result.
async fn second(url: &str) {
    let lock = lock(url).await;
    println!("\n{MARK}true");
    for word in std::io::stdin().lines() {
        let answer = match word.expect("a line").as_str() {
            "acquire" => lock.acquire().await,
            "release" => lock.release().await,
            other => panic!("`{other}` is not understood"),
        };
        println!("\n{MARK}{}", answer.expect("an answer"));
    }
}

/// The second process.
pub(crate) struct Second {
    child: Child,
    words: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Second {
    /// Starts this program again with this test, which finds that it is the second process.
    pub(crate) fn start(url: &str, test: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", test, "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started again");
        let words = child.stdin.take().expect("asked for");
        let lines = BufReader::new(child.stdout.take().expect("asked for")).lines();
        Self { child, words, lines }
    }

    pub(crate) fn tell(&mut self, word: &str) {
        writeln!(self.words, "{word}").expect("it reads");
    }

    pub(crate) fn answer(&mut self) -> bool {
        let lines = self.lines.by_ref().map(|line| line.expect("a line"));
        let answer = lines.filter_map(|line| line.strip_prefix(MARK).map(str::to_owned)).next();
        answer.expect("it answers").parse().expect("yes or no")
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // The process also ends with its input. Kill it in case it hangs.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[tokio::test]
async fn one_of_two_processes_that_acquire_at_once_has_the_lock() {
    if let Ok(url) = std::env::var(URL) {
        return second(&url).await;
    }
    let server = RedisServer::start();
    let mine = lock(&server.url()).await;
    let test = "race::one_of_two_processes_that_acquire_at_once_has_the_lock";
    let mut other = Second::start(&server.url(), test);
    assert!(other.answer(), "it is ready");
    let mut won = 0;
    for round in 0..ROUNDS {
        other.tell("acquire");
        // The other process starts first every second time, since the order takes time to arrive.
        let theirs_first = (round % 2 == 0).then(|| other.answer());
        let is_mine = mine.acquire().await.expect("an answer");
        let is_theirs = theirs_first.unwrap_or_else(|| other.answer());
        assert_ne!(is_mine, is_theirs, "round {round}: one has it, and not both");
        won += u32::from(is_mine);
        let (first, second) = if is_mine { ("ours", "theirs") } else { ("theirs", "ours") };
        let mut release = async |whose| {
            if whose == "ours" {
                return mine.release().await.expect("an answer");
            }
            other.tell("release");
            other.answer()
        };
        assert!(!release(second).await, "round {round}: another client cannot release it");
        assert!(release(first).await, "round {round}: the holder can release it");
    }
    assert!((1..ROUNDS).contains(&won), "each was the first at times, {won} of {ROUNDS}");
}
