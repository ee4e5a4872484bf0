//! `tribune down`.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tribune_config::Config;
use tribune_storage::home::Home;

use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::Output;

/// Time that the daemon needs beyond the drain time, to close connections and files.
const CLOSE_TIME: Duration = Duration::from_secs(10);

/// The drain time to assume if the settings cannot be read.
const LONGEST_DRAIN: Duration = Duration::from_secs(600);

/// Interval between checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits that are shorter are not announced.
const QUIET_TIME: Duration = Duration::from_millis(500);

/// Stop the daemon of this home.
///
/// The daemon accepts no new work and waits for running turns, at most gateway.drainSeconds; then it ends them. The
/// command returns when the home is free.
#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    /// End running turns at once.
    #[arg(long)]
    now: bool,
}

pub(crate) fn run(down: &Down, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let none = || daemon::none(home);
    let pid = daemon::is_running(home).ok_or_else(none)?.pid;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(none)?;
    // Two equal signals may be merged into one, so the second is of another kind.
    let signals: &[Signal] = if down.now { &[Signal::TERM, Signal::INT] } else { &[Signal::TERM] };
    for signal in signals {
        match kill_process(process, *signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                let what = format!(
                    "the daemon (pid {pid}) cannot be signalled ({error}): it belongs to another user"
                );
                return Err(CliError::NotStopped(what));
            }
        }
    }
    let drain =
        Config::load(&home.root().join("config.json5")).map_or(LONGEST_DRAIN, |config| config.gateway.drain);
    let (began, bound) = (Instant::now(), drain + CLOSE_TIME);
    let mut announced = false;
    while home.holder() == Some(pid) {
        if began.elapsed() > bound {
            let what = format!(
                "the daemon (pid {pid}) still runs after {} s: `tribune down --now` ends the turns that it waits for",
                bound.as_secs()
            );
            return Err(CliError::NotStopped(what));
        }
        if !announced && began.elapsed() > QUIET_TIME {
            output.notice(&format!(
                "waiting up to {} s for running turns; `tribune down --now` ends them",
                drain.as_secs()
            ));
            announced = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    output.result(|_| format!("stopped (pid {pid})"), &json!({ "stopped": true, "pid": pid }))?;
    Ok(CommandOutcome::Done)
}
