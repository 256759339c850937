//! Uses the library on both sides of a fork. Exits with 0 if all promises held.
//!
//! `forks SCENARIO URL` is a separate program, because a test runner has too many threads to fork.
#![allow(clippy::disallowed_methods, reason = "real processes have the clock of the machine")]

mod both;
mod copied;
mod fresh;
mod process;
mod sqlite;

use std::process::ExitCode;

use leasehold::Client;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, url] = args.as_slice() else {
        eprintln!("usage: forks SCENARIO URL");
        return ExitCode::from(64);
    };
    match scenario.as_str() {
        "both-try" => both::both_try(url),
        "copied" => copied::copies_refuse(url),
        "copied-runtime" => copied::runtime_is_left_alone(url),
        "in-flight" => copied::futures_are_left_alone(url),
        "fresh" => fresh::child_works(url),
        "nested" => fresh::grandchild_works(url),
        "memory" => fresh::memory_is_not_shared(),
        "sqlite-refused" => sqlite::child_is_refused(url),
        "sqlite-unused" => sqlite::child_of_one_that_used_none(url),
        other => {
            eprintln!("no scenario is called {other}");
            return ExitCode::from(64);
        }
    }
    ExitCode::SUCCESS
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime starts")
}

async fn connect(url: &str) -> Client {
    Client::connect(url).await.expect("the store is there")
}

/// Takes and releases a lock, so that every part of the library has been used once.
fn use_once(url: &str) {
    runtime().block_on(async {
        let client = connect(url).await;
        let guard = client.mutex("once").lock().await.expect("it is free");
        let _released = guard.release().await.expect("the store answers");
    });
}
