//! Tests of the sandbox from outside. This program is also the entering half (`sandbox-enter`) and every program that
//! the tests start.
#![allow(unsafe_code, reason = "probes make the very calls that a sandbox must refuse")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is a test, which clippy cannot see"
)]

mod autorun_files;
mod common_tools;
mod git_state;
mod land;
mod land_recovery;
mod landlock_mode;
mod lifecycle;
mod masks;
#[path = "../probes/mod.rs"]
mod probes;
mod relay;
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if words == ["sandbox-enter"] {
        probes::raw::leak_descriptor();
        tribune_sandbox::enter().unwrap();
        return ExitCode::SUCCESS;
    }
    let programs = [probes::program, lifecycle::program, relay::program, land::program];
    if let Some(code) = programs.iter().find_map(|program| program(&words)) {
        return code;
    }
    let mut trials = probes::trials();
    let is_root = rustix::process::geteuid().is_root();
    for (group, tests) in [
        ("lifecycle", lifecycle::TESTS),
        ("relay", relay::TESTS),
        ("land", land::TESTS),
        ("autorun_files", autorun_files::TESTS),
        ("land_recovery", land_recovery::TESTS),
        ("common_tools", common_tools::TESTS),
        ("landlock_mode", landlock_mode::TESTS),
        ("masks", masks::TESTS),
        ("git_state", git_state::TESTS),
    ] {
        trials.extend(tests.iter().map(|(name, test)| {
            let run = || {
                test();
                Ok(())
            };
            // Root is needed to start both as root and as another user.
            Trial::test(format!("{group}::{name}"), run).with_ignored_flag(!is_root)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
