//! Everything of Tribune that touches the world. Today: the home folder, the log's keys, the store, the export,
//! the files agents meet in and the tools the host runs for them.
//!
//! Where to start reading: [`store`] for how an entry becomes durable, [`export`] for what leaves the house, [`registry`]
//! for who the agents are, [`tools`] for what they can do without a sandbox.

pub mod audit;
pub mod clock;
pub mod export;
pub mod files;
pub mod home;
pub mod keys;
pub mod registry;
pub mod store;
pub mod tools;

pub use clock::{Clock, SystemClock};
pub use home::Home;
pub use store::{LedgerWriter, Reader, Store, StoreError};
