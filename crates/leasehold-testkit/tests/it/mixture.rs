//! Clients of another library, which poll, and our clients, which queue, want one lock all the
//! time.

use leasehold_testkit::simulation::Mixture;

/// Without openings, the line hands the key over for ever, and a client that polls gets nothing.
#[test]
fn clients_that_poll_and_clients_that_queue_both_have_their_turns() {
    for seed in 0..6 {
        let broken = Mixture::of_seed(seed).run().broken();
        assert_eq!(broken, None, "seed {seed}; more: cargo xtask sim --mixture --seeds 0..1000");
    }
}
