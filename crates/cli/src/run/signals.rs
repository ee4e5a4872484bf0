//! Signals to this process that are forwarded to the command.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The signal streams, in the order of [`FORWARDED`].
pub(super) struct Signals([Option<tokio::signal::unix::Signal>; FORWARDED.len()]);

const FORWARDED: [Signal; 7] =
    [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::WINCH];

impl Signals {
    /// Registers all signals but those that the parent process set to be ignored, as `nohup` does.
    pub(super) fn new() -> io::Result<Self> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut streams = [const { None }; FORWARDED.len()];
        for (place, wanted) in streams.iter_mut().zip(FORWARDED) {
            let number = wanted.as_raw();
            if ignored >> (number - 1) & 1 == 0 {
                *place = Some(signal(SignalKind::from_raw(number))?);
            }
        }
        Ok(Self(streams))
    }

    pub(super) async fn next(&mut self) -> Signal {
        let [interrupt, quit, terminate, hangup, user1, user2, resized] = &mut self.0;
        tokio::select! {
            () = recv_or_pending(interrupt) => Signal::INT,
            () = recv_or_pending(quit) => Signal::QUIT,
            () = recv_or_pending(terminate) => Signal::TERM,
            () = recv_or_pending(hangup) => Signal::HUP,
            () = recv_or_pending(user1) => Signal::USR1,
            () = recv_or_pending(user2) => Signal::USR2,
            () = recv_or_pending(resized) => Signal::WINCH,
        }
    }
}

async fn recv_or_pending(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// The mask of ignored signals from `/proc/self/status`, one bit each.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::ignored;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tff\n"), 0x1001);
        assert_eq!(ignored(""), 0);
    }
}
