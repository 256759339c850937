//! How long a lock may be relied upon.

use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::host::Host as _;
use leasehold::store::MemoryStore;
use leasehold_compat::redsync::{Error, Redsync};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Faults, FaultyStore, Request};

use super::world::{NAME, play};
use crate::world::ms;

/// Three stores. The last one has faults.
fn with_faults(host: &Arc<VirtualHost>) -> (Redsync<FaultyStore<MemoryStore>>, Faults) {
    let store = |faults: &Faults| faults.decorate(MemoryStore::new(host.clone()));
    let (none, some) = (Faults::new(host.clone()), Faults::new(host.clone()));
    let stores = [store(&none), store(&none), store(&some)];
    (Redsync::new_on(stores, host.clone()), some)
}

#[test]
fn a_part_of_the_expiry_is_left_to_clocks_that_drift() {
    // expiry, factor, validity
    let table = [
        (8_000, None, 7_920_000),
        (8_000, Some(0.0), 8_000_000),
        (8_000, Some(0.25), 6_000_000),
        (500, None, 495_000),
        (10, None, 9_900),
        (3_600_000, Some(0.5), 1_800_000_000),
    ];
    for (expiry, factor, micros) in table {
        play(3, async |nodes| {
            let mutex = nodes.mutex().await.with_expiry(ms(expiry));
            let mutex = factor.into_iter().fold(mutex, |mutex, it| mutex.with_drift_factor(it));
            mutex.lock().await.expect("it is free");
            let relied = std::time::Duration::from_micros(micros);
            assert_eq!(mutex.until(), Some(nodes.now() + relied), "{expiry} ms, {factor:?}");
            let keeps = i64::try_from(expiry).expect("not that long");
            assert_eq!(nodes.lasts(), [keeps; 3], "the nodes keep it for the whole of it");
        });
    }
}

#[test]
fn a_grant_without_any_time_left_is_no_lock_and_is_given_back() {
    play(3, async |nodes| {
        let mutex = nodes.mutex().await.with_drift_factor(1.0).with_tries(2);
        let error = mutex.lock().await.expect_err("all of it is left to the drift");
        assert!(matches!(error, Error::Failed), "no node said otherwise: {error:?}");
        assert_eq!(nodes.values(), [None, None, None]);
        assert_eq!((mutex.value(), mutex.until()), (None, None));
    });
}

#[test]
fn time_that_answers_take_is_part_of_the_expiry() {
    let host = VirtualHost::new(1);
    host.run(async {
        let (redsync, faults) = with_faults(&host);
        let mutex = redsync.new_mutex(NAME).with_expiry(ms(1_000)).with_timeout_factor(1.0);
        faults.next(Request::Acquire, Fault::Late(ms(700)));
        let began = host.now();
        mutex.try_lock().await.expect("it is free");
        assert_eq!(host.now().since(began), ms(700), "all of them are waited for");
        assert_eq!(mutex.until(), Some(began + ms(990)));
        faults.next(Request::Renew, Fault::Late(ms(200)));
        let began = host.now();
        assert!(mutex.extend().await.expect("it is ours"));
        assert_eq!(mutex.until(), Some(began + ms(990)), "from before it was asked");
        faults.next(Request::Renew, Fault::Late(ms(990)));
        let until = mutex.until();
        let error = mutex.extend().await.expect_err("too late");
        assert!(matches!(error, Error::ExtendFailed), "{error:?}");
        assert_eq!(mutex.until(), until);
        mutex.unlock().await.expect("it has not ended");
        faults.next(Request::Acquire, Fault::Late(ms(990)));
        let error = mutex.try_lock().await.expect_err("too late");
        assert!(matches!(error, Error::Failed), "{error:?}");
        mutex.try_lock().await.expect("it was given back");
    });
}

/// X6: a lost answer leaves nothing behind.
#[test]
fn a_grant_whose_answer_is_lost_is_rolled_back_or_unlocked() {
    let host = VirtualHost::new(1);
    host.run(async {
        let faults = Faults::new(host.clone());
        let stores = [(); 3].map(|()| faults.decorate(MemoryStore::new(host.clone())));
        let redsync = Redsync::new_on(stores, host.clone());
        let (first, second) = (redsync.new_mutex(NAME), redsync.new_mutex(NAME));
        for _ in 0..2 {
            faults.next(Request::Acquire, Fault::LoseReply);
        }
        first.try_lock().await.expect_err("one of three answers");
        second.try_lock().await.expect("all three are free again");
        assert!(second.unlock().await.expect("it is ours"));
        faults.next(Request::Acquire, Fault::LoseReply);
        first.try_lock().await.expect("two of three answer");
        assert!(first.unlock().await.expect("it is ours"));
        second.try_lock().await.expect("all three are free again");
    });
}

#[test]
fn options_that_make_no_sense_are_refused_before_anything_is_asked() {
    let host = VirtualHost::new(1);
    host.run(async {
        let (redsync, faults) = with_faults(&host);
        let mutex = |name: &str| redsync.new_mutex(name);
        let table = [
            mutex(NAME).with_expiry(ms(9)),
            mutex(NAME).with_expiry(ms(86_400_001)),
            mutex(NAME).with_drift_factor(-0.01),
            mutex(NAME).with_drift_factor(f64::NAN),
            mutex(NAME).with_timeout_factor(-1.0),
            mutex(""),
            mutex("a\nb"),
            mutex("a:lh:fence"),
        ];
        for mutex in &table {
            let calls = [
                mutex.lock().await.map(|()| true),
                mutex.unlock().await,
                mutex.extend().await,
                mutex.valid().await,
            ];
            for error in calls.map(|called| called.expect_err("it makes no sense")) {
                let Error::Config { source } = &error else { panic!("{error:?}") };
                assert_eq!(source.kind(), ErrorKind::Config, "{mutex:?}");
            }
        }
        assert_eq!(Request::ALL.map(|request| faults.count(request)), [0; 4]);
    });
}
