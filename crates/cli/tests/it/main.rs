//! Integration tests of the real binary, driven as by a person or a script.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should stop, and starts programs of its own"
)]

mod acp;
mod agent_install;
mod agents_e2e;
mod append_crash;
mod approval_crash;
mod approvals;
mod billing_crash;
mod chat_and_sessions;
mod command_output;
mod daemon_lifecycle;
mod daemon_memory;
mod daemon_process;
mod demo;
mod disk_faults;
mod doctor;
mod editors;
mod exec_binding;
mod fixture;
mod foreign_listener;
mod in_process_daemon;
mod law;
mod law_replay;
mod providers;
mod python_verifier;
mod run;
mod sandboxed_commands;
mod sandboxed_egress;
mod sdk_proxy;
mod terminal;
mod turn_crash;
mod unusable_homes;
mod usage_errors;
mod workspace_land;
