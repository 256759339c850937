//! What Leasehold is tested with, and what whoever writes a store of their own can test it with: a
//! host on virtual time, the conformance suite that every store must pass, and faults to order.

pub mod conformance;
pub mod virtual_host;

pub use virtual_host::VirtualHost;
