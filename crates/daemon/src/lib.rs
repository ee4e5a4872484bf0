//! The daemon: wires the other crates together in start order. Where to start reading: [`daemon`].

pub mod daemon;
pub mod memory;
pub mod telemetry;
pub mod threads;
