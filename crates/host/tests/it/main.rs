//! The store, the export, the tools and the whole daemon from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop"
)]

mod appending;
mod auditing;
mod door;
mod fixture;
mod governed;
mod guide;
mod hanging_up;
mod hostile;
mod keys;
mod principals;
mod scale;
mod session_rules;
mod stopping;
mod tools;
mod turns;
mod unserved;
mod vault;
mod views;
