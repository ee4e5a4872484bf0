//! How a command starts: the [`Launcher`] trait, its input and result, and the capture of output.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::fd::OwnedFd;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, Interest};
use tribune_egress::EgressLease;
use tribune_records::ledger_payloads::SandboxRecord;
use tribune_runtime::terminal::{Terminal, TerminalWriter};

/// How long outputs are still read after a command ended: only a process that escaped it can hold them open.
const OUTPUT_DRAIN: Duration = Duration::from_millis(500);

/// Bytes per read.
const CHUNK_BYTES: usize = 16 * 1024;

/// Starts commands. When the future of a launch completes or is dropped, every process that it started is gone.
#[async_trait]
pub trait Launcher: Send + Sync {
    /// Which files of this machine its commands see.
    fn view(&self) -> FileView;

    async fn launch(&self, launch: Launch) -> Result<Exited, LaunchError>;
}

/// Which files of this machine a command sees, and by which names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileView {
    /// The workspace as `/workspace`, additional folders by their own names, and the system's programs.
    Sandbox,
    /// The folders of the session by their own names, and the system's programs.
    SandboxInPlace,
    /// Everything.
    Host,
}

/// A command to start.
#[derive(Debug)]
pub struct Launch {
    /// The argument of `/bin/sh -c`.
    pub command: String,
    pub cwd: Folder,
    /// The complete environment.
    pub env: Vec<(String, String)>,
    pub limits: Limits,
    /// The network access of the sandbox, if it has any.
    pub egress: Option<EgressLease>,
    /// Shows the output while the command runs. A launcher reports the start to it, and kills the command on its request.
    pub terminal: Option<Arc<Terminal>>,
}

/// The working folder of a command.
#[derive(Debug)]
pub struct Folder {
    /// The agent's workspace on the host.
    pub workspace: PathBuf,
    /// The absolute paths of the additional folders that the command can use.
    pub additional_directories: Vec<String>,
    /// The working folder, open. It is in one of these. It was opened safely; its name may lead elsewhere by now.
    pub folder: OwnedFd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub wall: Duration,
    /// Maximum bytes of each of the two outputs.
    pub output_bytes: usize,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Exited {
    pub ended: Ended,
    pub stdout: Captured,
    pub stderr: Captured,
    /// The sandbox it ran in, for the ledger.
    pub sandbox: SandboxRecord,
    /// Folders of the workspace that were read-only as a whole, because they contain too many autorun files; `.` is the
    /// workspace itself.
    pub read_only: Vec<String>,
    /// Folders of the workspace that appeared empty, because too many names in them are hidden; `.` is the workspace itself.
    pub emptied: Vec<String>,
    /// What was found and moved at its end, in sentences: autorun files that the command made.
    pub quarantined: Vec<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Code(i32),
    Signal(i32),
    OutOfTime,
    /// It exceeded its disk quota; the sentence says how.
    OverQuota(String),
    /// Its terminal requested the end.
    Unwanted,
    /// Another process killed the sandbox.
    FromOutside,
}

/// Why the wait for a command is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Over {
    ByItself,
    OutOfTime,
    TooMuch(String),
    Unwanted,
}

/// Why nothing started. Each sentence ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(
        "commands cannot run here, because there is no sandbox for them: work without `exec`, or ask the operator, who can set `sandbox` in config.json5"
    )]
    NotProvided,
    #[error("{0}")]
    Sandbox(String),
    #[error("the command could not be started ({0}): tell the operator")]
    Failed(std::io::Error),
}

/// A captured output: its beginning and its end.
#[derive(Debug)]
pub struct Captured {
    most: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Captured {
    /// Keeps at most `most` bytes.
    pub const fn new(most: usize) -> Self {
        Self { most, head: Vec::new(), tail: VecDeque::new(), dropped: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let half = self.most / 2;
        let (head, tail) = bytes.split_at(bytes.len().min(half.saturating_sub(self.head.len())));
        self.head.extend_from_slice(head);
        self.tail.extend(tail);
        let over = self.tail.len().saturating_sub(half);
        self.tail.drain(..over);
        self.dropped += over as u64;
    }

    /// The captured text, with a mark where bytes are missing.
    pub fn text(&self) -> String {
        let mut bytes = self.head.clone();
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[cut: {} bytes]\n", self.dropped).as_bytes());
        }
        bytes.extend(&self.tail);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// One output of a running command, and where it is kept.
pub(super) struct OutputPipe<'a, R> {
    /// `None` if the command has no such output.
    pub(super) from: Option<R>,
    pub(super) captured: &'a mut Captured,
}

/// Reads both outputs until the command exits, its time limit passes or its terminal requests the end. Then calls `end`,
/// reads the rest and returns what came first.
pub(super) async fn capture(
    stdout: OutputPipe<'_, impl AsyncRead + Unpin>,
    stderr: OutputPipe<'_, impl AsyncRead + Unpin>,
    exited: impl Future<Output = Over>,
    wall: Duration,
    terminal: Option<&Arc<Terminal>>,
    end: impl FnOnce(&Over),
) -> Over {
    let writer = || terminal.map(Terminal::writer);
    let mut reading = pin!(async {
        tokio::join!(read(stdout, writer()), read(stderr, writer()));
    });
    let mut unwanted = pin!(async {
        match terminal {
            Some(terminal) => terminal.unwanted().await,
            None => std::future::pending().await,
        }
    });
    let (mut limit, mut exited) = (pin!(tokio::time::sleep(wall)), pin!(exited));
    let mut all_read = false;
    let over = loop {
        tokio::select! {
            () = reading.as_mut(), if !all_read => all_read = true,
            over = exited.as_mut() => break over,
            () = limit.as_mut() => break Over::OutOfTime,
            () = unwanted.as_mut() => break Over::Unwanted,
        }
    };
    end(&over);
    if !all_read {
        let _ = tokio::time::timeout(OUTPUT_DRAIN, reading).await;
    }
    over
}

async fn read(pipe: OutputPipe<'_, impl AsyncRead + Unpin>, mut writer: Option<TerminalWriter>) {
    let OutputPipe { from: Some(mut from), captured } = pipe else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    // A read error ends the output.
    while let Ok(got) = from.read(&mut chunk).await {
        if got == 0 {
            return;
        }
        captured.push(&chunk[..got]);
        if let Some(writer) = &mut writer {
            writer.write(&chunk[..got]);
        }
    }
}

/// Makes a descriptor awaitable.
pub fn watched(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "sound for an `OwnedFd`, which is open for as long as it lives; the other is unsafe"
    )]
    AsyncFd::with_interest(fd, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_kept() {
        let mut captured = Captured::new(8);
        for piece in ["ab", "cdef", "", "ghij", "k"] {
            captured.push(piece.as_bytes());
        }
        assert_eq!(captured.text(), "abcd\n[cut: 3 bytes]\nhijk");
        let mut short = Captured::new(8);
        short.push(b"abcdefgh");
        assert_eq!(short.text(), "abcdefgh");
    }
}
