//! The letters that a turn takes with it: from the mailbox, on record, and marked as read.

use std::sync::{Arc, PoisonError};

use tribune_constitution::Labels;
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::MailboxRecord;
use tribune_registry::mailbox::Letter;
use tribune_runtime::{AgentId, ContentBlock, EventKind, Handle, Message, Role, RuntimeError, SessionKey};

use super::Governance;
use super::resume_parked::approval_of;
use super::turn_recorder::TurnRecorder;

/// Messages of a session looked through for letters that it already had.
const LOOKED_BACK: usize = 1_000;

/// Unread letters, claimed for one turn until this is dropped.
pub(super) struct InjectedMail {
    agent: AgentId,
    fresh: Vec<(Letter, Labels)>,
    /// Already on record from a turn whose acknowledgement was lost.
    known: Vec<String>,
    claimed: Vec<String>,
    governance: Arc<Governance>,
}

impl InjectedMail {
    /// For a turn that its agent does not hear.
    pub(super) fn none(governance: &Arc<Governance>, handle: &Handle) -> Self {
        Self {
            agent: handle.key.agent().clone(),
            fresh: Vec::new(),
            known: Vec::new(),
            claimed: Vec::new(),
            governance: Arc::clone(governance),
        }
    }

    /// Blocks on the disk.
    pub(super) fn claim(governance: &Arc<Governance>, handle: &Handle) -> Result<Self, RuntimeError> {
        let nothing = Self::none(governance, handle);
        if handle.key.is_subagent() {
            // A letter to the agent is not for someone who is gone after one turn.
            return Ok(nothing);
        }
        // Held while looking: a letter whose claim is gone was acknowledged before, and is not found unread.
        let mut claimed = governance.claimed_mail.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = governance.mailbox.unread(&nothing.agent).unwrap_or_else(|error| {
            tracing::warn!(%error, "the mailbox could not be read");
            Vec::new()
        });
        let mut letters = nothing;
        if unread.is_empty() {
            return Ok(letters);
        }
        let had = governance.readers.now(|reader| match reader.session(handle.key.as_str())? {
            Some(session) => reader.messages(&session, LOOKED_BACK),
            None => Ok(Vec::new()),
        });
        let had = had?;
        for letter in unread {
            let is_known = had.iter().any(|message| {
                message.role == Role::Mailbox.as_str() && message.name.as_deref() == Some(&letter.id)
            });
            if is_known {
                letters.known.push(letter.id);
                continue;
            }
            let asked = asked_in(governance, &letter)?;
            if asked.as_ref().is_some_and(|asked| *asked != *handle.key) || !claimed.insert(letter.id.clone())
            {
                continue;
            }
            letters.claimed.push(letter.id.clone());
            let labels = match asked {
                // What came of a call of its own is no less the session's than the call.
                Some(_) => governance.gate.stored_labels(&format!("letter:{}", letter.id)),
                None => governance.gate.letter_labels(&letter.id),
            };
            letters.fresh.push((letter, labels?));
        }
        Ok(letters)
    }

    /// What the letters bring into the session.
    pub(super) fn labels(&self) -> Labels {
        self.fresh.iter().fold(Labels::FRESH, |all, (_, labels)| all.meet(*labels))
    }

    /// Puts each letter on the page; returns them as the messages that stand before the user's.
    pub(super) fn inject(&self, desk: &mut TurnRecorder, turn: Cid) -> Result<Vec<Message>, RuntimeError> {
        let mut messages = Vec::with_capacity(self.fresh.len());
        for (letter, labels) in &self.fresh {
            let said = format!("[mailbox from {}: {}]", letter.from, letter.text);
            let content = vec![ContentBlock::text(said)];
            let content_hash = desk.content(&content)?;
            let (letter, from, labels) = (letter.id.clone(), letter.from.clone(), *labels);
            let record = MailboxRecord { letter, from, content_hash, labels };
            let target = Arc::clone(&desk.handle.session_id);
            let entry = desk.line(EntryQuality::MailboxInject, &target, vec![turn], &record)?;
            desk.event(EventKind::MailboxInjected { entry: Box::new(entry) });
            messages.push(Message { role: Role::Mailbox, content });
        }
        Ok(messages)
    }

    /// The letters are on record: they need not be read again.
    pub(super) async fn acknowledge(self) {
        if self.fresh.is_empty() && self.known.is_empty() {
            return;
        }
        let marked = tokio::task::spawn_blocking(move || {
            let fresh = self.fresh.iter().map(|(letter, _)| letter.id.as_str());
            let ids: Vec<&str> = fresh.chain(self.known.iter().map(String::as_str)).collect();
            if let Err(error) = self.governance.mailbox.ack(&ids, self.governance.clock.now()) {
                tracing::warn!(%error, agent = %self.agent, "letters could not be marked as read");
            }
        });
        // It fails only when the daemon is being torn down; the letters come again, and are known by then.
        let _ = marked.await;
    }
}

/// The session that waits for what a letter tells of its call. A sub-agent is gone after its turn, so what came of its
/// calls is for whichever session of the agent is next.
fn asked_in(governance: &Governance, letter: &Letter) -> Result<Option<SessionKey>, RuntimeError> {
    let Some(id) = approval_of(&letter.id) else { return Ok(None) };
    let row = governance.readers.now(|reader| reader.approval(id))?;
    let asked = row.and_then(|row| row.requested.session.parse::<SessionKey>().ok());
    Ok(asked.filter(|asked| !asked.is_subagent()))
}

impl Drop for InjectedMail {
    fn drop(&mut self) {
        let mut claimed = self.governance.claimed_mail.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.claimed {
            claimed.remove(id);
        }
    }
}
