//! Launches sandboxes.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::process::geteuid;
use tribune_contract::{
    CgroupAssignment, LaunchProfile, LaunchRequest, LauncherReport, RunsAs, SandboxMode, UserIds,
};

use super::cgroup::Cgroups;
use super::child::{Child, LauncherProcess};
use super::error::LaunchError;
use super::fork_server::ForkServer;
use super::instance::InstanceId;
use super::streams::ProgramStreams;
use super::uid_pool;
use crate::wire::{self, ForkRequest, LauncherSpec};

/// How long a launch may take. It takes milliseconds; a machine that swaps needs longer.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a launcher may take to send its identity, which it does right after the fork.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The hidden subcommand of the same program.
const ENTER_SUBCOMMAND: &str = "sandbox-enter";

/// Launches sandboxes of one instance.
#[derive(Debug, Clone)]
pub struct SandboxLauncher {
    program: PathBuf,
    args: Vec<OsString>,
    instance: InstanceId,
    fork_server: SharedForkServer,
    prewarm: Prewarm,
}

/// Whether the fork server prewarms a launcher after each launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prewarm {
    On,
    Off,
}

/// A fork server, started with the first launch and again when it is gone.
type SharedForkServer = Arc<Mutex<Option<ForkServer>>>;

/// The fork server of this process, while a launcher uses it. All parts of the daemon that start programs share it, so
/// that only one launcher is prewarmed.
static PROCESS_FORK_SERVER: Mutex<Weak<Mutex<Option<ForkServer>>>> = Mutex::new(Weak::new());

impl SandboxLauncher {
    /// Re-executes the running program, even if its file was replaced since.
    #[must_use]
    pub fn this_program(instance: InstanceId) -> Self {
        let mut own = PROCESS_FORK_SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let fork_server = own.upgrade().unwrap_or_default();
        *own = Arc::downgrade(&fork_server);
        Self { fork_server, ..Self::new("/proc/self/exe", [ENTER_SUBCOMMAND.into()], instance) }
    }

    /// For a single launch: nothing is prewarmed.
    #[must_use]
    pub fn without_prewarm(self) -> Self {
        Self { prewarm: Prewarm::Off, ..self }
    }

    /// Executes a program that calls [`crate::enter()`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: impl Into<Vec<OsString>>, instance: InstanceId) -> Self {
        Self {
            program: program.into(),
            args: args.into(),
            instance,
            fork_server: Arc::default(),
            prewarm: Prewarm::On,
        }
    }

    /// Starts a sandbox and returns when its program runs. Blocks for milliseconds.
    pub fn launch(&self, profile: &LaunchProfile, streams: ProgramStreams) -> Result<Child, LaunchError> {
        profile.check()?;
        let switch_to = target_user(profile.runs_as)?;
        let (streams, pipes) = streams.open()?;
        let pending = match self.request_launch(profile, switch_to, &streams) {
            Ok(pending) => pending,
            // The fork server or the prewarmed launcher has just exited or is stopped. It did not answer, so nothing
            // was started.
            Err(_) => {
                self.drop_fork_server();
                self.request_launch(profile, switch_to, &streams)?
            }
        };
        // While this process holds them, their end is not visible.
        drop(streams);
        let PendingLaunch { mut control, process, assignment } = pending;
        // A launcher that has failed already does not read this and has reported why.
        let _ = wire::write(&mut control, &assignment);
        let report = wire::read::<LauncherReport>(&mut control)?;
        control.set_read_timeout(None)?;
        match report {
            Some(LauncherReport::Started(started)) => Ok(process.into_child(control, pipes, started)),
            Some(LauncherReport::Failed(failure)) => Err(LaunchError::Failed(failure)),
            Some(LauncherReport::Ended(_)) | None => {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
            }
        }
    }
}

/// A launcher that has received its request.
struct PendingLaunch {
    control: UnixStream,
    process: LauncherProcess,
    assignment: CgroupAssignment,
}

impl SandboxLauncher {
    /// Sends a launch request and waits until a launcher has sent its identity.
    fn request_launch(
        &self,
        profile: &LaunchProfile,
        switch_to: Option<UserIds>,
        streams: &[OwnedFd; 3],
    ) -> io::Result<PendingLaunch> {
        let (mut control, theirs) = UnixStream::pair()?;
        control.set_write_timeout(Some(START_TIMEOUT))?;
        control.set_read_timeout(Some(HELLO_TIMEOUT))?;
        self.request_launcher(self.fork_request(profile.mode, switch_to), &theirs.into(), streams)?;
        // The launcher starts its work while the cgroups are created.
        wire::write(&mut control, &LaunchRequest { profile: profile.clone(), switch_to })?;
        let cgroups = Cgroups::create(&self.instance, &profile.limits);
        let assignment = CgroupAssignment { limited_by: cgroups.limited_by, cgroups: cgroups.join_files() };
        let process = LauncherProcess::accept(&control, cgroups).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"),
            _ => error,
        })?;
        control.set_read_timeout(Some(START_TIMEOUT))?;
        Ok(PendingLaunch { control, process, assignment })
    }

    fn fork_request(&self, mode: SandboxMode, switch_to: Option<UserIds>) -> ForkRequest {
        let launcher = LauncherSpec { mode, switch_to };
        let prewarm = match (self.prewarm, mode, switch_to) {
            (Prewarm::Off, ..) | (_, SandboxMode::Landlock, _) => None,
            // The next launch gets a new user id.
            (Prewarm::On, SandboxMode::Full, Some(UserIds { uid, .. })) if uid_pool::is_pool_uid(uid) => {
                let reserved = uid_pool::reserve();
                Some(LauncherSpec { mode, switch_to: Some(UserIds { uid: reserved, gid: reserved }) })
            }
            (Prewarm::On, SandboxMode::Full, _) => Some(launcher),
        };
        ForkRequest { launcher, prewarm }
    }

    /// Requests a launcher from the fork server. Replaces a fork server that is gone.
    fn request_launcher(
        &self,
        request: ForkRequest,
        control: &OwnedFd,
        streams: &[OwnedFd; 3],
    ) -> io::Result<()> {
        let mut fork_server = self.fork_server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fork_server) = &*fork_server
            && fork_server.request(request, control, streams).is_ok()
        {
            return Ok(());
        }
        fork_server.insert(ForkServer::start(&self.program, &self.args)?).request(request, control, streams)
    }

    fn drop_fork_server(&self) {
        let fork_server = self.fork_server.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropped outside of the lock, because it waits for the process.
        drop(fork_server);
    }
}

/// The user that the launcher switches to: none, unless it is root.
fn target_user(runs_as: RunsAs) -> Result<Option<UserIds>, LaunchError> {
    let own = geteuid();
    match (own.is_root(), runs_as) {
        (true, RunsAs::Dynamic) => {
            let user = uid_pool::next();
            Ok(Some(UserIds { uid: user, gid: user }))
        }
        (true, RunsAs::User { uid, gid }) => Ok(Some(UserIds { uid, gid })),
        (false, RunsAs::User { uid, .. }) if uid != own.as_raw() => Err(LaunchError::NotRoot(own.as_raw())),
        (false, RunsAs::User { .. } | RunsAs::Dynamic) => Ok(None),
    }
}
