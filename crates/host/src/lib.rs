//! Everything of Tribune that touches the world. Today: the home folder, its configuration, the log's keys, the store,
//! the export and the transcripts of sessions.
//!
//! Where to start reading: [`store`] for how an entry becomes durable, [`export`] for what leaves the house.

pub mod audit;
pub mod clock;
pub mod config;
pub mod export;
pub mod files;
pub mod home;
pub mod keys;
pub mod redact;
pub mod session;
pub mod store;

pub use clock::{Clock, SystemClock};
pub use home::Home;
pub use store::{LedgerWriter, Reader, Store, StoreError};
