//! Starts sandboxes.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::process::geteuid;
use tribune_contract::{CgroupAssignment, Failed, LaunchProfile, Mode, LaunchRequest, ProfileError, LauncherReport, RunsAs};

use super::cgroup::Cgroups;
use super::child::{Child, Process};
use super::fork_server::Usher;
use super::streams::Streams;
use super::uid_pool;
use crate::wire::{self, ForkRequest, LauncherSpec};

/// How long a start may take. It is milliseconds; a machine that swaps needs longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a launcher may take to say who it is, which it does as soon as it is forked and has its namespaces.
const ANSWER: Duration = Duration::from_secs(10);

/// The hidden subcommand of the same program.
const ENTER: &str = "sandbox-enter";

/// Starts sandboxes of one house.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    args: Vec<OsString>,
    house: House,
    usher: Shared,
    ahead: IsAhead,
}

/// Whether one is made ahead when another was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsAhead {
    Yes,
    No,
}

/// An usher, started with the first launch, and anew when it is gone.
type Shared = Arc<Mutex<Option<Usher>>>;

/// The one of this process, for as long as somebody has it: what it makes ahead is made once, and not for each part of the
/// daemon that starts programs.
static OWN: Mutex<Weak<Mutex<Option<Usher>>>> = Mutex::new(Weak::new());

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
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        let usher = own.upgrade().unwrap_or_default();
        *own = Arc::downgrade(&usher);
        Self { usher, ..Self::new("/proc/self/exe", [ENTER.into()], house) }
    }

    /// For one launch: nothing is made ahead of another.
    #[must_use]
    pub fn once(self) -> Self {
        Self { ahead: IsAhead::No, ..self }
    }

    /// Executes a program that calls [`crate::enter`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: impl Into<Vec<OsString>>, house: House) -> Self {
        Self { program: program.into(), args: args.into(), house, usher: Arc::default(), ahead: IsAhead::Yes }
    }

    /// Starts a sandbox and returns when its program runs. Blocks for as long, which is milliseconds.
    pub fn launch(&self, profile: &LaunchProfile, streams: Streams) -> Result<Child, LaunchError> {
        profile.check()?;
        let becomes = becomes(profile.runs_as)?;
        let (streams, ends) = streams.open()?;
        let launching = match self.begin(profile, becomes, &streams) {
            Ok(launching) => launching,
            // An usher that ended just now took the request with it, or is stopped, or the launcher that waited is: nobody
            // answered, so nothing was begun.
            Err(_) => {
                self.dismiss_usher();
                self.begin(profile, becomes, &streams)?
            }
        };
        // As long as we had them, we would not see them closed.
        drop(streams);
        let Launching { mut control, process, bounded } = launching;
        // A launcher that gave up already does not hear this, and has said why.
        let _ = wire::write(&mut control, &bounded);
        let report = wire::read::<LauncherReport>(&mut control)?;
        control.set_read_timeout(None)?;
        match report {
            Some(LauncherReport::Started(started)) => Ok(process.started(control, ends, started)),
            Some(LauncherReport::Failed(why_not)) => Err(LaunchError::Refused(why_not)),
            Some(LauncherReport::Ended(_)) | None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// A launcher that has its order.
struct Launching {
    control: UnixStream,
    process: Process,
    bounded: CgroupAssignment,
}

impl Launcher {
    /// Orders a launch, up to where a launcher has said who it is.
    fn begin(
        &self,
        profile: &LaunchProfile,
        becomes: Option<(u32, u32)>,
        streams: &[OwnedFd; 3],
    ) -> io::Result<Launching> {
        let (mut control, theirs) = UnixStream::pair()?;
        control.set_write_timeout(Some(PATIENCE))?;
        control.set_read_timeout(Some(ANSWER))?;
        self.ask(self.request(profile.mode, becomes), &theirs.into(), streams)?;
        // The launcher begins while its cgroups are made.
        wire::write(&mut control, &LaunchRequest { profile: profile.clone(), becomes })?;
        let cgroups = Cgroups::make(&self.house, &profile.limits);
        let bounded = CgroupAssignment { limited_by: cgroups.limited_by, cgroups: cgroups.doors() };
        let process = Process::answering(&control, cgroups).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
            _ => error,
        })?;
        control.set_read_timeout(Some(PATIENCE))?;
        Ok(Launching { control, process, bounded })
    }

    fn request(&self, mode: Mode, becomes: Option<(u32, u32)>) -> ForkRequest {
        let launcher = LauncherSpec { mode, becomes };
        let prewarm = match (self.ahead, mode, becomes) {
            (IsAhead::No, ..) | (_, Mode::Landlock, _) => None,
            // The next one has a user of its own again.
            (IsAhead::Yes, Mode::Full, Some((uid, _))) if uid_pool::is_fresh(uid) => {
                let upcoming = uid_pool::upcoming();
                Some(LauncherSpec { mode, becomes: Some((upcoming, upcoming)) })
            }
            (IsAhead::Yes, Mode::Full, _) => Some(launcher),
        };
        ForkRequest { launcher, prewarm }
    }

    /// Asks the usher for a launcher; one that is gone is replaced.
    fn ask(&self, request: ForkRequest, control: &OwnedFd, streams: &[OwnedFd; 3]) -> io::Result<()> {
        let mut usher = self.usher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(usher) = &*usher
            && usher.ask(request, control, streams).is_ok()
        {
            return Ok(());
        }
        usher.insert(Usher::start(&self.program, &self.args)?).ask(request, control, streams)
    }

    fn dismiss_usher(&self) {
        let usher = self.usher.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not while others wait for it.
        drop(usher);
    }
}

/// Whom the launcher becomes: nobody else, unless it is root.
fn becomes(runs_as: RunsAs) -> Result<Option<(u32, u32)>, LaunchError> {
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
