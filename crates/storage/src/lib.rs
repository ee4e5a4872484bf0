//! Durable state: the write-ahead log, the SQLite databases of the ledger and of the vault, the key files, and the home folder
//! that holds them. No other crate uses SQL or its driver. What entries mean is decided elsewhere: `governance` and `sessions`
//! write them, and the views here are derived from them.
//!
//! Where to start reading: [`wal`] makes a record durable, [`store`] applies it to the ledger's database and answers queries,
//! [`vault`] does the same for encrypted content.
//!
//! # Another engine
//!
//! No public item names SQLite's driver; `scripts/check-architecture` checks it. A second engine, such as PostgreSQL, replaces
//! what is behind these types and keeps their signatures:
//!
//! - [`Store`]: opens a home for one writer, starts a log, rotates its key; [`store::check_views`] and [`store::rebuild_views`]
//!   derive every view again from the entries.
//! - [`LedgerWriter`]: appends entries in one total order, all or none of a call. It assigns positions and commits entries,
//!   tree, views and a signed checkpoint in one transaction. An answer means that the entries are durable.
//! - [`Reader`] and [`store::Readers`]: consistent snapshots that include everything that this process was told is durable,
//!   with the queries of entries, sessions, approvals, labels and costs.
//! - [`vault::Vault`]: content and events sealed under one key per session; deleting the key erases them, also from the log
//!   and from free pages.
//!
//! [`wal::Wal`] stays in front of any engine. It needs three things from it: apply records in order and idempotently by their
//! number, store that number and the log's epoch in the same transaction, and sync on request. The engine reports failures as
//! [`StoreError`], whose texts hold no value of a driver, and after an I/O error it accepts nothing more until it is opened
//! again. Home folder, keys, transcripts and the export do not depend on the engine.

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
