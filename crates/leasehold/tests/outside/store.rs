//! The public contract, and the store.

pub(crate) use leasehold::store::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, ClientRecord, Evicted, FENCE_IDLE, Hint,
    HintSink, Holder, Keep, LeaseId, Line, Note, OnRelease, PAGE_KEYS_MAX, Page, PermitsTaken,
    PlaceTerms, Reach, Refusal, Released, Renewal, Renewed, Revocation, Revoked, Sinks, Snapshot,
    Store, Waiter, errors, matches_pattern, try_out, within,
};

#[path = "../../src/store/sqlite/mod.rs"]
pub(crate) mod sqlite;
