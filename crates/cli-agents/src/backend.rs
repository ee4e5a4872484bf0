//! The backend: finds or starts the agent of a session, sends it the prompt, and passes on its turn until it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{Stream, StreamExt as _};

use crate::acp::Acp;
use crate::agent_protocol::{AgentProtocol, McpSupport, ResumeState, TurnStep};
use crate::claude_code::ClaudeCode;
use crate::escape_prompt::{EscapeRules, command_of, escape};
use crate::mcp_bridge::SessionMcpServers;
use crate::pool::{AgentOrigin, AgentPool, RunningAgent};
use crate::process_limit::ProcessLimit;
use crate::profile::{Profile, Quirk};
use crate::project_instructions;
use crate::spawner::Spawner;
use tribune_runtime::content::{ContentBlock, text_of};
use tribune_runtime::{AUTORUN_FILES, EventKind, RuntimeEvent};
use tribune_runtime::{AgentRuntime, EventStream, Handle, RuntimeError, SessionInput, Speaker, TurnInput};
use tribune_runtime::{CloseReason, SessionState, SessionStatus, StopReason};

/// How long an agent without a turn is kept. Starting one takes seconds, and each holds hundreds of megabytes.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Runs turns with CLI agents, all of which speak one protocol.
#[derive(Clone)]
pub struct CliBackend {
    pool: Arc<AgentPool>,
}

impl std::fmt::Debug for CliBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CliBackend").field(&self.name()).finish()
    }
}

impl CliBackend {
    /// For agents that speak ACP. `spawner` starts them, each is kept for `idle` without a turn, and `limit` limits
    /// how many run.
    pub fn acp(spawner: Arc<dyn Spawner>, idle: Duration, limit: &Arc<ProcessLimit>) -> Self {
        Self::speaking(&Acp, spawner, idle, limit)
    }

    /// For Claude Code, in its own stream-json.
    pub fn claude_code(spawner: Arc<dyn Spawner>, idle: Duration, limit: &Arc<ProcessLimit>) -> Self {
        Self::speaking(&ClaudeCode, spawner, idle, limit)
    }

    fn speaking(
        protocol: &'static dyn AgentProtocol,
        spawner: Arc<dyn Spawner>,
        idle: Duration,
        limit: &Arc<ProcessLimit>,
    ) -> Self {
        Self { pool: Arc::new(AgentPool::new(protocol, spawner, idle, Arc::clone(limit))) }
    }

    /// Its name in the roster.
    pub fn name(&self) -> &'static str {
        self.pool.protocol().protocol().backend()
    }

    /// Ends every agent at once, with everything it started. A later turn starts its agent again.
    pub fn stop_all(&self) {
        self.pool.stop_all();
    }

    /// Ends every agent. Returns when they are gone.
    pub async fn shutdown(&self) {
        self.pool.shutdown().await;
    }
}

#[async_trait]
impl AgentRuntime for CliBackend {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        let session_id = input.key.as_str().into();
        let handle = Handle { key: Arc::new(input.key), session_id };
        // A session whose agent cannot be started is refused when it is opened, and not after a question was typed.
        self.pool.spawner().check(&handle)?;
        Ok(handle)
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        let turn = CliTurn { pool: Arc::clone(&self.pool), session: handle.clone(), input };
        let mut seq = 0;
        turn.events()
            .map(move |event| {
                seq += 1;
                event.map(|kind| RuntimeEvent { seq, kind })
            })
            .boxed()
    }

    async fn cancel(&self, _: &Handle) -> Result<(), RuntimeError> {
        // The turn sees its token.
        Ok(())
    }

    async fn close(&self, handle: &Handle, _: CloseReason) -> Result<(), RuntimeError> {
        self.pool.close(&handle.key).await;
        Ok(())
    }

    async fn status(&self, _: &Handle) -> Result<SessionStatus, RuntimeError> {
        Ok(SessionStatus { state: SessionState::Idle, backend: self.name().to_owned(), model: None })
    }
}

/// A turn of a session's agent.
struct CliTurn {
    pool: Arc<AgentPool>,
    session: Handle,
    input: TurnInput,
}

/// The outcome of starting or finding a session's agent.
enum AgentStart {
    Ready(RunningAgent, AgentOrigin),
    Cancelled,
    Failed(RuntimeError),
}

impl CliTurn {
    fn events(self) -> impl Stream<Item = TurnEvent> {
        async_stream::stream! {
            if let Some(limit) = self.pool.blocking_limit(&self.session) {
                yield Ok(waiting_notice(limit));
            }
            let mut may_restart = true;
            loop {
                let (running, origin) = match self.start_agent().await {
                    AgentStart::Ready(running, origin) => (running, origin),
                    AgentStart::Cancelled => {
                        yield Ok(EventKind::Done { stop_reason: StopReason::Cancelled });
                        return;
                    }
                    AgentStart::Failed(error) => {
                        yield Err(error);
                        return;
                    }
                };
                let guard = self.guard(&running);
                if let Some(what) = running.agent.connection.violation() {
                    let (id, tool) = ("between-turns".to_owned(), "unknown".to_owned());
                    yield Ok(EventKind::Ungoverned { id, tool, what });
                    return;
                }
                let began = Instant::now();
                for event in start_events(&running, origin) {
                    yield Ok(event);
                }
                if let Err(error) = running.agent.conversation.capabilities.check(&self.input.content) {
                    // Nothing was sent, and the agent can go on.
                    guard.complete();
                    yield Err(error);
                    return;
                }
                let (prompt, notice) = self.prompt(&running, origin).await;
                if let Some(notice) = notice {
                    yield Ok(notice);
                }
                let mut turn = self.pool.protocol().begin_turn(&running.agent, &self.input, &prompt);
                loop {
                    match turn.next().await {
                        TurnStep::Events(kinds) => for kind in kinds {
                            yield Ok(kind);
                        },
                        TurnStep::ConversationId(id) => self.pool.spawner().store_conversation_id(&self.session, &id),
                        TurnStep::Ended(kinds, ended) => {
                            for event in self.finish(guard, &running, began, kinds, ended).await {
                                yield event;
                            }
                            return;
                        }
                        TurnStep::Ungoverned { id, tool, what } => {
                            yield Ok(EventKind::Ungoverned { id, tool, what });
                            return;
                        }
                        TurnStep::Failed(_) if may_restart && self.is_lost(&running, origin) => {
                            may_restart = false;
                            break;
                        }
                        TurnStep::Failed(error) => {
                            yield Err(running.explain(error));
                            return;
                        }
                    }
                }
            }
        }
    }

    async fn start_agent(&self) -> AgentStart {
        tokio::select! {
            started = self.pool.agent(&self.session) => match started {
                Ok((running, origin)) => AgentStart::Ready(running, origin),
                Err(error) => AgentStart::Failed(error),
            },
            () = self.input.cancel.cancelled() => AgentStart::Cancelled,
        }
    }

    fn guard(&self, running: &RunningAgent) -> TurnGuard {
        TurnGuard {
            pool: Arc::clone(&self.pool),
            running: running.clone(),
            session: self.session.clone(),
            is_complete: false,
        }
    }

    /// Whether the agent had gone, or was going, before it got the prompt. It asked for nothing, so nothing was done
    /// for it.
    fn is_lost(&self, running: &RunningAgent, origin: AgentOrigin) -> bool {
        origin == AgentOrigin::Running
            && running.agent.connection.has_exited_silently()
            && !self.input.cancel.is_cancelled()
    }

    /// The prompt, and a notice if the project's instructions could not be read.
    async fn prompt(
        &self,
        running: &RunningAgent,
        origin: AgentOrigin,
    ) -> (Vec<ContentBlock>, Option<EventKind>) {
        let is_new = is_new_conversation(running, origin);
        let (instructions, notice) = match running.instructions.as_deref().filter(|_| is_new) {
            None => (None, None),
            Some(name) => match project_instructions::read(&*self.input.tools, name).await {
                Ok(text) => (Some(text), None),
                Err(message) => {
                    (None, Some(EventKind::Notice { code: "instructions_not_read".to_owned(), message }))
                }
            },
        };
        let parts = PromptParts { is_new, instructions, denials: running.agent.denials.take() };
        (build_prompt(&self.input, &parts, &running.agent.profile), notice)
    }

    /// Ends what the turn left running, and returns its last events.
    async fn finish(
        &self,
        guard: TurnGuard,
        running: &RunningAgent,
        began: Instant,
        kinds: Vec<EventKind>,
        ended: Result<(), RuntimeError>,
    ) -> Vec<TurnEvent> {
        // Agents leave commands running that would go on for ever, with no turn to wait for them.
        if self.input.cancel.is_cancelled() && running.has_stragglers(began).await {
            running.end().await;
        }
        guard.complete();
        let changed = self.pool.spawner().changed_autorun_files(&self.session).await;
        let events = autorun_notice(&changed).into_iter().chain(kinds).map(Ok);
        events.chain(ended.err().map(Err)).collect()
    }
}

/// An event of a turn, before it has its number.
type TurnEvent = Result<EventKind, RuntimeError>;

/// Whether the agent has nothing of the session's conversation.
fn is_new_conversation(running: &RunningAgent, origin: AgentOrigin) -> bool {
    origin == AgentOrigin::Started && running.agent.conversation.began != ResumeState::Resumed
}

/// The events of a start, for the first turn after it.
fn start_events(running: &RunningAgent, origin: AgentOrigin) -> Vec<EventKind> {
    let mut events: Vec<EventKind> = running.agent.connection.take_opening().into_iter().collect();
    if origin == AgentOrigin::Running {
        return events;
    }
    if running.agent.conversation.began == ResumeState::Lost {
        let message =
            "the agent was started again and could not resume the conversation: it begins a new one"
                .to_owned();
        events.push(EventKind::Notice { code: "context_lost".to_owned(), message });
    }
    if running.agent.conversation.servers == McpSupport::Unsupported {
        events.extend(unsupported_servers_notice(running.agent.servers.as_ref()));
    }
    events
}

/// The notice that the turn waits for another agent to become idle.
fn waiting_notice(limit: usize) -> EventKind {
    let message = format!(
        "{limit} agents run and all are busy: this turn begins when one of them is done; cliAgents.maxRunning in \
         config.json5 says how many may run"
    );
    EventKind::Notice { code: "waiting_for_room".to_owned(), message }
}

/// The notice about servers that an agent cannot have.
fn unsupported_servers_notice(servers: Option<&SessionMcpServers>) -> Option<EventKind> {
    let names: Vec<String> = servers?.all.iter().map(|server| format!("`{}`", server.name)).collect();
    let message = format!("this agent takes no MCP servers from Tribune; left out: {}", names.join(", "));
    Some(EventKind::Notice { code: "servers_left_out".to_owned(), message })
}

/// Names in a notice.
const MAX_NAMES: usize = 16;

/// The notice about autorun files: files that programs of this machine execute or load by name.
fn autorun_notice(names: &[String]) -> Option<EventKind> {
    let listed: Vec<String> = names.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "autorun files are new or changed in the workspace, and programs of this machine execute or load them: {}{more}; \
         look at them before you use the folder outside of the sandbox",
        listed.join(", ")
    );
    (!names.is_empty()).then(|| EventKind::Notice { code: AUTORUN_FILES.to_owned(), message })
}

/// A running turn. If it is dropped before its end, the agent is ended too, because its state is unknown.
struct TurnGuard {
    pool: Arc<AgentPool>,
    running: RunningAgent,
    session: Handle,
    is_complete: bool,
}

impl TurnGuard {
    fn complete(mut self) {
        self.is_complete = true;
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        if !self.is_complete {
            self.running.agent.connection.disconnect("its turn was given up");
        }
        self.running.end_turn(self.pool.spawner(), &self.session);
    }
}

/// What a prompt has beside the input of its turn.
struct PromptParts {
    /// The agent has nothing of the conversation.
    is_new: bool,
    /// The project's instructions.
    instructions: Option<String>,
    /// Reasons of denials in its last turn.
    denials: Option<String>,
}

/// The prompt: the system prompt and the project's instructions, if the agent does not have them yet; why calls of its last turn
/// were denied; mailbox messages; the content of the turn.
///
/// Text that a program would act on by itself is escaped, except for commands that the owner may use.
fn build_prompt(input: &TurnInput, parts: &PromptParts, profile: &Profile) -> Vec<ContentBlock> {
    let mentions = profile.has(Quirk::ReadsMentions);
    let others = EscapeRules { mentions, commands: true };
    let rules = |text: &str| {
        let is_known = command_of(text).is_some_and(|word| profile.takes_command(word));
        EscapeRules { mentions, commands: !(is_known && input.speaker == Speaker::Owner) }
    };
    let mut blocks = Vec::new();
    if parts.is_new && !input.system.is_empty() {
        blocks.push(ContentBlock::text(escape(&input.system, others)));
    }
    for text in [&parts.instructions, &parts.denials].into_iter().flatten() {
        blocks.push(ContentBlock::text(escape(text, others)));
    }
    for message in &input.injected_messages {
        let text = format!("[{}] {}", message.role.as_str(), text_of(&message.content));
        blocks.push(ContentBlock::text(escape(&text, others)));
    }
    blocks.extend(input.content.iter().map(|block| match block {
        ContentBlock::Text { text } => ContentBlock::text(escape(text, rules(text))),
        other => other.clone(),
    }));
    blocks
}
