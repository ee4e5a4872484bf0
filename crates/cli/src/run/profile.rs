//! Builds the sandbox profile of a run.

use std::path::{Path, PathBuf};

use tribune_contract::{
    AUTORUN_PATHS, LaunchProfile, Mount, PortRelay, RunsAs, SandboxName, WorkspaceMount, WorkspaceSource,
};

use super::WorkspaceMode;
use super::run_spec::{OpenedRun, RunSpec};
use crate::error::CliError;

/// The path of the project in the sandbox.
const WORKSPACE: &str = "/workspace";

/// Environment variables that are forwarded: the terminal type and the language.
const FORWARDED_VARIABLES: [&str; 8] =
    ["TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "NO_COLOR", "COLUMNS"];

/// System folders that the sandbox shows at the same path.
const SYSTEM: [&str; 3] = ["/usr", "/bin", "/sbin"];

pub(super) fn of(spec: &RunSpec, opened: &OpenedRun) -> Result<LaunchProfile, CliError> {
    let wrong = |error: tribune_contract::ProfileError| CliError::Input(error.to_string());
    let session = SandboxName::new(opened.id.clone()).map_err(wrong)?;
    // The shell finds the command in the sandbox, and reports one that is missing.
    let mut profile = LaunchProfile::new(session, "/bin/sh");
    let words = ["-c", "exec \"$@\"", "tribune"].map(str::to_owned);
    profile.args = words.into_iter().chain(spec.command.iter().cloned()).collect();
    let here =
        FORWARDED_VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    profile.env.extend(here);
    if let Some(path) = path(&spec.read) {
        profile.env.insert("PATH".to_owned(), path);
    }
    profile.env.extend(opened.env.clone());
    profile.env.extend(spec.env.clone());
    profile.cwd = Path::new(WORKSPACE).join(&spec.within);
    profile.workspace = Some(workspace(spec, opened)?);
    profile.mounts = spec.read.iter().map(|folder| read_only_mount(folder, &opened.hide)).collect();
    profile.relays = vec![relay("egress", opened.egress_port, &opened.egress)];
    profile.relays.extend(opened.model.as_ref().map(|socket| relay("model", opened.model_port, socket)));
    if let Some(user) = opened.user {
        profile.runs_as = RunsAs::User { uid: user, gid: user };
    }
    profile.limits.file_bytes = profile.limits.file_bytes.min(opened.max_bytes);
    Ok(profile)
}

fn workspace(spec: &RunSpec, opened: &OpenedRun) -> Result<WorkspaceMount, CliError> {
    let folder = opened.folder.clone();
    let (source, freeze) = match (spec.mode, &opened.layers) {
        (WorkspaceMode::Overlay, Some(layers)) => {
            (WorkspaceSource::Overlay { lower: folder, layers: layers.clone() }, Vec::new())
        }
        (WorkspaceMode::Overlay, None) => {
            return Err(CliError::Input(
                "the daemon has another version: run `tribune down`, then try again".to_owned(),
            ));
        }
        (WorkspaceMode::Direct, _) => {
            (WorkspaceSource::Direct { folder }, AUTORUN_PATHS.map(str::to_owned).into())
        }
        (WorkspaceMode::ReadOnly, _) => (WorkspaceSource::ReadOnly { folder }, Vec::new()),
    };
    Ok(WorkspaceMount { target: WORKSPACE.into(), source, hide: opened.hide.clone(), read_only: freeze })
}

fn read_only_mount(folder: &Path, hide: &[String]) -> Mount {
    Mount::ReadOnly { source: folder.to_owned(), target: folder.to_owned(), hide: hide.to_vec() }
}

fn relay(name: &str, port: u16, socket: &Path) -> PortRelay {
    PortRelay { name: name.to_owned(), port, socket: socket.to_owned() }
}

/// The operator's `PATH`, reduced to folders that the sandbox shows.
fn path(read: &[PathBuf]) -> Option<String> {
    let own = std::env::var("PATH").ok()?;
    let is_inside = |folder: &&str| {
        let folder = Path::new(folder);
        SYSTEM.iter().any(|system| folder.starts_with(system))
            || read.iter().any(|read| folder.starts_with(read))
    };
    let inside: Vec<&str> = own.split(':').filter(is_inside).collect();
    (!inside.is_empty()).then(|| inside.join(":"))
}
