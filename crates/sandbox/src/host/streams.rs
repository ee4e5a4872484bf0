//! The standard streams of a program in a sandbox.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use rustix::fs::{FileType, fstat};

use super::error::LaunchError;

/// The standard streams of a program.
#[derive(Debug)]
pub struct ProgramStreams {
    pub stdin: ProgramStream,
    pub stdout: ProgramStream,
    pub stderr: ProgramStream,
}

/// One standard stream.
#[derive(Debug)]
pub enum ProgramStream {
    /// `/dev/null`.
    Null,
    /// A pipe to the caller.
    Piped,
    /// A pipe or a terminal that is open already. Other kinds of files would give the program more than a byte stream.
    Given(OwnedFd),
}

impl ProgramStreams {
    /// No input; both outputs are pipes to the caller.
    #[must_use]
    pub const fn captured() -> Self {
        Self { stdin: ProgramStream::Null, stdout: ProgramStream::Piped, stderr: ProgramStream::Piped }
    }

    /// Pipes for all three.
    #[must_use]
    pub const fn piped() -> Self {
        Self { stdin: ProgramStream::Piped, stdout: ProgramStream::Piped, stderr: ProgramStream::Piped }
    }

    /// Opens the streams. Returns the program's ends and the caller's ends.
    pub(super) fn open(self) -> Result<([OwnedFd; 3], CallerPipes), LaunchError> {
        let (stdin, caller_stdin) = match self.stdin {
            ProgramStream::Piped => {
                let (program_end, caller_end) = io::pipe()?;
                (program_end.into(), Some(OwnedFd::from(caller_end).into()))
            }
            other => (other.into_fd()?, None),
        };
        let (stdout, caller_stdout) = output_stream(self.stdout)?;
        let (stderr, caller_stderr) = output_stream(self.stderr)?;
        let pipes = CallerPipes {
            stdin: caller_stdin,
            stdout: caller_stdout.map(Into::into),
            stderr: caller_stderr.map(Into::into),
        };
        Ok(([stdin, stdout, stderr], pipes))
    }
}

impl ProgramStream {
    /// The descriptor for a stream without a caller's end.
    fn into_fd(self) -> Result<OwnedFd, LaunchError> {
        match self {
            Self::Given(open) => {
                let kind = FileType::from_raw_mode(fstat(&open).map_err(io::Error::from)?.st_mode);
                let is_stream = kind == FileType::Fifo || kind == FileType::CharacterDevice;
                if is_stream { Ok(open) } else { Err(LaunchError::Stream) }
            }
            Self::Null | Self::Piped => Ok(File::options().read(true).write(true).open("/dev/null")?.into()),
        }
    }
}

fn output_stream(stream: ProgramStream) -> Result<(OwnedFd, Option<OwnedFd>), LaunchError> {
    match stream {
        ProgramStream::Piped => {
            let (caller_end, program_end) = io::pipe()?;
            Ok((program_end.into(), Some(caller_end.into())))
        }
        other => Ok((other.into_fd()?, None)),
    }
}

/// The caller's ends of the pipes.
#[derive(Debug)]
pub(super) struct CallerPipes {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
}
