//! `/tribune` (and `/clawos`) in a conversation: the daemon answers with the status of the law, and the agent does not
//! see it. It is recorded and shown like any other turn; only no backend runs it.
//!
//! It works for input with owner trust only. Input of others, or of an owner whose trust a hook lowered, goes to the
//! agent. The answer is about this session and its law, and says nothing about other sessions: everyone who may read
//! the session can read the answer.

use std::fmt::Write as _;

use futures_util::{StreamExt as _, stream};
use tribune_constitution::{EnforcementMode, Trust};
use tribune_records::approval::record::Requested;
use tribune_runtime::{
    ContentBlock, EventKind, EventStream, Handle, RuntimeError, RuntimeEvent, Speaker, StopReason, TurnInput,
};
use tribune_storage::verdict_log::{LastDenial, last_denials};

use super::Governance;

/// The skill name of such a turn in the ledger.
pub(super) const SKILL: &str = "house";

/// The commands that the daemon answers.
const COMMANDS: [&str; 2] = ["/tribune", "/clawos"];

/// Maximum number of listed items.
const MAX_LISTED: usize = 20;

/// Maximum number of characters of a reason, or of a name that an agent invented.
const SHOWN_CHARS: usize = 200;

/// The event stream of a turn that the daemon answers; `None` if the input is for the agent. `trust` is the trust of
/// the input, `gate` the gate status of the agent.
pub(super) async fn answer(
    governance: &Governance,
    handle: &Handle,
    input: &TurnInput,
    trust: Trust,
    gate: impl FnOnce() -> Option<String>,
) -> Result<Option<EventStream>, RuntimeError> {
    let is_owner = input.speaker == Speaker::Owner && trust == Trust::Owner && input.schedule_id.is_none();
    if !is_owner || !is_meant(&input.content) {
        return Ok(None);
    }
    let text = text(governance, handle, gate()).await?;
    let kinds = [EventKind::TextDelta { text }, EventKind::Done { stop_reason: StopReason::EndTurn }];
    let numbered = kinds.into_iter().zip(1..).map(|(kind, seq)| Ok(RuntimeEvent { seq, kind }));
    Ok(Some(stream::iter(numbered.collect::<Vec<_>>()).boxed()))
}

/// Whether the content is one of the commands and nothing else.
pub fn is_meant(content: &[ContentBlock]) -> bool {
    matches!(content, [ContentBlock::Text { text }] if COMMANDS.contains(&text.trim()))
}

async fn text(
    governance: &Governance,
    handle: &Handle,
    gate: Option<String>,
) -> Result<String, RuntimeError> {
    let (law, key) = (&governance.policy.gate.law, handle.key.as_str().to_owned());
    let waiting = governance.policy.gate.inbox.waiting_in(&key);
    let denials = governance.storage.readers.read(move |reader| last_denials(reader, Some(&key))).await;
    let (denials, settings) = (denials?, law.settings());
    let mode = match settings.mode {
        EnforcementMode::Enforce => "enforce: its decisions hold",
        EnforcementMode::Audit => "audit: its decisions are recorded, and calls are allowed",
        EnforcementMode::Off => "off: it decides nothing beyond mandates, hooks and the stop switch",
    };
    let overrides = match settings.overrides.len() {
        0 => String::new(),
        n => format!(" (tools with a mode of their own: {n})"),
    };
    let mut text =
        format!("The law of this session:\n\n- mode: {mode}{overrides}\n- hash: `{}`\n", law.hash());
    let (all, own) = (law.manifests().len(), law.texts().manifests.len());
    let _ = writeln!(text, "- manifests: {all}, of which {own} from this instance");
    if let Some(gate) = gate {
        let _ = writeln!(text, "- gate: {}", line(&gate));
    }
    list(&mut text, "denied here", &denials, |denial: &LastDenial| {
        format!("{} ({}): {}", line(&denial.tool), line(&denial.rules.join(", ")), line(&denial.reason))
    });
    list(&mut text, "waits here for a person", &waiting, |asked: &Requested| {
        format!("`{}`: {} ({})", asked.id, line(&asked.tool), line(&asked.reason))
    });
    Ok(text)
}

fn list<T>(text: &mut String, name: &str, items: &[T], item: impl Fn(&T) -> String) {
    if items.is_empty() {
        let _ = writeln!(text, "- {name}: nothing");
        return;
    }
    let _ = writeln!(text, "- {name}:");
    for one in items.iter().take(MAX_LISTED) {
        let _ = writeln!(text, "  - {}", item(one));
    }
    if items.len() > MAX_LISTED {
        let _ = writeln!(text, "  - and {} more", items.len() - MAX_LISTED);
    }
}

/// The start of a text, on one line.
fn line(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_command_alone_is_answered_by_the_daemon() {
        let is_command = |text: &str| is_meant(&[ContentBlock::text(text)]);
        assert!(is_command("/tribune") && is_command(" /clawos\n"));
        for other in ["/tribune please", "tribune", "/Tribune", "", "what does /tribune do?"] {
            assert!(!is_command(other), "{other}");
        }
        assert!(!is_meant(&[]));
        assert!(!is_meant(&[ContentBlock::text("/tribune"), ContentBlock::text("and more")]));
    }
}
