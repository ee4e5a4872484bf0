//! The daemon: wires the other crates together in start order. Start reading at [`daemon`].

pub mod daemon;
pub mod memory;
pub mod telemetry;
pub mod threads;
