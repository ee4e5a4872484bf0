//! The command's streams: pipes to the operator's own or, if the operator is at a terminal, a pseudo-terminal that is
//! shown there. On the operator's terminal itself a sandboxed program could read keys meant for other programs.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use tokio::sync::oneshot;
use tribune_sandbox::{ProgramStream, ProgramStreams};

use super::stdio_pipes::{StdioPipes, TerminalInput, copy};

/// The command's standard streams.
pub(super) enum Stdio {
    /// Files and pipes, or a terminal for some streams.
    Pipes(StdioPipes, TerminalInput),
    Terminal(Box<Pty>),
}

/// A pseudo-terminal.
pub(super) struct Pty {
    ours: File,
    /// The command's end, until it is handed over.
    theirs: Option<OwnedFd>,
    /// The operator's terminal settings from before.
    before: Termios,
    showing: Option<JoinHandle<io::Result<()>>>,
    /// Streams that do not go to the terminal.
    pipes: StdioPipes,
    /// Completes when the operator's terminal is closed.
    hangup: Option<oneshot::Receiver<()>>,
}

impl Stdio {
    pub(super) fn attach(input: TerminalInput) -> io::Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Pipes(StdioPipes::default(), input));
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let before = tcgetattr(io::stdin())?;
        tcsetattr(&theirs, OptionalActions::Now, &before)?;
        let (ours, theirs) = (File::from(ours), Some(theirs));
        let pipes = StdioPipes::default();
        let terminal = Pty { ours, theirs, before, showing: None, pipes, hangup: None };
        terminal.resize();
        Ok(Self::Terminal(Box::new(terminal)))
    }

    pub(super) const fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The streams for the command. From now on keys go there.
    pub(super) fn streams(&mut self) -> io::Result<ProgramStreams> {
        match self {
            Self::Pipes(pipes, input) => pipes.streams(*input),
            Self::Terminal(terminal) => terminal.streams(),
        }
    }

    pub(super) fn resize(&self) {
        if let Self::Terminal(terminal) = self {
            terminal.resize();
        }
    }

    /// Completes when the operator's terminal is gone, with or without SIGHUP.
    pub(super) fn hangup(&mut self) -> Option<oneshot::Receiver<()>> {
        match self {
            Self::Pipes(..) => None,
            Self::Terminal(terminal) => terminal.hangup.take(),
        }
    }

    /// Prints the last output and restores the operator's terminal. An error says that some output was lost.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        match self {
            Self::Pipes(pipes, _) => pipes.drain(),
            Self::Terminal(terminal) => terminal.restore(),
        }
    }
}

/// Duplicates a stream as a file.
fn own(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Duplicates an open stream for the command.
fn given(stream: impl AsFd) -> io::Result<ProgramStream> {
    Ok(ProgramStream::Given(stream.as_fd().try_clone_to_owned()?))
}

impl Pty {
    fn streams(&mut self) -> io::Result<ProgramStreams> {
        let theirs = self.theirs.take().ok_or(io::ErrorKind::NotConnected)?;
        let (stdin, stdout) = (given(&theirs)?, given(&theirs)?);
        // A redirected standard error stays redirected.
        let stderr = if io::stderr().is_terminal() {
            given(&theirs)?
        } else {
            self.pipes.output(io::stderr().as_fd())?
        };
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let (keys, screen) = (self.ours.try_clone()?, self.ours.try_clone()?);
        // Unbuffered: a buffered writer does not know how much a non-blocking terminal accepted.
        let (typed, shown) = (own(io::stdin())?, own(io::stdout())?);
        let (gone, hangup) = oneshot::channel();
        self.hangup = Some(hangup);
        // Ends with this process: a blocked read cannot be cancelled.
        std::thread::spawn(move || {
            let _ = copy(typed, keys);
            // The receiver is gone if the command has ended.
            let _ = gone.send(());
        });
        self.showing = Some(std::thread::spawn(move || copy(screen, shown)));
        Ok(ProgramStreams { stdin, stdout, stderr })
    }

    fn resize(&self) {
        if let Ok(size) = tcgetwinsize(io::stdin()) {
            // A failure keeps the old size.
            let _ = tcsetwinsize(&self.ours, size);
        }
    }

    fn restore(&mut self) -> io::Result<()> {
        drop(self.theirs.take());
        if let Some(showing) = self.showing.take() {
            // Ends when the last writer is gone. An error means that the operator's terminal is gone.
            let _ = showing.join();
        }
        let drained = self.pipes.drain();
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
        drained
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
