//! `tribune sandbox-enter`: the half of the sandbox that runs inside. The daemon starts it; it is not for people.

use std::ffi::OsStr;
use std::process::ExitCode;

/// The exit code for a wrong call.
const MISUSED: u8 = 2;

/// Enters a sandbox if this process was started for that. Must run before anything else, while the process has one
/// thread.
pub(crate) fn if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new("sandbox-enter")) || args.next().is_some() {
        return None;
    }
    match tribune_sandbox::enter() {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "there is no other output yet")]
            {
                eprintln!(
                    "`sandbox-enter` is internal: the daemon starts it with a control socket ({error})."
                );
            }
            Some(ExitCode::from(MISUSED))
        }
    }
}
