//! Errors of a launch.

use std::io;

use tribune_contract::{LaunchFailure, ProfileError};

/// Why a launch failed.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("only root can choose the user of a sandbox, and this is user {0}: remove the choice")]
    NotRoot(u32),
    #[error(
        "the streams of a sandbox must be pipes or terminals, and one of these is neither: put a pipe in between"
    )]
    Stream,
    #[error("the sandbox cannot be started: {0}")]
    Failed(#[from] LaunchFailure),
    #[error(
        "the sandbox cannot be started: its launcher failed ({0}). Try again; if it stays, reinstall Tribune"
    )]
    Io(#[from] io::Error),
}
