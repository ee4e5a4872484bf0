//! A real daemon in this process, and `tribune` called with its home.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tokio::runtime::Runtime;
use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_storage::clock::SystemClock;
use tribune_testkit::{TempHome, TestDaemon, config};

use crate::fixture::{CliOutput, binary, cli_output};

/// How long a wait may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The session that `tribune chat` opens here.
pub(crate) const KEY: &str = "agent:main:cli:local:dm:ada";

pub(crate) struct InProcessDaemon {
    runtime: Runtime,
    daemon: TestDaemon,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

impl InProcessDaemon {
    pub(crate) fn new() -> Self {
        Self::with(TempHome::new(), &config())
    }

    pub(crate) fn with(home: TempHome, config: &Config) -> Self {
        let runtime = runtime();
        let daemon = runtime.block_on(TestDaemon::start_at(home, config));
        Self { runtime, daemon }
    }

    /// With overrides that only a caller in this process can set.
    pub(crate) fn with_extras(home: TempHome, config: &Config, extras: DaemonOverrides) -> Self {
        let runtime = runtime();
        let started = Daemon::start_with(&home.home, config, Arc::new(SystemClock), extras);
        let daemon = TestDaemon { daemon: runtime.block_on(started).unwrap(), home };
        Self { runtime, daemon }
    }

    pub(crate) const fn home(&self) -> &TempHome {
        &self.daemon.home
    }

    pub(crate) fn address(&self) -> String {
        self.daemon.address()
    }

    /// Ends the daemon without a shutdown; only its files are left.
    pub(crate) fn crash(self) -> TempHome {
        let Self { runtime, daemon: TestDaemon { daemon, home } } = self;
        runtime.shutdown_timeout(PATIENCE);
        drop(daemon);
        home
    }

    pub(crate) fn stop(self) -> TempHome {
        self.runtime.block_on(self.daemon.stop())
    }

    /// Sends a request to the daemon.
    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        self.runtime.block_on(async {
            let mut client: RpcClient = self.daemon.operator().await;
            client.call(method, params).await.unwrap()
        })
    }

    /// Runs a closure with the daemon itself.
    pub(crate) fn with_daemon<T>(&self, act: impl AsyncFnOnce(&TestDaemon) -> T) -> T {
        self.runtime.block_on(act(&self.daemon))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        command(&self.daemon.home, args)
    }

    pub(crate) fn call(&self, args: &[&str]) -> CliOutput {
        cli_output(self.command(args).stdin(Stdio::null()).output().unwrap())
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.call(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.out
    }

    /// A call with both streams merged, as on a screen.
    pub(crate) fn screen(&self, args: &[&str]) -> (i32, String) {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (child.wait().unwrap().code().unwrap_or(-1), text)
    }

    pub(crate) fn start(&self, args: &[&str]) -> RunningCall {
        RunningCall::new(self.command(args))
    }
}

/// `tribune` with a home, as the user ada.
pub(crate) fn command(home: &TempHome, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("--home").arg(home.home.root()).args(args).env("USER", "ada");
    command.env_remove("TRIBUNE_HOME").env_remove("NO_COLOR");
    command
}

/// A running call whose output the test waits for.
pub(crate) struct RunningCall {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { return };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

impl RunningCall {
    pub(crate) fn new(mut command: Command) -> Self {
        Self::fed(command.stdin(Stdio::null()))
    }

    /// A call with a piped input.
    pub(crate) fn fed(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    /// Waits for the next line of standard output that contains `part`.
    pub(crate) fn until_out(&self, part: &str) -> String {
        until(&self.out, part)
    }

    pub(crate) fn until_err(&self, part: &str) -> String {
        until(&self.err, part)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end. Returns the rest of both streams.
    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        let id = self.child.id();
        // If it does not end, print what it is doing.
        let state = || {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("gone").to_owned();
            let waits_in = std::fs::read_to_string(format!("/proc/{id}/wchan")).unwrap_or_default();
            format!("{state} in {waits_in}")
        };
        let rest = |lines: &Receiver<String>| {
            let mut text = String::new();
            loop {
                match lines.recv_timeout(PATIENCE) {
                    Ok(line) => text.push_str(&format!("{line}\n")),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return text,
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                        panic!("it does not end ({}): {text}", state())
                    }
                }
            }
        };
        let (out, err) = (rest(&self.out), rest(&self.err));
        (self.child.wait().unwrap(), out, err)
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // It has ended, or is no longer needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(lines: &Receiver<String>, part: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(part) => return line,
            Ok(line) => seen.push(line),
            Err(error) => panic!("{error}: no line with {part:?} in {seen:#?}"),
        }
    }
}
