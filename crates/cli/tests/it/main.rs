//! The real binary, driven as a person or a script would.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should stop, and starts programs of its own"
)]

mod acp;
mod agents_e2e;
mod approvals;
mod bad_homes;
mod boxed;
mod boxed_egress;
mod commands;
mod crashing;
mod demo;
mod disks;
mod doctor;
mod editors;
mod fixture;
mod house;
mod installing;
mod killing;
mod landing;
mod law;
mod lifecycle;
mod parking;
mod paying;
mod providers;
mod proxy;
mod replaying;
mod run;
mod running;
mod screen;
mod stranger;
mod talking;
mod typed_wrong;
