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
<<<<<<< HEAD
pub mod record;
=======
pub mod redact;
pub mod session;
>>>>>>> law
pub mod store;
pub mod vault;

pub use clock::{Clock, SystemClock};
pub use home::Home;
pub use store::{LedgerWriter, Reader, Store, StoreError};
