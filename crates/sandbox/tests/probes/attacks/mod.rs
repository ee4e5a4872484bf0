//! The probes, by target.

mod files;
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

pub(crate) const ALL: [&[Probe]; 11] = [
    files::PROBES,
    processes::PROBES,
    network::PROBES,
    sockets::PROBES,
    namespaces::PROBES,
    setid_bits::PROBES,
    leaks::PROBES,
    syscalls::PROBES,
    resource_exhaustion::PROBES,
    workspace_masks::PROBES,
    races::PROBES,
];
