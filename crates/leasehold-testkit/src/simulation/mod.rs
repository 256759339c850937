//! Runs the library on simulated servers, networks and clocks. Everything follows from a seed.
//!
//! The session, the core and the stores are the production code. A simulated server is a model that
//! runs the scripts of the Redis store unchanged (see [`redis`]). The stores without a server are
//! the real ones. A seed also decides which special [kinds](Kind) its world has.

mod asked;
mod backend;
mod client;
mod clock;
mod contention;
mod copies;
mod disk;
mod drawn_faults;
mod fault;
mod kind;
mod local;
mod log;
mod mixture;
mod nemesis;
mod network;
mod nodes;
mod noted;
mod parting;
mod plan;
mod planned;
mod planning;
mod process;
pub mod redis;
mod renewing;
mod replicas;
mod run;
mod server;
mod strictness;
mod terms;
mod together;
mod worker;
mod world;
mod worlds;

pub use contention::{Contended, Contention};
pub use fault::Fault;
pub use kind::Kind;
pub use mixture::{Mixed, Mixture, Side};
pub use plan::{ClientPlan, Copied, Electing, KeptIn, Limit, Plan, Sharing};
pub use planned::{Nodes, PlannedFault};
pub use process::Process;
pub use run::{Ran, run, run_supervised};
pub use world::{Supervised, Supervisor};
