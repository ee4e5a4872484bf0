//! From the start of what runs to its end: signals are passed on, questions told, its changes counted.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tribune_client::Client;
use tribune_contract::Exit;
use tribune_host::quota::Quota;
use tribune_sandbox::Child;

use super::signals::Signals;
use super::terminal::Seat;
use crate::error::CliError;
use crate::output::Output;
use crate::pending_approvals::Questions;

/// Between two looks for questions, which keep the connection alive too.
const GLANCE: Duration = Duration::from_secs(1);

/// How long is waited for an answer of the daemon at a time; meanwhile nothing else is heard.
const ANSWER: Duration = Duration::from_secs(2);

/// What a program that was told to end has for it.
const GRACE: Duration = Duration::from_secs(5);

/// How it ended.
#[derive(Debug)]
pub(super) enum Ended {
    Exit(Exit),
    /// Tribune ended it, and why.
    OverQuota(String),
}

/// Everything that is at hand while something runs.
pub(super) struct Company<'a> {
    pub(super) child: Child,
    /// None when the daemon is gone: what runs goes on without a way out.
    pub(super) client: Option<Client>,
    /// Heard since before it ran.
    pub(super) signals: Signals,
    pub(super) questions: Questions,
    /// None where nothing can be changed.
    pub(super) quota: Option<Quota>,
    pub(super) output: &'a Output,
}

impl Company<'_> {
    pub(super) async fn stay(mut self, seat: &mut Seat) -> Result<(Ended, Option<Client>), CliError> {
        let over = watched(self.child.as_fd().try_clone_to_owned().map_err(CliError::System)?);
        let over = over.map_err(CliError::System)?;
        let mut glance = tokio::time::interval(GLANCE);
        glance.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut vanished = seat.vanished();
        let mut deadline: Option<Instant> = None;
        let mut too_much = None;
        loop {
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let vanishing = async {
                match &mut vanished {
                    Some(vanished) => drop(vanished.await),
                    None => std::future::pending().await,
                }
            };
            let counting = async {
                match &mut self.quota {
                    Some(quota) => quota.exceeded().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = over.readable() => break,
                signal = self.signals.next() => {
                    if signal == Signal::WINCH {
                        seat.resize();
                    }
                    if [Signal::TERM, Signal::HUP].contains(&signal) {
                        deadline.get_or_insert(Instant::now() + GRACE);
                    }
                    // One that just ended takes none.
                    let _ = self.child.signal(signal);
                }
                () = vanishing => {
                    vanished = None;
                    deadline.get_or_insert(Instant::now() + GRACE);
                    let _ = self.child.signal(Signal::HUP);
                }
                () = late => {
                    self.child.kill();
                    deadline = None;
                }
                why = counting => if let Some(why) = why {
                    self.child.kill();
                    too_much = Some(why);
                    self.quota = None;
                },
                _ = glance.tick() => self.look(seat).await,
            }
        }
        let exit = self.child.wait().map_err(CliError::System)?;
        let ended = too_much.map_or(Ended::Exit(exit), Ended::OverQuota);
        Ok((ended, self.client))
    }

    /// Looks for questions, and whether the daemon is still there.
    async fn look(&mut self, seat: &Seat) {
        let Some(client) = &mut self.client else { return };
        // On a terminal that belongs to what runs, nobody else writes.
        let is_quiet = seat.is_terminal();
        let looked = if is_quiet {
            let nothing = serde_json::json!({});
            timeout(ANSWER, async { client.call("auth.whoami", &nothing).await.map(drop) }).await
        } else {
            timeout(ANSWER, self.questions.look(client, self.output)).await
        };
        // One that is slow, or does not want to answer, is there.
        let is_gone = matches!(&looked, Ok(Err(error)) if error.code().is_none());
        if is_gone {
            self.client = None;
            if !is_quiet {
                self.output.aside("tribune: the daemon is gone; what runs goes on without a way out");
            }
        }
    }
}

fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "sound for an `OwnedFd`, which is open for as long as it lives; the other is unsafe"
    )]
    AsyncFd::with_interest(fd, Interest::READABLE)
}
