//! Runs hook programs in a sandbox: without network, and with access only to the system's programs, the hook itself and the
//! paths that the operator lists. A hook reads text of agents; if that text manipulates the hook, the sandbox limits the
//! damage.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout};
use tribune_config::Sandbox;
use tribune_config::hook_spec::HookIsolation;
use tribune_contract::{LaunchProfile, Mount, ProgramExit, SandboxMode, SandboxName};
use tribune_records::exec::PATH;
use tribune_sandbox::{InstanceId, ProgramStream, ProgramStreams, SandboxLauncher};

use super::transport::talk;

/// System folders that every sandbox contains.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// Starts hooks in the kind of sandbox that the daemon uses for commands.
#[derive(Debug, Clone)]
pub struct HookSandbox(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    launcher: SandboxLauncher,
    mode: SandboxMode,
    launches: AtomicU64,
}

impl HookSandbox {
    /// For the instance whose state folder is `home`.
    pub fn new(home: &Path, sandbox: Sandbox) -> Self {
        let mode = match sandbox {
            Sandbox::Full => SandboxMode::Full,
            Sandbox::Landlock => SandboxMode::Landlock,
            Sandbox::Off => return Self::none(),
        };
        let launcher = SandboxLauncher::this_program(InstanceId::of_state_folder(home));
        Self(Some(Arc::new(Shared { launcher, mode, launches: AtomicU64::new(0) })))
    }

    /// Without a sandbox, for when the configuration switches it off.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The answer of a hook to `body`, or why there is none. `None` if the hook runs without a sandbox.
    pub(super) async fn run(
        &self,
        command: &[String],
        bounds: &HookIsolation,
        body: &[u8],
        limit: Duration,
    ) -> Option<Result<Vec<u8>, String>> {
        let shared = match bounds {
            HookIsolation::None => return None,
            HookIsolation::Sandbox { .. } => Arc::clone(self.0.as_ref()?),
        };
        Some(shared.run(command, bounds, body, limit).await)
    }
}

impl Shared {
    fn profile(
        &self,
        command: &[String],
        bounds: &HookIsolation,
        limit: Duration,
    ) -> Result<LaunchProfile, String> {
        let (program, args) = command.split_first().ok_or("it names no program")?;
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        let session = SandboxName::new(format!("hook-{}-{number}", std::process::id()));
        let mut profile = LaunchProfile::new(session.map_err(|error| error.to_string())?, program);
        profile.mode = self.mode;
        profile.args = args.to_vec();
        profile.env.insert("PATH".to_owned(), PATH.to_owned());
        let mut reads = vec![PathBuf::from(program)];
        if let HookIsolation::Sandbox { reads: listed } = bounds {
            reads.extend(listed.iter().cloned());
        }
        reads.retain(|path| !SYSTEM.iter().any(|folder| path.starts_with(folder)));
        reads.sort_unstable();
        // A listed folder includes what is below it.
        reads.dedup_by(|inner, outer| inner.starts_with(outer));
        profile.mounts = reads
            .into_iter()
            .map(|path| Mount::ReadOnly { source: path.clone(), target: path, hide: Vec::new() })
            .collect();
        profile.limits.wall_ms = Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1));
        Ok(profile)
    }

    async fn run(
        self: Arc<Self>,
        command: &[String],
        bounds: &HookIsolation,
        body: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, String> {
        let profile = self.profile(command, bounds, limit)?;
        let streams = ProgramStreams {
            stdin: ProgramStream::Piped,
            stdout: ProgramStream::Piped,
            stderr: ProgramStream::Null,
        };
        let starting = tokio::task::spawn_blocking(move || self.launcher.launch(&profile, streams));
        let lost = |error: &dyn std::fmt::Display| format!("it was lost ({error})");
        // Dropping the child kills it, so cancelling this future leaves no process.
        let mut child = starting
            .await
            .map_err(|error| lost(&error))?
            .map_err(|error| format!("it could not be started ({error})"))?;
        let stdin = child.stdin().map(ChildStdin::from_std).transpose().map_err(|error| lost(&error))?;
        let stdout = child.stdout().map(ChildStdout::from_std).transpose().map_err(|error| lost(&error))?;
        let answer = talk(stdin, stdout, body).await?;
        let ending = tokio::task::spawn_blocking(move || child.wait());
        match ending.await.map_err(|error| lost(&error))?.map_err(|error| lost(&error))? {
            ProgramExit::Code { code: 0 } => Ok(answer),
            ProgramExit::Code { code } => Err(format!("it failed (exit code {code})")),
            ProgramExit::Signal { signal } => Err(format!("it failed (signal {signal})")),
            ProgramExit::OutOfTime | ProgramExit::Killed => {
                Err(format!("it did not answer within {} ms", limit.as_millis()))
            }
        }
    }
}
