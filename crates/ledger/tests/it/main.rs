//! Tests of the public API of the ledger.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop"
)]

mod canonical_form;
mod entries;
mod fixture;
mod merging;
mod tampering;
