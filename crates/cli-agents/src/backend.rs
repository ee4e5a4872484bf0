//! The backend: a session's agent is found or started, told what is said, and listened to until its turn ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;

use crate::acp::Acp;
use crate::agent_protocol::{Began, Offered, Step, Tongue};
use crate::claude_code::ClaudeCode;
use crate::escape_prompt::{Unmeant, command, plain};
use crate::mcp_bridge::Servers;
use crate::pool::{Found, Live, Pool};
use crate::process_limit::Berths;
use crate::profile::{Profile, Quirk};
use crate::project_instructions;
use crate::spawner::Spawner;
use tribune_runtime::content::{ContentBlock, text_of};
use tribune_runtime::{AgentRuntime, EventStream, Handle, RuntimeError, SessionInput, Speaker, TurnInput};
use tribune_runtime::{CloseReason, SessionState, SessionStatus};
use tribune_runtime::{EventKind, OBEYED, RuntimeEvent};

/// How long an agent without a turn is kept. Starting one takes seconds, and each holds hundreds of megabytes.
pub const IDLE: Duration = Duration::from_secs(10 * 60);

/// Runs turns with agents of others, all of which speak the same.
#[derive(Clone)]
pub struct CliBackend {
    pool: Arc<Pool>,
}

impl std::fmt::Debug for CliBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CliBackend").field(&self.name()).finish()
    }
}

impl CliBackend {
    /// Agents that speak ACP. `spawner` starts them, and each is kept for so long without a turn, if `berths` has room.
    pub fn acp(spawner: Arc<dyn Spawner>, idle: Duration, berths: &Arc<Berths>) -> Self {
        Self::speaking(&Acp, spawner, idle, berths)
    }

    /// Claude Code, spoken with in its own stream-json.
    pub fn claude_code(spawner: Arc<dyn Spawner>, idle: Duration, berths: &Arc<Berths>) -> Self {
        Self::speaking(&ClaudeCode, spawner, idle, berths)
    }

    fn speaking(
        tongue: &'static dyn Tongue,
        spawner: Arc<dyn Spawner>,
        idle: Duration,
        berths: &Arc<Berths>,
    ) -> Self {
        Self { pool: Arc::new(Pool::new(tongue, spawner, idle, Arc::clone(berths))) }
    }

    /// What it is called in the roster.
    pub fn name(&self) -> &'static str {
        self.pool.tongue().backend()
    }

    /// Ends every agent at once, with everything it started. What is spoken to later is started again.
    pub fn stop_all(&self) {
        self.pool.stop_all();
    }

    /// Ends every agent. Returns when they are gone.
    pub async fn leave(&self) {
        self.pool.leave().await;
    }
}

#[async_trait]
impl AgentRuntime for CliBackend {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        let session_id = input.key.as_str().into();
        let handle = Handle { key: Arc::new(input.key), session_id };
        // A session whose agent cannot be started is refused when it is opened, and not when someone has typed a question.
        self.pool.spawner().check(&handle)?;
        Ok(handle)
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        let (backend, handle) = (self.clone(), handle.clone());
        let events = async_stream::stream! {
            if let Some(most) = backend.pool.has_no_room_for(&handle) {
                let message = format!(
                    "{most} agents run and all are at work: this turn begins when one of them is done; cliAgents.maxRunning in \
                     config.json5 says how many may run"
                );
                yield Ok(EventKind::Notice { code: "waiting_for_room".to_owned(), message });
            }
            let mut is_first = true;
            loop {
                let (live, found) = tokio::select! {
                    started = backend.pool.agent(&handle) => match started {
                        Ok(started) => started,
                        Err(error) => {
                            yield Err(error);
                            return;
                        }
                    },
                    () = input.cancel.cancelled() => {
                        yield Ok(EventKind::Done { stop_reason: tribune_runtime::StopReason::Cancelled });
                        return;
                    }
                };
                let busy = Busy { pool: Arc::clone(&backend.pool), live: live.clone(), handle: handle.clone(), is_over: false };
                if let Some(what) = live.link.misdeed() {
                    let (id, tool) = ("between-turns".to_owned(), "unknown".to_owned());
                    yield Ok(EventKind::Ungoverned { id, tool, what });
                    return;
                }
                let began = Instant::now();
                let fresh = found == Found::Started && live.conversation.began != Began::TakenUp;
                if let Some(opening) = live.link.take_opening() {
                    yield Ok(opening);
                }
                if found == Found::Started && live.conversation.began == Began::Lost {
                    let message = "the agent was started anew and could not take up what was said before: it begins afresh";
                    yield Ok(EventKind::Notice { code: "context_lost".to_owned(), message: message.to_owned() });
                }
                if found == Found::Started
                    && live.conversation.servers == Offered::NotTaken
                    && let Some(message) = not_taken(live.servers.as_ref())
                {
                    yield Ok(EventKind::Notice { code: "servers_left_out".to_owned(), message });
                }
                if let Err(error) = live.conversation.takes.check(&input.content) {
                    // Nothing was said, and the agent can go on.
                    busy.over();
                    yield Err(error);
                    return;
                }
                let mut instructions = None;
                if let Some(name) = live.instructions.as_deref().filter(|_| fresh) {
                    match project_instructions::read(&*input.tools, name).await {
                        Ok(text) => instructions = Some(text),
                        Err(message) => {
                            yield Ok(EventKind::Notice { code: "instructions_not_read".to_owned(), message });
                        }
                    }
                }
                let prompt = prompt(&input, fresh, instructions.as_deref(), &live.profile);
                let mut turn = backend.pool.tongue().begin(&live, &input, &prompt);
                loop {
                    match turn.next().await {
                        Step::Said(kinds) => for kind in kinds {
                            yield Ok(kind);
                        },
                        Step::Named(conversation) => backend.pool.spawner().remember(&handle, &conversation),
                        Step::Over(kinds, ended) => {
                            // Agents leave commands running, which nobody waits for any more and which would go on for ever.
                            if input.cancel.is_cancelled() && live.has_stragglers(began).await {
                                live.end().await;
                            }
                            busy.over();
                            if let Some(notice) = obeyed(&backend.pool.spawner().obeyed(&handle).await) {
                                yield Ok(notice);
                            }
                            for kind in kinds {
                                yield Ok(kind);
                            }
                            if let Err(error) = ended {
                                yield Err(error);
                            }
                            return;
                        }
                        Step::Ungoverned { id, tool, what } => {
                            yield Ok(EventKind::Ungoverned { id, tool, what });
                            return;
                        }
                        // It was gone, or going, before it was spoken to. It asked for nothing, so that nothing was done for it.
                        Step::Failed(_) if is_first && found == Found::Running && live.link.has_gone_unheard() && !input.cancel.is_cancelled() => {
                            is_first = false;
                            break;
                        }
                        Step::Failed(error) => {
                            yield Err(live.explain(error));
                            return;
                        }
                    }
                }
            }
        };
        let mut seq = 0;
        events
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

/// What people are told of servers that an agent cannot be told of.
fn not_taken(servers: Option<&Servers>) -> Option<String> {
    let names: Vec<String> = servers?.all.iter().map(|served| format!("`{}`", served.name)).collect();
    Some(format!("this agent takes no MCP servers from Tribune; left out: {}", names.join(", ")))
}

/// Names that a notice tells.
const MAX_TOLD_NAMES: usize = 16;

/// What people are told of names that programs of their machine obey.
fn obeyed(names: &[String]) -> Option<EventKind> {
    let told: Vec<String> = names.iter().take(MAX_TOLD_NAMES).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(MAX_TOLD_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "programs of this machine obey names that are new or changed in the workspace: {}{more}; look at them before you use the \
         folder outside of the sandbox",
        told.join(", ")
    );
    (!names.is_empty()).then(|| EventKind::Notice { code: OBEYED.to_owned(), message })
}

/// A turn under way. If it is given up, so is the agent: nobody knows what it is at.
struct Busy {
    pool: Arc<Pool>,
    live: Live,
    handle: Handle,
    is_over: bool,
}

impl Busy {
    fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.is_over {
            self.live.link.break_off("its turn was given up");
        }
        self.live.rest(self.pool.spawner(), &self.handle);
    }
}

/// What the agent is told: who it is and what its workspace says to agents, if it does not know yet; what was left for it; what
/// is said.
///
/// All of it is words: what a program would do unasked because of what is said, it does not.
fn prompt(
    input: &TurnInput,
    fresh: bool,
    instructions: Option<&str>,
    profile: &Profile,
) -> Vec<ContentBlock> {
    let mentions = profile.has(Quirk::ReadsMentions);
    let others = Unmeant { mentions, commands: true };
    let said = |text: &str| {
        let is_known = command(text).is_some_and(|word| profile.takes_command(word));
        Unmeant { mentions, commands: !(is_known && input.speaker == Speaker::Owner) }
    };
    let mut blocks = Vec::new();
    if fresh && !input.system.is_empty() {
        blocks.push(ContentBlock::text(plain(&input.system, others)));
    }
    if let Some(instructions) = instructions {
        blocks.push(ContentBlock::text(plain(instructions, others)));
    }
    for message in &input.preceding {
        let text = format!("[{}] {}", message.role.as_str(), text_of(&message.content));
        blocks.push(ContentBlock::text(plain(&text, others)));
    }
    blocks.extend(input.content.iter().map(|block| match block {
        ContentBlock::Text { text } => ContentBlock::text(plain(text, said(text))),
        other => other.clone(),
    }));
    blocks
}
