//! The streams of what runs: the operator's own, or, if they sit at a terminal, a terminal of its own that is shown there. On the
//! operator's terminal itself a program in a box could not tell its keys from others'.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use tribune_sandbox::{Stream, Streams};

/// Bytes that are passed on at a time.
const CHUNK: usize = 16 * 1024;

/// Where the operator sits.
pub(super) enum Seat {
    /// Files and pipes, or a terminal for some of them: they are passed on as they are.
    Plain,
    Terminal(Box<Terminal>),
}

/// A terminal of its own.
pub(super) struct Terminal {
    ours: File,
    /// Until the program has it.
    theirs: Option<OwnedFd>,
    /// How the operator's terminal was.
    before: Termios,
    showing: Option<JoinHandle<()>>,
}

impl Seat {
    pub(super) fn take() -> io::Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Plain);
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let before = tcgetattr(io::stdin())?;
        tcsetattr(&theirs, OptionalActions::Now, &before)?;
        let terminal = Terminal { ours: File::from(ours), theirs: Some(theirs), before, showing: None };
        terminal.resize();
        Ok(Self::Terminal(Box::new(terminal)))
    }

    pub(super) const fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The streams for what runs. From now on keys go there.
    pub(super) fn streams(&mut self) -> io::Result<Streams> {
        match self {
            Self::Plain => Ok(Streams {
                stdin: given(io::stdin())?,
                stdout: given(io::stdout())?,
                stderr: given(io::stderr())?,
            }),
            Self::Terminal(terminal) => terminal.streams(),
        }
    }

    pub(super) fn resize(&self) {
        if let Self::Terminal(terminal) = self {
            terminal.resize();
        }
    }

    /// Shows the last of what was said, and leaves the operator's terminal as it was.
    pub(super) fn leave(&mut self) {
        if let Self::Terminal(terminal) = self {
            terminal.leave();
        }
    }
}

/// A stream that is open already, for what runs.
fn given(stream: impl AsFd) -> io::Result<Stream> {
    Ok(Stream::Given(stream.as_fd().try_clone_to_owned()?))
}

impl Terminal {
    fn streams(&mut self) -> io::Result<Streams> {
        let theirs = self.theirs.take().ok_or(io::ErrorKind::NotConnected)?;
        let (stdin, stdout) = (given(&theirs)?, given(&theirs)?);
        // What is sent elsewhere stays there.
        let stderr = if io::stderr().is_terminal() { given(&theirs)? } else { given(io::stderr())? };
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let (keys, screen) = (self.ours.try_clone()?, self.ours.try_clone()?);
        // Ends with this process: nobody can be kept from typing.
        std::thread::spawn(move || pass(io::stdin(), keys));
        self.showing = Some(std::thread::spawn(move || pass(screen, io::stdout())));
        Ok(Streams { stdin, stdout, stderr })
    }

    fn resize(&self) {
        if let Ok(size) = tcgetwinsize(io::stdin()) {
            // A terminal without a size has the one it had.
            let _ = tcsetwinsize(&self.ours, size);
        }
    }

    fn leave(&mut self) {
        drop(self.theirs.take());
        if let Some(showing) = self.showing.take() {
            // Ends when the last one who could write there is gone.
            let _ = showing.join();
        }
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Passes on what comes, until one side is gone.
fn pass(mut from: impl io::Read, mut to: impl io::Write) {
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                if to.write_all(&chunk[..read]).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
