//! Tries out the sandbox on this machine.

use std::io::Read as _;

use tribune_contract::{
    LaunchProfile, LimitedBy, ProfileError, ProgramExit, SandboxMode, SandboxName, StartReport,
};

use crate::enter::landlock;
use crate::host::{LaunchError, ProgramStreams, SandboxLauncher};

/// The sandbox modes that this machine supports.
#[derive(Debug)]
pub struct SelfTest {
    /// The result of a real launch in each mode.
    pub full: Result<StartReport, SelfTestError>,
    pub landlock: Result<StartReport, SelfTestError>,
    /// The Landlock ABI version that the kernel has and this program knows; 0 is none.
    pub landlock_abi: u32,
}

impl SelfTest {
    /// What works, but is weaker than it could be.
    #[must_use]
    pub fn advice(&self) -> Vec<&'static str> {
        let is_loose = matches!(&self.full, Ok(StartReport { limited_by: LimitedBy::Rlimits, .. }));
        let advice = "Memory and processes are limited per process only, because no cgroup is delegated: start \
                      Tribune with `systemd-run --user --scope -p Delegate=yes`, or as a service with `Delegate=yes`";
        is_loose.then_some(advice).into_iter().collect()
    }
}

/// Why a mode is not available.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(
        "the sandbox started, but its program did not behave as expected ({0}): report this as a bug in Tribune"
    )]
    Ended(String),
}

impl From<ProfileError> for SelfTestError {
    fn from(error: ProfileError) -> Self {
        Self::Launch(error.into())
    }
}

/// Launches a sandbox in each mode and checks that its program ran.
#[must_use]
pub fn self_test(launcher: &SandboxLauncher) -> SelfTest {
    SelfTest {
        full: try_mode(launcher, SandboxMode::Full),
        landlock: try_mode(launcher, SandboxMode::Landlock),
        landlock_abi: landlock::abi_version(),
    }
}

fn try_mode(launcher: &SandboxLauncher, mode: SandboxMode) -> Result<StartReport, SelfTestError> {
    const EXPECTED_OUTPUT: &str = "inside";
    let mut profile = LaunchProfile::new(SandboxName::new("self-test")?, "/bin/sh");
    profile.mode = mode;
    profile.args = vec!["-c".to_owned(), format!("printf {EXPECTED_OUTPUT}")];
    let mut child = launcher.launch(&profile, ProgramStreams::captured())?;
    let started = child.started().clone();
    let mut output = String::new();
    if let Some(mut stdout) = child.stdout() {
        stdout.read_to_string(&mut output).map_err(LaunchError::Io)?;
    }
    let exit = child.wait().map_err(LaunchError::Io)?;
    if output == EXPECTED_OUTPUT && exit == (ProgramExit::Code { code: 0 }) {
        return Ok(started);
    }
    Err(SelfTestError::Ended(format!("{exit:?}, `{output}`")))
}
