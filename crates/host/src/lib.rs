//! The daemon: everything of Tribune that touches the world.
//!
//! Where to start reading: [`daemon`] wires it together in start order. [`governed`] is the way of a turn, [`session`] the
//! queue before it, [`gateway`] the door. [`store`] makes an entry durable, [`vault`] keeps what was said, [`registry`]
//! knows the agents, [`tools`] are what they can do.

pub mod approval;
pub mod audit;
pub mod broker;
pub mod canary;
mod cli_agents;
pub mod clock;
pub mod config;
pub mod daemon;
mod daybook;
pub mod export;
pub mod files;
pub mod gate;
pub mod gateway;
pub mod governed;
pub mod home;
pub mod keys;
pub mod law;
pub mod law_record;
mod mcp;
pub mod memory;
pub mod models;
mod net;
pub mod profiles;
mod programs;
pub mod quota;
pub mod record;
pub mod records;
pub mod registry;
pub mod run;
pub mod session;
pub mod spend;
pub mod status;
pub mod store;
pub mod telemetry;
pub mod threads;
pub mod tools;
pub mod vault;
pub mod workspace;

pub use clock::{Clock, SystemClock};
pub use home::Home;
pub use store::{LedgerWriter, Reader, Store, StoreError};
