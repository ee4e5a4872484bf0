//! Sub-agents: sessions of one turn that an agent starts for a task. A sub-agent is bound by its own mandate and by those of all
//! its ancestors, and begins with the taint labels of its parent. It is closed when its turn ends or when its caller is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tribune_records::outcome::{ToolError, ToolErrorCode};
use tribune_records::text::RESULT_BYTES;
use tribune_runtime::{
    CloseReason, ContentBlock, EventKind, Lineage, RuntimeEvent, SessionInput, SessionKey, SessionMode,
    SessionTerms, Speaker, StopReason,
};
use tribune_tools::{Spawned, Spawner};

use super::error::SessionError;
use super::session_limit::IfFull;
use super::{IfClosed, SessionManager, Shared};

/// The depth to which sub-agents may start sub-agents.
const MAX_DEPTH: usize = 3;

/// Concurrent sub-agents of one session. Together with [`MAX_DEPTH`] this bounds how many sessions one call can cause.
const MAX_AT_ONCE: usize = 4;

/// Events per read.
const EVENTS: usize = 256;

/// Starts sub-agents. It is created before the session manager and is connected to it later.
#[derive(Default)]
pub struct SubAgents {
    /// Weak, because the session manager owns the tools that hold this.
    sessions: OnceLock<Weak<Shared>>,
    children: Arc<Mutex<HashMap<SessionKey, usize>>>,
}

impl std::fmt::Debug for SubAgents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SubAgents")
    }
}

impl SubAgents {
    /// Connects this to the session manager. Only the first call has an effect.
    pub(super) fn live_in(&self, sessions: &SessionManager) {
        self.sessions.get_or_init(|| Arc::downgrade(&sessions.shared));
    }

    fn sessions(&self) -> Option<SessionManager> {
        let shared = self.sessions.get()?.upgrade()?;
        Some(SessionManager { shared })
    }
}

#[async_trait]
impl Spawner for SubAgents {
    async fn spawn(
        &self,
        parent: &SessionKey,
        task: &str,
        tools: Option<&[String]>,
    ) -> Result<Spawned, ToolError> {
        let sessions = self.sessions().ok_or_else(|| refused(&SessionError::Draining))?;
        let slot = ChildSlot::take(&self.children, parent)?;
        let input = sessions.child_of(parent, tools).await?;
        let gone = CancellationToken::new();
        let _gone = gone.clone().drop_guard();
        let (manager, task) = (sessions.clone(), task.to_owned());
        let work = async move {
            let _slot = slot;
            manager.run_child(input, task, &gone).await
        };
        sessions.to_the_end(work).await.map_err(|error| refused(&error))
    }
}

impl SessionManager {
    /// The terms of a sub-agent: its parent's, restricted to `tools`.
    async fn child_of(
        &self,
        parent: &SessionKey,
        tools: Option<&[String]>,
    ) -> Result<SessionInput, ToolError> {
        let row = self.row(parent).await.map_err(|error| refused(&error))?;
        let row = row.ok_or_else(|| refused(&SessionError::NotFound(parent.to_string())))?;
        if row.inherited.ancestors.len() >= MAX_DEPTH {
            let sentence =
                format!("sub-agents can be nested {MAX_DEPTH} deep and no deeper: do the task yourself");
            return Err(ToolError::new(ToolErrorCode::Refused, sentence));
        }
        let mandates: Vec<String> = row.mandates().collect();
        let allowed = self.shared.governance.policy.gate.law.mandate_tools(&mandates);
        let has = |tool: &String| {
            allowed.contains(&tool.as_str())
                && row.inherited.tools.as_ref().is_none_or(|own| own.contains(tool))
        };
        if let Some(other) = tools.into_iter().flatten().find(|tool| !has(tool)) {
            let sentence = format!(
                "`{other}` is not one of your tools, so a sub-agent cannot have it: name tools that you have yourself"
            );
            return Err(ToolError::new(ToolErrorCode::Refused, sentence));
        }
        let key = format!("agent:{}:subagent:{}", parent.agent(), short_id()?);
        let key = key.parse().map_err(|error| refused(&SessionError::Name(error)))?;
        let tools = tools.map(<[String]>::to_vec).or(row.inherited.tools);
        Ok(SessionInput {
            key,
            terms: SessionTerms { mode: SessionMode::Oneshot, ..row.terms },
            opened_by: parent.to_string(),
            lineage: Some(Lineage { parent: parent.clone(), tools }),
        })
    }

    /// Opens the session, runs its turn and returns the answer. When `gone` fires, the turn is cancelled.
    async fn run_child(
        &self,
        input: SessionInput,
        task: String,
        gone: &CancellationToken,
    ) -> Result<Spawned, SessionError> {
        let key = input.key.clone();
        self.open(input, IfClosed::Reopen, IfFull::Refuse).await?;
        let done = tokio::select! {
            biased;
            () = gone.cancelled() => Err(SessionError::Closed(key.to_string())),
            done = self.collect_answer(&key, task) => done,
        };
        if done.is_err() {
            if let Some(session) = self.loaded(&key) {
                session.cancel();
            }
            match self.close(&key, CloseReason::Requested).await {
                // A oneshot session closes itself after its turn.
                Ok(()) | Err(SessionError::Closed(_) | SessionError::Draining) => {}
                Err(error) => tracing::warn!(session = %key, %error, "a sub-agent could not be closed"),
            }
        }
        done.map(|answer| Spawned { session: key, answer })
    }

    async fn collect_answer(&self, key: &SessionKey, task: String) -> Result<String, SessionError> {
        let mut turn = self.run_turn(key, vec![ContentBlock::text(task)], Speaker::Agent).await?;
        let accepted = turn.accepted().await?;
        let mut events = turn.events(&accepted).ok_or(SessionError::Draining)?;
        let mut answer = String::new();
        let mut stopped = None;
        while stopped.is_none() {
            let page = events.next(EVENTS).await?;
            if page.is_empty() {
                break;
            }
            for event in page {
                match serde_json::from_str::<RuntimeEvent>(&event.json).map(|event| event.kind) {
                    // The tool that returns the answer truncates it and marks the cut.
                    Ok(EventKind::TextDelta { text }) if answer.len() <= RESULT_BYTES => {
                        answer.push_str(&text)
                    }
                    Ok(EventKind::Done { stop_reason }) => stopped = Some(stop_reason),
                    _ => {}
                }
            }
        }
        // The session is closed when this returns, so its labels are final.
        let end = turn.ended().await?;
        if end.stop_reason != StopReason::EndTurn {
            answer.insert_str(0, &format!("[the sub-agent stopped early: {}]\n", end.stop_reason.as_str()));
        }
        Ok(answer)
    }
}

/// A slot for one of the concurrent sub-agents of a session.
#[derive(Debug)]
struct ChildSlot {
    children: Arc<Mutex<HashMap<SessionKey, usize>>>,
    parent: SessionKey,
}

impl ChildSlot {
    fn take(
        children: &Arc<Mutex<HashMap<SessionKey, usize>>>,
        parent: &SessionKey,
    ) -> Result<Self, ToolError> {
        let mut counts = children.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(parent.clone()).or_default();
        if *count >= MAX_AT_ONCE {
            let sentence = format!("{MAX_AT_ONCE} sub-agents are running already: wait for one to end");
            return Err(ToolError::new(ToolErrorCode::TooLarge, sentence));
        }
        *count += 1;
        Ok(Self { children: Arc::clone(children), parent: parent.clone() })
    }
}

impl Drop for ChildSlot {
    fn drop(&mut self) {
        let mut counts = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.parent) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.parent);
            }
        }
    }
}

fn short_id() -> Result<String, ToolError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|_| {
        ToolError::new(ToolErrorCode::Failed, "the system gave no random bytes: try again later")
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The error for the model: the code only, because the sentence may contain paths of the host.
fn refused(error: &SessionError) -> ToolError {
    let sentence = format!("the sub-agent failed ({}): do the task yourself", error.code());
    ToolError::new(ToolErrorCode::Unavailable, sentence)
}
