//! `tribune up` as a process: helpers to start it, talk to it and stop it.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tribune_client::RpcClient;

use crate::fixture::Place;

/// Longer than any step takes on a busy machine. A test that waits this long has failed.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// A daemon in the foreground. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct ForegroundDaemon {
    pub(crate) child: Child,
    pub(crate) err: Receiver<String>,
    /// What it printed when it was ready.
    pub(crate) greeting: String,
}

impl ForegroundDaemon {
    /// Starts a daemon on a free port and waits for its startup summary.
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_with(place.command(&["up", "--port", "0"]), "stop with Ctrl-C")
    }

    /// Starts a daemon whose startup summary ends with the line that begins with `last`.
    pub(crate) fn start_with(mut command: Command, last: &str) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = lines(child.stdout.take().unwrap());
        let err = lines(child.stderr.take().unwrap());
        let mut greeting = String::new();
        loop {
            let Ok(line) = out.recv_timeout(BOUND) else {
                let said: Vec<String> = err.try_iter().collect();
                panic!("no greeting: {greeting} {said:?} {:?}", child.wait());
            };
            greeting.push_str(&line);
            greeting.push('\n');
            if line.starts_with(last) {
                return Self { child, err, greeting };
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a line of standard error with this prefix.
    pub(crate) fn hears(&self, begin: &str) -> String {
        loop {
            let line = self.err.recv_timeout(BOUND).unwrap_or_else(|_| panic!("`{begin}` was not said"));
            if line.starts_with(begin) {
                return line;
            }
        }
    }

    /// Waits for its end. Returns the exit code and the remaining standard error.
    pub(crate) fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let began = Instant::now();
        while began.elapsed() < BOUND {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), self.err.iter().collect());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the daemon did not end");
    }

    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        assert_eq!(self.ended().0, Some(0));
    }
}

impl Drop for ForegroundDaemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// A daemon in the background. Dropping it stops the daemon.
#[derive(Debug)]
pub(crate) struct Detached<'a>(pub(crate) &'a Place);

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        let _ = self.0.command(&["down", "--now"]).output();
    }
}

/// Connects to the daemon of this home as operator.
pub(crate) async fn operator(place: &Place) -> RpcClient {
    let file = |name: &str| std::fs::read_to_string(place.home().join("run").join(name)).unwrap();
    let whereabouts: serde_json::Value = serde_json::from_str(&file("daemon.json")).unwrap();
    RpcClient::connect(whereabouts["address"].as_str().unwrap(), Some(file("token").trim())).await.unwrap()
}
