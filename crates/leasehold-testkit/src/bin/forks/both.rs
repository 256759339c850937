//! Parent and child try the same lock at the same time.

use leasehold::ErrorKind;

use crate::process::{Child, Line};
use crate::{connect, runtime, use_once};

/// Uses the library once, forks, and lets both processes try one lock. Exactly one of them gets it,
/// and their random tokens differ. On SQLite the child is refused.
pub(crate) fn both_try(url: &str) {
    use_once(url);
    let mut child = Child::fork(|line| {
        let (said, other) = try_once(url, line, "child");
        compare(url, &said, &other);
    });
    let (said, other) = try_once(url, child.line(), "parent");
    compare(url, &said, &other);
    child.join();
}

/// Tries the shared lock, and takes another lock of its own. Returns the results of both processes.
/// Both keep their locks until both know the results.
fn try_once(url: &str, line: &mut Line, own: &str) -> (String, String) {
    runtime().block_on(async {
        let client = match leasehold::Client::connect(url).await {
            Ok(client) => client,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                line.say("refused");
                return ("refused".to_owned(), line.hear());
            }
        };
        let own = client.mutex(own).try_lock().await.expect("an answer").expect("it is free");
        let shared = client.mutex("shared").try_lock().await.expect("an answer");
        let outcome = if shared.is_some() { "held" } else { "taken" };
        let shared_token = shared.as_ref().map_or("-", |guard| guard.token().as_str());
        let said = format!("{outcome} {shared_token} {}", own.token().as_str());
        line.say(&said);
        let other = line.hear();
        (said, other)
    })
}

fn compare(url: &str, said: &str, other: &str) {
    let outcomes = [said, other].map(|text| text.split(' ').next().expect("a word"));
    let held = outcomes.iter().filter(|outcome| **outcome == "held").count();
    assert_eq!(held, 1, "one of the two has it: {said} | {other}");
    assert_eq!(outcomes.contains(&"refused"), url.starts_with("sqlite:"), "{said} | {other}");
    for token in said.split(' ').skip(1).filter(|token| token.len() > 1) {
        assert!(!other.contains(token), "a token is drawn twice: {said} | {other}");
        let (secret, client) = token.split_once('.').expect("of our form");
        assert!(!other.contains(secret) && !other.contains(client), "{said} | {other}");
    }
}

/// The pid that a holder gave. A new client gives its own process.
pub(crate) async fn holder_pid(url: &str, name: &str) -> u32 {
    let snapshot = connect(url).await.inspect(name).await.expect("an answer");
    snapshot.holders[0].client.as_ref().expect("it says who it is").pid
}
