//! `tribune up --detach`: the same daemon in a process of its own, watched until it is ready.

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
use tribune_daemon::daemon::Whereabouts;
use tribune_storage::home::Home;

use crate::error::{CliError, Outcome};
use crate::output::Output;
use crate::up::{Started, Up, next_command, recovered_of};
use crate::{daemon, init};

/// How long a start may take. A large log is opened in a fraction of this.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks.
const GLANCE: Duration = Duration::from_millis(20);

/// How long one answer to a health check may take.
const ANSWER: Duration = Duration::from_secs(2);

/// Bytes that are read of what a daemon said before it ended.
const MAX_LAST_WORDS: u64 = 64 << 10;

/// Lines of it that are shown.
const LAST_LINES: usize = 10;

pub(crate) fn run(up: &Up, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let whereabouts = start(up.port, home, output)?;
    let status = daemon::ask(home, "daemon.status", &json!({}))?;
    let started = Started {
        home: home.clone(),
        whereabouts,
        token: home.root().join("run").join("token"),
        recovered: recovered_of(&status),
        survey: daemon::ask(home, "provider.list", &json!({}))?,
        stop: format!("`{}`", next_command(home, "down")),
    };
    started.tell(output)?;
    Ok(Outcome::Done)
}

/// Starts the daemon of a home in a process of its own, and waits until it is ready.
pub(crate) fn start(port: Option<u16>, home: &Home, output: &Output) -> Result<Whereabouts, CliError> {
    let home = &Home::at(init::absolute(home)?);
    let path = home.root().join("logs").join("gateway").join("daemon.out");
    let file = open(&path).map_err(CliError::file(&path))?;
    let mut child = spawn(port, home, file).map_err(CliError::file("tribune"))?;
    match wait(&mut child, home) {
        Waited::Ready(whereabouts) => Ok(whereabouts),
        Waited::Ended => Err(last_words(&path, output)),
        Waited::TooLong => Err(CliError::NotStarted(format!(
            "the daemon (pid {}) is not ready after {} s: it may still be starting; look with `{}`, and at {}",
            child.id(),
            PATIENCE.as_secs(),
            next_command(home, "status"),
            path.display()
        ))),
    }
}

/// Starts the daemon of a home through a process that ends when it is ready. Whoever ends this process with everything that came
/// from it, as editors do with their agents, does not find the daemon.
#[expect(clippy::disallowed_methods, reason = "the daemon itself is in no sandbox")]
pub(crate) fn start_apart(home: &Home) -> Result<(), CliError> {
    let home = &Home::at(init::absolute(home)?);
    let mut command = Command::new(std::env::current_exe().map_err(CliError::file("tribune"))?);
    command.arg("--home").arg(home.root()).args(["up", "--detach"]);
    if let Some(port) = other_port(home)? {
        command.arg("--port").arg(port.to_string());
    }
    let ended = command.stdin(Stdio::null()).output().map_err(CliError::file("tribune"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or("the daemon could not be started");
    Err(CliError::NotStarted(last.strip_prefix("error: ").unwrap_or(last).to_owned()))
}

/// Any port that is free, if the daemon's own is taken: nobody who just needs a daemon has a word in that.
pub(crate) fn other_port(home: &Home) -> Result<Option<u16>, CliError> {
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

#[expect(clippy::disallowed_methods, reason = "the daemon itself is in no sandbox")]
fn spawn(port: Option<u16>, home: &Home, out: File) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--home").arg(home.root()).args(["up", "--detached"]);
    if let Some(port) = port {
        command.arg("--port").arg(port.to_string());
    }
    // The folder this was called in may be unmounted one day.
    command.current_dir("/").stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn()
}

enum Waited {
    Ready(Whereabouts),
    Ended,
    TooLong,
}

fn wait(child: &mut Child, home: &Home) -> Waited {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let said = Whereabouts::read(home).filter(|said| said.pid == child.id());
        if let Some(whereabouts) = said.filter(|said| healthy(said.address).is_some()) {
            return Waited::Ready(whereabouts);
        }
        // One that cannot be asked is taken for alive; the bound holds.
        if let Ok(Some(_)) = child.try_wait() {
            return Waited::Ended;
        }
        std::thread::sleep(GLANCE);
    }
    Waited::TooLong
}

/// Asks `/healthz`.
fn healthy(address: SocketAddr) -> Option<()> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    write!(stream, "GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    (&answer == b"HTTP/1.1 200").then_some(())
}

/// What the daemon said before it ended; its last line is the error.
fn last_words(path: &PathBuf, output: &Output) -> CliError {
    let mut text = Vec::new();
    // Without its words it is still known that it ended.
    let _ = File::open(path).and_then(|file| file.take(MAX_LAST_WORDS).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let Some((last, before)) = lines.split_last() else {
        return CliError::NotStarted(format!(
            "the daemon ended at once and said nothing: see {}",
            path.display()
        ));
    };
    for line in &before[before.len().saturating_sub(LAST_LINES)..] {
        output.aside(&crate::output::clean(line));
    }
    CliError::NotStarted(last.strip_prefix("error: ").unwrap_or(last).to_owned())
}
