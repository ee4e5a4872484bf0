//! Injects mailbox messages into a turn: they are read from the mailbox, recorded, and marked as read.

use std::sync::{Arc, PoisonError};

use tribune_constitution::Labels;
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::MailboxRecord;
use tribune_registry::mailbox::MailboxMessage;
use tribune_runtime::{AgentId, ContentBlock, EventKind, Handle, Message, Role, RuntimeError, SessionKey};

use super::Governance;
use super::resume_parked::approval_of;
use super::turn_recorder::TurnRecorder;
use crate::gate::LabelName;

/// Messages of a session that are searched for mailbox messages that it already had.
const MAX_MESSAGES_SEARCHED: usize = 1_000;

/// Unread mailbox messages, claimed for one turn until this is dropped.
pub(super) struct InjectedMail {
    agent: AgentId,
    fresh: Vec<(MailboxMessage, Labels)>,
    /// Already recorded by a turn whose acknowledgement was lost.
    known: Vec<String>,
    claimed: Vec<String>,
    governance: Arc<Governance>,
}

impl InjectedMail {
    /// No messages: for a turn that the agent itself does not answer.
    pub(super) fn none(governance: &Arc<Governance>, handle: &Handle) -> Self {
        Self {
            agent: handle.key.agent().clone(),
            fresh: Vec::new(),
            known: Vec::new(),
            claimed: Vec::new(),
            governance: Arc::clone(governance),
        }
    }

    /// Claims the unread messages for one turn. Blocks on the disk.
    pub(super) fn claim(governance: &Arc<Governance>, handle: &Handle) -> Result<Self, RuntimeError> {
        let empty = Self::none(governance, handle);
        if handle.key.is_subagent() {
            // A sub-agent is gone after one turn; messages to the agent are not for it.
            return Ok(empty);
        }
        // Held during the search: a message without a claim was acknowledged before, and is not found unread.
        let mut claimed_mail = governance.live.claimed_mail.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = governance.agent_files.mailbox.unread(&empty.agent).unwrap_or_else(|error| {
            tracing::warn!(%error, "the mailbox could not be read");
            Vec::new()
        });
        let mut mail = empty;
        if unread.is_empty() {
            return Ok(mail);
        }
        let earlier = governance.storage.readers.now(|reader| match reader.session(handle.key.as_str())? {
            Some(session) => reader.messages(&session, MAX_MESSAGES_SEARCHED),
            None => Ok(Vec::new()),
        });
        let earlier = earlier?;
        for message in unread {
            let is_known = earlier.iter().any(|known| {
                known.role == Role::Mailbox.as_str() && known.name.as_deref() == Some(&message.id)
            });
            if is_known {
                mail.known.push(message.id);
                continue;
            }
            let asked = requesting_session(governance, &message)?;
            if asked.as_ref().is_some_and(|asked| *asked != *handle.key)
                || !claimed_mail.insert(message.id.clone())
            {
                continue;
            }
            mail.claimed.push(message.id.clone());
            let labels = match asked {
                // The result of its own call has the labels of the session, like the call.
                Some(_) => governance.policy.gate.stored_labels(&LabelName::message(&message.id)),
                None => governance.policy.gate.message_labels(&message.id),
            };
            mail.fresh.push((message, labels?));
        }
        Ok(mail)
    }

    /// The labels that the messages bring into the session.
    pub(super) fn labels(&self) -> Labels {
        self.fresh.iter().fold(Labels::FRESH, |all, (_, labels)| all.meet(*labels))
    }

    /// Records each message in the batch. Returns them as the messages that precede the input of the user.
    pub(super) fn inject(
        &self,
        recorder: &mut TurnRecorder,
        turn: Cid,
    ) -> Result<Vec<Message>, RuntimeError> {
        let mut messages = Vec::with_capacity(self.fresh.len());
        for (message, labels) in &self.fresh {
            let text = format!("[mailbox from {}: {}]", message.from, message.text);
            let content = vec![ContentBlock::text(text)];
            let content_hash = recorder.content(&content)?;
            let (letter, from, labels) = (message.id.clone(), message.from.clone(), *labels);
            let record = MailboxRecord { letter, from, content_hash, labels };
            let target = Arc::clone(&recorder.handle.session_id);
            let entry = recorder.line(EntryQuality::MailboxInject, &target, vec![turn], &record)?;
            recorder.event(EventKind::MailboxInjected { entry: Box::new(entry) });
            messages.push(Message { role: Role::Mailbox, content });
        }
        Ok(messages)
    }

    /// Marks the messages as read: they are recorded.
    pub(super) async fn acknowledge(self) {
        if self.fresh.is_empty() && self.known.is_empty() {
            return;
        }
        let marked = tokio::task::spawn_blocking(move || {
            let fresh = self.fresh.iter().map(|(message, _)| message.id.as_str());
            let ids: Vec<&str> = fresh.chain(self.known.iter().map(String::as_str)).collect();
            if let Err(error) =
                self.governance.agent_files.mailbox.ack(&ids, self.governance.storage.clock.now())
            {
                tracing::warn!(%error, agent = %self.agent, "mailbox messages could not be marked as read");
            }
        });
        // This fails only when the daemon is shutting down; the messages are injected again then, and recognized as
        // recorded.
        let _ = marked.await;
    }
}

/// The session that made the call whose result a message carries. A sub-agent is gone after its turn, so the result of
/// its calls is for the next session of the agent.
fn requesting_session(
    governance: &Governance,
    message: &MailboxMessage,
) -> Result<Option<SessionKey>, RuntimeError> {
    let Some(id) = approval_of(&message.id) else { return Ok(None) };
    let row = governance.storage.readers.now(|reader| reader.approval(id))?;
    let asked = row.and_then(|row| row.requested.session.parse::<SessionKey>().ok());
    Ok(asked.filter(|asked| !asked.is_subagent()))
}

impl Drop for InjectedMail {
    fn drop(&mut self) {
        let mut claimed = self.governance.live.claimed_mail.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.claimed {
            claimed.remove(id);
        }
    }
}
