//! Finds and removes the secrets of a complete text.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::InputText;
use crate::exact_values::MIN_EXACT_VALUE_BYTES;
use crate::scan::{Anchors, Contacts, Scan};
use crate::secret::Secret;

/// Finds and removes secrets. Cheap to clone.
#[derive(Clone)]
pub struct Redactor {
    anchors: Arc<Anchors>,
    exact_values: Arc<Vec<String>>,
    contacts: Contacts,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new()
    }
}

impl Redactor {
    /// Finds secrets by shape and by name, and no exact values.
    pub fn new() -> Self {
        Self { anchors: Anchors::of_shapes(), exact_values: Arc::default(), contacts: Contacts::default() }
    }

    /// Also finds these exact values, whatever their shape, and their encodings in JSON, URLs and base64.
    /// Values shorter than [`MIN_EXACT_VALUE_BYTES`] are ignored. This takes about a millisecond: keep the result.
    #[must_use]
    pub fn with_exact_values(mut self, values: Vec<String>) -> Self {
        let exact_values = Arc::make_mut(&mut self.exact_values);
        let before = exact_values.len();
        exact_values.extend(values.into_iter().filter(|value| value.len() >= MIN_EXACT_VALUE_BYTES));
        exact_values.sort_unstable();
        exact_values.dedup();
        if exact_values.len() != before {
            self.anchors = Arc::new(Anchors::with_exact_values(exact_values));
        }
        self
    }

    /// Also removes mail addresses.
    #[must_use]
    pub fn with_emails(mut self) -> Self {
        self.contacts.emails = true;
        self
    }

    /// Also removes telephone numbers.
    #[must_use]
    pub fn with_phones(mut self) -> Self {
        self.contacts.phones = true;
        self
    }

    /// The text with `[redacted:KIND]` in place of every secret.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let secrets = self.secrets(text);
        if secrets.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::with_capacity(text.len());
        write_redacted(&mut redacted, text, 0..text.len(), 0, &secrets);
        Cow::Owned(redacted)
    }

    /// Whether the text contains a secret.
    pub fn contains_secret(&self, text: &str) -> bool {
        !self.secrets(text).is_empty()
    }

    /// Byte offset of the first secret.
    pub fn first_secret(&self, text: &str) -> Option<usize> {
        self.secrets(text).first().map(|secret| secret.start)
    }

    pub(crate) fn scan(&self, input: InputText<'_>) -> Scan {
        self.anchors.scan(input, self.contacts)
    }

    fn secrets(&self, text: &str) -> Vec<Secret> {
        self.scan(InputText { bytes: text.as_bytes(), is_complete: true }).secrets
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} known values)", self.exact_values.len())
    }
}

/// Appends a range of `text`, with a placeholder for every secret that starts in it. The bytes before `covered` belong
/// to secrets that started earlier and are skipped. Returns the new end of the bytes that secrets cover.
pub(crate) fn write_redacted(
    out: &mut String,
    text: &str,
    range: Range<usize>,
    covered: usize,
    secrets: &[Secret],
) -> usize {
    let mut done = range.start.max(covered);
    for secret in secrets.iter().filter(|secret| range.contains(&secret.start)) {
        if secret.start >= done {
            out.push_str(&text[done..secret.start]);
            out.push_str("[redacted:");
            out.push_str(secret.kind);
            out.push(']');
        }
        // Secrets may overlap; a byte that any of them covers is removed.
        done = done.max(secret.end);
    }
    if done < range.end {
        out.push_str(&text[done..range.end]);
    }
    done
}

#[cfg(test)]
#[path = "redactor_tests.rs"]
pub(crate) mod tests;
