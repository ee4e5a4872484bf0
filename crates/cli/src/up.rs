//! `tribune up`: starts the daemon and waits for the signal to stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tribune_config::Config;
use tribune_daemon::daemon::{Daemon, DaemonInfo, StartError};
use tribune_daemon::{memory, telemetry, threads};
use tribune_governance::turn::Recovered;
use tribune_storage::clock::SystemClock;
use tribune_storage::home::{Home, HomeError};
use tribune_storage::store::StoreError;

use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::{Output, Paint, count};
use crate::version::VERSION;
use crate::{daemon, detach, init, startup_summary};

/// How long closing files may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Start the daemon of this home.
///
/// It runs until SIGTERM or Ctrl-C. Then it accepts no new work and waits for running turns, at most
/// gateway.drainSeconds; a second signal ends them at once. Settings are in config.json5 in the home; `tribune init`
/// writes one that explains every setting.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tribune up\n  tribune up --detach\n  tribune up --port 0 --home /tmp/trial    any free port, a separate home"
)]
pub(crate) struct Up {
    /// Listen on this port instead of the one in gateway.address; 0 picks a free port.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Start the daemon in the background, and return when it is ready.
    #[arg(long)]
    detach: bool,
    /// Marks the background process itself.
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,
}

/// What is printed about a daemon that has started.
#[derive(Debug)]
pub(crate) struct StartupReport {
    pub(crate) home: Home,
    pub(crate) whereabouts: DaemonInfo,
    pub(crate) token: PathBuf,
    pub(crate) recovered: Recovered,
    /// Providers, models and the model of each agent, as `provider.list` answers.
    pub(crate) inventory: Value,
    /// How to stop it.
    pub(crate) stop: String,
}

pub(crate) fn run(up: &Up, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    if up.detached {
        // A new session, so that this process survives its terminal. Fails only if it already leads one.
        let _ = rustix::process::setsid();
    }
    let home = &Home::at(init::absolute(home)?);
    if std::fs::metadata(home.root()).is_ok_and(|found| !found.is_dir()) {
        return Err(HomeError::IsAFile(home.root().to_owned()).into());
    }
    let mut config = Config::load(&home.root().join("config.json5"))?;
    if let Some(port) = up.port {
        config.gateway.address.set_port(port);
    }
    home.prepare()?;
    if let Some(mode) = home.close_to_others()? {
        output.notice(&format!(
            "{} had mode {mode:04o}, so other users could read it; now only its owner can",
            home.root().display()
        ));
    }
    if let Some(DaemonInfo { pid, address, .. }) = daemon::is_running(home) {
        return Err(CliError::AlreadyRunning { home: home.root().to_owned(), pid, address });
    }
    if up.detach {
        return detach::run(up, home, output);
    }
    memory::forbid_dumps();
    raise_descriptor_limit();
    telemetry::start(home.root(), &config.log).map_err(CliError::file(home.root().join("logs/gateway")))?;
    telemetry::log_panics();
    init::create_missing_files(home)?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads::workers())
        .enable_all()
        .build()
        .map_err(CliError::System)?;
    let served = runtime.block_on(serve(home, &config, output));
    // Work that still runs had its time. Only threads that close files get more, so that the process does not end under them.
    runtime.shutdown_timeout(CLOSE_TIMEOUT);
    served
}

async fn serve(home: &Home, config: &Config, output: &mut Output) -> Result<CommandOutcome, CliError> {
    // Registered before the start, so that a signal during it is not lost.
    let mut stop = StopSignals::new().map_err(CliError::System)?;
    let started = Daemon::start(home, config, Arc::new(SystemClock)).await;
    let daemon = started.map_err(|error| name_running_daemon(error, home))?;
    let report = StartupReport {
        home: home.clone(),
        whereabouts: DaemonInfo {
            pid: std::process::id(),
            address: daemon.address(),
            started_at: String::new(),
            version: VERSION.to_owned(),
        },
        token: daemon.token_path().to_owned(),
        recovered: daemon.recovered().clone(),
        // INVARIANT: it holds only names, numbers and texts, which serialize to JSON.
        inventory: serde_json::to_value(daemon.survey().await).unwrap_or_default(),
        stop: "Ctrl-C".to_owned(),
    };
    // A report that cannot be printed does not stop the daemon.
    let _ = report.print(output);
    memory::drop_code_pages();

    stop.next().await;
    let seconds = config.gateway.drain.as_secs();
    output.notice(&format!(
        "stopping: waiting up to {seconds} s for running turns; press Ctrl-C again to end them now"
    ));
    let drained = daemon.stop(stop.next()).await;
    let turns = count(drained.cancelled as u64, "turn was", "turns were");
    output.notice(&match (drained.cancelled, drained.abandoned) {
        (0, false) => "stopped".to_owned(),
        (_, false) => format!("stopped; {turns} ended early"),
        (_, true) => format!("stopped; {turns} cut off and will be marked interrupted at the next start"),
    });
    Ok(CommandOutcome::Done)
}

/// If the home is held by a running daemon, the error names that daemon.
fn name_running_daemon(error: StartError, home: &Home) -> CliError {
    match (error, daemon::is_running(home)) {
        (StartError::Store(StoreError::Home(HomeError::Held { .. })), Some(other)) => {
            CliError::AlreadyRunning { home: home.root().to_owned(), pid: other.pid, address: other.address }
        }
        (error, _) => error.into(),
    }
}

/// The signals that stop the daemon.
#[derive(Debug)]
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Raises the soft limit of descriptors to the hard one, because each connection takes one. The soft limit only
/// protects programs that use `select`, which cannot count beyond 1024.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // The lower limit is enough to start; `tribune doctor` reports it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

impl StartupReport {
    /// Prints the daemon's address, its agents and the next commands.
    pub(crate) fn print(&self, output: &mut Output) -> std::io::Result<()> {
        let value = json!({
            "version": self.whereabouts.version,
            "pid": self.whereabouts.pid,
            "address": self.whereabouts.address,
            "home": self.home.root(),
            "token_file": self.token,
            "agents": self.inventory["agents"],
            "default_model": self.inventory["default_model"],
            "rehearsal_agents": startup_summary::rehearsing(&self.inventory),
            "recovered_turns": self.recovered.turns,
            "recovered_calls": self.recovered.calls,
            "recovered_forgets": self.recovered.forgets,
        });
        output.verdict(|paint| self.text(paint), &value)
    }

    fn text(&self, paint: Paint) -> String {
        let mut lines = vec![
            format!("tribune {}", self.whereabouts.version),
            format!("listening on http://{}", self.whereabouts.address),
            format!("home {}", self.home.root().display()),
            format!("token in {}", self.token.display()),
        ];
        let model_lines = startup_summary::model_lines(&self.inventory, &self.home, paint);
        if !model_lines.is_empty() {
            lines.push(String::new());
            lines.extend(model_lines);
        }
        if let Some(text) = recovered_text(&self.recovered) {
            lines.extend([String::new(), paint.unsure(&text)]);
        }
        lines.extend([String::new(), "next:".to_owned()]);
        lines.extend(["chat", "status"].map(|words| format!("  {}", next_command(&self.home, words))));
        // The demo makes its own home.
        lines.push("  tribune demo".to_owned());
        lines.push(paint.faint(&format!("stop with {}", self.stop)));
        lines.join("\n")
    }
}

/// What the previous daemon left unfinished, and what was done about it.
pub(crate) fn recovered_text(found: &Recovered) -> Option<String> {
    let Recovered { turns, calls, forgets } = *found;
    let interrupted = (turns + calls > 0).then(|| {
        format!(
            "{} and {} marked interrupted",
            count(turns, "turn", "turns"),
            count(calls, "call was", "calls were")
        )
    });
    let forgotten = (forgets > 0)
        .then(|| format!("{} forgotten as requested", count(forgets, "session was", "sessions were")));
    let done: Vec<String> = interrupted.into_iter().chain(forgotten).collect();
    (!done.is_empty()).then(|| format!("the previous daemon did not stop cleanly: {}", done.join(", ")))
}

/// Reads the counts from `daemon.status`.
pub(crate) fn recovered_from_status(status: &Value) -> Recovered {
    Recovered {
        turns: number(status, "recovered_turns"),
        calls: number(status, "recovered_calls"),
        forgets: number(status, "recovered_forgets"),
    }
}

/// A count of `daemon.status`.
pub(crate) fn number(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or(0)
}
