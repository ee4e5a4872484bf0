//! Signals to this process, which are meant for what runs.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Those that are heard, in the order of [`HEARD`].
pub(super) struct Signals([Option<tokio::signal::unix::Signal>; HEARD.len()]);

const HEARD: [Signal; 7] =
    [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::WINCH];

impl Signals {
    /// Hears all but those that whoever started this wants ignored, as `nohup` does.
    pub(super) fn new() -> io::Result<Self> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut heard = [const { None }; HEARD.len()];
        for (place, wanted) in heard.iter_mut().zip(HEARD) {
            let number = wanted.as_raw();
            if ignored >> (number - 1) & 1 == 0 {
                *place = Some(signal(SignalKind::from_raw(number))?);
            }
        }
        Ok(Self(heard))
    }

    pub(super) async fn next(&mut self) -> Signal {
        let [interrupt, quit, terminate, hangup, user1, user2, resized] = &mut self.0;
        tokio::select! {
            () = come(interrupt) => Signal::INT,
            () = come(quit) => Signal::QUIT,
            () = come(terminate) => Signal::TERM,
            () = come(hangup) => Signal::HUP,
            () = come(user1) => Signal::USR1,
            () = come(user2) => Signal::USR2,
            () = come(resized) => Signal::WINCH,
        }
    }
}

async fn come(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// The signals that a process ignores, one bit each, as its status says.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::ignored;

    #[test]
    fn what_is_ignored_stands_in_the_status() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tff\n"), 0x1001);
        assert_eq!(ignored(""), 0);
    }
}
