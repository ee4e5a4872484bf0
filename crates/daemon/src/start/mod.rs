//! The stages of the daemon's start, in start order. Each is a function that returns what it opened; no stage knows a later one.
//! [`Daemon::start_with`](crate::daemon::Daemon::start_with) calls them one after the other.

pub(crate) mod agents;
pub(crate) mod egress;
pub(crate) mod gate;
pub(crate) mod gateway;
pub(crate) mod governance;
mod model_check;
pub(crate) mod policy;
pub(crate) mod registry;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod storage;
pub(crate) mod tools;

use tribune_config::Config;
use tribune_governance::storage_handles::StorageHandles;
use tribune_storage::home::Home;

/// What every stage after the storage uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartContext<'a> {
    pub(crate) home: &'a Home,
    pub(crate) config: &'a Config,
    pub(crate) storage: &'a StorageHandles,
}
