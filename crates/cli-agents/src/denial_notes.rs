//! Reasons of denials that an agent could not be told at once: the answer to a permission request of ACP has no place for
//! one. They stand before its next prompt.

use std::sync::{Arc, Mutex, PoisonError};

/// Denials that are told at most.
const MAX_NOTES: usize = 8;

/// Bytes of one note.
const MAX_NOTE_BYTES: usize = 600;

/// The notes for the next prompt of one agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct DenialNotes(Arc<Mutex<Vec<String>>>);

impl DenialNotes {
    /// Notes that a call was denied.
    pub(crate) fn add(&self, call: &str, why: &str) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MAX_NOTES {
            let mut note = format!("- {call}: {why}");
            note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
            notes.push(note);
        }
    }

    /// Takes the notes, as text for the agent.
    pub(crate) fn take(&self) -> Option<String> {
        let notes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let text = format!("[Tribune refused calls of your last turn, and why:\n{}]", notes.join("\n"));
        (!notes.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_told_once_and_bounded() {
        let notes = DenialNotes::default();
        assert_eq!(notes.take(), None);
        notes.add("exec make", "denied by operator: not on a Friday");
        let told = "[Tribune refused calls of your last turn, and why:\n- exec make: denied by operator: not on a Friday]";
        assert_eq!(notes.take().as_deref(), Some(told));
        assert_eq!(notes.take(), None);
        (0..100).for_each(|_| notes.add("exec", &"ü".repeat(10_000)));
        assert!(notes.take().unwrap().len() < 2 * MAX_NOTES * MAX_NOTE_BYTES);
    }
}
