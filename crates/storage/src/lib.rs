//! Durable state: the write-ahead log, the SQLite databases of the ledger and of the vault, the key files, and the home folder
//! that holds them. No other crate uses SQL or its driver.
//!
//! Where to start reading: [`wal`] makes a record durable, [`store`] applies it to the ledger's database and answers queries,
//! [`vault`] does the same for encrypted content.

pub mod audit;
pub mod clock;
pub mod export;
pub mod files;
pub mod home;
pub mod keys;
pub mod rotating_file;
pub mod store;
pub mod vault;
pub mod verdict_log;
pub mod wal;

pub use clock::{Clock, SystemClock};
pub use home::Home;
pub use store::{LedgerWriter, Reader, Store, StoreError};
