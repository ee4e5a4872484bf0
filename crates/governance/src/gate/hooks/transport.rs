//! Calls a hook: a program that reads the event from its standard input, or a URL on this machine.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, Url, redirect};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tribune_config::hook_spec::HookTransport;
use tribune_records::exec::PATH;
use tribune_sandbox::unsandboxed;

use super::sandboxed::HookSandbox;

/// Largest answer in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The answer to `body`, or why there is none.
pub(super) async fn call(
    reach: &HookTransport,
    sandbox: &HookSandbox,
    body: &[u8],
    limit: Duration,
) -> Result<Vec<u8>, String> {
    let answer = async {
        match reach {
            HookTransport::Command(command, bounds) => {
                match sandbox.run(command, bounds, body, limit).await {
                    Some(answer) => answer,
                    None => run(command, body).await,
                }
            }
            HookTransport::Url(url) => post(url, body).await,
        }
    };
    let late = || Err(format!("it did not answer within {} ms", limit.as_millis()));
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| late())
}

async fn run(command: &[String], body: &[u8]) -> Result<Vec<u8>, String> {
    let Some((program, arguments)) = command.split_first() else {
        return Err("it names no program".to_owned());
    };
    let mut child = Command::from(unsandboxed::in_own_group(program))
        .kill_on_drop(true)
        .args(arguments)
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("it could not be started ({})", error.kind()))?;
    // INVARIANT: dropped before `child`. The child's id stays the id of the group until the child is reaped.
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let answer = talk(child.stdin.take(), child.stdout.take(), body).await?;
    let status = child.wait().await.map_err(|error| format!("it was lost ({})", error.kind()))?;
    group.0 = None;
    if !status.success() {
        return Err(format!("it failed ({status})"));
    }
    Ok(answer)
}

/// The process group of a hook; dropping this kills it.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = rustix::process::kill_process_group(leader, Signal::KILL);
        }
    }
}

async fn post(url: &Url, body: &[u8]) -> Result<Vec<u8>, String> {
    let sent = begin(url, body).map_err(|_| "it could not be asked".to_owned())?;
    let mut response = sent.await.map_err(|_| "it could not be reached".to_owned())?;
    if !response.status().is_success() {
        return Err(format!("it answers {}", response.status()));
    }
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "it broke off its answer".to_owned())? {
        answer.extend_from_slice(&chunk);
        if answer.len() > MAX_ANSWER_BYTES {
            break;
        }
    }
    bounded(answer)
}

/// Returns a `BoxFuture`: the types of the HTTP library are nested too deep for the compiler where a turn is spawned.
fn begin(url: &Url, body: &[u8]) -> reqwest::Result<BoxFuture<'static, reqwest::Result<Response>>> {
    let client = Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .pool_max_idle_per_host(0)
        // Plain HTTP to a loopback address needs no certificates.
        .tls_certs_only([])
        .build()?;
    let asked = client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body.to_vec());
    Ok(Box::pin(asked.send()))
}

/// Writes the event to a program and reads its answer concurrently. An answer that is too long is an error.
pub(super) async fn talk(
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    body: &[u8],
) -> Result<Vec<u8>, String> {
    let tell = async {
        if let Some(mut stdin) = stdin {
            // A program need not read all of its input.
            let _ = stdin.write_all(body).await;
        }
    };
    let hear = async {
        let mut answer = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(MAX_ANSWER_BYTES as u64 + 1).read_to_end(&mut answer).await;
        }
        answer
    };
    let ((), answer) = tokio::join!(tell, hear);
    bounded(answer)
}

fn bounded(answer: Vec<u8>) -> Result<Vec<u8>, String> {
    if answer.len() > MAX_ANSWER_BYTES {
        return Err(format!("its answer has more than {MAX_ANSWER_BYTES} bytes"));
    }
    Ok(answer)
}
