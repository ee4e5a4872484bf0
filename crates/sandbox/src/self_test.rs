//! Tries the sandbox out on this machine.

use std::io::Read as _;

use tribune_contract::{Exit, LaunchProfile, LimitedBy, Mode, ProfileError, Session, Started};

use crate::enter::landlock;
use crate::host::{LaunchError, Launcher, Streams};

/// What this machine can do.
#[derive(Debug)]
pub struct SelfTest {
    /// Why a mode cannot be had, if it cannot; each was really tried.
    pub full: Result<Started, SelfTestError>,
    pub landlock: Result<Started, SelfTestError>,
    /// The version of Landlock that the kernel has and this program knows; 0 is none.
    pub landlock_abi: u32,
}

impl SelfTest {
    /// What is weaker than it could be although it works.
    #[must_use]
    pub fn advice(&self) -> Vec<&'static str> {
        let is_loose = matches!(&self.full, Ok(Started { limited_by: LimitedBy::Rlimits, .. }));
        let advice = "Memory and processes are bounded one process at a time, because no cgroup is delegated: start \
                      Tribune with `systemd-run --user --scope -p Delegate=yes`, or as a service with `Delegate=yes`";
        is_loose.then_some(advice).into_iter().collect()
    }
}

/// Why a mode cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(
        "the sandbox started and its program did not do what it was told ({0}): report this to Tribune's makers"
    )]
    Ended(String),
}

impl From<ProfileError> for SelfTestError {
    fn from(error: ProfileError) -> Self {
        Self::Launch(error.into())
    }
}

/// Starts a sandbox in each mode, and looks whether its program ran.
#[must_use]
pub fn self_test(launcher: &Launcher) -> SelfTest {
    SelfTest {
        full: tried(launcher, Mode::Full),
        landlock: tried(launcher, Mode::Landlock),
        landlock_abi: landlock::abi_version(),
    }
}

fn tried(launcher: &Launcher, mode: Mode) -> Result<Started, SelfTestError> {
    const WORD: &str = "inside";
    let mut profile = LaunchProfile::new(Session::new("self-test")?, "/bin/sh");
    profile.mode = mode;
    profile.args = vec!["-c".to_owned(), format!("printf {WORD}")];
    let mut child = launcher.launch(&profile, Streams::captured())?;
    let started = child.started().clone();
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout() {
        stdout.read_to_string(&mut said).map_err(LaunchError::Io)?;
    }
    let exit = child.wait().map_err(LaunchError::Io)?;
    if said == WORD && exit == (Exit::Code { code: 0 }) {
        return Ok(started);
    }
    Err(SelfTestError::Ended(format!("{exit:?}, `{said}`")))
}
