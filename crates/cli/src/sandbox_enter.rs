//! `tribune sandbox-enter`: the entering half of the sandbox. The daemon starts it; people have no use for it.

use std::ffi::OsStr;
use std::process::ExitCode;

/// The exit code of a program that was called in a way it does not know.
const MISUSED: u8 = 2;

/// Enters a sandbox if this process was started for that. Called before anything else, because it must have one thread.
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
                    "The daemon starts `sandbox-enter` by itself, with a socket to speak to it ({error})."
                );
            }
            Some(ExitCode::from(MISUSED))
        }
    }
}
