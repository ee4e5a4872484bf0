//! The store, the export, the tools and the whole daemon from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should stop, and starts programs of its own"
)]

mod appending;
mod approvals;
mod auditing;
mod broker;
mod contract_matrix;
mod crowding;
mod daybook;
mod door;
mod drafts;
mod effects;
mod fixture;
mod front_door;
mod gate_api;
mod governed;
mod guide;
mod hands;
mod hanging_up;
mod hooks;
mod hostile;
mod house_turns;
mod inbox_lists;
mod keys;
mod models;
mod own_calls;
mod planted;
mod principals;
mod provider_trials;
mod proxy;
mod puppet;
mod scale;
mod session_rules;
mod spend;
mod stopping;
mod subagents;
mod tools;
mod trifecta;
mod turns;
mod unserved;
mod vault;
mod views;
