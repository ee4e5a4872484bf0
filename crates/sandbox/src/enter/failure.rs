//! Saying why nothing was started.

use std::fmt::Display;
use std::io;

use tribune_contract::{Failed, LaunchStage};

pub(super) fn failed(stage: LaunchStage, cause: impl Into<String>, remedy: impl Into<String>) -> Failed {
    Failed { stage, cause: cause.into(), remedy: remedy.into() }
}

/// An operating system's error, told as the failure of a step.
pub(super) trait AtStage<T> {
    fn at(self, stage: LaunchStage, doing: impl Display, remedy: &str) -> Result<T, Failed>;
}

impl<T, E: Into<io::Error>> AtStage<T> for Result<T, E> {
    fn at(self, stage: LaunchStage, doing: impl Display, remedy: &str) -> Result<T, Failed> {
        self.map_err(|error| {
            let error = error.into();
            let remedy = match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "Raise the limit of open files",
                Some(libc::ENOMEM) => "Free memory",
                _ => remedy,
            };
            failed(stage, format!("{doing} failed ({error})"), remedy)
        })
    }
}
