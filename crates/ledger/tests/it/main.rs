//! The ledger from outside: what its public surface promises.

mod canonical_form;
mod entries;
mod fixture;
mod merging;
mod tampering;
