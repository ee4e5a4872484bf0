//! Supervises a run: forwards signals, prints approvals, enforces the quota.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tribune_client::RpcClient;
use tribune_contract::ProgramExit;
use tribune_sandbox::Child;
use tribune_tools::disk_quota::Quota;

use super::signals::Signals;
use super::terminal::Stdio;
use crate::error::CliError;
use crate::output::Output;
use crate::pending_approvals::PendingApprovals;

/// Interval between requests for pending approvals, which also keep the connection alive.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long one answer of the daemon may take; meanwhile signals are not handled.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for the program to end after a signal that asks it to.
const GRACE: Duration = Duration::from_secs(5);

/// How the run ended.
#[derive(Debug)]
pub(super) enum RunEnd {
    Exit(ProgramExit),
    /// Tribune ended it because of the quota; the reason.
    OverQuota(String),
}

/// A running command with everything that its supervision needs.
pub(super) struct Supervisor<'a> {
    pub(super) child: Child,
    /// `None` if the daemon is gone: the command goes on without network access.
    pub(super) client: Option<RpcClient>,
    /// Registered before the command started.
    pub(super) signals: Signals,
    pub(super) pending: PendingApprovals,
    /// `None` if the command can change nothing.
    pub(super) quota: Option<Quota>,
    pub(super) output: &'a Output,
}

impl Supervisor<'_> {
    pub(super) async fn run_to_end(
        mut self,
        stdio: &mut Stdio,
    ) -> Result<(RunEnd, Option<RpcClient>), CliError> {
        let process = readable_when_ended(self.child.as_fd().try_clone_to_owned().map_err(CliError::System)?);
        let process = process.map_err(CliError::System)?;
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut hangup = stdio.hangup();
        let mut deadline: Option<Instant> = None;
        let mut over_quota = None;
        loop {
            let past_deadline = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let hanging_up = async {
                match &mut hangup {
                    Some(hangup) => drop(hangup.await),
                    None => std::future::pending().await,
                }
            };
            let quota_check = async {
                match &mut self.quota {
                    Some(quota) => quota.exceeded().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = process.readable() => break,
                signal = self.signals.next() => {
                    if signal == Signal::WINCH {
                        stdio.resize();
                    }
                    if [Signal::TERM, Signal::HUP].contains(&signal) {
                        deadline.get_or_insert(Instant::now() + GRACE);
                    }
                    // A process that has just ended accepts none.
                    let _ = self.child.signal(signal);
                }
                () = hanging_up => {
                    hangup = None;
                    deadline.get_or_insert(Instant::now() + GRACE);
                    let _ = self.child.signal(Signal::HUP);
                }
                () = past_deadline => {
                    self.child.kill();
                    deadline = None;
                }
                why = quota_check => if let Some(why) = why {
                    self.child.kill();
                    over_quota = Some(why);
                    self.quota = None;
                },
                _ = poll.tick() => self.check_daemon(stdio).await,
            }
        }
        let exit = self.child.wait().map_err(CliError::System)?;
        let ended = over_quota.map_or(RunEnd::Exit(exit), RunEnd::OverQuota);
        Ok((ended, self.client))
    }

    /// Prints new approvals, and checks whether the daemon still runs.
    async fn check_daemon(&mut self, stdio: &Stdio) {
        let Some(client) = &mut self.client else { return };
        // The terminal belongs to the command, so nothing is written to it.
        let is_quiet = stdio.is_terminal();
        let checked = if is_quiet {
            let nothing = serde_json::json!({});
            timeout(ANSWER_TIMEOUT, async { client.call("auth.whoami", &nothing).await.map(drop) }).await
        } else {
            timeout(ANSWER_TIMEOUT, self.pending.print_new(client, self.output)).await
        };
        // A timeout or an error answer means that the daemon runs.
        let is_gone = matches!(&checked, Ok(Err(error)) if error.code().is_none());
        if is_gone {
            self.client = None;
            if !is_quiet {
                self.output.notice("tribune: the daemon is gone; the command goes on without network access");
            }
        }
    }
}

fn readable_when_ended(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "sound for an `OwnedFd`, which is open for as long as it lives; the other is unsafe"
    )]
    AsyncFd::with_interest(fd, Interest::READABLE)
}
