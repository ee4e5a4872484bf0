//! Tribune's own loop, with a scripted model on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod native;
