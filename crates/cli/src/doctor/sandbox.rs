//! Whether this machine can sandbox the commands of agents: each kind of sandbox is started and runs a command.

use tribune_config::Sandbox;
use tribune_contract::{ResourceLimits, StartReport};
use tribune_sandbox::{InstanceId, SandboxLauncher, SelfTest, SelfTestError, self_test};
use tribune_storage::home::Home;

use super::{Diagnosis, fail, fine, warn};

/// Checks the sandbox that the settings ask for.
pub(super) fn check(home: &Home, wanted: Sandbox) -> Diagnosis {
    let (name, tested) = match wanted {
        Sandbox::Full => ("full", tested(home).full),
        Sandbox::Landlock => ("landlock", tested(home).landlock),
        Sandbox::Off => {
            return warn(
                "off: commands of agents run with all rights of this user; set `sandbox: \"full\"` in config.json5 unless this machine is itself a sandbox",
            );
        }
    };
    match tested {
        Ok(_) => fine(format!("{name}: a command ran in it (details: `tribune doctor --sandbox`)")),
        Err(error) => fail(format!("{name}: {error}")),
    }
}

/// Checks every kind of sandbox. Only the configured kind must work.
pub(super) fn all(home: &Home, wanted: Sandbox) -> Vec<(&'static str, Diagnosis)> {
    let test = tested(home);
    let advice = test.advice().join("; ");
    let SelfTest { full, landlock, landlock_abi } = test;
    let limits = match &full {
        Ok(_) if !advice.is_empty() => warn(advice),
        Ok(started) => {
            let ResourceLimits { memory_bytes, processes, cpu_percent, file_bytes, .. } =
                ResourceLimits::default();
            let (memory, file) = (memory_bytes >> 20, file_bytes >> 20);
            fine(format!(
                "enforced by {}, for all processes together: {memory} MiB of memory, {processes} processes, {cpu_percent} % of a \
                 core, files of {file} MiB; each call sets its own time limit",
                started.limited_by
            ))
        }
        Err(_) => warn("unknown until a sandbox can be started"),
    };
    let kernel = match landlock_abi {
        0 => fail("this kernel has no Landlock: use Linux 6.12 or newer, with `landlock` in its `lsm=` list"),
        version => fine(format!("version {version}, from this kernel")),
    };
    vec![
        ("full", outcome(full, wanted == Sandbox::Full)),
        ("landlock", outcome(landlock, wanted == Sandbox::Landlock)),
        ("limits", limits),
        ("Landlock", kernel),
        ("settings", settings(home, wanted)),
    ]
}

fn tested(home: &Home) -> SelfTest {
    self_test(&SandboxLauncher::this_program(InstanceId::of_state_folder(home.root())).without_prewarm())
}

fn outcome(tested: Result<StartReport, SelfTestError>, is_wanted: bool) -> Diagnosis {
    match tested {
        Ok(started) => fine(format!("a command ran in it, as user {}", started.uid)),
        Err(error) if is_wanted => fail(error.to_string()),
        Err(error) => warn(error.to_string()),
    }
}

fn settings(home: &Home, wanted: Sandbox) -> Diagnosis {
    match wanted {
        Sandbox::Full => fine("`sandbox` is \"full\""),
        Sandbox::Landlock if rustix::process::geteuid().is_root() => warn(
            "`sandbox` is \"landlock\" and this is root: commands run as another user, who cannot enter a home that only root can read, so they have no workspace; run the daemon as an ordinary user",
        ),
        Sandbox::Landlock => {
            fine("`sandbox` is \"landlock\": commands can see the file names and processes of this machine")
        }
        Sandbox::Off => check(home, Sandbox::Off),
    }
}
