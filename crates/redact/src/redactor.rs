//! Finds and removes the secrets of a text that is all here.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::View;
use crate::exact_values::MIN_KNOWN_BYTES;
use crate::scan::{Anchors, Contacts, Scan};
use crate::secret::Secret;
use crate::stream::Redacting;

/// Finds and removes secrets. Cheap to clone.
#[derive(Clone)]
pub struct Redactor {
    anchors: Arc<Anchors>,
    known: Arc<Vec<String>>,
    contacts: Contacts,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new()
    }
}

impl Redactor {
    /// Knows the shapes only.
    pub fn new() -> Self {
        Self { anchors: Anchors::of_shapes(), known: Arc::default(), contacts: Contacts::default() }
    }

    /// Looks for these values too, whatever their shape, and for the ways they are written in JSON, URLs and base64.
    /// Values shorter than [`MIN_KNOWN_BYTES`] are left out. This takes about a millisecond: keep what it gives.
    #[must_use]
    pub fn with_known(mut self, values: Vec<String>) -> Self {
        let known = Arc::make_mut(&mut self.known);
        let before = known.len();
        known.extend(values.into_iter().filter(|value| value.len() >= MIN_KNOWN_BYTES));
        known.sort_unstable();
        known.dedup();
        if known.len() != before {
            self.anchors = Arc::new(Anchors::with_known(known));
        }
        self
    }

    /// Takes out mail addresses too.
    #[must_use]
    pub fn with_emails(mut self) -> Self {
        self.contacts.emails = true;
        self
    }

    /// Takes out telephone numbers too.
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
        write_without(&mut redacted, text, 0..text.len(), 0, &secrets);
        Cow::Owned(redacted)
    }

    /// Whether there is anything to redact.
    pub fn finds(&self, text: &str) -> bool {
        !self.secrets(text).is_empty()
    }

    /// Where the first secret begins, in bytes.
    pub fn first(&self, text: &str) -> Option<usize> {
        self.secrets(text).first().map(|secret| secret.start)
    }

    /// Redacts a text that comes in pieces.
    pub fn stream(&self) -> Redacting {
        Redacting::new(self.clone())
    }

    pub(crate) fn scan(&self, view: View<'_>) -> Scan {
        self.anchors.scan(view, self.contacts)
    }

    fn secrets(&self, text: &str) -> Vec<Secret> {
        self.scan(View { bytes: text.as_bytes(), is_whole: true }).secrets
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} known values)", self.known.len())
    }
}

/// Writes a stretch of a text, of which everything up to `covered` is gone, without the secrets that begin in it. Says
/// up to where the text is gone now.
pub(crate) fn write_without(
    out: &mut String,
    text: &str,
    stretch: Range<usize>,
    covered: usize,
    secrets: &[Secret],
) -> usize {
    let mut done = stretch.start.max(covered);
    for secret in secrets.iter().filter(|secret| stretch.contains(&secret.start)) {
        if secret.start >= done {
            out.push_str(&text[done..secret.start]);
            out.push_str("[redacted:");
            out.push_str(secret.kind);
            out.push(']');
        }
        // Secrets may overlap; what any of them covers is gone.
        done = done.max(secret.end);
    }
    if done < stretch.end {
        out.push_str(&text[done..stretch.end]);
    }
    done
}

#[cfg(test)]
#[path = "redactor_tests.rs"]
pub(crate) mod tests;
