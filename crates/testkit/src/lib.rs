//! Fixtures for tests and benchmarks: temporary home folders, real daemons on port 0 in this process, and fake model
//! providers with scripted responses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[cfg(feature = "daemon")]
mod daemon;
pub mod upstream;

#[cfg(feature = "daemon")]
pub use daemon::{TempHome, TestDaemon, assert_sound, config, output_text, run_turn, turn_params};
pub use upstream::{FakeUpstream, ModelOutput, UpstreamReply};
