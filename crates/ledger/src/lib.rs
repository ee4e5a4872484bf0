//! The memory that cannot be edited.
//!
//! An entry is a JSON object; its name ([`Cid`]) is the BLAKE3 hash of its canonical form, so it cannot change
//! under its name. Every CID is a leaf of one RFC 6962 tree whose root is signed in C2SP checkpoints, so the
//! order and the number of entries cannot change under a checkpoint that someone keeps.
//!
//! This crate is pure: it reads no clock, opens no file, starts no thread, and nothing it returns depends on chance.
//! Time, salt and keys come in as arguments; storage and export live in `tribune-host`.
//!
//! Where to start reading: [`entry`] for what is written down, [`tree`] for the log over it, [`verify`] for what a
//! stranger checks.

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
