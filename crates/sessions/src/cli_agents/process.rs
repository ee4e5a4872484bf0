//! A boxed agent's processes and pipes, for whoever drives it.

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

/// An agent's box, and the sockets that end with it.
pub(super) struct BoxedAgent {
    child: Option<Child>,
    /// Its burial, which goes on if nobody waits for it.
    burial: Option<JoinHandle<String>>,
    over: AsyncFd<OwnedFd>,
    _sockets: SessionSockets,
}

/// Our ends of its pipes.
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

impl BoxedAgent {
    pub(super) fn new(child: Child, sockets: SessionSockets) -> io::Result<Self> {
        let over = child.as_fd().try_clone_to_owned().and_then(watched)?;
        Ok(Self { child: Some(child), burial: None, over, _sockets: sockets })
    }
}

#[async_trait]
impl AgentProcess for BoxedAgent {
    async fn ended(&mut self) -> String {
        let _ = self.over.readable().await;
        if let Some(child) = self.child.take() {
            // It is over, so this takes no time.
            self.burial = Some(tokio::task::spawn_blocking(move || told(child.wait())));
        }
        let told = match &mut self.burial {
            Some(burial) => burial.await.ok(),
            None => None,
        };
        self.burial = None;
        told.unwrap_or_else(|| "its program was ended".to_owned())
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

/// How it ended, in words.
fn told(exit: io::Result<ProgramExit>) -> String {
    match exit {
        Ok(ProgramExit::Code { code }) => format!("its program ended with code {code}"),
        Ok(ProgramExit::Signal { signal }) => format!("its program was ended by signal {signal}"),
        Ok(ProgramExit::OutOfTime | ProgramExit::Killed) | Err(_) => "its program was ended".to_owned(),
    }
}
