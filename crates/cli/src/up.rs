//! `tribune up`: the daemon, from its settings to its last word.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tribune_host::config::Config;
use tribune_host::daemon::{Daemon, StartError, Whereabouts};
use tribune_host::governed::Recovered;
use tribune_host::home::HomeError;
use tribune_host::{Home, StoreError, SystemClock, memory, telemetry, threads};

use crate::args::default_home;
use crate::error::{CliError, Outcome};
use crate::output::{Output, Paint};
use crate::version::VERSION;
use crate::{daemon, detach, init, startup_summary};

/// How long files may take to be closed.
const CLOSING: Duration = Duration::from_secs(5);

/// Start the daemon of this home.
///
/// It runs until SIGTERM or Ctrl-C; then it takes no new work and waits for running turns as long as
/// gateway.drainSeconds says. A second signal ends them. Settings are in config.json5 in the home; `tribune init` writes
/// one with every setting explained.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tribune up\n  tribune up --detach\n  tribune up --port 0 --home /tmp/trial    any free port, a home of its own"
)]
pub(crate) struct Up {
    /// Listen on this port instead of the one in gateway.address; 0 takes any that is free.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Start it in the background, and return when it is ready.
    #[arg(long)]
    detach: bool,
    /// This process is the one in the background.
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,
}

/// What is said of a daemon that has started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) home: Home,
    pub(crate) whereabouts: Whereabouts,
    pub(crate) token: PathBuf,
    pub(crate) recovered: Recovered,
    /// Providers and models, and which agent uses what: `provider.list`.
    pub(crate) survey: Value,
    /// How to stop it.
    pub(crate) stop: String,
}

pub(crate) fn run(up: &Up, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    if up.detached {
        // The terminal may go, this process stays. Fails only for one that leads a session already.
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
        output.aside(&format!(
            "{} had mode {mode:04o}, so others could look into it: it is for its owner alone now",
            home.root().display()
        ));
    }
    if let Some(Whereabouts { pid, address, .. }) = daemon::is_running(home) {
        return Err(CliError::AlreadyRunning { home: home.root().to_owned(), pid, address });
    }
    if up.detach {
        return detach::run(up, home, output);
    }
    raise_descriptor_limit();
    telemetry::start(home.root(), &config.log).map_err(CliError::file(home.root().join("logs/gateway")))?;
    telemetry::hush_panics();
    init::furnish(home)?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads::workers())
        .enable_all()
        .build()
        .map_err(CliError::System)?;
    let served = runtime.block_on(serve(home, &config, output));
    // What has not ended by now had its time, but for the threads that close files: the process must not end under them.
    runtime.shutdown_timeout(CLOSING);
    served
}

async fn serve(home: &Home, config: &Config, output: &mut Output) -> Result<Outcome, CliError> {
    // Before the start, so that a signal during it is not lost.
    let mut stop = StopSignals::new().map_err(CliError::System)?;
    let started = Daemon::start(home, config, Arc::new(SystemClock)).await;
    let daemon = started.map_err(|error| explain(error, home))?;
    let started = Started {
        home: home.clone(),
        whereabouts: Whereabouts {
            pid: std::process::id(),
            address: daemon.address(),
            started_at: String::new(),
            version: VERSION.to_owned(),
        },
        token: daemon.token_path().to_owned(),
        recovered: daemon.recovered().clone(),
        // INVARIANT: names, numbers and texts are JSON.
        survey: serde_json::to_value(daemon.survey().await).unwrap_or_default(),
        stop: "Ctrl-C".to_owned(),
    };
    // A daemon whose greeting cannot be written serves all the same.
    let _ = started.tell(output);
    memory::let_go_of_code();

    stop.next().await;
    let seconds = config.gateway.drain.as_secs();
    output.aside(&format!(
        "stopping: waiting up to {seconds} s for running turns; press Ctrl-C again to end them now"
    ));
    let drained = daemon.stop(stop.next()).await;
    let turns = count(drained.cancelled as u64, "turn was", "turns were");
    output.aside(&match (drained.cancelled, drained.abandoned) {
        (0, false) => "stopped".to_owned(),
        (_, false) => format!("stopped; {turns} ended early"),
        (_, true) => format!("stopped; {turns} cut off and will be marked interrupted at the next start"),
    });
    Ok(Outcome::Done)
}

/// A home that is taken was taken by a daemon, most likely; then there is more to say.
fn explain(error: StartError, home: &Home) -> CliError {
    match (error, daemon::is_running(home)) {
        (StartError::Store(StoreError::Home(HomeError::Held { .. })), Some(other)) => {
            CliError::AlreadyRunning { home: home.root().to_owned(), pid: other.pid, address: other.address }
        }
        (error, _) => error.into(),
    }
}

/// What asks the daemon to stop.
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

/// Each connection is a descriptor; the soft limit is meant for programs that cannot count beyond 1024.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // The lower limit does for a start; `tribune doctor` tells.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// `tribune WORDS`, with the home where it is not the usual one.
pub(crate) fn next_command(home: &Home, words: &str) -> String {
    if default_home().is_some_and(|usual| usual == home.root()) {
        return format!("tribune {words}");
    }
    let path = home.root().display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%,:".contains(c);
    let path = if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
    format!("tribune {words} --home {path}")
}

pub(crate) fn count(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

impl Started {
    /// Says where the daemon is, what it has and what to do next.
    pub(crate) fn tell(&self, output: &mut Output) -> std::io::Result<()> {
        let value = json!({
            "version": self.whereabouts.version,
            "pid": self.whereabouts.pid,
            "address": self.whereabouts.address,
            "home": self.home.root(),
            "token_file": self.token,
            "agents": self.survey["agents"],
            "default_model": self.survey["default_model"],
            "rehearsal_agents": startup_summary::rehearsing(&self.survey),
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
        let minds = startup_summary::minds(&self.survey, &self.home, paint);
        if !minds.is_empty() {
            lines.push(String::new());
            lines.extend(minds);
        }
        if let Some(said) = recovered(&self.recovered) {
            lines.extend([String::new(), paint.unsure(&said)]);
        }
        lines.extend([String::new(), "next:".to_owned()]);
        lines.extend(["chat", "status"].map(|words| format!("  {}", next_command(&self.home, words))));
        // It has a home of its own.
        lines.push("  tribune demo".to_owned());
        lines.push(paint.faint(&format!("stop with {}", self.stop)));
        lines.join("\n")
    }
}

/// What an earlier daemon left unfinished.
pub(crate) fn recovered(found: &Recovered) -> Option<String> {
    let Recovered { turns, calls, forgets } = *found;
    let interrupted = (turns + calls > 0).then(|| {
        format!(
            "{} and {} marked interrupted",
            count(turns, "turn", "turns"),
            count(calls, "call was", "calls were")
        )
    });
    let forgotten = (forgets > 0)
        .then(|| format!("{} forgotten as was asked", count(forgets, "session was", "sessions were")));
    let done: Vec<String> = interrupted.into_iter().chain(forgotten).collect();
    (!done.is_empty()).then(|| format!("an earlier daemon was cut short: {}", done.join(", ")))
}

/// The same, from `daemon.status`.
pub(crate) fn recovered_of(status: &Value) -> Recovered {
    Recovered {
        turns: number(status, "recovered_turns"),
        calls: number(status, "recovered_calls"),
        forgets: number(status, "recovered_forgets"),
    }
}

/// The part of `daemon.status` that is told at the start.
pub(crate) fn number(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or(0)
}
