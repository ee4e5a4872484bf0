//! Tests of the provider clients and the agent backends against real HTTP servers on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod anthropic;
mod caching;
mod failures;
mod fixture;
mod openai;
mod parsing;
mod patience;
mod recordings;
