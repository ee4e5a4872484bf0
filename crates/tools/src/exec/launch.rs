//! How a command is started, whoever does it.

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

/// How long outputs are still read when a command is over: only someone who got away from it can hold them open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Bytes per read.
const CHUNK_BYTES: usize = 16 * 1024;

/// Starts commands. Whatever a launch started is gone when its future has ended or was dropped.
#[async_trait]
pub trait Launcher: Send + Sync {
    async fn launch(&self, launch: Launch) -> Result<Exited, LaunchError>;
}

/// What to start.
#[derive(Debug)]
pub struct Launch {
    /// For `/bin/sh -c`.
    pub command: String,
    pub cwd: Folder,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    pub limits: Limits,
    /// Where a sandbox leads out of it, if anywhere.
    pub way_out: Option<EgressLease>,
    /// Where it is followed while it runs, if anywhere. A launcher tells it when the command runs, and ends what is unwanted.
    pub terminal: Option<Arc<Terminal>>,
}

/// Where a command runs.
#[derive(Debug)]
pub struct Folder {
    /// The agent's workspace on this machine.
    pub workspace: PathBuf,
    /// Further folders that the command has, by their whole paths.
    pub further: Vec<String>,
    /// The folder itself, in one of these. It was opened safely; its name may lead elsewhere by now.
    pub folder: OwnedFd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub wall: Duration,
    /// Of each of the two outputs.
    pub output_bytes: usize,
}

/// A command that is over.
#[derive(Debug)]
pub struct Exited {
    pub ended: Ended,
    pub stdout: Captured,
    pub stderr: Captured,
    /// What it ran in.
    pub sandbox: SandboxRecord,
    /// Folders of the workspace that it could not change at all, because they hold too much that programs of this machine
    /// obey; `.` is all of it.
    pub read_only: Vec<String>,
    /// Folders of the workspace that looked empty to it, because too much in them is hidden; `.` is all of it.
    pub emptied: Vec<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Code(i32),
    Signal(i32),
    OutOfTime,
    /// It wrote too much; why, in a sentence.
    OverQuota(String),
    /// Whoever followed it wanted no more of it.
    Unwanted,
    /// Somebody else ended all that it ran in.
    FromOutside,
}

/// Why a command is not waited for any longer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Over {
    ByItself,
    OutOfTime,
    TooMuch(String),
    Unwanted,
}

/// Why nothing was started. Each sentence ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(
        "commands are not run here, because there is no sandbox to run them in: work without `exec`, or ask the operator, who can set `sandbox` in config.json5"
    )]
    NotProvided,
    #[error("{0}")]
    Sandbox(String),
    #[error("the command could not be started ({0}): tell the operator")]
    Failed(std::io::Error),
}

/// An output, of which the beginning and the end are kept.
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

    /// What was kept, with a mark where something is missing.
    pub fn text(&self) -> String {
        let mut bytes = self.head.clone();
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[cut: {} bytes]\n", self.dropped).as_bytes());
        }
        bytes.extend(&self.tail);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Reads both outputs until `exited`, until the time is over or until nobody wants it any more, then calls `end` and reads what is
/// left. Returns what came first.
pub(super) async fn capture(
    outputs: (Option<impl AsyncRead + Unpin>, Option<impl AsyncRead + Unpin>),
    captured: (&mut Captured, &mut Captured),
    exited: impl Future<Output = Over>,
    (wall, terminal): (Duration, Option<&Arc<Terminal>>),
    end: impl FnOnce(&Over),
) -> Over {
    let pens = (terminal.map(Terminal::writer), terminal.map(Terminal::writer));
    let mut reading = pin!(async {
        tokio::join!(read(outputs.0, captured.0, pens.0), read(outputs.1, captured.1, pens.1));
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
        let _ = tokio::time::timeout(LAST_WORDS, reading).await;
    }
    over
}

async fn read(
    from: Option<impl AsyncRead + Unpin>,
    captured: &mut Captured,
    mut pen: Option<TerminalWriter>,
) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    // An output that breaks is over.
    while let Ok(got) = from.read(&mut chunk).await {
        if got == 0 {
            return;
        }
        captured.push(&chunk[..got]);
        if let Some(pen) = &mut pen {
            pen.write(&chunk[..got]);
        }
    }
}

/// A descriptor that can be waited for.
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
    fn the_beginning_and_the_end_are_kept() {
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
