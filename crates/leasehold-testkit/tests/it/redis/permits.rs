//! The keys of a semaphore on the server, and the count of its permits.

use leasehold::store::{Claim, Released};
use leasehold_testkit::conformance::check::{granted, lost, released};
use leasehold_testkit::conformance::{key, ms};

use super::scripts::{left, on_server};

/// However long the lease was, and however late in it the release came.
#[test]
fn the_number_of_permits_stays_known_for_ten_minutes_after_the_last_release() {
    on_server(async |world, server| {
        let anna = world.actor();
        for (ttl, held_for) in [(3_600_000, ms(0)), (600_000, ms(599_000))] {
            granted(anna.ask(&key("a")).permits(1, 2).ttl(ttl).send().await);
            world.pass(held_for).await;
            let freed = anna.release_as(&key("a"), Claim::Permits { want: 1, of: 2 }).await;
            released(freed, Released::Freed);
            assert_eq!(left(server, "{a}:lh:shares"), 600_000);
        }
    });
}

/// A server may evict one key of a semaphore.
#[test]
fn a_semaphore_that_lost_its_holders_is_as_free_as_after_a_del() {
    on_server(async |world, server| {
        let (anna, ben) = (world.actor(), world.actor());
        for claim in [Claim::Permits { want: 2, of: 4 }, Claim::Exclusive] {
            granted(anna.ask(&key("a")).permits(3, 4).send().await);
            server.command(&["DEL", "{a}:lh:shares"]);
            granted(ben.ask(&key("a")).claim(claim).send().await);
            lost(anna.renew_as(&key("a"), Claim::Permits { want: 3, of: 4 }, 10_000).await);
            released(ben.release_as(&key("a"), claim).await, Released::Freed);
        }
    });
}

/// A step forgets at most 1 000 of them, and `inspect` none.
#[test]
fn permits_whose_leases_have_ended_are_free_however_many_they_are() {
    on_server(async |world, server| {
        let anna = world.actor();
        granted(anna.ask(&key("a")).permits(2, 5_000).send().await);
        for number in 0..2_500 {
            let owner = format!("an owner {number}");
            server.command(&["ZADD", "{a}:lh:shares", "1000001", &owner]);
            server.command(&["HSET", "{a}:lh:grant", &format!("+{owner}"), "1|0|0||"]);
            server.command(&["ZINCRBY", "{a}:lh:shares", "1", "\ttaken"]);
        }
        let permits = world.inspect(&key("a")).await.permits.expect("a semaphore");
        assert_eq!((permits.taken, permits.of), (2, 5_000));
    });
}
