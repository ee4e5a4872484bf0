//! Starts commands in the sandbox. A command has the workspace, the programs of the host, and no network but the session's
//! proxy if there is one. In the workspace, autorun files are read-only to it.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdout};
use tribune_config::WorkspacesConfig;
use tribune_contract::{
    AUTORUN_PATHS, LaunchProfile, PortRelay, ProgramExit, ResourceLimits, RunsAs, SandboxMode, SandboxName,
    StartReport, WorkspaceMount, WorkspaceSource,
};
use tribune_egress::proxy_env::{EGRESS_PORT, proxy_variables};
use tribune_records::exec::WORKSPACE;
use tribune_records::ledger_payloads::SandboxRecord;
use tribune_sandbox::workspace::AutorunGuard;
use tribune_sandbox::{InstanceId, ProgramStreams};

use crate::disk_quota::Quota;

use super::launch::{
    Captured, Ended, Exited, FileView, Launch, LaunchError, Launcher, OutputPipe, Over, capture, watched,
};
use super::warn;

/// How much longer than its time limit a command is waited for: the sandbox enforces the limit itself.
const GRACE: Duration = Duration::from_secs(10);

/// Starts commands inside a sandbox.
#[derive(Debug)]
pub struct SandboxedLauncher {
    launcher: tribune_sandbox::SandboxLauncher,
    mode: SandboxMode,
    /// The number of bytes by which a command may grow its workspace.
    max_bytes: u64,
    /// Patterns of names that commands do not see.
    hide: Vec<String>,
    launches: AtomicU64,
}

impl SandboxedLauncher {
    /// For the instance whose state folder is `home`. Removes what an earlier daemon of this instance left behind.
    pub fn new(home: &Path, mode: SandboxMode, workspaces: &WorkspacesConfig) -> Self {
        let instance = InstanceId::of_state_folder(home);
        let swept = tribune_sandbox::clean_up(&home.join("layers"));
        tracing::debug!(?swept, "removed remains of earlier sandboxes");
        let launcher = tribune_sandbox::SandboxLauncher::this_program(instance);
        let (max_bytes, hide) = (workspaces.max_bytes, workspaces.hide.clone());
        Self { launcher, mode, max_bytes, hide, launches: AtomicU64::new(0) }
    }

    /// A folder of the host that a command changes directly.
    fn worked_in(&self, folder: &Path, target: PathBuf) -> WorkspaceMount {
        WorkspaceMount {
            target,
            source: WorkspaceSource::Direct { folder: folder.to_owned() },
            // Landlock mode cannot hide names, and the launch reports that.
            hide: self.hide.clone(),
            read_only: match self.mode {
                SandboxMode::Full => AUTORUN_PATHS.map(str::to_owned).into(),
                SandboxMode::Landlock => Vec::new(),
            },
        }
    }

    fn profile(&self, launch: &Launch) -> Result<LaunchProfile, LaunchError> {
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        let name = format!("exec-{}-{number}", std::process::id());
        let session = SandboxName::new(name).map_err(|error| LaunchError::Sandbox(error.to_string()))?;
        let host = &launch.cwd.workspace;
        let target = match self.mode {
            SandboxMode::Full => PathBuf::from(WORKSPACE),
            SandboxMode::Landlock => host.clone(),
        };
        let mut profile = LaunchProfile::new(session, "/bin/sh");
        profile.mode = self.mode;
        profile.args = vec!["-c".to_owned(), launch.command.clone()];
        profile.env.extend(launch.env.iter().filter(|(name, _)| name != "HOME").cloned());
        profile.cwd = within(launch, &target).map_err(LaunchError::Failed)?;
        if self.mode == SandboxMode::Landlock {
            profile.home = target.clone();
            profile.env.insert("HOME".to_owned(), target.to_string_lossy().into_owned());
        }
        profile.workspace = Some(self.worked_in(host, target));
        let additional_directories = launch
            .cwd
            .additional_directories
            .iter()
            .map(|folder| self.worked_in(folder.as_ref(), folder.into()));
        profile.additional_directories = additional_directories.collect();
        // In Landlock mode a command cannot reach sockets of the host.
        if let (SandboxMode::Full, Some(egress)) = (self.mode, &launch.egress) {
            profile.env.extend(proxy_variables(&egress.allowlist));
            let (name, socket) = ("egress".to_owned(), egress.sockets.egress());
            profile.relays = vec![PortRelay { name, port: EGRESS_PORT, socket }];
            if let Some(user) = egress.user {
                profile.runs_as = RunsAs::User { uid: user, gid: user };
            }
        }
        profile.limits.file_bytes = profile.limits.file_bytes.min(self.max_bytes);
        profile.limits.wall_ms = Some(u64::try_from(launch.limits.wall.as_millis()).unwrap_or(u64::MAX));
        Ok(profile)
    }
}

#[async_trait]
impl Launcher for SandboxedLauncher {
    fn view(&self) -> FileView {
        match self.mode {
            SandboxMode::Full => FileView::Sandbox,
            SandboxMode::Landlock => FileView::SandboxInPlace,
        }
    }

    async fn launch(&self, launch: Launch) -> Result<Exited, LaunchError> {
        let (profile, launcher) = (self.profile(&launch)?, self.launcher.clone());
        let limits = profile.limits.clone();
        let additional_directories = launch.cwd.additional_directories.iter().map(Path::new);
        let folders = std::iter::once(launch.cwd.workspace.as_path()).chain(additional_directories);
        let mut quota = Quota::of_folders(folders.clone(), self.max_bytes);
        let folders: Vec<PathBuf> = folders.map(Path::to_owned).collect();
        let starting = tokio::task::spawn_blocking(move || {
            let guard = AutorunGuard::new(folders, warn).map_err(|error| error.to_string())?;
            let child =
                launcher.launch(&profile, ProgramStreams::captured()).map_err(|error| error.to_string())?;
            Ok::<_, String>((guard, child))
        });
        let started = starting.await.map_err(|error| LaunchError::Failed(error.into()))?;
        // Dropping the child ends the sandbox, so a caller that stops waiting leaves none behind. It is dropped before the
        // guard, which looks for what it made.
        let (guard, mut child) = started.map_err(LaunchError::Sandbox)?;

        let sandbox = held(self.mode, child.started(), &limits);
        let (read_only, emptied) = (child.started().read_only.clone(), child.started().emptied.clone());
        let stdout_pipe =
            child.stdout().map(ChildStdout::from_std).transpose().map_err(LaunchError::Failed)?;
        let stderr_pipe =
            child.stderr().map(ChildStderr::from_std).transpose().map_err(LaunchError::Failed)?;
        let over = child.as_fd().try_clone_to_owned().and_then(watched).map_err(LaunchError::Failed)?;
        let most = launch.limits.output_bytes;
        let (mut stdout, mut stderr) = (Captured::new(most), Captured::new(most));
        let exited = async {
            loop {
                tokio::select! {
                    _ = over.readable() => break Over::ByItself,
                    why = quota.exceeded() => if let Some(why) = why {
                        break Over::TooMuch(why);
                    },
                }
            }
        };
        if let Some(terminal) = &launch.terminal {
            terminal.mark_started();
        }
        let stdout_pipe = OutputPipe { from: stdout_pipe, captured: &mut stdout };
        let stderr_pipe = OutputPipe { from: stderr_pipe, captured: &mut stderr };
        let (wall, terminal) = (launch.limits.wall + GRACE, launch.terminal.as_ref());
        let over = capture(stdout_pipe, stderr_pipe, exited, wall, terminal, |over| {
            if *over != Over::ByItself {
                // Stop it from writing more while the rest is read. A process that survives this is killed below.
                let _ = child.signal(Signal::KILL);
            }
        })
        .await;
        let is_ended = over != Over::ByItself;
        let ending = tokio::task::spawn_blocking(move || {
            if is_ended {
                child.kill();
            }
            let exit = child.wait();
            (exit, guard.finish())
        });
        let (exit, quarantined) = ending.await.map_err(|error| LaunchError::Failed(error.into()))?;
        let ended = match (over, exit.map_err(LaunchError::Failed)?) {
            (Over::TooMuch(why), _) => Ended::OverQuota(why),
            (Over::Unwanted, _) => Ended::Unwanted,
            (Over::OutOfTime, _) | (Over::ByItself, ProgramExit::OutOfTime) => Ended::OutOfTime,
            (Over::ByItself, ProgramExit::Killed) => Ended::FromOutside,
            (Over::ByItself, ProgramExit::Code { code }) => Ended::Code(code),
            (Over::ByItself, ProgramExit::Signal { signal }) => Ended::Signal(signal),
        };
        Ok(Exited { ended, stdout, stderr, sandbox, read_only, emptied, quarantined })
    }
}

/// The sandbox and its limits, for the ledger.
fn held(mode: SandboxMode, started: &StartReport, limits: &ResourceLimits) -> SandboxRecord {
    let limits = [
        ("memoryBytes", Some(limits.memory_bytes)),
        ("processes", Some(limits.processes.into())),
        ("cpuPercent", Some(limits.cpu_percent.into())),
        ("fileBytes", Some(limits.file_bytes)),
        ("openFiles", Some(limits.open_files)),
        ("wallMs", limits.wall_ms),
    ];
    let mode = match mode {
        SandboxMode::Full => "full",
        SandboxMode::Landlock => "landlock",
    };
    SandboxRecord {
        mode: mode.to_owned(),
        limited_by: Some(started.limited_by.to_string()),
        limits: limits.into_iter().filter_map(|(name, most)| Some((name.to_owned(), most?))).collect(),
        masked: started.masked,
    }
}

/// The working folder by its path inside the sandbox. The path is resolved again there, where it can lead nowhere else.
fn within(launch: &Launch, target: &Path) -> std::io::Result<PathBuf> {
    use std::os::fd::AsRawFd as _;
    let folder = std::fs::read_link(format!("/proc/self/fd/{}", launch.cwd.folder.as_raw_fd()))?;
    let workspace = std::fs::canonicalize(&launch.cwd.workspace)?;
    if let Ok(inner) = folder.strip_prefix(&workspace) {
        return Ok(target.join(inner));
    }
    let moved =
        || std::io::Error::new(std::io::ErrorKind::NotFound, "its folder was moved out of the workspace");
    launch
        .cwd
        .additional_directories
        .iter()
        .any(|directory| folder.starts_with(directory))
        .then_some(folder)
        .ok_or_else(moved)
}
