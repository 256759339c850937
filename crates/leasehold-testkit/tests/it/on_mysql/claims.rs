//! Each use of a key: as a mutex, as a lock for readers and a writer, as a semaphore.

use leasehold_testkit::servers::MysqlDatabase;

use super::client;

#[tokio::test]
async fn readers_share_a_key_and_a_writer_waits_for_all() {
    let database = MysqlDatabase::lend();
    let (one, other) = (client(&database.url()).await, client(&database.url()).await);
    let first = one.rwlock("a").read().await.expect("free");
    let second = other.rwlock("a").read().await.expect("shared");
    assert!(other.rwlock("a").try_write().await.expect("asked").is_none());
    let _released = first.release().await.expect("released");
    assert!(one.rwlock("a").try_write().await.expect("asked").is_none());
    let _released = second.release().await.expect("released");
    let writer = one.rwlock("a").try_write().await.expect("asked").expect("free");
    assert!(other.rwlock("a").try_read().await.expect("asked").is_none());
    drop(writer);
}

#[tokio::test]
async fn a_semaphore_grants_no_more_permits_than_it_has() {
    let database = MysqlDatabase::lend();
    let (one, other) = (client(&database.url()).await, client(&database.url()).await);
    let first = one.semaphore("a", 2).try_acquire().await.expect("asked").expect("free");
    let second = other.semaphore("a", 2).try_acquire().await.expect("asked").expect("free");
    assert!(other.semaphore("a", 2).try_acquire().await.expect("asked").is_none());
    let seen = one.inspect("a").await.expect("asked");
    assert_eq!(seen.holders.len(), 2);
    let _released = first.release().await.expect("released");
    let third = other.semaphore("a", 2).try_acquire().await.expect("asked").expect("free");
    drop((second, third));
}

#[tokio::test]
async fn names_differ_by_case_and_by_blanks_and_any_text_is_kept() {
    let database = MysqlDatabase::lend();
    let (one, other) = (client(&database.url()).await, client(&database.url()).await);
    for name in ["a", "A", "a b", "ä", "a'\\\"; --", "🔒%_"] {
        let why = format!("it's {name} \\ \u{1a} of us");
        let guard = one.mutex(name).why(&why).try_lock().await.expect("asked");
        let guard = guard.unwrap_or_else(|| panic!("{name} is another name"));
        assert!(other.mutex(name).try_lock().await.expect("asked").is_none());
        let seen = other.inspect(name).await.expect("asked");
        assert_eq!(seen.holders[0].why.as_deref(), Some(&*why));
        let _token = guard.detach();
    }
    let listed = one.list("a*").await.expect("asked");
    let names: Vec<_> = listed.names().iter().map(|key| key.as_str()).collect();
    assert_eq!(names, ["a", "a b", "a'\\\"; --"]);
}
