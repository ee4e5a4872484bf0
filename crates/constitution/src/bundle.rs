//! The constitution with its mandates, and the hash that names them together.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tribune_ledger::Cid;
use tribune_ledger::cid::Domain;
use tribune_ledger::jcs::{self, JcsError};

use crate::mandate::{DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT, Mandate, MandateError, shown};
use crate::prompt;

/// Bytes of the constitution: it is read in every session's prompt.
pub const MAX_CONSTITUTION_BYTES: usize = 64 * 1024;

/// Mandates of one house: a folder someone can still read through.
pub const MAX_MANDATES: usize = 64;

/// The constitution as it is first written to a home.
pub const DEFAULT_CONSTITUTION: &str = include_str!("default_constitution.md");

/// The law in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constitution {
    text: String,
    mandates: BTreeMap<String, MandateSource>,
    // INVARIANT: the hash of the two fields above, which nothing changes after they were checked.
    hash: ConstitutionHash,
}

/// A mandate beside the text it was read from; the text is what is hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MandateSource {
    pub mandate: Mandate,
    pub source: String,
}

/// Why texts are no constitution. Each sentence ends with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstitutionError {
    #[error("the constitution has {bytes} bytes: shorten it to at most {MAX_CONSTITUTION_BYTES}")]
    TooLarge { bytes: usize },
    #[error("the constitution is empty: write down what holds for every agent")]
    Empty,
    #[error(
        "the constitution, line {line}: a line beginning with `{}` would pass for the end of the prompt: word it differently",
        prompt::FOOTER
    )]
    Footer { line: usize },
    #[error("there are more than {MAX_MANDATES} mandates: merge or remove some")]
    TooManyMandates,
    #[error("there are two mandates named `{0}`: rename or remove one")]
    TwoMandates(String),
    #[error("the mandate `{name}`: {error}")]
    Mandate { name: String, error: MandateError },
    #[error("the constitution has no canonical form: {0}")]
    Canonical(#[from] JcsError),
}

impl Constitution {
    /// Checks the texts: the constitution, and each mandate's name with its file's text.
    pub fn new<N: Into<String>, S: Into<String>>(
        text: impl Into<String>,
        mandates: impl IntoIterator<Item = (N, S)>,
        known_tools: &[&str],
    ) -> Result<Self, ConstitutionError> {
        let text = text.into();
        if text.len() > MAX_CONSTITUTION_BYTES {
            return Err(ConstitutionError::TooLarge { bytes: text.len() });
        }
        if text.trim().is_empty() {
            return Err(ConstitutionError::Empty);
        }
        if let Some(line) = prompt::line_like_footer(&text) {
            return Err(ConstitutionError::Footer { line });
        }
        let mut checked = BTreeMap::new();
        for (name, source) in mandates {
            let (name, source) = (name.into(), source.into());
            let read = Mandate::parse(&name, &source, known_tools)
                .and_then(|mandate| mandate.check_default().map(|()| mandate));
            let mandate = read.map_err(|error| ConstitutionError::Mandate { name: shown(&name), error })?;
            if checked.insert(name.clone(), MandateSource { mandate, source }).is_some() {
                return Err(ConstitutionError::TwoMandates(name));
            }
            if checked.len() > MAX_MANDATES {
                return Err(ConstitutionError::TooManyMandates);
            }
        }
        let hash = ConstitutionHash::of(&text, &checked)?;
        Ok(Self { text, mandates: checked, hash })
    }

    /// The law of a home where nobody wrote another: the default texts.
    pub fn built_in(known_tools: &[&str]) -> Result<Self, ConstitutionError> {
        Self::new(DEFAULT_CONSTITUTION, [(DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT)], known_tools)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub const fn hash(&self) -> ConstitutionHash {
        self.hash
    }

    pub fn mandate(&self, name: &str) -> Option<&Mandate> {
        self.mandates.get(name).map(|found| &found.mandate)
    }

    /// All mandates with their texts, by name.
    pub const fn mandates(&self) -> &BTreeMap<String, MandateSource> {
        &self.mandates
    }
}

/// Names a constitution to the byte: `b3:` and 64 lowercase hex digits, the text form of a CID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConstitutionHash(Cid);

/// A text that is no constitution hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a constitution hash is `b3:` followed by 64 lowercase hex digits")]
pub struct NotAConstitutionHash;

impl ConstitutionHash {
    /// BLAKE3 over the canonical form of `{"constitution": text, "mandates": {name: source}}`.
    fn of(text: &str, mandates: &BTreeMap<String, MandateSource>) -> Result<Self, JcsError> {
        let sources: BTreeMap<&str, &str> =
            mandates.iter().map(|(name, found)| (name.as_str(), found.source.as_str())).collect();
        let canonical = jcs::to_vec(&json!({"constitution": text, "mandates": sources}))?;
        Ok(Self(Cid::from_bytes(Domain::Constitution.hash(&[&canonical]))))
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ConstitutionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConstitutionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ConstitutionHash {
    type Err = NotAConstitutionHash;

    fn from_str(text: &str) -> Result<Self, NotAConstitutionHash> {
        text.parse().map(Self).map_err(|_| NotAConstitutionHash)
    }
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
