//! `/tribune` (and `/clawos`) in a conversation: the house answers by itself with how the law stands, and no agent hears of
//! it. It is a turn like any other, on record and shown as it is; only nobody runs it.
//!
//! It is for the owner's words alone. Whoever else says them, or an owner whose words a hook does not believe to be that,
//! says them to the agent. What is shown is about this session and the law that it is under, and nothing of other sessions:
//! whoever may read the session reads the answer too.

use std::fmt::Write as _;

use futures_util::{StreamExt as _, stream};
use tribune_constitution::{EnforcementMode, Trust};
use tribune_records::approval::record::Requested;
use tribune_runtime::{
    ContentBlock, EventKind, EventStream, Handle, RuntimeError, RuntimeEvent, Speaker, StopReason, TurnInput,
};
use tribune_storage::verdict_log::{LastDenial, last_denials};

use super::Governance;

/// What such a turn does for the record.
pub(super) const SKILL: &str = "house";

/// The words that are meant for the house.
const WORDS: [&str; 2] = ["/tribune", "/clawos"];

/// Calls that wait, at most.
const MAX_WAITING: usize = 20;

/// Characters of a reason, or of a name that an agent made up.
const SHOWN_CHARS: usize = 200;

/// A turn that the house answers, as a backend would tell it; `None` if it is for the agent. `trust` is how far its words
/// are believed, `gate` what is known of whether the gate holds the agent.
pub(super) async fn answer(
    governance: &Governance,
    handle: &Handle,
    (input, trust): (&TurnInput, Trust),
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

/// Whether what is said is a word for the house and nothing else.
pub fn is_meant(content: &[ContentBlock]) -> bool {
    matches!(content, [ContentBlock::Text { text }] if WORDS.contains(&text.trim()))
}

async fn text(
    governance: &Governance,
    handle: &Handle,
    gate: Option<String>,
) -> Result<String, RuntimeError> {
    let (law, key) = (&governance.gate.law, handle.key.as_str().to_owned());
    let waiting = governance.gate.inbox.waiting_in(&key);
    let denials = governance.readers.read(move |reader| last_denials(reader, Some(&key))).await;
    let (denials, settings) = (denials?, law.settings());
    let mode = match settings.mode {
        EnforcementMode::Enforce => "enforce: its decisions hold",
        EnforcementMode::Audit => "audit: its decisions are recorded, and calls are allowed",
        EnforcementMode::Off => "off: it decides nothing beyond mandates, hooks and the stop of everything",
    };
    let overrides = match settings.overrides.len() {
        0 => String::new(),
        n => format!(" (tools with a mode of their own: {n})"),
    };
    let mut text =
        format!("The law of this session:\n\n- mode: {mode}{overrides}\n- hash: `{}`\n", law.hash());
    let (all, own) = (law.manifests().len(), law.texts().manifests.len());
    let _ = writeln!(text, "- manifests: {all}, of which {own} of this house");
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
    for one in items.iter().take(MAX_WAITING) {
        let _ = writeln!(text, "  - {}", item(one));
    }
    if items.len() > MAX_WAITING {
        let _ = writeln!(text, "  - and {} more", items.len() - MAX_WAITING);
    }
}

/// The beginning of a text, on one line.
fn line(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_alone_is_for_the_house() {
        let said = |text: &str| is_meant(&[ContentBlock::text(text)]);
        assert!(said("/tribune") && said(" /clawos\n"));
        for other in ["/tribune please", "tribune", "/Tribune", "", "what does /tribune do?"] {
            assert!(!said(other), "{other}");
        }
        assert!(!is_meant(&[]));
        assert!(!is_meant(&[ContentBlock::text("/tribune"), ContentBlock::text("and more")]));
    }
}
