//! One file for each promise of a store, one function for each sentence about it.

pub(crate) mod browsing;
pub(crate) mod capabilities;
pub(crate) mod coexisting;
pub(crate) mod expiry;
pub(crate) mod fencing;
pub(crate) mod granting;
pub(crate) mod handover;
pub(crate) mod hints;
pub(crate) mod inspecting;
pub(crate) mod keys;
pub(crate) mod line;
pub(crate) mod order;
pub(crate) mod ownership;
pub(crate) mod permits;
pub(crate) mod permits_line;
pub(crate) mod plain;
pub(crate) mod renewal;
pub(crate) mod revoking;
pub(crate) mod sharing;
pub(crate) mod sharing_line;
pub(crate) mod watching;
