//! MCP servers that an operator's client brings for a session. Each runs in its own sandbox. The session's agent is offered their
//! tools, and each call passes the gate like any other, as a call of `mcp`.
//!
//! A server has no rights beyond its session's, and ends with it. Of MCP only tools are supported: no prompts, no resources,
//! no sampling, no roots.
//!
//! CLI agents reach the servers through an [`McpEndpoint`] of their session, and their turn has each call authorized.

mod answer;
mod client;
mod http_endpoint;
mod launch_profile;
mod server;
mod server_code;
mod server_spec;
mod tools;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use tribune_constitution::{ApprovalMode, BY_OPERATOR, MCP, MCP_SERVER};
use tribune_redact::Redactor;
use tribune_runtime::{SessionKey, ToolCall, ToolSpec};
use tribune_sandbox::{InstanceId, SandboxLauncher};

pub use self::http_endpoint::McpEndpoint;
pub use self::server_spec::ServerSpec;

use tribune_config::{Config, Sandbox};
use tribune_egress::SessionSocketService;
use tribune_governance::gate::{Admission, Gate, PolicyContext};
use tribune_governance::turn::OutOfTurn;
use tribune_records::ledger_payloads::McpRecord;
use tribune_records::outcome::{ToolError, ToolErrorCode};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_storage::home::Home;
use tribune_storage::store::SessionRow;

use self::client::Fault;
use self::http_endpoint::ExposedTool;
use self::launch_profile::Site;
use self::server::{Server, ServerHost, short};
use self::server_code::{CodeFiles, KnownCode};
use self::server_spec::{MAX_SERVERS, digest};
use self::tools::{PREFIX, Tool};
use crate::workspace_of;

/// Tools that change files of a workspace.
pub const WRITE_TOOLS: [&str; 3] = ["write", "edit", "exec"];

/// Maximum number of running servers of all sessions.
const MAX_RUNNING: usize = 128;

/// How long a person may take to decide about a server whose code changed. The client waits for its session meanwhile.
const ANSWER: Duration = Duration::from_secs(120);

/// Time limit of a tool call.
const CALL: Duration = Duration::from_secs(300);

/// A tool of a session's server, as a call names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CalledTool<'a> {
    pub(crate) server: &'a str,
    pub(crate) tool: &'a str,
    /// The digest of the definition that the gate's verdict is about.
    pub(crate) definition: &'a str,
}

/// The MCP servers of all sessions.
pub struct McpServers {
    home: PathBuf,
    sandbox: Sandbox,
    hide: Vec<String>,
    max_bytes: u64,
    launcher: SandboxLauncher,
    redactor: Arc<Redactor>,
    socket_service: SessionSocketService,
    out_of_turn: Arc<OutOfTurn>,
    sessions: Mutex<HashMap<SessionKey, Arc<SessionServers>>>,
    launches: AtomicU64,
    generations: AtomicU64,
    tasks: TaskTracker,
}

/// The MCP servers of one session.
#[derive(Debug)]
struct SessionServers {
    /// Unique among all sessions. Never 0.
    generation: u64,
    specs: Vec<ServerSpec>,
    ground: WorkspaceRoots,
    servers: Vec<Server>,
}

impl SessionServers {
    /// Whether these are the requested servers for these roots, all of them running.
    fn fits(&self, specs: &[ServerSpec], ground: &WorkspaceRoots) -> bool {
        let is_whole = self.servers.len() == self.specs.len() && self.servers.iter().all(Server::is_there);
        is_whole && self.specs == specs && self.ground == *ground
    }
}

/// What happens to servers of the session that already run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfRunning {
    /// They are replaced: the client opens the session with these.
    Replace,
    /// They are kept: the client brought these before.
    Keep,
}

impl McpServers {
    pub fn new(
        home: &Home,
        config: &Config,
        redactor: Arc<Redactor>,
        socket_service: SessionSocketService,
        out_of_turn: Arc<OutOfTurn>,
    ) -> Self {
        Self {
            home: home.root().to_owned(),
            sandbox: config.sandbox,
            hide: config.workspaces.hide.clone(),
            max_bytes: config.workspaces.max_bytes,
            launcher: SandboxLauncher::this_program(InstanceId::of_state_folder(home.root())),
            redactor,
            socket_service,
            out_of_turn,
            sessions: Mutex::default(),
            launches: AtomicU64::new(0),
            generations: AtomicU64::new(0),
            tasks: TaskTracker::new(),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<SessionServers>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, session: &SessionKey) -> Option<Arc<SessionServers>> {
        self.sessions().get(session).cloned()
    }

    /// Starts the servers that an operator's client brings for an open session. Returns a sentence for each thing that is missing.
    pub async fn start_all(
        &self,
        row: &SessionRow,
        specs: &[ServerSpec],
        if_running: IfRunning,
    ) -> Vec<String> {
        let Some(standing) = PolicyContext::of(row) else { return Vec::new() };
        let (key, ground) = (Arc::clone(&standing.key), standing.ground());
        let before = self.of(&key);
        let is_kept = before.as_ref().is_some_and(|before| match if_running {
            IfRunning::Replace => before.fits(specs, &ground),
            IfRunning::Keep => before.ground == ground,
        });
        if is_kept {
            return Vec::new();
        }
        drop(before);
        self.end(&key);
        let starting = specs.iter().map(|spec| self.start(row, &key, &ground, spec.clone()));
        let mut servers: Vec<Server> = Vec::new();
        let mut sentences = Vec::new();
        for (spec, started) in specs.iter().zip(join_all(starting).await) {
            match started {
                Ok(server) => {
                    sentences.extend(unoffered(&server));
                    servers.push(server);
                }
                Err(why) => {
                    let why = why.trim_end_matches('.');
                    sentences.push(format!("The MCP server `{}` is not there: {why}.", spec.name));
                }
            }
        }
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let running = SessionServers { generation, specs: specs.to_vec(), ground, servers };
        self.sessions().insert((*key).clone(), Arc::new(running));
        sentences
    }

    async fn start(
        &self,
        row: &SessionRow,
        key: &Arc<SessionKey>,
        ground: &WorkspaceRoots,
        spec: ServerSpec,
    ) -> Result<Server, String> {
        match self.sandbox {
            Sandbox::Full => {}
            Sandbox::Landlock | Sandbox::Off => {
                let what =
                    "servers run only in the full sandbox, and `sandbox` in config.json5 is not \"full\"";
                return Err(what.to_owned());
            }
        }
        if self.tasks.len() >= MAX_RUNNING {
            return Err(format!("{MAX_RUNNING} servers are running: close sessions that have some"));
        }
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        let workspace = workspace_of(&self.home, ground).map_err(|refused| refused.sentence)?;
        let workspace = workspace.canonicalize().unwrap_or(workspace);
        let (admission, code) = self.authorize(key, number, &spec, &workspace).await?;
        let verdict = admission.entry();
        if self.socket_service.is_closing() {
            return Err("the daemon is stopping and starts nothing".to_owned());
        }
        let egress = self.socket_service.open_for_command(key).await.map_err(|error| error.to_string())?;
        // Between the decision and here an agent of another session could have changed it.
        if code_of(&spec, &workspace).await? != code {
            return Err(
                "its code in the workspace changes: open the session again when that is over".to_owned()
            );
        }
        let site = Site {
            number,
            home: self.home.clone(),
            workspace: workspace.clone(),
            may_change: may_change(&self.out_of_turn.gate, key, row),
            hide: self.hide.clone(),
            max_bytes: self.max_bytes,
        };
        let host =
            ServerHost { launcher: self.launcher.clone(), redactor: &self.redactor, tasks: &self.tasks };
        KnownCode::of_home(&self.home)
            .remember(&spec, &workspace, code)
            .map_err(|error| format!("its code cannot be remembered ({error})"))?;
        let started = Server::start(admission, spec.clone(), site, egress, host).await;
        let (server, program) = (spec.name.clone(), spec.program().to_owned());
        let definition = digest(&spec.described());
        let record = match &started {
            Ok(own) => {
                McpRecord::ServerStarted { server, program, definition, tools: own.tools.len() as u64 }
            }
            Err(_) => McpRecord::ServerNotStarted { server, program, definition },
        };
        self.out_of_turn.record_mcp_server(key, verdict, &record).await;
        started
    }

    /// Authorizes a start. A server that the operator's client brings needs no question, unless its code in the workspace
    /// is not what it was at its last start. Returns the files that the decision is about.
    async fn authorize(
        &self,
        key: &Arc<SessionKey>,
        number: u64,
        spec: &ServerSpec,
        workspace: &Path,
    ) -> Result<(Admission, CodeFiles), String> {
        let code = code_of(spec, workspace).await?;
        let changed = KnownCode::of_home(&self.home).changed(spec, workspace, &code);
        let mut input = spec.described();
        if !code.is_empty() {
            input["files"] = json!(code);
        }
        if changed.is_empty() {
            input["action"] = BY_OPERATOR.into();
        } else {
            input["changed"] = json!(changed);
        }
        let call = ToolCall { id: format!("mcp-{number:016x}"), name: MCP_SERVER.to_owned(), input };
        if changed.is_empty() {
            let authorized = self.out_of_turn.authorize_mcp_server(key, call).await;
            return authorized.map(|admission| (admission, code)).map_err(|denied| denied.message);
        }
        let authorized = self.out_of_turn.authorize_changed_mcp_server(key, call, ANSWER).await;
        authorized.map(|admission| (admission, code)).map_err(|denied| {
            let names = changed.join("`, `");
            format!("its code changed since it was last started (`{names}`): {}", denied.message)
        })
    }

    /// The tools that the session's agent is offered.
    pub(crate) fn specs(&self, session: &SessionKey) -> Vec<ToolSpec> {
        let running = self.of(session);
        let servers = running.iter().flat_map(|running| &running.servers).filter(|server| server.is_there());
        servers.flat_map(|server| server.tools.iter().map(|tool| tool.spec.clone())).collect()
    }

    /// The generation and the names of the session's servers; `None` if it has none.
    fn present(&self, session: &SessionKey) -> Option<(u64, Vec<String>)> {
        let running = self.of(session)?;
        let names: Vec<String> = running.servers.iter().map(|server| server.spec.name.clone()).collect();
        (!names.is_empty()).then_some((running.generation, names))
    }

    /// The generation of the session's servers; 0 if it has none.
    pub fn generation(&self, session: &SessionKey) -> u64 {
        self.present(session).map_or(0, |(generation, _)| generation)
    }

    /// The tools of a server, as a CLI agent sees them; `None` if there is no such server.
    fn exposed_tools(&self, session: &SessionKey, server: &str) -> Option<Vec<ExposedTool>> {
        let running = self.of(session)?;
        let found = running.servers.iter().find(|found| found.spec.name == server)?;
        let before = format!("{PREFIX}{server}__");
        let expose = |tool: &Tool| {
            let ToolSpec { name: called, description, input_schema } = tool.spec.clone();
            let name = called.strip_prefix(&before)?.to_owned();
            Some(ExposedTool { name, called, description, input_schema })
        };
        Some(found.tools.iter().filter_map(expose).collect())
    }

    /// Converts a call of a server's tool to the form that policy knows, which identifies the tool by its definition. Leaves other
    /// calls unchanged.
    pub(crate) fn to_policy_call(&self, session: &SessionKey, call: ToolCall) -> ToolCall {
        let running = call.name.starts_with(PREFIX).then(|| self.of(session)).flatten();
        let servers = running.iter().flat_map(|running| &running.servers);
        let mut tools = servers.flat_map(|server| server.tools.iter().map(move |tool| (server, tool)));
        let Some((server, tool)) = tools.find(|(_, tool)| tool.spec.name == call.name) else { return call };
        let input = json!({
            "name": server.spec.name, "action": tool.name, "arguments": call.input, "definition": tool.definition,
        });
        ToolCall { id: call.id, name: MCP.to_owned(), input }
    }

    /// Calls a tool. The gate has allowed the call.
    pub(crate) async fn call(
        &self,
        session: &SessionKey,
        CalledTool { server, tool, definition }: CalledTool<'_>,
        arguments: &Value,
    ) -> Result<String, ToolError> {
        let running = self.of(session);
        let mut servers = running.iter().flat_map(|running| &running.servers);
        let Some(found) = servers.find(|found| found.spec.name == server) else {
            return Err(ToolError::new(
                ToolErrorCode::Unavailable,
                format!(
                    "the MCP server `{}` is not there: the editor brings it when the session is opened again",
                    short(server)
                ),
            ));
        };
        let Some(known) = found.tools.iter().find(|known| known.name == tool) else {
            let what = format!("the MCP server `{server}` has no tool `{}`", short(tool));
            return Err(ToolError::new(ToolErrorCode::NotFound, what));
        };
        if known.definition != definition {
            let what =
                format!("`{tool}` of the MCP server `{server}` changed after this was requested: ask again");
            return Err(ToolError::new(ToolErrorCode::Conflict, what));
        }
        let plain = |text: &str| found.redactor.redact(text).into_owned();
        match found.client.call(tool, arguments, CALL).await {
            Ok(result) => match answer::read(&result) {
                Some((text, false)) => Ok(plain(&text)),
                Some((text, true)) => Err(ToolError::new(ToolErrorCode::Failed, plain(&text))),
                None => {
                    let what =
                        format!("the MCP server `{server}` returned an invalid result: try another way");
                    Err(ToolError::new(ToolErrorCode::Failed, what))
                }
            },
            Err(Fault::Ended(why)) => Err(ToolError::new(
                ToolErrorCode::Unavailable,
                format!(
                    "the MCP server `{server}` is gone ({}): do without it; it is started again when the session is opened again",
                    plain(&why)
                ),
            )),
            Err(Fault::TimedOut) => {
                let what = format!(
                    "the MCP server `{server}` did not answer within {} s and the call was cancelled: ask for less",
                    CALL.as_secs()
                );
                Err(ToolError::new(ToolErrorCode::TimedOut, what))
            }
            Err(Fault::Refused(why)) => {
                let what = format!("the MCP server `{server}` refused: {}", plain(&short(&why)));
                Err(ToolError::new(ToolErrorCode::Failed, what))
            }
            Err(Fault::Nonsense(why)) => Err(ToolError::new(ToolErrorCode::Failed, why)),
        }
    }

    /// Ends the servers of a session.
    pub(crate) fn end(&self, session: &SessionKey) {
        let running = self.sessions().remove(session);
        for server in running.iter().flat_map(|running| &running.servers) {
            server.end();
        }
    }

    /// Ends every server.
    pub fn stop_all(&self) {
        let all: Vec<SessionKey> = self.sessions().keys().cloned().collect();
        for session in all {
            self.end(&session);
        }
    }

    /// Ends every server and waits until they are gone.
    pub async fn close(&self) {
        self.stop_all();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("McpServers")
    }
}

/// The files of a server's code in the workspace as they are now.
async fn code_of(spec: &ServerSpec, workspace: &Path) -> Result<CodeFiles, String> {
    let (spec, workspace) = (spec.clone(), workspace.to_owned());
    let reading = tokio::task::spawn_blocking(move || server_code::files_of(&spec, &workspace));
    reading.await.map_err(|_| "the daemon is being torn down".to_owned())
}

/// Whether a session may change its workspace at all.
fn may_change(gate: &Gate, key: &SessionKey, row: &SessionRow) -> bool {
    let mode = gate.mode_of(key.agent());
    let is_kept = matches!(mode, Some(ApprovalMode::ApproveReads | ApprovalMode::DenyAll));
    !is_kept && WRITE_TOOLS.into_iter().any(|tool| gate.allows_tool(row, tool))
}

/// Says which tools of a server are missing.
fn unoffered(server: &Server) -> Option<String> {
    let name = &server.spec.name;
    match (server.tools.len(), server.left_out) {
        (0, 0) => Some(format!("The MCP server `{name}` has no tools.")),
        (_, 0) => None,
        (_, left_out) => Some(format!(
            "Of the MCP server `{name}`, {left_out} tools are left out: their names or schemas cannot be offered, or there are too many."
        )),
    }
}

/// The first servers of a list, each under a unique name, and the names of the others: their name was taken, or there are too
/// many.
pub fn named_once(servers: Vec<ServerSpec>) -> (Vec<ServerSpec>, Vec<String>) {
    let (mut once, mut others) = (Vec::<ServerSpec>::new(), Vec::<String>::new());
    for server in servers {
        let is_taken = once.iter().any(|own| own.name == server.name);
        match is_taken || once.len() >= MAX_SERVERS {
            true => others.push(server.name),
            false => once.push(server),
        }
    }
    (once, others)
}
