//! Why the daemon did not start, one variant for each cause. The errors of the stages pass through with their own texts.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tribune_egress::SessionSocketError;
use tribune_governance::policy_files::LawError;
use tribune_registry::profiles::ProfilesError;
use tribune_registry::{ApproversError, RosterError};
use tribune_runtime::rehearsal::SceneError;
use tribune_sessions::session::SessionError;
use tribune_storage::store::StoreError;

/// The default port of `gateway.address`.
const DEFAULT_PORT: u16 = 18789;

/// Why the daemon did not start. No request was served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Law(#[from] LawError),
    #[error(transparent)]
    Roster(#[from] RosterError),
    #[error(transparent)]
    Approvers(#[from] ApproversError),
    #[error(transparent)]
    Profiles(#[from] ProfilesError),
    #[error(transparent)]
    Scenes(#[from] SceneError),
    #[error("sessions could not be prepared: {0}")]
    Sessions(#[from] SessionError),
    #[error(
        "{0} is taken by another program{which}: stop that program, or choose another port with --port or gateway.address",
        which = if .0.port() == DEFAULT_PORT { " (OpenClaw's gateway has the same default)" } else { "" }
    )]
    PortTaken(SocketAddr),
    #[error(
        "the roster has {standing} standing agents, but sessions.maxOpen is {max_open}: raise it in config.json5, or make fewer agents standing"
    )]
    TooManyStanding { standing: usize, max_open: usize },
    #[error(
        "the daemon cannot listen on {address} ({error}): choose another address with --port or gateway.address"
    )]
    Listen { address: SocketAddr, error: io::Error },
    #[error(
        "{model} cannot be used: {fault}. The provider's startupValidation is \"strict\"; with \"warn\" the daemon would start anyway"
    )]
    Model { model: String, fault: String },
    #[error(transparent)]
    Sockets(#[from] SessionSocketError),
    #[error("`{path}` cannot be written ({error})", path = .path.display())]
    File { path: PathBuf, error: io::Error },
}
