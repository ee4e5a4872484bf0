//! The one place where the daemon starts a program without a sandbox. Everything else that runs is started by
//! [`tribune_sandbox::Launcher`].

use tokio::process::Command;

/// A program with no variables of the daemon's, in a process group of its own, that ends when nobody waits for it. It can do
/// whatever the daemon's user can: only where the operator says so.
#[expect(clippy::disallowed_methods, reason = "this is the place")]
pub(crate) fn bare(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().process_group(0).kill_on_drop(true);
    command
}

/// The same for what the operator calls from the command line: it stays in the terminal's group, and ends with it.
#[expect(clippy::disallowed_methods, reason = "this is the place")]
pub(crate) fn at_terminal(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().kill_on_drop(true);
    command
}
