//! Pipes between the operator's streams and what runs, so that it gets nothing of theirs but bytes: with a file it could write
//! elsewhere in it and change its rights, and from a folder it would look around this machine.
//!
//! Pipes, terminals and `/dev/null` are handed on as they are. A pipe that does not wait is not: few programs know what to do
//! with one, and somebody else chose it.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use tribune_sandbox::{Stream, Streams};

use crate::error::CliError;

/// Bytes that are passed on at a time.
const CHUNK: usize = 64 * 1024;

/// The file system of pipes without a name.
const PIPES: i64 = 0x5049_5045;

/// The number of `/dev/null`.
const NOTHING: (u32, u32) = (1, 3);

/// Refuses streams that no bytes come from.
pub(super) fn check() -> Result<(), CliError> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [("input", stdin.as_fd()), ("output", stdout.as_fd()), ("error output", stderr.as_fd())];
    for (name, stream) in streams {
        if kind(stream).map_err(CliError::System)? == FileType::Directory {
            return Err(CliError::Input(format!(
                "the standard {name} is a folder, and from there a program would look around this machine: give it a file or \
                 a pipe, or nothing with /dev/null; --ro shows a folder"
            )));
        }
    }
    Ok(())
}

/// What is on its way to the operator.
#[derive(Default)]
pub(super) struct Conduits(Vec<JoinHandle<()>>);

impl Conduits {
    /// The operator's own streams, for what runs.
    pub(super) fn streams(&mut self) -> io::Result<Streams> {
        let stdin = Self::input(io::stdin().as_fd())?;
        let (stdout, stderr) = self.outputs(io::stdout().as_fd(), io::stderr().as_fd())?;
        Ok(Streams { stdin, stdout, stderr })
    }

    /// What is read from, to its end or that of the program. Nobody waits for it: it may come from somewhere that says no more.
    fn input(stream: BorrowedFd<'_>) -> io::Result<Stream> {
        if is_handed_on(stream)? {
            return Ok(Stream::Given(stream.try_clone_to_owned()?));
        }
        let from = File::from(stream.try_clone_to_owned()?);
        let (theirs, ours) = io::pipe()?;
        std::thread::spawn(move || pass(from, ours));
        Ok(Stream::Given(theirs.into()))
    }

    /// Both outputs. If they are one file they share a pipe, and what is said stays in its order.
    fn outputs(&mut self, out: BorrowedFd<'_>, err: BorrowedFd<'_>) -> io::Result<(Stream, Stream)> {
        let stdout = self.way_out(out)?;
        let is_one = !is_handed_on(out)? && identity(out)? == identity(err)?;
        let stderr = if is_one { stdout.try_clone()? } else { self.way_out(err)? };
        Ok((Stream::Given(stdout), Stream::Given(stderr)))
    }

    /// What is written to.
    pub(super) fn output(&mut self, stream: BorrowedFd<'_>) -> io::Result<Stream> {
        Ok(Stream::Given(self.way_out(stream)?))
    }

    fn way_out(&mut self, stream: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let own = stream.try_clone_to_owned()?;
        if is_handed_on(stream)? {
            return Ok(own);
        }
        let (ours, theirs) = io::pipe()?;
        // Ends with the last who could write there, or when nothing more can be written: then the program is told.
        self.0.push(std::thread::spawn(move || pass(ours, File::from(own))));
        Ok(theirs.into())
    }

    /// Waits until everything that was said has arrived. Nobody can say more.
    pub(super) fn settle(&mut self) {
        for passing in self.0.drain(..) {
            // One that failed has nothing to pass on any more.
            let _ = passing.join();
        }
    }
}

fn kind(stream: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode))
}

fn identity(stream: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(stream)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether a program may have the very thing: a terminal, `/dev/null`, or a pipe that is no file and waits.
fn is_handed_on(stream: BorrowedFd<'_>) -> io::Result<bool> {
    let stat = rustix::fs::fstat(stream)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => {
            let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            Ok(number == NOTHING || stream.is_terminal())
        }
        FileType::Fifo => {
            let waits = !rustix::fs::fcntl_getfl(stream)?.contains(OFlags::NONBLOCK);
            Ok(waits && rustix::fs::fstatfs(stream)?.f_type == PIPES)
        }
        _ => Ok(false),
    }
}

/// Passes on what comes, until one side is gone.
pub(super) fn pass(mut from: impl Read + AsFd, mut to: impl Write + AsFd) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if is_soon_over(&error, from.as_fd(), PollFlags::IN) => continue,
            Err(_) => return,
        };
        let mut rest = &chunk[..read];
        while !rest.is_empty() {
            match to.write(rest) {
                Ok(0) => return,
                Ok(written) => rest = &rest[written..],
                Err(error) if is_soon_over(&error, to.as_fd(), PollFlags::OUT) => {}
                Err(_) => return,
            }
        }
    }
}

/// Whether an error means no more than to try again, as with a stream that does not wait: then this does.
fn is_soon_over(error: &io::Error, stream: BorrowedFd<'_>, ready: PollFlags) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        // If it cannot be waited for, trying again would be all that there is.
        io::ErrorKind::WouldBlock => {
            let waited = rustix::event::poll(&mut [PollFd::new(&stream, ready)], None);
            waited.is_ok() || waited == Err(rustix::io::Errno::INTR)
        }
        _ => false,
    }
}
