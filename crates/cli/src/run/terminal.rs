//! The streams of what runs: the operator's own, or, if they sit at a terminal, a terminal of its own that is shown there. On the
//! operator's terminal itself a program in a box could not tell its keys from others'.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use tokio::sync::oneshot;
use tribune_sandbox::{Stream, Streams};

use super::stdio_pipes::{Conduits, Keys, pass};

/// Where the operator sits.
pub(super) enum Seat {
    /// Files and pipes, or a terminal for some of them.
    Plain(Conduits, Keys),
    Terminal(Box<Terminal>),
}

/// A terminal of its own.
pub(super) struct Terminal {
    ours: File,
    /// Until the program has it.
    theirs: Option<OwnedFd>,
    /// How the operator's terminal was.
    before: Termios,
    showing: Option<JoinHandle<io::Result<()>>>,
    /// What is not said on it.
    conduits: Conduits,
    /// Comes when no more keys do.
    vanished: Option<oneshot::Receiver<()>>,
}

impl Seat {
    pub(super) fn take(keys: Keys) -> io::Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Plain(Conduits::default(), keys));
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let before = tcgetattr(io::stdin())?;
        tcsetattr(&theirs, OptionalActions::Now, &before)?;
        let (ours, theirs) = (File::from(ours), Some(theirs));
        let conduits = Conduits::default();
        let terminal = Terminal { ours, theirs, before, showing: None, conduits, vanished: None };
        terminal.resize();
        Ok(Self::Terminal(Box::new(terminal)))
    }

    pub(super) const fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The streams for what runs. From now on keys go there.
    pub(super) fn streams(&mut self) -> io::Result<Streams> {
        match self {
            Self::Plain(conduits, keys) => conduits.streams(*keys),
            Self::Terminal(terminal) => terminal.streams(),
        }
    }

    pub(super) fn resize(&self) {
        if let Self::Terminal(terminal) = self {
            terminal.resize();
        }
    }

    /// What comes when the operator's terminal is gone, with or without a word.
    pub(super) fn vanished(&mut self) -> Option<oneshot::Receiver<()>> {
        match self {
            Self::Plain(..) => None,
            Self::Terminal(terminal) => terminal.vanished.take(),
        }
    }

    /// Shows the last of what was said, and leaves the operator's terminal as it was. An error says that something was not shown.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(conduits, _) => conduits.settle(),
            Self::Terminal(terminal) => terminal.leave(),
        }
    }
}

/// A stream as a file of ours.
fn own(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
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
        let stderr = if io::stderr().is_terminal() {
            given(&theirs)?
        } else {
            self.conduits.output(io::stderr().as_fd())?
        };
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let (keys, screen) = (self.ours.try_clone()?, self.ours.try_clone()?);
        // Not through what the library keeps back: it would not know how much arrived on a terminal that does not wait.
        let (typed, shown) = (own(io::stdin())?, own(io::stdout())?);
        let (gone, vanished) = oneshot::channel();
        self.vanished = Some(vanished);
        // Ends with this process: nobody can be kept from typing.
        std::thread::spawn(move || {
            let _ = pass(typed, keys);
            // Whoever waited has ended.
            let _ = gone.send(());
        });
        self.showing = Some(std::thread::spawn(move || pass(screen, shown)));
        Ok(Streams { stdin, stdout, stderr })
    }

    fn resize(&self) {
        if let Ok(size) = tcgetwinsize(io::stdin()) {
            // A terminal without a size has the one it had.
            let _ = tcsetwinsize(&self.ours, size);
        }
    }

    fn leave(&mut self) -> io::Result<()> {
        drop(self.theirs.take());
        if let Some(showing) = self.showing.take() {
            // Ends when the last one who could write there is gone. A terminal that shows nothing more has vanished.
            let _ = showing.join();
        }
        let said = self.conduits.settle();
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
        said
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
