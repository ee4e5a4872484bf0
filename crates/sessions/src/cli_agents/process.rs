//! The process and the pipes of a sandboxed agent, as the driver in `tribune_cli_agents` needs them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use async_trait::async_trait;
use tokio::io::unix::AsyncFd;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tribune_cli_agents::AgentProcess;
use tribune_contract::ProgramExit;
use tribune_egress::SessionSockets;
use tribune_sandbox::Child;
use tribune_tools::watched;

/// An agent's sandbox, and the sockets that close with it.
pub(super) struct SandboxedProcess {
    child: Option<Child>,
    /// Reaps the process; runs on if the caller stops waiting.
    reaper: Option<JoinHandle<String>>,
    exit_fd: AsyncFd<OwnedFd>,
    _sockets: SessionSockets,
}

/// The host's ends of the agent's pipes.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

pub(super) fn pipes(child: &mut Child) -> io::Result<Pipes> {
    let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
    Ok(Pipes {
        stdin: ChildStdin::from_std(child.stdin().ok_or_else(missing)?)?,
        stdout: ChildStdout::from_std(child.stdout().ok_or_else(missing)?)?,
        stderr: ChildStderr::from_std(child.stderr().ok_or_else(missing)?)?,
    })
}

impl SandboxedProcess {
    pub(super) fn new(child: Child, sockets: SessionSockets) -> io::Result<Self> {
        let exit_fd = child.as_fd().try_clone_to_owned().and_then(watched)?;
        Ok(Self { child: Some(child), reaper: None, exit_fd, _sockets: sockets })
    }
}

#[async_trait]
impl AgentProcess for SandboxedProcess {
    async fn ended(&mut self) -> String {
        let _ = self.exit_fd.readable().await;
        if let Some(child) = self.child.take() {
            // The process has ended, so `wait` does not block for long.
            self.reaper = Some(tokio::task::spawn_blocking(move || describe_exit(child.wait())));
        }
        let ending = match &mut self.reaper {
            Some(reaper) => reaper.await.ok(),
            None => None,
        };
        self.reaper = None;
        ending.unwrap_or_else(|| "its program was ended".to_owned())
    }

    async fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let killing = tokio::task::spawn_blocking(move || {
            child.kill();
            child.wait()
        });
        let _ = killing.await;
    }
}

/// Describes how the program ended.
fn describe_exit(exit: io::Result<ProgramExit>) -> String {
    match exit {
        Ok(ProgramExit::Code { code }) => format!("its program ended with code {code}"),
        Ok(ProgramExit::Signal { signal }) => format!("its program was ended by signal {signal}"),
        Ok(ProgramExit::OutOfTime | ProgramExit::Killed) | Err(_) => "its program was ended".to_owned(),
    }
}
