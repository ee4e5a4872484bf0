//! `exec`: runs a shell command in the agent's workspace.
//!
//! The tool decides what runs, with which environment and for how long; a [`Launcher`] decides how. Without a launcher
//! nothing runs, because a command can do whatever its user can.

mod bound_files;
mod command_view;
mod launch;
mod sandboxed;
mod tree_stamp;
mod unsandboxed;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use bound_files::{WithTree, bind_command};
pub(crate) use command_view::CommandView;
pub use launch::watched;
pub use launch::{Captured, Ended, Exited, FileView, Folder, Launch, LaunchError, Launcher, Limits};
pub use sandboxed::SandboxedLauncher;
use serde_json::{Value, json};
use tribune_records::exec::EXEC;
use tribune_records::exec::PATH;
use tribune_records::exec::WORKSPACE;
use tribune_runtime::terminal::{EndRequest, ExitStatus, Terminal};
use tribune_runtime::{SessionKey, ToolSpec};
pub use unsandboxed::UnsandboxedLauncher;

use tribune_egress::SessionSocketService;

use tribune_records::outcome::{AccessLog, Resource, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_records::workspace_roots::WorkspaceRoots;

use super::input::Input;
use super::workspace_dir::{Opened, Workspace};

/// Maximum bytes of a command: a longer script belongs in a file.
const MAX_COMMAND_BYTES: usize = 32 * 1024;

/// Time limit in seconds if the call sets none.
const DEFAULT_SECONDS: u64 = 60;

/// Maximum time limit in seconds: enough for a build, not for a service. It is also the default of a command with a
/// terminal, since its client can kill it.
const MAX_SECONDS: u64 = 600;

/// The number of SIGKILL, which a killed command reports.
const KILL: i32 = 9;

/// Maximum bytes of each of the two outputs: both fit in an answer.
const OUTPUT_BYTES: usize = 96 * 1024;

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Exec {
    command: String,
    cwd: String,
    /// The time limit, if the call sets one.
    wall: Option<Duration>,
}

/// The environment variables of a command. It has no others.
pub(super) const ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TERM"];

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: EXEC.to_owned(),
        description: "Run a shell command in your workspace and see its exit code and output. It has no terminal \
                      and no input. It reaches the network through the proxy that HTTP_PROXY and HTTPS_PROXY name, where the \
                      law lets it; without these variables it has none. Everything it started is ended when it exits or its time is over; nothing \
                      runs on in the background. A long output is cut in the middle."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The command, as `/bin/sh -c` takes it."
                },
                "cwd": {
                    "type": "string",
                    "description": "Folder to run it in, relative to the workspace, or as `pwd` shows it. The workspace if left out."
                },
                "timeoutSeconds": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_SECONDS,
                    "description": format!("How long it may run. {DEFAULT_SECONDS} if left out.")
                }
            },
            "required": ["command"],
            "additionalProperties": false
        }),
    }
}

impl Exec {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(EXEC, input, &["command", "cwd", "timeoutSeconds"])?;
        let command = input.bounded_text("command", MAX_COMMAND_BYTES)?;
        if command.trim().is_empty() {
            return Err("`command` is empty: say what to run".to_owned());
        }
        if command.contains('\0') {
            return Err("`command` holds a NUL character, which no command has: leave it out".to_owned());
        }
        let cwd = match input.optional_text("cwd")? {
            Some("") => {
                return Err("`cwd` is empty: name a folder of the workspace, or leave it out".to_owned());
            }
            cwd => folder(cwd).to_owned(),
        };
        let seconds = input.optional_number("timeoutSeconds")?;
        if let Some(seconds) = seconds.filter(|seconds| !(1..=MAX_SECONDS).contains(seconds)) {
            return Err(format!("`timeoutSeconds` is a whole number from 1 to {MAX_SECONDS}, not {seconds}"));
        }
        Ok(Self { command: command.to_owned(), cwd, wall: seconds.map(Duration::from_secs) })
    }

    /// Opens the working folder. Blocks on the disk.
    pub(super) fn folder(&self, home: &Path, ground: &WorkspaceRoots) -> Result<OwnedFd, ToolError> {
        match Workspace::open_at(home, &ground.locate(&self.cwd))?.path(&self.cwd)? {
            Opened::Folder(folder) => Ok(folder),
            Opened::File { .. } => {
                let sentence = format!("`{}` is a file: `cwd` names a folder", shown(&self.cwd));
                Err(ToolError::new(ToolErrorCode::InvalidInput, sentence))
            }
        }
    }

    /// Prepares the launch. Opens every folder that the command will have, which proves that none is behind a symbolic
    /// link. Blocks on the disk.
    pub(super) fn launch(
        &self,
        home: &Path,
        ground: &WorkspaceRoots,
        terminal: Option<Arc<Terminal>>,
    ) -> Result<Launch, ToolError> {
        let folder = self.folder(home, ground)?;
        ground.each().try_for_each(|ground| Workspace::open(home, &ground).map(drop))?;
        let workspace = ground.path(home);
        let values = [
            PATH.to_owned(),
            workspace.to_string_lossy().into_owned(),
            "C.UTF-8".to_owned(),
            "dumb".to_owned(),
        ];
        let env = ENV.into_iter().zip(values);
        let default = if terminal.is_some() { MAX_SECONDS } else { DEFAULT_SECONDS };
        let wall = self.wall.unwrap_or(Duration::from_secs(default));
        Ok(Launch {
            command: self.command.clone(),
            cwd: Folder {
                workspace,
                additional_directories: ground.additional_directories().to_vec(),
                folder,
            },
            env: env.map(|(name, value)| (name.to_owned(), value)).collect(),
            limits: Limits { wall, output_bytes: OUTPUT_BYTES },
            egress: None,
            terminal,
        })
    }
}

/// Maps the `cwd` of a call, which may be a path inside the sandbox, to a path relative to the workspace.
pub(super) fn folder(cwd: Option<&str>) -> &str {
    let cwd = cwd.unwrap_or(".");
    match cwd.strip_prefix(WORKSPACE) {
        Some("" | "/") => ".",
        Some(inner) if inner.starts_with('/') => inner.trim_start_matches('/'),
        Some(_) | None => cwd,
    }
}

/// Runs a prepared command. Dropping the future kills it.
pub(super) async fn run(
    launcher: Option<&dyn Launcher>,
    launch: Launch,
    socket_service: Option<SessionSocketService>,
    session: &SessionKey,
    trail: &AccessLog,
) -> ToolAnswer {
    let launcher = launcher.ok_or(LaunchError::NotProvided).map_err(refused)?;
    let egress = match socket_service {
        Some(sockets) => sockets.open_for_command(session).await.map_err(|error| {
            let sentence =
                format!("the command's network access cannot be set up ({error}): tell the operator");
            ToolError::new(ToolErrorCode::Failed, sentence)
        })?,
        None => None,
    };
    let launch = Launch { egress, ..launch };
    let terminal = launch.terminal.clone();
    if let Some(why) = terminal.as_ref().and_then(|terminal| terminal.end_request()) {
        let (code, because) = unwanted(why);
        return Err(ToolError::new(code, format!("the command was not started, because {because}")));
    }
    let folders = launch.cwd.additional_directories.iter();
    let folders = folders.map(|folder| Resource::Folder(folder.as_str().into()));
    for reached in std::iter::once(Resource::Workspace).chain(folders) {
        trail.read(reached.clone())?;
        trail.write(reached)?;
    }
    let wall = launch.limits.wall;
    let exited = launcher.launch(launch).await.map_err(refused)?;
    trail.ran_in(exited.sandbox);
    if let Some(terminal) = &terminal {
        terminal.set_exit(exit(&exited.ended));
    }
    let mut output = format!("{}{}", output("stdout", &exited.stdout), output("stderr", &exited.stderr));
    output.push_str(&protected(&exited.read_only, &exited.emptied));
    for sentence in &exited.quarantined {
        output.push_str(&format!("[{sentence}]\n"));
    }
    let ended = |code: ToolErrorCode, how: String| {
        Err(ToolError::new(code, format!("the command and everything it started were ended{how}\n{output}")))
    };
    match exited.ended {
        Ended::Code(code) => Ok(format!("exit code {code}\n{output}")),
        Ended::Signal(signal) => Ok(format!("ended by signal {signal}\n{output}")),
        Ended::OutOfTime => {
            let how = format!(" after {} s: do less, or raise `timeoutSeconds`", wall.as_secs());
            ended(ToolErrorCode::TimedOut, how)
        }
        Ended::OverQuota(why) => Err(ToolError::new(ToolErrorCode::Killed, format!("{why}\n{output}"))),
        Ended::Unwanted => {
            let why = terminal
                .as_ref()
                .and_then(|terminal| terminal.end_request())
                .unwrap_or(EndRequest::TurnEnded);
            let (code, because) = unwanted(why);
            ended(code, format!(", because {because}"))
        }
        Ended::FromOutside => {
            ended(ToolErrorCode::Killed, " by another process: ask the operator why".to_owned())
        }
    }
}

/// The error code and reason of a command that was ended on request.
const fn unwanted(why: EndRequest) -> (ToolErrorCode, &'static str) {
    match why {
        EndRequest::Killed => (ToolErrorCode::Killed, "its agent requested it"),
        EndRequest::TurnEnded => (ToolErrorCode::Cancelled, "its turn was over"),
    }
}

/// The exit status that the terminal shows.
const fn exit(ended: &Ended) -> ExitStatus {
    match ended {
        Ended::Code(code) => ExitStatus::Code(*code),
        Ended::Signal(signal) => ExitStatus::Signal(*signal),
        Ended::OutOfTime | Ended::OverQuota(_) | Ended::Unwanted | Ended::FromOutside => {
            ExitStatus::Signal(KILL)
        }
    }
}

/// Tells the operator what a sandbox made in a folder of the host.
pub(crate) fn warn(sentence: &str) {
    tracing::warn!("{sentence}");
}

/// Says which folders were read-only or empty as a whole.
fn protected(read_only: &[String], emptied: &[String]) -> String {
    let mut said = String::new();
    if !read_only.is_empty() {
        said.push_str(&format!(
            "[read-only: `{}`, because it contains too many autorun files; ask the operator to remove some]\n",
            read_only.join("`, `")
        ));
    }
    if !emptied.is_empty() {
        said.push_str(&format!(
            "[hidden: `{}` as a whole, because too many names in it are hidden; ask the operator to remove some]\n",
            emptied.join("`, `")
        ));
    }
    said
}

fn output(name: &str, captured: &Captured) -> String {
    match captured.text() {
        text if text.is_empty() => String::new(),
        text if text.ends_with('\n') => format!("[{name}]\n{text}"),
        text => format!("[{name}]\n{text}\n"),
    }
}

fn refused(error: LaunchError) -> ToolError {
    let code = match error {
        LaunchError::NotProvided | LaunchError::Sandbox(_) => ToolErrorCode::Unavailable,
        LaunchError::Failed(_) => ToolErrorCode::Failed,
    };
    ToolError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::protected;

    #[test]
    fn folders_masked_as_a_whole_are_named() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(protected(&[], &[]), "");
        let said = protected(&names(&["a", "b"]), &names(&["keys"]));
        assert!(
            said.contains("[read-only: `a`, `b`, because") && said.contains("[hidden: `keys` as a whole"),
            "{said}"
        );
    }
}
