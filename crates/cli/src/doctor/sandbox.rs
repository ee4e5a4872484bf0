//! Whether this machine can hold the commands of agents: each kind of sandbox is really started, and really runs something.

use tribune_config::Sandbox;
use tribune_contract::{Limits, Started};
use tribune_sandbox::{House, Launcher, SelfTest, SelfTestError, self_test};
use tribune_storage::home::Home;

use super::{Found, fail, fine, warn};

/// The sandbox that the settings ask for.
pub(super) fn check(home: &Home, wanted: Sandbox) -> Found {
    let (name, tried) = match wanted {
        Sandbox::Full => ("full", tried(home).full),
        Sandbox::Landlock => ("landlock", tried(home).landlock),
        Sandbox::Off => {
            return warn(
                "off: commands of agents run with everything this user may do; set `sandbox: \"full\"` in config.json5 unless this machine is a sandbox itself",
            );
        }
    };
    match tried {
        Ok(_) => fine(format!("{name}: a command ran in it (`tribune doctor --sandbox` says more)")),
        Err(error) => fail(format!("{name}: {error}")),
    }
}

/// Everything that is known about sandboxes here. What is not asked for may fail.
pub(super) fn all(home: &Home, wanted: Sandbox) -> Vec<(&'static str, Found)> {
    let test = tried(home);
    let advice = test.advice().join("; ");
    let SelfTest { full, landlock, landlock_abi } = test;
    let limits = match &full {
        Ok(_) if !advice.is_empty() => warn(advice),
        Ok(started) => {
            let Limits { memory_bytes, processes, cpu_percent, file_bytes, .. } = Limits::default();
            let (memory, file) = (memory_bytes >> 20, file_bytes >> 20);
            fine(format!(
                "held by {}, for all processes together: {memory} MiB of memory, {processes} processes, {cpu_percent} % of a \
                 core, files of {file} MiB; a call bounds its time",
                started.limited_by
            ))
        }
        Err(_) => warn("they are known when a sandbox can be started"),
    };
    let kernel = match landlock_abi {
        0 => fail("this kernel has no Landlock: use Linux 6.12 or newer, with `landlock` in its `lsm=` list"),
        version => fine(format!("version {version} of this kernel is used")),
    };
    vec![
        ("full", outcome(full, wanted == Sandbox::Full)),
        ("landlock", outcome(landlock, wanted == Sandbox::Landlock)),
        ("limits", limits),
        ("Landlock", kernel),
        ("settings", settings(home, wanted)),
    ]
}

fn tried(home: &Home) -> SelfTest {
    self_test(&Launcher::this_program(House::of(home.root())).once())
}

fn outcome(tried: Result<Started, SelfTestError>, is_wanted: bool) -> Found {
    match tried {
        Ok(started) => fine(format!("a command ran in it, as user {}", started.uid)),
        Err(error) if is_wanted => fail(error.to_string()),
        Err(error) => warn(error.to_string()),
    }
}

fn settings(home: &Home, wanted: Sandbox) -> Found {
    match wanted {
        Sandbox::Full => fine("`sandbox` is \"full\""),
        Sandbox::Landlock if rustix::process::geteuid().is_root() => warn(
            "`sandbox` is \"landlock\", and this is root: the user that commands get cannot enter a home that is root's alone, so they have no workspace; run the daemon as an ordinary user",
        ),
        Sandbox::Landlock => {
            fine("`sandbox` is \"landlock\": names and processes of this machine can be seen")
        }
        Sandbox::Off => check(home, Sandbox::Off),
    }
}
