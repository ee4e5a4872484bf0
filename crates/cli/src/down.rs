//! `tribune down`.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tribune_config::Config;
use tribune_storage::home::Home;

use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::Output;

/// What a daemon may need beyond the time that its turns have: to say goodbye and to close its files.
const GRACE: Duration = Duration::from_secs(10);

/// The longest that turns may be given, for a daemon whose settings cannot be read any more.
const LONGEST_DRAIN: Duration = Duration::from_secs(600);

/// Between two looks.
const GLANCE: Duration = Duration::from_millis(20);

/// Shorter waits are not announced.
const PATIENCE: Duration = Duration::from_millis(500);

/// Stop the daemon of this home.
///
/// It takes no new work and waits for running turns as long as gateway.drainSeconds says; then it ends them. Returns when
/// the home is free.
#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    /// End running turns at once.
    #[arg(long)]
    now: bool,
}

pub(crate) fn run(down: &Down, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let none = || daemon::none(home);
    let pid = daemon::is_running(home).ok_or_else(none)?.pid;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(none)?;
    // Two signals of one kind may be taken as one. Two kinds are two words.
    let signals: &[Signal] = if down.now { &[Signal::TERM, Signal::INT] } else { &[Signal::TERM] };
    for signal in signals {
        match kill_process(process, *signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                let what =
                    format!("the daemon (pid {pid}) cannot be told to stop ({error}): it is another user's");
                return Err(CliError::NotStopped(what));
            }
        }
    }
    let drain =
        Config::load(&home.root().join("config.json5")).map_or(LONGEST_DRAIN, |config| config.gateway.drain);
    let (began, bound) = (Instant::now(), drain + GRACE);
    let mut announced = false;
    while home.holder() == Some(pid) {
        if began.elapsed() > bound {
            let what = format!(
                "the daemon (pid {pid}) still runs after {} s: `tribune down --now` ends what it waits for",
                bound.as_secs()
            );
            return Err(CliError::NotStopped(what));
        }
        if !announced && began.elapsed() > PATIENCE {
            output.aside(&format!(
                "waiting up to {} s for running turns; `tribune down --now` ends them",
                drain.as_secs()
            ));
            announced = true;
        }
        std::thread::sleep(GLANCE);
    }
    output.result(|_| format!("stopped (pid {pid})"), &json!({ "stopped": true, "pid": pid }))?;
    Ok(Outcome::Done)
}
