//! Runs one probe in one sandbox.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tribune_contract::{
    AUTORUN_PATHS, LaunchProfile, Mount, ResourceLimits, RunsAs, SandboxMode, SandboxName, Tmpfs,
    WorkspaceMount, WorkspaceSource,
};
use tribune_sandbox::{InstanceId, Isolation, ProgramStreams, SandboxLauncher};

use crate::probes::bait::{self, AGENT, Laid};
use crate::probes::probe::{Control, Outcome, Probe, Sign};
use crate::probes::raw;
use crate::support;

/// The isolation around a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum With {
    AllLayers,
    ControlLayers,
}

/// The user who starts the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launched {
    ByRoot,
    ByUser,
}

impl With {
    pub(crate) const ALL: [Self; 2] = [Self::AllLayers, Self::ControlLayers];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AllLayers => "sandbox",
            Self::ControlLayers => "control",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|with| with.name() == name).unwrap()
    }
}

impl Launched {
    pub(crate) const ALL: [Self; 2] = [Self::ByRoot, Self::ByUser];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ByRoot => "by_root",
            Self::ByUser => "by_user",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|launched| launched.name() == name).unwrap()
    }
}

/// How a probe is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around {
    pub(crate) with: With,
    pub(crate) launched: Launched,
    pub(crate) mode: SandboxMode,
}

/// Mechanisms by their index in the list of all.
pub(crate) fn layers(numbers: &[&str]) -> Vec<Isolation> {
    numbers.iter().map(|number| Isolation::ALL[number.parse::<usize>().unwrap()]).collect()
}

/// Runs a case in its own process, which can leave the network and switch users.
pub(crate) fn start(probe: &Probe, around: Around) -> Result<Outcome, String> {
    // Created and removed here, because the case may lack the rights to remove it.
    let host = tempfile::Builder::new().prefix("tribune-probe-").tempdir().unwrap();
    let mode = around.mode.to_string();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["case", probe.name, around.with.name(), around.launched.name(), mode.as_str()])
        .arg(host.path())
        .output()
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        format!(
            "the case said nothing ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

pub(crate) fn run(probe: &Probe, around: Around, folder: &Path) -> Outcome {
    raw::leave_network().unwrap();
    // Every user may open ICMP sockets, as on many desktops. The setting belongs to the network namespace.
    std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").unwrap();
    raw::loopback_address(0, [127, 0, 0, 1]).unwrap();
    raw::loopback_address(1, bait::METADATA).unwrap();
    raw::loopback_address(2, bait::RESOLVER).unwrap();
    bait::files(folder);
    std::fs::create_dir(folder.join("sockets")).unwrap();
    std::fs::set_permissions(folder.join("sockets"), PermissionsExt::from_mode(0o777)).unwrap();
    // Readable by every user, wherever it was built.
    let exe = folder.join("probe");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();

    let (without, is_bare) = match (around.with, probe.control_in(around.mode)) {
        (With::AllLayers, _) | (With::ControlLayers, None) => (None, false),
        (With::ControlLayers, Some(Control::Without(off))) => (Some(off), false),
        (With::ControlLayers, Some(Control::AsRoot)) => (None, true),
    };
    // As an ordinary user the files are its own; as root they belong to root and are idmapped.
    if around.launched == Launched::ByUser && !is_bare {
        bait::give(&folder.join("workspace"), AGENT);
        raw::become_user(AGENT).unwrap();
    }
    let mut laid = bait::lay(folder, &exe);
    if is_bare || around.mode == SandboxMode::Landlock {
        // The host's own root.
        laid.bait.workspace = folder.join("workspace");
        laid.bait.shelf = folder.join("shelf");
    }
    match is_bare {
        true => bare(probe, &laid, folder),
        false => sandboxed(probe, laid, folder, (around.mode, without)),
    }
}

/// Runs the probe without a sandbox.
fn bare(probe: &Probe, laid: &Laid, folder: &Path) -> Outcome {
    let bait = serde_json::to_string(&laid.bait).unwrap();
    let output = Command::new(folder.join("probe")).args(["act", probe.name, &bait]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs the probe inside, through the production launch.
fn sandboxed(
    probe: &Probe,
    mut laid: Laid,
    folder: &Path,
    (mode, without): (SandboxMode, Option<&[Isolation]>),
) -> Outcome {
    let exe = folder.join("probe");
    let mut args = vec!["TRIBUNE_PROBE_LEAK=hush-5a1e".into(), exe.clone().into_os_string()];
    match without {
        None => args.push("sandbox-enter".into()),
        Some(off) => {
            args.push("sandbox-enter-without".into());
            let number = |layer: &Isolation| Isolation::ALL.iter().position(|known| known == layer).unwrap();
            args.extend(off.iter().map(|layer| number(layer).to_string().into()));
        }
    }
    // The launcher has an environment, to check that none of it is inherited.
    let launcher = SandboxLauncher::new("/usr/bin/env", args, InstanceId::of_state_folder(folder));
    let mut profile = profile(probe, &laid, folder);
    if mode == SandboxMode::Landlock {
        in_place(&mut profile);
    }
    // The second launch uses a prewarmed launcher, as most launches of a daemon do. Landlock mode has nothing to prewarm.
    if mode == SandboxMode::Full {
        let first = LaunchProfile { program: "/bin/true".into(), args: Vec::new(), ..profile.clone() };
        launcher.launch(&first, ProgramStreams::captured()).unwrap().wait().unwrap();
        support::wait_for_prewarmed();
    }
    let mut child = launcher.launch(&profile, ProgramStreams::captured()).unwrap();
    let (mut said, mut erred) = (String::new(), String::new());
    child.stdout().unwrap().read_to_string(&mut said).unwrap();
    child.stderr().unwrap().read_to_string(&mut erred).unwrap();
    let uid = child.started().uid;
    assert_eq!(uid, AGENT);
    let exit = child.wait().unwrap();
    match probe.sign {
        Sign::Inside => {
            serde_json::from_str(&said).unwrap_or_else(|_| panic!("no outcome: {exit:?} {said} {erred}"))
        }
        Sign::InsideOrKilled => {
            serde_json::from_str(&said).unwrap_or_else(|_| Outcome::Shut(format!("ended by {exit:?}")))
        }
        Sign::VictimGone => {
            let mut ended = laid.victim.try_wait().unwrap();
            // A signal that was accepted still has to be delivered.
            let was_sent = matches!(serde_json::from_str(&said), Ok(Outcome::Open(_)));
            for _ in 0..200 {
                if ended.is_some() || !was_sent {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
                ended = laid.victim.try_wait().unwrap();
            }
            Outcome::when(ended.is_some(), format!("the victim: {ended:?}; the probe: {said}"))
        }
        Sign::Survivor => {
            // The probe prints the name of the process that it left behind.
            let name: String = serde_json::from_str(&said).unwrap();
            let survivors = named_processes(&name);
            survivors.iter().for_each(|pid| raw::end(*pid));
            Outcome::when(!survivors.is_empty(), format!("{} of it were left", survivors.len()))
        }
    }
}

/// Processes of the host with this name.
fn named_processes(name: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_named = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    pids.filter(is_named).collect()
}

/// Changes a profile to Landlock mode, which shows everything at its path on the host and masks nothing.
fn in_place(profile: &mut LaunchProfile) {
    profile.mode = SandboxMode::Landlock;
    for mount in &mut profile.mounts {
        if let Mount::ReadOnly { source, target, .. } = mount {
            if *target == profile.program {
                profile.program.clone_from(source);
            }
            target.clone_from(source);
        }
    }
    if let Some(WorkspaceMount { target, source: WorkspaceSource::Direct { folder }, hide, read_only }) =
        &mut profile.workspace
    {
        target.clone_from(folder);
        profile.cwd.clone_from(folder);
        (*hide, *read_only) = (Vec::new(), Vec::new());
    }
}

fn profile(probe: &Probe, laid: &Laid, folder: &Path) -> LaunchProfile {
    const MIB: u64 = 1024 * 1024;
    let mut profile = LaunchProfile::new(SandboxName::new("probe").unwrap(), "/opt/probe");
    profile.args = vec!["act".into(), probe.name.into(), serde_json::to_string(&laid.bait).unwrap()];
    profile.runs_as = RunsAs::User { uid: AGENT, gid: AGENT };
    profile.cwd = "/workspace".into();
    profile.mounts = vec![
        Mount::ReadOnly { source: folder.join("probe"), target: "/opt/probe".into(), hide: Vec::new() },
        Mount::ReadOnly { source: folder.join("shelf"), target: "/shelf".into(), hide: Vec::new() },
    ];
    profile.workspace = Some(WorkspaceMount {
        target: "/workspace".into(),
        source: WorkspaceSource::Direct { folder: folder.join("workspace") },
        hide: [".env", "secrets", "*.pem"].map(str::to_owned).into(),
        read_only: AUTORUN_PATHS.map(str::to_owned).into(),
    });
    profile.limits = ResourceLimits {
        memory_bytes: 192 * MIB,
        processes: 64,
        cpu_percent: 400,
        file_bytes: 32 * MIB,
        open_files: 128,
        wall_ms: Some(60_000),
        tmp: Tmpfs { bytes: 8 * MIB, inodes: 500 },
        shm: Tmpfs { bytes: 4 * MIB, inodes: 200 },
        home: Tmpfs { bytes: 4 * MIB, inodes: 200 },
    };
    profile
}
