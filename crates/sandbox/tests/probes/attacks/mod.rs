//! The probes, by target.

mod connections;
mod files;
mod git_state;
mod leaks;
mod namespaces;
mod network;
mod processes;
mod races;
mod resource_exhaustion;
mod setid_bits;
mod sockets;
mod syscalls;
mod workspace_masks;

use crate::probes::probe::Probe;

pub(crate) const ALL: [&[Probe]; 13] = [
    files::PROBES,
    processes::PROBES,
    network::PROBES,
    connections::PROBES,
    sockets::PROBES,
    namespaces::PROBES,
    setid_bits::PROBES,
    leaks::PROBES,
    syscalls::PROBES,
    resource_exhaustion::PROBES,
    workspace_masks::PROBES,
    git_state::PROBES,
    races::PROBES,
];

/// The probes that try to reach another process of the host or of the network.
pub(crate) fn connects() -> impl Iterator<Item = &'static Probe> {
    network::PROBES.iter().chain(connections::PROBES)
}
