//! Pipes between the operator's streams and the command, so that it gets only bytes. With a file it could write
//! elsewhere in the file and change its mode. With a folder it could look around this machine. With a terminal it could
//! read keys meant for other programs. With a pipe it could open the other end: read what other programs write there,
//! or inject commands for a shell that reads from it.
//!
//! Only `/dev/null` is handed on as it is. Input is read as it arrives, whether the program reads it or not. A terminal
//! is read only if the operator asks for it, because a pager that shows the output may be reading keys too.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use tribune_sandbox::{ProgramStream, ProgramStreams};

use crate::error::CliError;

/// Bytes that are copied at a time.
const CHUNK: usize = 64 * 1024;

/// The device number of `/dev/null`.
const DEV_NULL: (u32, u32) = (1, 3);

/// Refuses folders as standard streams.
pub(super) fn check() -> Result<(), CliError> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [("input", stdin.as_fd()), ("output", stdout.as_fd()), ("error output", stderr.as_fd())];
    for (name, stream) in streams {
        if kind(stream).map_err(CliError::System)? == FileType::Directory {
            return Err(CliError::Input(format!(
                "the standard {name} is a folder, through which a program could look around this machine: give it a file or \
                 a pipe, or /dev/null; use --ro to let it read a folder"
            )));
        }
    }
    Ok(())
}

/// Whether a terminal is read for the command, although its output goes elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalInput {
    Forwarded,
    Ignored,
}

/// The threads that copy output to the operator's streams.
#[derive(Default)]
pub(super) struct StdioPipes(Vec<JoinHandle<io::Result<()>>>);

impl StdioPipes {
    /// Connects the operator's own streams.
    pub(super) fn streams(&mut self, terminal: TerminalInput) -> io::Result<ProgramStreams> {
        let stdin = Self::input(io::stdin().as_fd(), terminal)?;
        let (stdout, stderr) = self.outputs(io::stdout().as_fd(), io::stderr().as_fd())?;
        Ok(ProgramStreams { stdin, stdout, stderr })
    }

    /// Connects the input. Its thread is not joined: the source may never write or end.
    fn input(stream: BorrowedFd<'_>, terminal: TerminalInput) -> io::Result<ProgramStream> {
        if is_dev_null(stream)? || (stream.is_terminal() && terminal == TerminalInput::Ignored) {
            return Ok(ProgramStream::Null);
        }
        let from = File::from(stream.try_clone_to_owned()?);
        let (theirs, ours) = io::pipe()?;
        std::thread::spawn(move || copy(from, ours));
        Ok(ProgramStream::Given(theirs.into()))
    }

    /// Connects both outputs. If they are one file they share a pipe, which keeps the order of writes.
    fn outputs(
        &mut self,
        out: BorrowedFd<'_>,
        err: BorrowedFd<'_>,
    ) -> io::Result<(ProgramStream, ProgramStream)> {
        let stdout = self.output_pipe(out)?;
        let is_one = identity(out)? == identity(err)?;
        let stderr = if is_one { stdout.try_clone()? } else { self.output_pipe(err)? };
        Ok((ProgramStream::Given(stdout), ProgramStream::Given(stderr)))
    }

    /// Connects an output.
    pub(super) fn output(&mut self, stream: BorrowedFd<'_>) -> io::Result<ProgramStream> {
        Ok(ProgramStream::Given(self.output_pipe(stream)?))
    }

    fn output_pipe(&mut self, stream: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let own = stream.try_clone_to_owned()?;
        if is_dev_null(stream)? {
            return Ok(own);
        }
        let (ours, theirs) = io::pipe()?;
        // Ends when the last writer closes it, or when nothing more can be written; then the program gets the error.
        self.0.push(std::thread::spawn(move || copy(ours, File::from(own))));
        Ok(theirs.into())
    }

    /// Waits until all output has arrived. No writer is left. An error says that some output was lost.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        // Joins all threads before it looks at results.
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

/// Whether it is `/dev/null`, which a program may have itself.
fn is_dev_null(stream: BorrowedFd<'_>) -> io::Result<bool> {
    let stat = rustix::fs::fstat(stream)?;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && number == DEV_NULL)
}

/// Copies until one side is closed. An error says that something could not be written.
pub(super) fn copy(mut from: impl Read + AsFd, mut to: impl Write + AsFd) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if wait_and_retry(&error, from.as_fd(), PollFlags::IN) => continue,
            // A terminal returns an error when its last program has ended.
            Err(_) => return Ok(()),
        };
        let mut rest = &chunk[..read];
        while !rest.is_empty() {
            match to.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if wait_and_retry(&error, to.as_fd(), PollFlags::OUT) => {}
                // The reader closed the pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether to try again after an error. Waits if the stream is non-blocking and not ready.
fn wait_and_retry(error: &io::Error, stream: BorrowedFd<'_>, ready: PollFlags) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        // If `poll` fails, a retry would spin, so the error stands.
        io::ErrorKind::WouldBlock => {
            let waited = rustix::event::poll(&mut [PollFd::new(&stream, ready)], None);
            waited.is_ok() || waited == Err(rustix::io::Errno::INTR)
        }
        _ => false,
    }
}
