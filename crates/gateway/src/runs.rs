//! Sandboxed runs of the operator (`run.open`, `run.started`, `run.ended`). A run belongs to the connection that opened it
//! and is released when the connection ends.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_governance::models::agent_model::model_of;
use tribune_records::agents::RUN_AGENT;
use tribune_records::ledger_payloads::{RunOutcome, RunRecord};
use tribune_sessions::run::{Mode, RunLease, RunRequest, RunSummary};

use crate::api::Api;
use crate::error::{ApiError, shortened};
use crate::principal::Principal;
use crate::rpc;
use crate::rpc::Request;

/// Open runs of one connection. A client that needs more opens another connection.
const MAX_LEASES: usize = 16;

/// Network destinations that one run can list.
const MAX_NETS: usize = 256;

/// Additional folders that one run can read.
const MAX_FOLDERS: usize = 64;

/// Bytes of a command line.
const MAX_COMMAND: usize = 1 << 20;

/// `run.open`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunOpen {
    /// Its name; generated if it is absent.
    name: Option<String>,
    /// The program and its arguments.
    command: Vec<String>,
    /// The folder it works in.
    folder: String,
    /// `overlay` (the default), `direct` or `read-only`.
    workspace: Option<String>,
    /// Other folders that it can read.
    #[serde(default)]
    read: Vec<String>,
    /// Network destinations that it may connect to.
    #[serde(default)]
    net: Vec<String>,
}

/// What the client needs to start the program.
#[derive(Debug, Serialize)]
struct RunOpened {
    id: String,
    session_key: String,
    /// The canonical path of the folder.
    folder: String,
    /// The overlay directory for its changes, unless they go to the folder itself.
    layers: Option<String>,
    /// The file that the client locks while the program runs.
    lock: Option<String>,
    /// The sockets for egress and for the model, and the loopback ports inside the sandbox that are connected to them.
    egress: String,
    egress_port: u16,
    model: Option<String>,
    model_port: u16,
    /// The user id to run as.
    user: Option<u32>,
    /// Bytes that its changes may use on disk.
    max_bytes: u64,
    /// Patterns of files that are hidden from it.
    hide: Vec<String>,
    /// Environment variables that point programs to those ports.
    env: BTreeMap<String, String>,
}

/// `run.started`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunStarted {
    id: String,
    limited_by: String,
    landlock_abi: u32,
}

/// `run.ended`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunEnded {
    id: String,
    outcome: RunOutcome,
    code: Option<i32>,
    signal: Option<i32>,
}

/// The answer to `run.ended`: the changes that the run made.
#[derive(Debug, Serialize)]
struct RunChanges {
    changes: u64,
    bytes: u64,
    traps: u64,
    /// Why the changes cannot be listed, if they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

/// The runs of one connection.
#[derive(Debug, Default)]
pub(super) struct Leases(HashMap<String, RunLease>);

impl Leases {
    /// Answers `run.open`, `run.started` or `run.ended`.
    pub(super) async fn answer(
        &mut self,
        api: &Api,
        who: &Principal,
        request: &Request<'_>,
    ) -> Result<Value, ApiError> {
        who.operator()?;
        match request.method.as_str() {
            "run.open" => self.open(api, request.params()?).await,
            "run.started" => {
                let RunStarted { id, limited_by, landlock_abi } = request.params()?;
                let limited_by = shortened(&limited_by);
                self.lease(&id)?.started(limited_by, landlock_abi).await?;
                rpc::value(rpc::DONE)
            }
            _ => {
                let RunEnded { id, outcome, code, signal } = request.params()?;
                self.lease(&id)?;
                let lease = self.0.remove(&id).ok_or_else(unknown)?;
                let left = lease.ended(RunRecord::RunEnded { outcome, code, signal }).await?;
                let RunSummary { changes, bytes, traps, fault } = left;
                rpc::value(RunChanges { changes, bytes, traps, fault })
            }
        }
    }

    fn lease(&self, id: &str) -> Result<&RunLease, ApiError> {
        self.0.get(id).ok_or_else(unknown)
    }

    async fn open(&mut self, api: &Api, asked: RunOpen) -> Result<Value, ApiError> {
        api.takes_work()?;
        if self.0.len() >= MAX_LEASES {
            let what = format!("a connection has at most {MAX_LEASES} runs at once: open another");
            return Err(ApiError::new("too_many_requests", what));
        }
        let bytes: usize = asked.command.iter().map(String::len).sum();
        if asked.net.len() > MAX_NETS || asked.read.len() > MAX_FOLDERS || bytes > MAX_COMMAND {
            let what = format!(
                "a run has at most {MAX_NETS} network destinations, {MAX_FOLDERS} folders and {MAX_COMMAND} bytes of command line"
            );
            return Err(ApiError::params(what));
        }
        let word = asked.workspace.as_deref().unwrap_or("overlay");
        let mode = Mode::parse(word)
            .ok_or_else(|| ApiError::params("workspace must be overlay, direct or read-only"))?;
        let mut places = Vec::new();
        for net in &asked.net {
            places.extend(
                tribune_config::net_arg::parse_net(net)
                    .map_err(|error| ApiError::params(error.to_string()))?,
            );
        }
        let env = tribune_egress::proxy_env::proxy_variables(&places);
        let wanted = RunRequest {
            name: asked.name,
            command: asked.command,
            folder: PathBuf::from(asked.folder),
            others: asked.read.into_iter().map(PathBuf::from).collect(),
            mode,
            places,
        };
        let (lease, folder) = api.runs.open(wanted).await?;
        let opened = opened(api, &lease, folder, env)?;
        self.0.insert(lease.id.clone(), lease);
        rpc::value(opened)
    }
}

fn opened(
    api: &Api,
    lease: &RunLease,
    folder: PathBuf,
    mut env: Vec<(String, String)>,
) -> Result<RunOpened, ApiError> {
    let agent = RUN_AGENT.parse().map_err(|error| ApiError::params(format!("{error}")))?;
    let model = model_of(&api.agents, &api.providers, &agent);
    let dialect = |provider: &str| api.providers.get(provider).map(|provider| provider.config.dialect);
    if let Some((model, dialect)) = model.as_ref().and_then(|model| Some((model, dialect(model.provider())?)))
    {
        env.extend(tribune_egress::proxy_env::model_variables(model, dialect));
    }
    let text = |path: PathBuf| path.display().to_string();
    Ok(RunOpened {
        id: lease.id.clone(),
        session_key: lease.key.to_string(),
        folder: text(folder),
        layers: lease.workspace.as_ref().map(|workspace| text(workspace.layers().folder().to_owned())),
        lock: lease.workspace.as_ref().map(|workspace| text(workspace.lock_path())),
        egress: text(lease.sockets.egress()),
        egress_port: tribune_egress::proxy_env::EGRESS_PORT,
        model: model.map(|_| text(lease.sockets.model())),
        model_port: tribune_egress::proxy_env::MODEL_PORT,
        user: lease.user,
        max_bytes: api.runs.max_bytes,
        hide: api.runs.hide.clone(),
        env: env.into_iter().collect(),
    })
}

fn unknown() -> ApiError {
    ApiError::new("not_found", "there is no such run on this connection: open one with run.open")
}
