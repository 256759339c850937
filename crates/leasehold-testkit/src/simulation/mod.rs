//! The library on a simulated server, network and clocks: everything follows from a seed.
//!
//! What runs is the production session, core and Redis store; the server is a model that carries
//! out the very scripts of the store (see [`redis`]).

mod client;
mod clock;
mod fault;
mod log;
mod nemesis;
mod network;
mod plan;
mod process;
pub mod redis;
mod run;
mod server;
mod terms;
mod worker;
mod world;

pub use fault::Fault;
pub use plan::{ClientPlan, Plan, PlannedFault};
pub use process::Process;
pub use run::{Ran, run};
