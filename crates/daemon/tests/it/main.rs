//! The store, the export, the tools and the whole daemon from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should stop, and starts programs of its own"
)]

mod acp_server;
mod agent_executed_calls;
mod appending;
mod approvals;
mod auditing;
mod authentication;
mod client_disconnect;
mod connection_limits;
mod contract_matrix;
mod drafts;
mod effects;
mod egress;
mod external_gate;
mod fake_agent_own_tools;
mod fake_agent_scripted;
mod fixture;
mod governed;
mod guide;
mod hooks;
mod hostile;
mod inbox_lists;
mod keys;
mod models;
mod orphaned_sessions;
mod principals;
mod provider_checks;
mod proxy;
mod scale;
mod secret_leaks;
mod session_rules;
mod slash_tribune;
mod spend;
mod stopping;
mod subagents;
mod tools;
mod trifecta;
mod turns;
mod vault;
mod views;
mod write_ahead_log;
