//! Governance: every call is judged, recorded, perhaps approved by a person, and only then executed.
//!
//! Where to start reading: [`turn`] runs the turns of a backend under the constitution, [`gate`] judges a call, [`approval`] holds
//! the calls that wait for a person, [`spend`] keeps budgets, [`tool_executor`] is how the tools are reached.

pub mod approval;
pub mod decider_log;
pub mod event_buffer;
pub mod gate;
pub mod models;
pub mod policy_archive;
pub mod policy_files;
pub mod spend;
pub mod storage_handles;
pub mod tool_executor;
pub mod transcript;
pub mod transcripts;
pub mod turn;
