//! The texts that a law is made of, as they are in the home.

use std::collections::BTreeMap;

use crate::mandate::{DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT, RUN_MANDATE, RUN_MANDATE_TEXT};

/// The constitution that `tribune init` writes to a new home.
pub const DEFAULT_CONSTITUTION: &str = include_str!("default_constitution.md");

/// The texts of one home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LawTexts {
    /// `constitution.md`.
    pub constitution: String,
    /// `mandates/<name>.md`, by name.
    pub mandates: BTreeMap<String, String>,
    /// `manifests/<tool>.json`, by tool.
    pub manifests: BTreeMap<String, String>,
    /// `policy/<file>`, by the file's name with its extension `.cedar`.
    pub policies: BTreeMap<String, String>,
    /// `policy/law.json5`.
    pub law: Option<String>,
}

impl LawTexts {
    /// The texts of a home that contains none.
    pub fn built_in() -> Self {
        Self {
            constitution: DEFAULT_CONSTITUTION.to_owned(),
            mandates: [(DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT), (RUN_MANDATE, RUN_MANDATE_TEXT)]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            manifests: BTreeMap::new(),
            policies: BTreeMap::new(),
            law: None,
        }
    }
}
