//! `tribune up --detach`: starts the daemon as a background process and waits until it is ready.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde_json::json;
use tribune_config::Config;
use tribune_daemon::daemon::DaemonInfo;
use tribune_storage::home::Home;

use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::Output;
use crate::up::{StartupReport, Up, recovered_from_status};
use crate::{daemon, init};

/// How long a start may take. Opening a large ledger takes a fraction of it.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval between checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long one health check may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that are read from the output of a daemon that ended.
const MAX_OUTPUT_READ: u64 = 64 << 10;

/// Lines of that output that are shown.
const LAST_LINES: usize = 10;

pub(crate) fn run(up: &Up, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let whereabouts = start(up.port, home, output)?;
    let status = daemon::ask(home, "daemon.status", &json!({}))?;
    let report = StartupReport {
        home: home.clone(),
        whereabouts,
        token: home.root().join("run").join("token"),
        recovered: recovered_from_status(&status),
        inventory: daemon::ask(home, "provider.list", &json!({}))?,
        stop: format!("`{}`", next_command(home, "down")),
    };
    report.print(output)?;
    Ok(CommandOutcome::Done)
}

/// Starts the daemon of a home as a background process, and waits until it is ready.
pub(crate) fn start(port: Option<u16>, home: &Home, output: &Output) -> Result<DaemonInfo, CliError> {
    let home = &Home::at(init::absolute(home)?);
    let path = home.root().join("logs").join("gateway").join("daemon.out");
    let file = open(&path).map_err(CliError::file(&path))?;
    let mut child = spawn(port, home, file).map_err(CliError::file("tribune"))?;
    match wait_ready(&mut child, home) {
        StartWait::Ready(whereabouts) => Ok(whereabouts),
        StartWait::Ended => Err(startup_error(&path, output)),
        StartWait::TooLong => Err(CliError::NotStarted(format!(
            "the daemon (pid {}) is not ready after {} s and may still be starting: check with `{}`, and read {}",
            child.id(),
            START_TIMEOUT.as_secs(),
            next_command(home, "status"),
            path.display()
        ))),
    }
}

/// Starts the daemon of a home through a child process that ends when the daemon is ready. The daemon is then no
/// descendant of this process, so that an editor that kills this process tree does not kill the daemon.
#[expect(clippy::disallowed_methods, reason = "the daemon itself runs outside any sandbox")]
pub(crate) fn start_via_child(home: &Home) -> Result<(), CliError> {
    let home = &Home::at(init::absolute(home)?);
    let mut command = Command::new(std::env::current_exe().map_err(CliError::file("tribune"))?);
    command.arg("--home").arg(home.root()).args(["up", "--detach"]);
    if let Some(port) = free_port_if_taken(home)? {
        command.arg("--port").arg(port.to_string());
    }
    let ended = command.stdin(Stdio::null()).output().map_err(CliError::file("tribune"))?;
    if ended.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let last = stderr.lines().rfind(|line| !line.is_empty()).unwrap_or("the daemon could not be started");
    Err(CliError::NotStarted(last.strip_prefix("error: ").unwrap_or(last).to_owned()))
}

/// Port 0 (any free port) if the configured port is taken. A command that only needs some daemon does not depend on the
/// port.
pub(crate) fn free_port_if_taken(home: &Home) -> Result<Option<u16>, CliError> {
    let config = Config::load(&home.root().join("config.json5"))?;
    let is_taken = TcpListener::bind(config.gateway.address)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse);
    Ok(is_taken.then_some(0))
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

#[expect(clippy::disallowed_methods, reason = "the daemon itself runs outside any sandbox")]
fn spawn(port: Option<u16>, home: &Home, out: File) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--home").arg(home.root()).args(["up", "--detached"]);
    if let Some(port) = port {
        command.arg("--port").arg(port.to_string());
    }
    // `/`, so that the daemon does not keep the current folder from being unmounted.
    command.current_dir("/").stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn()
}

enum StartWait {
    Ready(DaemonInfo),
    Ended,
    TooLong,
}

fn wait_ready(child: &mut Child, home: &Home) -> StartWait {
    let began = Instant::now();
    while began.elapsed() < START_TIMEOUT {
        let found = DaemonInfo::read(home).filter(|found| found.pid == child.id());
        if let Some(whereabouts) = found.filter(|found| healthy(found.address).is_some()) {
            return StartWait::Ready(whereabouts);
        }
        // If its state cannot be read it counts as alive; the time limit still holds.
        if let Ok(Some(_)) = child.try_wait() {
            return StartWait::Ended;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    StartWait::TooLong
}

/// Asks `/healthz`.
fn healthy(address: SocketAddr) -> Option<()> {
    let mut stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(HEALTH_TIMEOUT)).ok()?;
    write!(stream, "GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    (&answer == b"HTTP/1.1 200").then_some(())
}

/// The error of a daemon that ended during its start: its last line of output.
fn startup_error(path: &PathBuf, output: &Output) -> CliError {
    let mut text = Vec::new();
    // If the output cannot be read, it is still known that the daemon ended.
    let _ = File::open(path).and_then(|file| file.take(MAX_OUTPUT_READ).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let Some((last, before)) = lines.split_last() else {
        return CliError::NotStarted(format!(
            "the daemon ended at once without a message: see {}",
            path.display()
        ));
    };
    for line in &before[before.len().saturating_sub(LAST_LINES)..] {
        output.notice(&crate::output::clean(line));
    }
    CliError::NotStarted(last.strip_prefix("error: ").unwrap_or(last).to_owned())
}
