//! The store, the export and the tools from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop"
)]

mod appending;
mod auditing;
mod fixture;
mod guide;
mod keys;
mod session_rules;
mod tools;
mod turns;
mod views;
