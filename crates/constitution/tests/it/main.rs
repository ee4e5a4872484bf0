//! Properties that hold for every law and every call.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod arbitrary;
mod checked;
mod laws;
mod provenance;
