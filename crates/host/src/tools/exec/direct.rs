//! Starts commands as they are, with all that the daemon's user may do. For machines that are a sandbox themselves; the
//! configuration has to say so.
//!
//! A command is a process group of its own, which is ended as a whole: when its first process exits, when its time is over,
//! when nobody waits any more. A process that leaves the group on purpose (`setsid`) is not caught; that takes a sandbox.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, Interest};
use tokio::process::Command;

use super::launch::{Captured, Ended, Exited, Launch, LaunchError, Launcher};

/// How long outputs are still read when the group is gone: only someone who left the group can hold them open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long the kernel may take to bury a killed process.
const BURIAL: Duration = Duration::from_secs(5);

/// Bytes per read.
const CHUNK_BYTES: usize = 16 * 1024;

/// Starts commands with no sandbox around them.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectLauncher;

#[async_trait]
impl Launcher for DirectLauncher {
    async fn launch(&self, launch: Launch) -> Result<Exited, LaunchError> {
        let limits = launch.limits;
        let (mut stdout, mut stderr) =
            (Captured::new(limits.output_bytes), Captured::new(limits.output_bytes));
        let mut child = Command::new("/bin/sh")
            .arg("-c")
            .arg(&launch.command)
            .env_clear()
            .envs(launch.env)
            // By its descriptor, which the child still has when it goes there.
            .current_dir(format!("/proc/self/fd/{}", launch.cwd.folder.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(LaunchError::Failed)?;
        // INVARIANT: dropped before `child`, whose id is the group's for as long as nobody has waited for it.
        let mut group = Group::of(child.id()).map_err(LaunchError::Failed)?;
        let outputs = (child.stdout.take(), child.stderr.take());

        let mut out_of_time = false;
        {
            let mut reading = std::pin::pin!(async {
                tokio::join!(read(outputs.0, &mut stdout), read(outputs.1, &mut stderr));
            });
            let mut limit = std::pin::pin!(tokio::time::sleep(limits.wall));
            let mut all_read = false;
            loop {
                tokio::select! {
                    () = reading.as_mut(), if !all_read => all_read = true,
                    () = group.exited() => break,
                    () = limit.as_mut() => {
                        out_of_time = true;
                        break;
                    }
                }
            }
            group.end();
            if !all_read {
                let _ = tokio::time::timeout(LAST_WORDS, reading).await;
            }
        }
        let waited = tokio::time::timeout(BURIAL, child.wait()).await;
        let ended = match waited {
            _ if out_of_time => Ended::OutOfTime,
            Ok(status) => ended(status.map_err(LaunchError::Failed)?),
            Err(_) => Ended::OutOfTime,
        };
        Ok(Exited { ended, stdout, stderr })
    }
}

/// The processes of one command.
#[derive(Debug)]
struct Group {
    leader: Pid,
    exit: AsyncFd<OwnedFd>,
    is_over: bool,
}

impl Group {
    fn of(leader: Option<u32>) -> io::Result<Self> {
        let leader = leader.and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        #[expect(
            deprecated,
            reason = "sound for an `OwnedFd`, which is open for as long as it lives; the other is unsafe"
        )]
        let watch = |fd| AsyncFd::with_interest(fd, Interest::READABLE);
        let opened = rustix::process::pidfd_open(leader, PidfdFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(watch);
        match opened {
            Ok(exit) => Ok(Self { leader, exit, is_over: false }),
            Err(error) => {
                let _ = rustix::process::kill_process_group(leader, Signal::KILL);
                Err(error)
            }
        }
    }

    /// The leader exited. It was not waited for yet.
    async fn exited(&self) {
        // Whatever else comes of waiting, it is a reason to stop.
        let _ = self.exit.readable().await;
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            // The id is still the group's, because the leader was not waited for. A group that is gone needs no end.
            let _ = rustix::process::kill_process_group(self.leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>, captured: &mut Captured) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    // An output that breaks is over.
    while let Ok(got) = from.read(&mut chunk).await {
        if got == 0 {
            return;
        }
        captured.push(&chunk[..got]);
    }
}

fn ended(status: ExitStatus) -> Ended {
    status.code().map_or_else(|| Ended::Signal(status.signal().unwrap_or_default()), Ended::Code)
}
