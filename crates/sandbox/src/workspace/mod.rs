//! The changes of a sandbox to its workspace, seen from the host.

mod layers;

pub use layers::Layers;
