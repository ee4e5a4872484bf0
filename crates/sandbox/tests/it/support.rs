//! Helpers of the tests.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use tribune_contract::{LaunchProfile, ProgramExit, SandboxName, WorkspaceMount, WorkspaceSource};
use tribune_sandbox::workspace::OverlayDirs;
use tribune_sandbox::{Child, InstanceId, LaunchError, ProgramStreams, SandboxLauncher};

/// A test with its name.
pub(crate) type Test = (&'static str, fn());

/// Launches through this very program, as the daemon does.
pub(crate) fn launcher(state_dir: &Path) -> SandboxLauncher {
    SandboxLauncher::this_program(InstanceId::of_state_folder(state_dir))
}

pub(crate) fn profile(program: &str, args: &[&str]) -> LaunchProfile {
    let mut profile = LaunchProfile::new(SandboxName::new("test").unwrap(), program);
    profile.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    profile
}

pub(crate) fn shell(line: &str) -> LaunchProfile {
    profile("/bin/sh", &["-c", line])
}

/// The output and exit status of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) exit: ProgramExit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.exit, ProgramExit::Code { code: 0 }, "{} {}", self.stdout, self.stderr);
        self.stdout
    }
}

pub(crate) fn run(profile: &LaunchProfile) -> Result<Ran, LaunchError> {
    let state_dir = tempfile::tempdir().unwrap();
    Ok(finish(launcher(state_dir.path()).launch(profile, ProgramStreams::captured())?))
}

pub(crate) fn finish(mut child: Child) -> Ran {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr().unwrap().read_to_string(&mut stderr).unwrap();
    Ran { exit: child.wait().unwrap(), stdout, stderr }
}

/// A workspace with its overlay.
pub(crate) struct OverlayWorkspace {
    pub(crate) folder: TempDir,
    pub(crate) layers: OverlayDirs,
}

impl OverlayWorkspace {
    /// Creates a workspace with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lower = folder.path().join("lower");
        std::fs::create_dir(&lower).unwrap();
        for (name, text) in files {
            let path = lower.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let layers = OverlayDirs::create(folder.path().join("layers"), &lower).unwrap();
        Self { folder, layers }
    }

    pub(crate) fn lower(&self) -> PathBuf {
        self.folder.path().join("lower")
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.lower().join(name)).unwrap()
    }

    /// Runs a program in the overlay.
    pub(crate) fn run(&self, mut profile: LaunchProfile) -> Ran {
        profile.workspace = Some(WorkspaceMount {
            target: "/workspace".into(),
            source: WorkspaceSource::Overlay { lower: self.lower(), layers: self.layers.folder().to_owned() },
            hide: Vec::new(),
            read_only: Vec::new(),
        });
        profile.cwd = "/workspace".into();
        run(&profile).unwrap()
    }
}

/// Runs a part of this program as an ordinary user.
pub(crate) fn as_user(folder: &Path, args: &[&str]) -> Output {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    let exe = folder.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let id = crate::probes::bait::AGENT;
    Command::new(&exe).args(args).uid(id).gid(id).output().unwrap()
}

/// Processes of this machine that have `mark` as an argument.
pub(crate) fn marked(mark: &str) -> Vec<rustix::process::Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_marked = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|arg| arg == mark.as_bytes())
    };
    pids.filter(is_marked).filter_map(rustix::process::Pid::from_raw).collect()
}

/// Waits until a process has exited.
pub(crate) fn wait_for_end(pid: rustix::process::Pid) {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let flags = rustix::process::PidfdFlags::empty();
    // A process that is gone cannot be opened.
    let Ok(pidfd) = rustix::process::pidfd_open(pid, flags) else { return };
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    let ready = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "process {pid:?} did not end");
}

/// The children of a process.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Prewarmed launchers with their process 1: children of the fork server of this process, while nothing else runs.
pub(crate) fn prewarmed() -> Vec<(u32, u32)> {
    let launchers = children(std::process::id()).into_iter().flat_map(children);
    launchers
        .flat_map(|launcher| children(launcher).into_iter().map(move |first| (launcher, first)))
        .collect()
}

/// Waits until a launcher is prewarmed.
pub(crate) fn wait_for_prewarmed() -> (u32, u32) {
    let start = std::time::Instant::now();
    loop {
        if let [one] = prewarmed()[..] {
            return one;
        }
        assert!(start.elapsed().as_secs() < 30, "no launcher was prewarmed: {:?}", prewarmed());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A duration in seconds that no other process uses.
pub(crate) fn unique_sleep() -> String {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    let digits: String = uuid.chars().filter(char::is_ascii_digit).take(12).collect();
    format!("9999.{digits}")
}

/// Cgroups with this in their name.
pub(crate) fn cgroups(part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let is_named = entry.file_name().to_str().is_some_and(|name| name.contains(part));
                found.extend(is_named.then(|| entry.path()));
                folders.push(entry.path());
            }
        }
    }
    found
}
