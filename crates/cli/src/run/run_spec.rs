//! The request for a run, and the daemon's answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{RunArgs, WorkspaceMode};
use crate::error::CliError;

/// The request, checked as far as this process can.
pub(super) struct RunSpec {
    pub(super) command: Vec<String>,
    pub(super) folder: PathBuf,
    /// The working folder, relative to the project.
    pub(super) within: PathBuf,
    pub(super) read: Vec<PathBuf>,
    pub(super) mode: WorkspaceMode,
    pub(super) env: BTreeMap<String, String>,
    name: Option<String>,
    net: Vec<String>,
}

impl RunSpec {
    pub(super) fn from_args(args: &RunArgs) -> Result<Self, CliError> {
        let here = std::env::current_dir().map_err(CliError::System)?;
        let folder = canonical_path(args.rw.as_deref().unwrap_or(&here))?;
        let within = canonical_path(&here)?.strip_prefix(&folder).map(Path::to_owned).unwrap_or_default();
        let read = args.ro.iter().map(|path| canonical_path(path)).collect::<Result<_, _>>()?;
        for net in &args.net {
            tribune_config::net_arg::parse_net(net).map_err(|error| CliError::Input(error.to_string()))?;
        }
        let mut env = BTreeMap::new();
        for variable in &args.env {
            let (name, value) = match variable.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let nothing = || {
                        CliError::Input(format!(
                            "the environment has no variable `{variable}`: give it a value"
                        ))
                    };
                    (variable.as_str(), std::env::var(variable).map_err(|_| nothing())?)
                }
            };
            env.insert(name.to_owned(), value);
        }
        let (command, name, net) = (args.command.clone(), args.name.clone(), args.net.clone());
        Ok(Self { command, folder, within, read, mode: args.workspace, env, name, net })
    }

    pub(super) fn params(&self) -> Value {
        json!({
            "name": self.name, "command": self.command, "folder": self.folder, "workspace": self.mode.as_str(),
            "read": self.read, "net": self.net,
        })
    }
}

/// The canonical path of an existing file or folder.
pub(super) fn canonical_path(path: &Path) -> Result<PathBuf, CliError> {
    let found = std::fs::canonicalize(path).map_err(|error| {
        CliError::Input(format!("`{}` cannot be used ({error}): name an existing folder", path.display()))
    })?;
    match found.to_str() {
        Some(_) => Ok(found),
        None => Err(CliError::Input(format!("the path `{}` is not UTF-8: rename it", path.display()))),
    }
}

/// The daemon's answer: what the run may use.
#[derive(Debug, Deserialize)]
pub(super) struct OpenedRun {
    pub(super) id: String,
    pub(super) session_key: String,
    pub(super) folder: PathBuf,
    pub(super) layers: Option<PathBuf>,
    lock: Option<PathBuf>,
    pub(super) egress: PathBuf,
    pub(super) egress_port: u16,
    pub(super) model: Option<PathBuf>,
    pub(super) model_port: u16,
    pub(super) user: Option<u32>,
    pub(super) max_bytes: u64,
    pub(super) hide: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

impl OpenedRun {
    pub(super) fn read(answer: Value) -> Result<Self, CliError> {
        serde_json::from_value(answer).map_err(|_| {
            CliError::Input("the daemon has another version: run `tribune down`, then try again".to_owned())
        })
    }

    /// Takes the lock that keeps the overlay from being landed or discarded.
    pub(super) fn take_lock(&self) -> Result<Option<File>, CliError> {
        let lock = |path: &PathBuf| tribune_tools::workspaces::lock(path).map_err(CliError::file(path));
        self.lock.as_ref().map(lock).transpose()
    }
}
