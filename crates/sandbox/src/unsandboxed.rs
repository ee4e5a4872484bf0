//! The one place where a program is started without a sandbox. Everything else that runs is started by
//! [`SandboxLauncher`](crate::SandboxLauncher).

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Prepares a program in a process group of its own, with none of the daemon's variables. It can do whatever the daemon's
/// user can: only where the operator asks for it.
pub fn in_own_group(program: &str) -> Command {
    let mut command = in_terminal_group(program);
    command.process_group(0);
    command
}

/// The same for what the operator starts from the command line: it stays in the terminal's process group and ends with it.
#[expect(clippy::disallowed_methods, reason = "programs without a sandbox are started here alone")]
pub fn in_terminal_group(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command
}
