//! The built-in tools: the calls that the daemon itself executes for agents.
//!
//! Governance decides whether a call is allowed, so a call that arrives here has an [`Admission`]. The tool does exactly
//! what the call says: the kernel opens every path beneath the workspace ([`workspace_dir`], [`write_target`]), every
//! address is checked before the connection is made ([`web`]), and every answer and every wait has a bound. An error has
//! a code for programs and a sentence for the model, which names nothing outside the workspace. The outcome lists what
//! the call read and wrote ([`tribune_records::outcome`]), because labels follow data.

mod call_dependencies;
mod cron;
mod edit;
mod exec;
mod executor;
mod gateway_status;
mod hide_rules;
mod input;
mod mcp_call;
mod memory;
mod message;
mod precheck;
mod predicted_access;
mod read;
mod request;
mod schedules;
mod search;
mod send_message;
mod spawn;
mod unsupported;
mod web;
mod web_fetch;
mod web_search;
mod workspace_dir;
mod write;
mod write_target;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cron::Asking;
use hide_rules::HideRules;
use memory::MemoryOwner;
use request::{OnDisk, Request};
use send_message::Post;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tribune_config::url::SearchEndpoint;
use tribune_egress::SessionSocketService;
use tribune_governance::gate::Admission;
use tribune_governance::spend::Budgets;
use tribune_records::outcome::ToolError;
use tribune_records::outcome::ToolErrorCode;
use tribune_records::outcome::ToolRun;
use tribune_records::outcome::{AccessLog, ToolAnswer};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_redact::Redactor;
use tribune_registry::Mailbox;
use tribune_runtime::{AgentId, SessionKey, Terminal, ToolSpec};
use tribune_storage::clock::Clock;
use workspace_dir::Workspace;

use crate::mcp::McpServers;
pub use exec::{
    Captured, Ended, Exited, FileView, Folder, Launch, LaunchError, Launcher, Limits, SandboxedLauncher,
    UnsandboxedLauncher,
};
pub use gateway_status::StatusReport;
pub use schedules::{Due, Full, Schedule, ScheduleFile, Schedules, When};
use spawn::NoSpawner;
pub use spawn::{Spawned, Spawner};
pub use web::Egress;

pub use exec::watched;

/// The names of the built-in tools.
pub const NAMES: [&str; 15] = [
    read::NAME,
    search::NAME,
    send_message::NAME,
    write::NAME,
    edit::NAME,
    tribune_records::exec::EXEC,
    web_fetch::NAME,
    web_search::NAME,
    message::NAME,
    memory::NAME,
    cron::NAME,
    gateway_status::NAME,
    spawn::NAME,
    unsupported::BROWSER,
    unsupported::NODES,
];

/// The time limit of a call that sets none. A search of everything it may read takes one or two seconds; the rest allows
/// for a slow disk.
pub(crate) const WALL_TIME: Duration = Duration::from_secs(30);

/// Whether an agent is in the roster.
pub type KnownAgent = Arc<dyn Fn(&AgentId) -> bool + Send + Sync>;

/// Executes admitted calls of the built-in tools.
#[derive(Clone)]
pub struct HostTools {
    home: PathBuf,
    mailbox: Arc<Mailbox>,
    clock: Arc<dyn Clock>,
    known: KnownAgent,
    schedules: Arc<ScheduleFile>,
    launcher: Option<Arc<dyn Launcher>>,
    spawner: Arc<dyn Spawner>,
    egress: Arc<Egress>,
    search: Option<SearchEndpoint>,
    status: StatusReport,
    budgets: Option<Arc<Budgets>>,
    socket_service: Option<SessionSocketService>,
    mcp: Option<Arc<McpServers>>,
    hidden: Arc<HideRules>,
    redactor: Arc<Redactor>,
}

/// Returns the folder that a session works in, and creates an agent's own workspace if it is missing. No part of the
/// path may be a symbolic link.
pub fn workspace_of(home: &Path, ground: &WorkspaceRoots) -> Result<PathBuf, ToolError> {
    Workspace::open(home, ground)?;
    Ok(ground.path(home))
}

impl HostTools {
    /// Workspaces are `agents/<id>/workspace/` in `home_root`. Until the `with_` methods provide the means, no tool runs a
    /// command, opens a connection or spawns a sub-agent.
    pub fn new(home_root: PathBuf, mailbox: Arc<Mailbox>, clock: Arc<dyn Clock>, known: KnownAgent) -> Self {
        let schedules = Arc::new(ScheduleFile::new(home_root.join("data").join("schedules.jsonl")));
        Self {
            home: home_root,
            mailbox,
            clock,
            known,
            schedules,
            launcher: None,
            spawner: Arc::new(NoSpawner),
            egress: Arc::default(),
            search: None,
            status: Arc::new(|| None),
            budgets: None,
            socket_service: None,
            mcp: None,
            hidden: Arc::default(),
            redactor: Arc::new(Redactor::new()),
        }
    }

    /// Sets what removes secrets from text that is kept outside of workspaces. Without it, secrets are known by shape alone.
    pub fn with_redactor(self, redactor: Arc<Redactor>) -> Self {
        Self { redactor, ..self }
    }

    pub fn with_launcher(self, launcher: Arc<dyn Launcher>) -> Self {
        Self { launcher: Some(launcher), ..self }
    }

    /// Sets the patterns of names that the tools refuse in workspaces.
    pub fn hiding(self, patterns: &[String]) -> Self {
        Self { hidden: Arc::new(HideRules::new(patterns)), ..self }
    }

    pub fn with_spawner(self, spawner: Arc<dyn Spawner>) -> Self {
        Self { spawner, ..self }
    }

    /// Sets which addresses the web tools may reach, and the search engine.
    pub fn with_web(self, egress: Egress, search: Option<SearchEndpoint>) -> Self {
        Self { egress: Arc::new(egress), search, ..self }
    }

    /// Sets the source of the status that the `gateway` tool reports.
    pub fn with_status(self, status: StatusReport) -> Self {
        Self { status, ..self }
    }

    /// Sets the budgets whose limits an approved call can raise.
    pub fn with_budgets(self, budgets: Arc<Budgets>) -> Self {
        Self { budgets: Some(budgets), ..self }
    }

    /// Sets the session sockets through which commands reach the network. Without them commands have no network.
    pub fn with_socket_service(self, socket_service: SessionSocketService) -> Self {
        Self { socket_service: Some(socket_service), ..self }
    }

    /// Sets the MCP servers that clients bring for their sessions.
    pub fn with_mcp(self, mcp: Arc<McpServers>) -> Self {
        Self { mcp: Some(mcp), ..self }
    }

    /// The wake-ups that agents scheduled.
    pub const fn schedules(&self) -> &Arc<ScheduleFile> {
        &self.schedules
    }

    /// The tool specifications that agents receive, in the order of [`NAMES`].
    pub fn specs() -> &'static [ToolSpec] {
        static SPECS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
            vec![
                read::spec(),
                search::spec(),
                send_message::spec(),
                write::spec(),
                edit::spec(),
                exec::spec(),
                web_fetch::spec(),
                web_search::spec(),
                message::spec(),
                memory::spec(),
                cron::spec(),
                gateway_status::spec(),
                spawn::spec(),
                unsupported::browser_spec(),
                unsupported::nodes_spec(),
            ]
        });
        &SPECS
    }

    /// Executes an admitted call and reports what it read and wrote. Dropping the future kills a running command with
    /// everything it started, and starts nothing new; disk work that has begun may still complete.
    pub async fn run(&self, admission: Admission) -> ToolRun {
        self.run_followed(admission, None).await
    }

    /// Like [`Self::run`]. If the call is a command, `terminal` shows its output while it runs.
    pub(crate) async fn run_followed(
        &self,
        admission: Admission,
        terminal: Option<Arc<Terminal>>,
    ) -> ToolRun {
        let trail = AccessLog::default();
        let closing = trail.closing();
        let answer = match Request::new(admission.call()) {
            Ok(request) => {
                self.answer(admission.session(), admission.ground(), request, &trail, terminal).await
            }
            Err(sentence) => Err(ToolError::new(ToolErrorCode::InvalidInput, sentence)),
        };
        ToolRun::new(answer, closing.close())
    }

    async fn answer(
        &self,
        session: &Arc<SessionKey>,
        ground: WorkspaceRoots,
        request: Request,
        trail: &AccessLog,
        terminal: Option<Arc<Terminal>>,
    ) -> ToolAnswer {
        match request {
            Request::Exec(exec) => {
                let home = self.home.clone();
                let launch = within(WALL_TIME, move |_| exec.launch(&home, &ground, terminal));
                let sockets = self.socket_service.clone().filter(|sockets| !sockets.is_closing());
                exec::run(self.launcher.as_deref(), launch.await?, sockets, session, trail).await
            }
            Request::WebFetch(fetch) => fetch.run(&self.egress, trail).await,
            Request::WebSearch(search) => search.run(self.search.as_ref(), &self.egress, trail).await,
            Request::Spawn(spawn) => spawn.run(&*self.spawner, Some(session), trail).await,
            Request::Gateway(gateway) => gateway.run(&self.status),
            Request::Mcp(mcp) => mcp.run(self.mcp.as_deref(), session, trail).await,
            Request::Spend(input) => self.spend(session, &input).await,
            Request::Absent(absent) => Err(absent.refused()),
            Request::OnDisk(request) => {
                let (tools, session, trail) = (self.clone(), Arc::clone(session), trail.clone());
                within(WALL_TIME, move |stop| tools.block(&session, &ground, request, stop, &trail)).await
            }
        }
    }

    /// Raises spend limits as a person approved.
    async fn spend(&self, session: &SessionKey, input: &Value) -> ToolAnswer {
        let Some(budgets) = &self.budgets else {
            return Err(ToolError::new(
                ToolErrorCode::Failed,
                "budgets are not configured: tell the operator",
            ));
        };
        match budgets.raise(session.as_str(), input).await {
            Ok(()) => Ok("the limit was raised".to_owned()),
            Err(error) => {
                Err(ToolError::new(ToolErrorCode::Failed, format!("the limit was not raised ({error})")))
            }
        }
    }

    fn block(
        &self,
        session: &SessionKey,
        ground: &WorkspaceRoots,
        request: OnDisk,
        stop: &CancellationToken,
        trail: &AccessLog,
    ) -> ToolAnswer {
        let agent = session.agent();
        let at = |path: &str| {
            let spot = ground.locate(path);
            let workspace =
                Workspace::open_at(&self.home, &spot)?.hiding(&self.hidden, &self.home, ground)?;
            Ok((workspace, trail.within(spot.additional_directory)))
        };
        let now = self.clock.now();
        let post = Post { mailbox: &self.mailbox, at: now, known: &*self.known };
        match request {
            OnDisk::Read(read) => at(read.path()).and_then(|(folder, trail)| read.run(&folder, &trail)),
            OnDisk::Search(search) => {
                at(search.path()).and_then(|(folder, trail)| search.run(&folder, stop, &trail))
            }
            OnDisk::Write(write) => at(write.path()).and_then(|(folder, trail)| write.run(&folder, &trail)),
            OnDisk::Edit(edit) => at(edit.path()).and_then(|(folder, trail)| edit.run(&folder, &trail)),
            OnDisk::SendMessage(message) => message.run(agent, &post, trail),
            OnDisk::Message(message) => message.run(agent, &self.home, &post, trail),
            OnDisk::Memory(memory) => {
                memory.run(&self.home, &MemoryOwner { agent, now, redactor: &self.redactor }, trail)
            }
            OnDisk::Cron(cron) => {
                let asking = Asking { agent, session: Some(session), now, redactor: &self.redactor };
                cron.run(&asking, &self.schedules, trail)
            }
        }
    }
}

impl fmt::Debug for HostTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTools").field("home", &self.home).finish_non_exhaustive()
    }
}

/// Runs blocking work on a thread of its own. Cancels its token when the caller stops waiting.
async fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let work = tokio::task::spawn_blocking(move || work(&stop));
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => {
            let sentence = "the tool failed because of a fault in the host: try another way";
            Err(ToolError::new(ToolErrorCode::Failed, sentence))
        }
        Err(_) => Err(ToolError::new(
            ToolErrorCode::TimedOut,
            format!(
                "the tool took longer than {} s and was abandoned, though it may still complete: ask for less",
                limit.as_secs()
            ),
        )),
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod attacks;
pub mod disk_quota;
pub mod mcp;
pub mod workspaces;

#[cfg(test)]
mod tests {
    use tribune_runtime::ToolCall;

    use super::*;
    use tribune_records::text::RESULT_BYTES;
    use tribune_records::text::bounded;

    #[test]
    fn specs_match_the_names_and_use_plain_schemas() {
        let specs = HostTools::specs();
        assert_eq!(specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), NAMES);
        for spec in specs {
            let schema = &spec.input_schema;
            assert_eq!(schema["type"], "object", "{}", spec.name);
            assert_eq!(schema["additionalProperties"], false, "{}", spec.name);
            let text = schema.to_string();
            for union in ["anyOf", "oneOf", "allOf", "\"type\":["] {
                assert!(!text.contains(union), "{} has a union", spec.name);
            }
            let properties = schema["properties"].as_object().unwrap();
            assert!(!properties.contains_key("format"), "{}", spec.name);
            for required in schema["required"].as_array().unwrap() {
                assert!(properties.contains_key(required.as_str().unwrap()), "{}", spec.name);
            }
            // An unknown field is refused by its name.
            let call = ToolCall {
                id: "1".to_owned(),
                name: spec.name.clone(),
                input: serde_json::json!({ "nothing": 1 }),
            };
            let Err(refused) = Request::new(&call) else {
                assert!(
                    [unsupported::BROWSER, unsupported::NODES].contains(&spec.name.as_str()),
                    "{}",
                    spec.name
                );
                continue;
            };
            assert!(refused.contains("has no field `nothing`"), "{refused}");
            for property in properties.keys() {
                assert!(refused.contains(&format!("`{property}`")), "{}: {property}", spec.name);
            }
        }
    }

    #[test]
    fn long_answers_are_truncated_at_a_character_boundary() {
        assert_eq!(bounded("short".to_owned()), "short");
        let cut = bounded("ä".repeat(RESULT_BYTES));
        assert!(cut.len() <= RESULT_BYTES && cut.ends_with("ä\n[cut: the answer was longer]"));
    }

    #[tokio::test]
    async fn work_past_its_limit_times_out_and_is_cancelled() {
        let (tell, told) = std::sync::mpsc::channel();
        let refused = within(Duration::from_millis(20), move |stop| {
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            tell.send(()).unwrap();
            Ok(())
        })
        .await
        .unwrap_err();
        assert!(
            refused.code == ToolErrorCode::TimedOut && refused.sentence.contains("took longer"),
            "{refused:?}"
        );
        told.recv().unwrap();
    }

    #[tokio::test]
    async fn a_panic_in_a_tool_becomes_an_error_answer() {
        let refused = within::<()>(WALL_TIME, |_| panic!("on purpose")).await.unwrap_err();
        assert!(refused.sentence.contains("fault in the host"), "{refused:?}");
    }
}
