//! Starts sandboxes.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::process::geteuid;
use tribune_contract::{
    CgroupAssignment, Failed, LaunchProfile, LaunchRequest, LauncherReport, Mode, ProfileError, RunsAs,
};

use super::cgroup::Cgroups;
use super::child::{Child, LauncherProcess};
use super::fork_server::ForkServer;
use super::streams::Streams;
use super::uid_pool;
use crate::wire::{self, ForkRequest, LauncherSpec};

/// How long a start may take. It is milliseconds; a machine that swaps needs longer.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a launcher may take to say who it is, which it does as soon as it is forked and has its namespaces.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The hidden subcommand of the same program.
const ENTER_SUBCOMMAND: &str = "sandbox-enter";

/// Starts sandboxes of one house.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    args: Vec<OsString>,
    house: House,
    fork_server: SharedForkServer,
    prewarm: Prewarm,
}

/// Whether one is made ahead when another was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prewarm {
    On,
    Off,
}

/// An fork_server, started with the first launch, and anew when it is gone.
type SharedForkServer = Arc<Mutex<Option<ForkServer>>>;

/// The one of this process, for as long as somebody has it: what it makes ahead is made once, and not for each part of the
/// daemon that starts programs.
static PROCESS_FORK_SERVER: Mutex<Weak<Mutex<Option<ForkServer>>>> = Mutex::new(Weak::new());

/// The name under which a house's cgroups are found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct House(String);

impl House {
    /// A name made from the path of the house's folder, the same after each start.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        // FNV-1a: names need not be secret, only the same next time.
        let bytes = folder.as_os_str().as_encoded_bytes().iter();
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(format!("{hash:016x}"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("only root can choose the user of a sandbox, and this is user {0}: leave the choice out")]
    NotRoot(u32),
    #[error("a sandbox's streams are pipes and terminals, and one of these is neither: put a pipe between")]
    Stream,
    #[error("the sandbox cannot be started: {0}")]
    Refused(#[from] Failed),
    #[error(
        "the sandbox cannot be started: its launcher failed ({0}). Try again; if it stays, reinstall Tribune"
    )]
    Io(#[from] io::Error),
}

impl Launcher {
    /// Re-executes this very program, even if its file was replaced meanwhile.
    #[must_use]
    pub fn this_program(house: House) -> Self {
        let mut own = PROCESS_FORK_SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let fork_server = own.upgrade().unwrap_or_default();
        *own = Arc::downgrade(&fork_server);
        Self { fork_server, ..Self::new("/proc/self/exe", [ENTER_SUBCOMMAND.into()], house) }
    }

    /// For one launch: nothing is made ahead of another.
    #[must_use]
    pub fn once(self) -> Self {
        Self { prewarm: Prewarm::Off, ..self }
    }

    /// Executes a program that calls [`crate::enter`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: impl Into<Vec<OsString>>, house: House) -> Self {
        Self {
            program: program.into(),
            args: args.into(),
            house,
            fork_server: Arc::default(),
            prewarm: Prewarm::On,
        }
    }

    /// Starts a sandbox and returns when its program runs. Blocks for as long, which is milliseconds.
    pub fn launch(&self, profile: &LaunchProfile, streams: Streams) -> Result<Child, LaunchError> {
        profile.check()?;
        let becomes = target_user(profile.runs_as)?;
        let (streams, ends) = streams.open()?;
        let pending = match self.request_launch(profile, becomes, &streams) {
            Ok(pending) => pending,
            // An fork_server that ended just now took the request with it, or is stopped, or the launcher that waited is: nobody
            // answered, so nothing was begun.
            Err(_) => {
                self.drop_fork_server();
                self.request_launch(profile, becomes, &streams)?
            }
        };
        // As long as we had them, we would not see them closed.
        drop(streams);
        let PendingLaunch { mut control, process, assignment } = pending;
        // A launcher that gave up already does not hear this, and has said why.
        let _ = wire::write(&mut control, &assignment);
        let report = wire::read::<LauncherReport>(&mut control)?;
        control.set_read_timeout(None)?;
        match report {
            Some(LauncherReport::Started(started)) => Ok(process.into_child(control, ends, started)),
            Some(LauncherReport::Failed(failure)) => Err(LaunchError::Refused(failure)),
            Some(LauncherReport::Ended(_)) | None => {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
            }
        }
    }
}

/// A launcher that has its order.
struct PendingLaunch {
    control: UnixStream,
    process: LauncherProcess,
    assignment: CgroupAssignment,
}

impl Launcher {
    /// Orders a launch, up to where a launcher has said who it is.
    fn request_launch(
        &self,
        profile: &LaunchProfile,
        becomes: Option<(u32, u32)>,
        streams: &[OwnedFd; 3],
    ) -> io::Result<PendingLaunch> {
        let (mut control, theirs) = UnixStream::pair()?;
        control.set_write_timeout(Some(START_TIMEOUT))?;
        control.set_read_timeout(Some(HELLO_TIMEOUT))?;
        self.request_launcher(self.fork_request(profile.mode, becomes), &theirs.into(), streams)?;
        // The launcher begins while its cgroups are made.
        wire::write(&mut control, &LaunchRequest { profile: profile.clone(), becomes })?;
        let cgroups = Cgroups::create(&self.house, &profile.limits);
        let assignment = CgroupAssignment { limited_by: cgroups.limited_by, cgroups: cgroups.join_files() };
        let process = LauncherProcess::accept(&control, cgroups).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
            _ => error,
        })?;
        control.set_read_timeout(Some(START_TIMEOUT))?;
        Ok(PendingLaunch { control, process, assignment })
    }

    fn fork_request(&self, mode: Mode, becomes: Option<(u32, u32)>) -> ForkRequest {
        let launcher = LauncherSpec { mode, becomes };
        let prewarm = match (self.prewarm, mode, becomes) {
            (Prewarm::Off, ..) | (_, Mode::Landlock, _) => None,
            // The next one has a user of its own again.
            (Prewarm::On, Mode::Full, Some((uid, _))) if uid_pool::is_pool_uid(uid) => {
                let reserved = uid_pool::reserve();
                Some(LauncherSpec { mode, becomes: Some((reserved, reserved)) })
            }
            (Prewarm::On, Mode::Full, _) => Some(launcher),
        };
        ForkRequest { launcher, prewarm }
    }

    /// Asks the fork_server for a launcher; one that is gone is replaced.
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
        // Not while others wait for it.
        drop(fork_server);
    }
}

/// Whom the launcher becomes: nobody else, unless it is root.
fn target_user(runs_as: RunsAs) -> Result<Option<(u32, u32)>, LaunchError> {
    let own = geteuid();
    match (own.is_root(), runs_as) {
        (true, RunsAs::Dynamic) => {
            let user = uid_pool::next();
            Ok(Some((user, user)))
        }
        (true, RunsAs::User { uid, gid }) => Ok(Some((uid, gid))),
        (false, RunsAs::User { uid, .. }) if uid != own.as_raw() => Err(LaunchError::NotRoot(own.as_raw())),
        (false, RunsAs::User { .. } | RunsAs::Dynamic) => Ok(None),
    }
}
