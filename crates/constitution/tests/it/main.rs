//! Laws of the law: what must hold whatever the house wrote and whatever is called.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod arbitrary;
mod checked;
mod laws;
