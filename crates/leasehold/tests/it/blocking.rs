//! Calls on threads without an async runtime.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use leasehold::blocking::block_on;
use leasehold::{Client, Error, ErrorKind, Guard, Release};

/// No lock takes that long in a test that passes.
const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn threads_with_clients_of_their_own_exclude_each_other() -> Result<(), Error> {
    const THREADS: u32 = 8;
    const EACH: u32 = 250;
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    for url in ["memory:blocking", &url] {
        let count = Arc::new(AtomicU32::new(0));
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    let client = block_on(Client::connect(url)).expect("it opens");
                    for _ in 0..EACH {
                        let guard = block_on(client.mutex("a").lock()).expect("granted in turn");
                        // If two threads are here at the same time, one increment is lost.
                        let seen = count.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        count.store(seen + 1, Ordering::Relaxed);
                        assert_eq!(block_on(guard.release()).ok(), Some(Release::Released));
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), THREADS * EACH, "{url}");
    }
    Ok(())
}

#[test]
fn a_dropped_guard_is_released_though_no_call_follows() -> Result<(), Error> {
    let holder = block_on(Client::connect("memory:dropped"))?;
    let other = block_on(Client::connect("memory:dropped"))?;
    drop(block_on(holder.mutex("a").lock())?);
    drop(block_on(other.mutex("a").lock_timeout(PATIENCE))?);
    Ok(())
}

#[test]
fn a_lock_is_renewed_while_its_thread_waits_for_something_else() -> Result<(), Error> {
    let ttl = Duration::from_millis(200);
    let client = block_on(Client::connect("memory:busy"))?;
    let other = block_on(Client::connect("memory:busy"))?;
    let guard = block_on(client.mutex("a").ttl(ttl).lock())?;
    let error = block_on(other.mutex("a").lock_timeout(ttl * 5)).expect_err("it is taken");
    assert_eq!(error.kind(), ErrorKind::WaitElapsed);
    assert_eq!(block_on(guard.release())?, Release::Released);
    Ok(())
}

#[tokio::test]
async fn a_thread_that_runs_async_code_is_refused_and_told_what_to_do() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let refused = |outcome: Result<_, Error>| {
        let error = outcome.map(drop).expect_err("this would stop the runtime");
        assert_eq!(error.kind(), ErrorKind::Config);
        for part in ["`.await`", "spawn_blocking", "no request was sent"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    };
    refused(block_on(client.mutex("a").lock()));
    let mutex = client.mutex("a");
    let (refusal, guard) = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Handle::current();
        (block_on(mutex.lock()), runtime.block_on(mutex.lock()))
    })
    .await
    .expect("it does not panic");
    refused(refusal);
    assert!(guard?.is_held(), "the way that the message names works");
    Ok(())
}

type Tell = mpsc::Sender<Result<Release, Error>>;

/// Releases a guard when its thread ends, and tells the outcome.
#[derive(Default)]
struct Last(RefCell<Option<(Guard, Tell)>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some((guard, tell)) = self.0.take() {
            tell.send(block_on(guard.release())).expect("the test waits for it");
        }
    }
}

thread_local! {
    static LAST: Last = Last::default();
}

/// A panic there would end the process, with all of its locks.
#[test]
fn a_call_in_the_destructor_of_a_thread_local_is_refused_and_its_guard_is_released()
-> Result<(), Error> {
    let other = block_on(Client::connect("memory:ending"))?;
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Touch this before the thread-locals of tokio, so that it ends after them.
        LAST.with(|last| assert!(last.0.borrow().is_none()));
        let client = block_on(Client::connect("memory:ending"))?;
        let guard = block_on(client.mutex("a").lock())?;
        LAST.with(|last| last.0.replace(Some((guard, tell))));
        Ok::<_, Error>(())
    });
    thread.join().expect("it does not panic")?;
    let refused = told.recv().expect("it was dropped").expect_err("nothing can wait there");
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
    assert!(refused.to_string().contains("this thread is ending"), "{refused}");
    drop(block_on(other.mutex("a").lock_timeout(PATIENCE))?);
    Ok(())
}
