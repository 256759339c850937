//! The library on a simulated server, network and clocks: everything follows from a seed.
//!
//! What runs is the production session, core and stores; a server is a model that carries out the
//! very scripts of the Redis store (see [`redis`]). The stores without a server are whole. Beside
//! plain worlds there are several [kinds](Kind), which a seed decides upon.

mod asked;
mod backend;
mod client;
mod clock;
mod contention;
mod copies;
mod disk;
mod fault;
mod local;
mod log;
mod nemesis;
mod network;
mod nodes;
mod plan;
mod process;
pub mod redis;
mod replicas;
mod run;
mod server;
mod strictness;
mod supervised;
mod terms;
mod worker;
mod world;
mod worlds;

pub use contention::{Contended, Contention};
pub use copies::Copied;
pub use fault::Fault;
pub use nodes::Nodes;
pub use plan::{ClientPlan, KeptIn, Plan, PlannedFault};
pub use process::Process;
pub use run::{Ran, run, run_supervised};
pub use supervised::{Supervised, Supervisor};
pub use worlds::Kind;
