//! Pipes between the operator's streams and what runs, so that it gets nothing of theirs but bytes. With a file it could write
//! elsewhere in it and change its rights, from a folder it would look around this machine. On a terminal it would read keys that
//! are meant for others. Of a pipe it could open the other end: read what other programs say there, or say what a shell that
//! reads its commands there takes for its own.
//!
//! Only `/dev/null` is handed on as it is. Input is read as it comes, whether the program wants it or not; a terminal is read only
//! if the operator says so, because whoever shows the output may be reading keys too.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use tribune_sandbox::{Stream, Streams};

use crate::error::CliError;

/// Bytes that are passed on at a time.
const CHUNK: usize = 64 * 1024;

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

/// Whether a terminal is read for what runs, though its output goes elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    PassedOn,
    LeftAlone,
}

/// What is on its way to the operator.
#[derive(Default)]
pub(super) struct Conduits(Vec<JoinHandle<io::Result<()>>>);

impl Conduits {
    /// The operator's own streams, for what runs.
    pub(super) fn streams(&mut self, keys: Keys) -> io::Result<Streams> {
        let stdin = Self::input(io::stdin().as_fd(), keys)?;
        let (stdout, stderr) = self.outputs(io::stdout().as_fd(), io::stderr().as_fd())?;
        Ok(Streams { stdin, stdout, stderr })
    }

    /// What is read from, to its end or that of the program. Nobody waits for it: it may come from somewhere that says no more.
    fn input(stream: BorrowedFd<'_>, keys: Keys) -> io::Result<Stream> {
        if is_nothing(stream)? || (stream.is_terminal() && keys == Keys::LeftAlone) {
            return Ok(Stream::Null);
        }
        let from = File::from(stream.try_clone_to_owned()?);
        let (theirs, ours) = io::pipe()?;
        std::thread::spawn(move || pass(from, ours));
        Ok(Stream::Given(theirs.into()))
    }

    /// Both outputs. If they are one file they share a pipe, and what is said stays in its order.
    fn outputs(&mut self, out: BorrowedFd<'_>, err: BorrowedFd<'_>) -> io::Result<(Stream, Stream)> {
        let stdout = self.way_out(out)?;
        let is_one = identity(out)? == identity(err)?;
        let stderr = if is_one { stdout.try_clone()? } else { self.way_out(err)? };
        Ok((Stream::Given(stdout), Stream::Given(stderr)))
    }

    /// What is written to.
    pub(super) fn output(&mut self, stream: BorrowedFd<'_>) -> io::Result<Stream> {
        Ok(Stream::Given(self.way_out(stream)?))
    }

    fn way_out(&mut self, stream: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let own = stream.try_clone_to_owned()?;
        if is_nothing(stream)? {
            return Ok(own);
        }
        let (ours, theirs) = io::pipe()?;
        // Ends with the last who could write there, or when nothing more can be written: then the program is told.
        self.0.push(std::thread::spawn(move || pass(ours, File::from(own))));
        Ok(theirs.into())
    }

    /// Waits until everything that was said has arrived. Nobody can say more. An error says that something did not.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        // All of them are waited for.
        let arrived: Vec<_> = self.0.drain(..).map(JoinHandle::join).collect();
        arrived.into_iter().try_for_each(|passed| passed.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    }
}

fn kind(stream: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode))
}

fn identity(stream: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(stream)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether it is `/dev/null`, of which a program may have the very thing.
fn is_nothing(stream: BorrowedFd<'_>) -> io::Result<bool> {
    let stat = rustix::fs::fstat(stream)?;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && number == NOTHING)
}

/// Passes on what comes, until one side is gone. An error says that something could not be written, and why.
pub(super) fn pass(mut from: impl Read + AsFd, mut to: impl Write + AsFd) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if is_soon_over(&error, from.as_fd(), PollFlags::IN) => continue,
            // A terminal whose last program has ended says this.
            Err(_) => return Ok(()),
        };
        let mut rest = &chunk[..read];
        while !rest.is_empty() {
            match to.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if is_soon_over(&error, to.as_fd(), PollFlags::OUT) => {}
                // Whoever read there wanted no more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(error),
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
