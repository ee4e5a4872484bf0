//! The services of the host for the native backend in one turn: the prompt, the conversation so far, budgets, and the
//! request log.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tribune_constitution::prompt::board_note;
use tribune_constitution::{ChannelClass, Mandate, PromptStack};
use tribune_ledger::limits::MAX_PARENTS;
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_providers::{ChatMessage, ModelRef};
use tribune_records::ledger_payloads::{CompactionRecord, payload};
use tribune_runtime::native::{
    Compaction, HostServices, HostServicesSource, RequestOutcome, RequestStats, StoredMessage,
};
use tribune_runtime::{ErrorKind, Handle, RuntimeError, SessionKey, ToolCall};
use tribune_storage::store::StoreError;
use tribune_storage::vault::Conversation;

use super::Governance;
use super::turn_recorder::TurnRecorder;
use crate::models::RequestRecord;
use crate::spend::{Payer, ReportedUsage, Reservation, Reserve};

/// The ledger entity that records the compaction of a conversation.
fn summary_entity(session: &str) -> String {
    format!("summary:{session}")
}

/// The host services of one turn.
pub(super) struct TurnServices {
    governance: Arc<Governance>,
    handle: Handle,
    turn: Cid,
    conversation: Conversation,
    stack: PromptStack,
    note: Option<String>,
    /// The input of the user, for its hash in the request log.
    input_text: String,
    /// The gate status, for the request log.
    gate: Value,
    /// The reservation for the request under way.
    reserved: Mutex<Option<Reservation>>,
    /// The read of the conversation that was started early, if the native loop will ask for it.
    conversation_read: Mutex<Option<ConversationRead>>,
}

/// The services of started turns, until the native backend takes them. A session runs one turn at a time.
#[derive(Default)]
pub struct PreparedServices(Mutex<HashMap<SessionKey, Arc<TurnServices>>>);

impl std::fmt::Debug for PreparedServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PreparedServices")
    }
}

/// Removes the services of a turn that no backend took, when the turn is over.
pub(super) struct Prepared {
    all: Arc<PreparedServices>,
    session: Arc<SessionKey>,
    services: Weak<TurnServices>,
}

impl PreparedServices {
    pub(super) fn put(self: &Arc<Self>, session: &Handle, services: TurnServices) -> Prepared {
        let services = Arc::new(services);
        let prepared = Prepared {
            all: Arc::clone(self),
            session: Arc::clone(&session.key),
            services: Arc::downgrade(&services),
        };
        self.all().insert((*session.key).clone(), services);
        prepared
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<TurnServices>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostServicesSource for PreparedServices {
    fn take(&self, session: &Handle) -> Option<Arc<dyn HostServices>> {
        self.all().remove(&*session.key).map(|services| services as Arc<dyn HostServices>)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let mut all = self.all.all();
        // The entry may belong to the next turn of the session.
        let is_own =
            |services: &Arc<TurnServices>| std::ptr::eq(Arc::as_ptr(services), self.services.as_ptr());
        if all.get(&*self.session).is_some_and(is_own) {
            all.remove(&*self.session);
        }
    }
}

/// The stored conversation, while it is read.
pub(super) type ConversationRead = JoinHandle<Result<Vec<(String, Vec<u8>)>, StoreError>>;

impl TurnServices {
    /// Takes a read of the conversation that was started early, if the native loop begins with it.
    pub(super) fn new(
        recorder: &TurnRecorder,
        mandate: &Mandate,
        turn: Cid,
        board: &str,
        input_text: &str,
        conversation_read: Option<ConversationRead>,
    ) -> Result<Self, RuntimeError> {
        let (governance, handle) = (Arc::clone(&recorder.governance), recorder.handle.clone());
        let law = &governance.policy.gate.law;
        let agent = handle.key.agent();
        let channel = handle.key.channel();
        let class = ChannelClass::from_settings(channel, law.settings());
        let own = governance.agent_files.prompts.of(agent)?;
        let stack = PromptStack::new(law, mandate, agent.as_str(), own.as_ref(), class);
        let gate = json!({
            "channel": channel, "class": law.settings().class_of(channel.unwrap_or("none")), "policy_id": class.policy().id,
            "mandate": mandate.name, "risk": recorder.writer.context.labels, "decision": "allow",
        });
        let notes =
            [directories_note(recorder.writer.context.ground.additional_directories()), board_note(board)];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        let note = (!notes.is_empty()).then(|| notes.join("\n\n"));
        let conversation = recorder.writer.conversation();
        Ok(Self {
            governance,
            handle,
            turn,
            conversation,
            stack,
            note,
            input_text: input_text.to_owned(),
            gate,
            reserved: Mutex::default(),
            conversation_read: Mutex::new(conversation_read),
        })
    }

    fn payer(&self) -> Payer {
        let key = &self.handle.key;
        Payer { agent: key.agent().to_string(), session: Some(key.to_string()) }
    }

    /// Settles the reservation of a request.
    async fn pay(reservation: Reservation, asked: &RequestStats) {
        let usage = match asked.outcome {
            RequestOutcome::NotSent => return reservation.release().await,
            RequestOutcome::Partial => ReportedUsage::Some(asked.usage),
            RequestOutcome::Complete => ReportedUsage::All(asked.usage),
        };
        reservation.settle(usage).await;
    }
}

#[async_trait]
impl HostServices for TurnServices {
    fn system_prompt(&self) -> Vec<String> {
        self.stack.parts()
    }

    fn context_note(&self) -> Option<String> {
        self.note.clone()
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.governance.policy.redactor.redact(text)
    }

    fn redact_json(&self, value: &Value) -> Value {
        self.governance.policy.redactor.redact_json(value)
    }

    async fn load_conversation(&self) -> Result<Vec<StoredMessage>, RuntimeError> {
        let begun = self.conversation_read.lock().unwrap_or_else(PoisonError::into_inner).take();
        let conversation_read = begun.unwrap_or_else(|| recall(&self.governance, &self.conversation));
        let recalled = conversation_read.await.map_err(|_| stopping())??;
        let read = |(turn, json): (String, Vec<u8>)| {
            serde_json::from_slice::<ChatMessage>(&json).map(|said| StoredMessage { turn, message: said })
        };
        let all: Result<Vec<StoredMessage>, _> = recalled.into_iter().map(read).collect();
        all.map_err(|_| {
            let what = "the conversation was written by another version: start a new session";
            RuntimeError::new(ErrorKind::UnreadableConversation, what)
        })
    }

    async fn store_messages(&self, messages: &[ChatMessage]) -> Result<(), RuntimeError> {
        let json = messages.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
        let turn = self.turn.to_string();
        self.governance
            .storage
            .vault
            .remember(&self.conversation, &turn, &json)
            .await
            .map_err(RuntimeError::from)
    }

    async fn store_compaction(&self, summary: &Compaction) -> Result<(), RuntimeError> {
        let json = bytes(&summary.digest)?;
        let turn = summary.turns.last().cloned().unwrap_or_default();
        // The ledger entry comes first: every stored compaction has its evidence in the ledger.
        let evidence: Vec<Cid> = summary.turns.iter().filter_map(|turn| turn.parse().ok()).collect();
        let entity = summary_entity(self.handle.key.as_str());
        let record = CompactionRecord {
            session: self.handle.key.to_string(),
            messages: summary.messages as u64,
            evidence: evidence.iter().map(ToString::to_string).collect(),
        };
        let parents = evidence.iter().rev().take(MAX_PARENTS).rev().copied().collect();
        let draft = Draft {
            entity_id: entity.clone(),
            target: entity,
            quality: EntryQuality::Change,
            timestamp: self.governance.storage.clock.now(),
            source: "native".to_owned(),
            actor: self.handle.key.agent().as_str().to_owned(),
            parents,
            tags: Vec::new(),
            payload: payload(&record),
            attested_by: None,
            envelope: None,
        };
        self.governance.storage.ledger.append(&draft).await?;
        let (vault, own) = (&self.governance.storage.vault, &self.conversation);
        vault.shorten(own, &turn, summary.messages, json).await.map_err(RuntimeError::from)
    }

    async fn reserve_tokens(
        &self,
        model: &ModelRef,
        prompt: u64,
        answer: u64,
    ) -> Result<Option<ToolCall>, RuntimeError> {
        match self.governance.model_requests.budgets.reserve(&self.payer(), model, prompt, answer).await? {
            Reserve::Granted(mut reservation) => {
                reservation.put_on_record().await?;
                *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = Some(reservation);
                Ok(None)
            }
            Reserve::Ask(call) => Ok(Some(call)),
        }
    }

    async fn record_request(&self, asked: RequestStats) {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reservation) = reserved {
            Self::pay(reservation, &asked).await;
        }
        if asked.outcome == RequestOutcome::Complete {
            self.governance.model_requests.health.note(&asked.model, None);
        }
        let turn = self.turn.to_string();
        let record = RequestRecord {
            request_id: format!(
                "{}.{}",
                turn.trim_start_matches("b3:").get(..16).unwrap_or_default(),
                asked.round
            ),
            timestamp: self.governance.storage.clock.now().to_string(),
            provider: asked.model.provider().to_owned(),
            model: asked.model.model().to_owned(),
            session: self.handle.key.to_string(),
            turn,
            round: asked.round,
            estimated_tokens: asked.estimated,
            reserved_tokens: asked.reserved,
            input_tokens: asked.usage.input,
            output_tokens: asked.usage.output,
            cache_read_tokens: asked.usage.cache_read,
            cache_written_tokens: asked.usage.cache_written,
            first_ms: asked.first_ms,
            latency_ms: asked.all_ms,
            outcome: asked.ending,
            prompt: serde_json::to_value(self.stack.manifest(&self.input_text)).unwrap_or(Value::Null),
            gate: self.gate.clone(),
        };
        let log = self.governance.model_requests.log.clone();
        // This fails only when the daemon is shutting down.
        let _ = tokio::task::spawn_blocking(move || log.write(&record)).await;
    }
}

/// Starts to read the stored conversation.
pub(super) fn recall(governance: &Arc<Governance>, conversation: &Conversation) -> ConversationRead {
    let (governance, conversation) = (Arc::clone(governance), conversation.clone());
    tokio::task::spawn_blocking(move || governance.storage.vault.recall(&conversation))
}

/// The note for the agent about the folders that the operator opened its session with, beside its workspace.
fn directories_note(additional_directories: &[String]) -> Option<String> {
    let named: Vec<String> = additional_directories.iter().map(|folder| format!("- `{folder}`")).collect();
    (!named.is_empty()).then(|| {
        format!(
            "# Folders beside your workspace\n\n\
             The operator opened this session with further folders. What is in them is named by its whole path: in `path` of \
             `read`, `search`, `write` and `edit`, in `cwd` of `exec`, and in its command. Whatever holds in your workspace holds \
             there.\n\n{}",
            named.join("\n")
        )
    })
}

fn bytes(message: &ChatMessage) -> Result<Vec<u8>, RuntimeError> {
    serde_json::to_vec(message).map_err(|error| RuntimeError::new(ErrorKind::Internal, error.to_string()))
}

fn stopping() -> RuntimeError {
    RuntimeError::new(ErrorKind::Internal, "the daemon is shutting down")
}
