//! Fixtures for tests and benchmarks: temporary home folders, real daemons on port 0 in this process, and fake model
//! providers with scripted responses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[cfg(feature = "daemon")]
mod daemon;
pub mod upstream;

#[cfg(feature = "daemon")]
pub use daemon::{TempHome, TestDaemon, assert_sound, config, turn_params, output_text, run_turn};
pub use upstream::{FakeUpstream, UpstreamReply, ModelOutput};
