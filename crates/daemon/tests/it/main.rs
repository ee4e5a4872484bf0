//! Tests of the ledger store, the export, the tools and the whole daemon, from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a failed step ends its test, and tests start programs"
)]

mod acp_server;
mod agent_executed_calls;
mod approval_lists;
mod approvals;
mod client_disconnect;
mod connection_limits;
mod contract_matrix;
mod deciders;
mod drafts;
mod effect_registry;
mod egress;
mod external_gate;
mod fake_agent_own_tools;
mod fake_agent_scripted;
mod fixture;
mod governed_turns;
mod guests;
mod guide;
mod hooks;
mod hostile_clients;
mod ledger_appends;
mod ledger_audit;
mod ledger_keys;
mod models;
mod orphaned_sessions;
mod principals;
mod provider_checks;
mod proxy;
mod raw_clients;
mod scale;
mod secret_leaks;
mod session_rules;
mod shutdown;
mod slash_tribune;
mod spend;
mod subagents;
mod tools;
mod trifecta;
mod turns;
mod vault;
mod views;
mod write_ahead_log;
