//! Attacks on the sandbox. Each probe runs inside through the production launch, started by root and by an ordinary
//! user, and must fail. Each has a control: the same probe must succeed where the mechanism that stops it is left out,
//! otherwise it would prove nothing.
//!
//! Every case runs in its own network namespace, so no probe can reach a real network.

mod attacks;
pub(crate) mod bait;
mod case;
mod probe;
pub(crate) mod raw;
mod table;

use std::process::ExitCode;

use libtest_mimic::{Failed, Trial};
use tribune_contract::SandboxMode;

use self::case::{Around, Launched, With};
use self::probe::{Outcome, Probe};

/// The parts of a probe that are separate programs: the host around it (`case`), its victim (`wait`) and the attack
/// (`act`).
pub(crate) fn program(words: &[&str]) -> Option<ExitCode> {
    match words {
        ["act", name, bait] => {
            let outcome = (probe::named(name).act)(&serde_json::from_str(bait).unwrap());
            println!("{}", serde_json::to_string(&outcome).unwrap());
        }
        ["wait"] => {
            // Exits with the process that holds the other end of its input.
            let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        }
        ["case", name, with, launched, mode, folder] => {
            let around = Around {
                with: With::named(with),
                launched: Launched::named(launched),
                mode: serde_json::from_value((*mode).into()).unwrap(),
            };
            let outcome = case::run(probe::named(name), around, folder.as_ref());
            println!("{}", serde_json::to_string(&outcome).unwrap());
        }
        ["sandbox-enter-without", off @ ..] => {
            raw::leak_descriptor();
            tribune_sandbox::enter_without(&case::layers(off)).unwrap();
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

pub(crate) fn trials() -> Vec<Trial> {
    // Root is needed to start both as root and as another user.
    let is_root = rustix::process::geteuid().is_root();
    let mut trials = vec![
        Trial::test("at_least_90_probes", || {
            let found = probe::all().count();
            if found >= 90 { Ok(()) } else { Err(format!("only {found}").into()) }
        }),
        Trial::test("at_least_20_ways_to_connect_in_every_mode", || {
            let connects = |mode| attacks::connects().filter(move |probe| probe.control_in(mode).is_some());
            let [full, landlock] =
                [SandboxMode::Full, SandboxMode::Landlock].map(|mode| connects(mode).count());
            if full.min(landlock) >= 20 { Ok(()) } else { Err(format!("only {full} and {landlock}").into()) }
        }),
        Trial::test("the_published_table_is_this_one", || table::compare().map_err(Failed::from)),
    ];
    for probe in probe::all() {
        let modes = [SandboxMode::Full, SandboxMode::Landlock];
        for mode in modes.into_iter().filter(|mode| probe.control_in(*mode).is_some()) {
            for (launched, with) in Launched::ALL.into_iter().flat_map(|by| With::ALL.map(|with| (by, with)))
            {
                let group = probe.group.to_lowercase().replace(' ', "_");
                let mode_name = match mode {
                    SandboxMode::Full => "",
                    SandboxMode::Landlock => "landlock_mode::",
                };
                let name =
                    format!("{group}::{}::{mode_name}{}::{}", probe.name, launched.name(), with.name());
                let run = move || check(probe, Around { with, launched, mode });
                trials.push(Trial::test(name, run).with_ignored_flag(!is_root));
            }
        }
    }
    trials
}

fn check(probe: &Probe, around: Around) -> Result<(), Failed> {
    let outcome = case::start(probe, around)?;
    match (around.with, outcome) {
        (With::AllLayers, Outcome::Shut(_)) | (With::ControlLayers, Outcome::Open(_)) => Ok(()),
        (With::AllLayers, Outcome::Open(how)) => Err(format!("the sandbox is open: {how}").into()),
        (With::ControlLayers, Outcome::Shut(why)) => {
            Err(format!("the control is shut too, so the probe proves nothing: {why}").into())
        }
    }
}
