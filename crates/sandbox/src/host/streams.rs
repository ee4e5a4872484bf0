//! What a program in a sandbox is connected to.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use rustix::fs::{FileType, fstat};

use super::launcher::LaunchError;

/// The streams of a program.
#[derive(Debug)]
pub struct Streams {
    pub stdin: Stream,
    pub stdout: Stream,
    pub stderr: Stream,
}

/// One of them.
#[derive(Debug)]
pub enum Stream {
    /// Empty to read, and what is written is lost.
    Null,
    /// A pipe to the caller.
    Piped,
    /// A pipe or a terminal that is open already. Of anything else the program would get more than its bytes.
    Given(OwnedFd),
}

impl Streams {
    /// Nothing to read, and both outputs to be read by the caller.
    #[must_use]
    pub const fn captured() -> Self {
        Self { stdin: Stream::Null, stdout: Stream::Piped, stderr: Stream::Piped }
    }

    /// Pipes in all directions.
    #[must_use]
    pub const fn piped() -> Self {
        Self { stdin: Stream::Piped, stdout: Stream::Piped, stderr: Stream::Piped }
    }

    /// The program's ends, and the caller's.
    pub(super) fn open(self) -> Result<([OwnedFd; 3], Ends), LaunchError> {
        let (stdin, ours_in) = match self.stdin {
            Stream::Piped => {
                let (theirs, ours) = io::pipe()?;
                (theirs.into(), Some(OwnedFd::from(ours).into()))
            }
            other => (other.plain()?, None),
        };
        let (stdout, ours_out) = output(self.stdout)?;
        let (stderr, ours_err) = output(self.stderr)?;
        let ends =
            Ends { stdin: ours_in, stdout: ours_out.map(Into::into), stderr: ours_err.map(Into::into) };
        Ok(([stdin, stdout, stderr], ends))
    }
}

impl Stream {
    /// What the program gets where nobody is at the other end.
    fn plain(self) -> Result<OwnedFd, LaunchError> {
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

fn output(stream: Stream) -> Result<(OwnedFd, Option<OwnedFd>), LaunchError> {
    match stream {
        Stream::Piped => {
            let (ours, theirs) = io::pipe()?;
            Ok((theirs.into(), Some(ours.into())))
        }
        other => Ok((other.plain()?, None)),
    }
}

/// The caller's ends of the pipes.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
}
