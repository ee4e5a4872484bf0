//! A tamper-evident ledger: an append-only Merkle log of content-addressed entries.
//!
//! An entry is a JSON object. Its id ([`Cid`]) is the BLAKE3 hash of its canonical form, so the content of an id cannot
//! change. Every CID is a leaf of one RFC 6962 tree whose root is signed in C2SP checkpoints. So the order and the
//! number of entries cannot change without contradicting a checkpoint that was kept.
//!
//! This crate is pure: it reads no clock, opens no file, starts no thread and uses no randomness. Time, salt and keys
//! are arguments. It does not store or export entries.
//!
//! Where to start reading: [`entry`] for the format, [`tree`] for the Merkle log, [`verify`] for the checks of an
//! independent auditor.

pub mod bundle;
pub mod checkpoint;
pub mod cid;
pub mod commitment;
pub mod entry;
pub mod envelope;
pub mod jcs;
pub mod key_change;
pub mod limits;
pub mod merge;
pub mod note;
pub mod proof;
pub mod tree;
pub mod verify;

pub use checkpoint::Checkpoint;
pub use cid::Cid;
pub use entry::{Draft, EntryQuality, LedgerEntry, Timestamp};
pub use note::{Ed25519Signer, NoteSigner, VerifierKey};
pub use proof::{AttestationKey, Proof};
