//! The probes, by what they are after.

mod bombs;
mod calls;
mod files;
mod ids;
mod leaks;
mod namespaces;
mod network;
mod processes;
mod races;
mod sockets;
mod traps;

use crate::probes::probe::Probe;

pub(crate) const ALL: [&[Probe]; 11] = [
    files::PROBES,
    processes::PROBES,
    network::PROBES,
    sockets::PROBES,
    namespaces::PROBES,
    ids::PROBES,
    leaks::PROBES,
    calls::PROBES,
    bombs::PROBES,
    traps::PROBES,
    races::PROBES,
];
