//! Errors of a launch: the step, the cause and the remedy.

use std::fmt::Display;
use std::io;

use tribune_contract::{LaunchFailure, LaunchStage};

pub(super) fn failed(
    stage: LaunchStage,
    cause: impl Into<String>,
    remedy: impl Into<String>,
) -> LaunchFailure {
    LaunchFailure { stage, cause: cause.into(), remedy: remedy.into() }
}

/// The failure of creating namespaces, with the remedy that its error calls for.
pub(super) fn namespace_failure(error: &io::Error) -> LaunchFailure {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EUSERS) => {
            "Raise the limits in /proc/sys/user, above all user.max_user_namespaces; in a sandbox, nest no further"
        }
        Some(libc::EPERM) => {
            "Allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1` where that exists; in a container, \
             allow them in its seccomp profile"
        }
        Some(libc::ENOSYS) => {
            "Use Linux 5.12 or later; in a container, allow `clone3` in its seccomp profile"
        }
        Some(libc::EINVAL) => "Use a kernel with all of CONFIG_{USER,PID,NET,IPC,UTS}_NS and CONFIG_CGROUPS",
        _ => "Raise the limits of processes and memory",
    };
    failed(LaunchStage::Namespaces, format!("creating namespaces failed ({error})"), remedy)
}

/// Turns an operating system error into the failure of a launch step.
pub(super) trait AtStage<T> {
    fn at(self, stage: LaunchStage, doing: impl Display, remedy: &str) -> Result<T, LaunchFailure>;
}

impl<T, E: Into<io::Error>> AtStage<T> for Result<T, E> {
    fn at(self, stage: LaunchStage, doing: impl Display, remedy: &str) -> Result<T, LaunchFailure> {
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
