//! The daemon: wires the other crates together in start order. Start reading at [`daemon`].

pub mod daemon;
mod daemon_info;
pub mod memory;
mod services;
mod shutdown;
mod start;
mod start_error;
mod state_folder;
pub mod telemetry;
pub mod threads;
mod token_files;
