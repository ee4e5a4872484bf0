//! What the owner said, and which parts of it calls have used up.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tribune_constitution::provenance::{ArgumentUse, OwnerSpan, OwnerText, WordsUse, owner_spans};

/// Texts that are kept.
const MAX_TEXTS: usize = 8;

/// The newest texts of the owner, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OwnerWords(Mutex<VecDeque<SpokenText>>);

#[derive(Debug)]
struct SpokenText {
    text: String,
    /// The parts that calls have used up, with the id of the call.
    used: Vec<(String, Range<usize>)>,
}

impl OwnerWords {
    pub(crate) fn of(text: String) -> Self {
        let words = Self::default();
        words.add(text);
        words
    }

    pub(crate) fn add(&self, text: String) {
        let mut texts = self.texts();
        texts.push_back(SpokenText { text, used: Vec::new() });
        if texts.len() > MAX_TEXTS {
            texts.pop_front();
        }
    }

    /// Whether the arguments of a call are the owner's. What the call itself has used up before counts as free.
    pub(super) fn contain(
        &self,
        call: &str,
        arguments: &Value,
        taken_as: ArgumentUse,
        words_use: WordsUse,
    ) -> bool {
        spans(&self.texts(), call, arguments, taken_as, words_use).is_some()
    }

    /// Marks the words that a call relies on as used up.
    pub(super) fn use_up(&self, call: &str, arguments: &Value, taken_as: ArgumentUse) {
        let mut texts = self.texts();
        let Some(spans) = spans(&texts, call, arguments, taken_as, WordsUse::Once) else { return };
        for OwnerSpan { text, range } in spans {
            if let Some(spoken) = texts.get_mut(text) {
                spoken.used.push((call.to_owned(), range));
            }
        }
    }

    fn texts(&self) -> MutexGuard<'_, VecDeque<SpokenText>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spans(
    texts: &VecDeque<SpokenText>,
    call: &str,
    arguments: &Value,
    taken_as: ArgumentUse,
    words_use: WordsUse,
) -> Option<Vec<OwnerSpan>> {
    let by_others = |spoken: &SpokenText| -> Vec<Range<usize>> {
        let others = spoken.used.iter().filter(|(by, _)| by != call);
        others.map(|(_, range)| range.clone()).collect()
    };
    let used: Vec<Vec<Range<usize>>> = texts.iter().map(by_others).collect();
    let texts = texts.iter().zip(&used).map(|(spoken, used)| OwnerText { text: &spoken.text, used });
    owner_spans(arguments, taken_as, words_use, &texts.collect::<Vec<_>>())
}
