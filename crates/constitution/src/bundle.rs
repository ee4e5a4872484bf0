//! The constitution: every text that takes part in a decision, checked together and named by one hash.

use std::collections::{BTreeMap, BTreeSet};

use tribune_ledger::jcs::JcsError;

use crate::footer::{FOOTER, line_like_footer};
use crate::hash::{self, ConstitutionHash};
use crate::json5::TextError;
use crate::mandate::{self, Mandate, MandateError};
use crate::manifest::{MAX_MANIFESTS, ToolManifest};
use crate::rules::RuleSet;
use crate::settings::Settings;
use crate::text::sanitize;
use crate::texts::LawTexts;

/// Bytes of the constitution: every session's prompt contains it.
pub const MAX_CONSTITUTION_BYTES: usize = 64 * 1024;

/// Mandates of one law: a directory that a person can still read.
pub const MAX_MANDATES: usize = 64;

/// The law in force.
#[derive(Debug, Clone)]
pub struct Constitution {
    // INVARIANT: everything below is derived from these texts, and nothing changes them afterwards.
    texts: LawTexts,
    hash: ConstitutionHash,
    mandates: BTreeMap<String, Mandate>,
    manifests: BTreeMap<String, ToolManifest>,
    settings: Settings,
    rules: RuleSet,
    /// Every tool that a manifest or a mandate names.
    tools: BTreeSet<String>,
}

/// Id, position and effect of an operator's rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleSummary<'a> {
    /// From `@id("…")`, or derived from the file and the number of the rule in it.
    pub id: &'a str,
    pub file: &'a str,
    pub line: usize,
    /// Whether it is a `forbid`.
    pub forbids: bool,
}

impl PartialEq for Constitution {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Constitution {}

/// Why texts are not a constitution. Each sentence ends with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstitutionError {
    #[error("the constitution has {bytes} bytes: shorten it to at most {MAX_CONSTITUTION_BYTES}")]
    TooLarge { bytes: usize },
    #[error("the constitution is empty: write down what holds for every agent")]
    Empty,
    #[error(
        "the constitution, line {line}: a line beginning with `{}` could be mistaken for the end of the prompt: rephrase it",
        FOOTER
    )]
    Footer { line: usize },
    #[error("there are more than {MAX_MANDATES} mandates: merge or remove some")]
    TooManyMandates,
    #[error("the mandate `{name}`: {error}")]
    Mandate { name: String, error: MandateError },
    #[error("there are more than {MAX_MANIFESTS} manifests: remove some")]
    TooManyManifests,
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("{}", first_of(.0))]
    Several(Vec<ConstitutionError>),
    #[error("the constitution has no canonical form: {0}")]
    Canonical(#[from] JcsError),
}

impl ConstitutionError {
    fn all(mut faults: Vec<Self>) -> Self {
        match faults.pop() {
            Some(only) if faults.is_empty() => only,
            last => {
                faults.extend(last);
                Self::Several(faults)
            }
        }
    }
}

impl Constitution {
    /// Checks the texts. `known_tools` are the tools of the program; a mandate may name those and the ones that
    /// have a manifest, and any tool if the settings say `defaultAllow`. The error holds everything that is wrong.
    pub fn new(texts: LawTexts, known_tools: &[&str]) -> Result<Self, ConstitutionError> {
        let mut faults = Vec::from_iter(check_prose(&texts.constitution).err());
        let manifests = manifests(&texts.manifests, &mut faults);
        // A tool whose manifest cannot be read still exists: a mandate that names it is not a second error.
        let described = || manifests.keys().chain(texts.manifests.keys());
        let known: BTreeSet<&str> =
            known_tools.iter().copied().chain(described().map(String::as_str)).collect();
        // With `defaultAllow`, a mandate may name tools that nobody describes, and the settings may too.
        let named = texts.mandates.values().flat_map(|text| mandate::named_tools(text));
        let nameable: BTreeSet<&str> = known.iter().copied().chain(named).collect();
        let settings = texts.law.as_ref().map(|law| Settings::parse(law, &nameable));
        let default_allow = matches!(&settings, Some(Ok(settings)) if settings.default_allow);
        let known = if default_allow { nameable } else { known };
        let mandates = mandates(&texts.mandates, &known, &mut faults);
        let named = mandates.values().flat_map(|mandate| mandate.tools().iter().cloned());
        let tools: BTreeSet<String> = described().cloned().chain(named).collect();
        let settings = settings.unwrap_or_else(|| Ok(Settings::default())).unwrap_or_else(|errors| {
            faults.extend(errors.into_iter().map(ConstitutionError::Text));
            Settings::default()
        });
        match RuleSet::load(&texts.policies, &tools, &manifests) {
            Ok(rules) if faults.is_empty() => {
                let hash = ConstitutionHash::of(&texts)?;
                Ok(Self { texts, hash, mandates, manifests, settings, rules, tools })
            }
            Ok(_) => Err(ConstitutionError::all(faults)),
            Err(errors) => {
                faults.extend(errors.into_iter().map(ConstitutionError::Text));
                Err(ConstitutionError::all(faults))
            }
        }
    }

    /// The law of a home without texts: the default texts.
    pub fn built_in(known_tools: &[&str]) -> Result<Self, ConstitutionError> {
        Self::new(LawTexts::built_in(), known_tools)
    }

    /// The prose that every agent reads.
    pub fn text(&self) -> &str {
        &self.texts.constitution
    }

    /// The texts that the law is made of.
    pub const fn texts(&self) -> &LawTexts {
        &self.texts
    }

    /// The bytes that the hash covers: all texts and the kernel's version, in canonical form.
    pub fn canonical(&self) -> Result<Vec<u8>, JcsError> {
        hash::canonical(&self.texts)
    }

    pub const fn hash(&self) -> ConstitutionHash {
        self.hash
    }

    pub fn mandate(&self, name: &str) -> Option<&Mandate> {
        self.mandates.get(name)
    }

    /// All mandates, by name.
    pub const fn mandates(&self) -> &BTreeMap<String, Mandate> {
        &self.mandates
    }

    /// The tools that all of the named mandates allow, sorted. Empty if one of the mandates does not exist, or if
    /// none is named.
    pub fn mandate_tools(&self, names: &[impl AsRef<str>]) -> Vec<&str> {
        let Some((first, rest)) = names.split_first() else { return Vec::new() };
        let own = self.mandate(first.as_ref()).map_or(&[][..], Mandate::tools);
        let all = |tool: &&str| {
            rest.iter().all(|name| self.mandate(name.as_ref()).is_some_and(|mandate| mandate.allows(tool)))
        };
        own.iter().map(String::as_str).filter(all).collect()
    }

    /// The manifest of a tool: the operator's, or else the built-in one.
    pub fn manifest(&self, tool: &str) -> Option<&ToolManifest> {
        self.manifests.get(tool)
    }

    /// All manifests, by tool.
    pub const fn manifests(&self) -> &BTreeMap<String, ToolManifest> {
        &self.manifests
    }

    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Every tool that a manifest or a mandate names.
    pub const fn tools(&self) -> &BTreeSet<String> {
        &self.tools
    }

    /// The operator's rules, in the order of their files.
    pub fn rule_summaries(&self) -> impl Iterator<Item = RuleSummary<'_>> {
        self.rules.all().iter().map(|rule| RuleSummary {
            id: &rule.id,
            file: &rule.file,
            line: rule.position.line,
            forbids: rule.forbids,
        })
    }

    pub(crate) const fn rules(&self) -> &RuleSet {
        &self.rules
    }

    pub(crate) fn knows_tool(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }
}

fn first_of(faults: &[ConstitutionError]) -> String {
    let first = faults.first().map_or_else(String::new, ToString::to_string);
    format!("{first} (and {} more: `tribune law check` lists them)", faults.len().saturating_sub(1))
}

fn check_prose(text: &str) -> Result<(), ConstitutionError> {
    if text.len() > MAX_CONSTITUTION_BYTES {
        return Err(ConstitutionError::TooLarge { bytes: text.len() });
    }
    if text.trim().is_empty() {
        return Err(ConstitutionError::Empty);
    }
    match line_like_footer(text) {
        Some(line) => Err(ConstitutionError::Footer { line }),
        None => Ok(()),
    }
}

/// The manifests that can be read; the errors of the others go to `faults`.
fn manifests(
    sources: &BTreeMap<String, String>,
    faults: &mut Vec<ConstitutionError>,
) -> BTreeMap<String, ToolManifest> {
    if sources.len() > MAX_MANIFESTS {
        faults.push(ConstitutionError::TooManyManifests);
    }
    let mut manifests: BTreeMap<String, ToolManifest> =
        ToolManifest::all_built_in().map(|manifest| (manifest.id.clone(), manifest)).collect();
    for (id, source) in sources.iter().take(MAX_MANIFESTS) {
        match ToolManifest::parse(&format!("manifests/{id}.json"), id, source) {
            Ok(manifest) => {
                manifests.insert(id.clone(), manifest);
            }
            Err(errors) => faults.extend(errors.into_iter().map(ConstitutionError::Text)),
        }
    }
    manifests
}

fn mandates(
    sources: &BTreeMap<String, String>,
    known: &BTreeSet<&str>,
    faults: &mut Vec<ConstitutionError>,
) -> BTreeMap<String, Mandate> {
    if sources.len() > MAX_MANDATES {
        faults.push(ConstitutionError::TooManyMandates);
    }
    let known: Vec<&str> = known.iter().copied().collect();
    let mut mandates = BTreeMap::new();
    for (name, source) in sources.iter().take(MAX_MANDATES) {
        let read = Mandate::parse(name, source, &known);
        match read.and_then(|mandate| mandate.check_default().map(|()| mandate)) {
            Ok(mandate) => {
                mandates.insert(name.clone(), mandate);
            }
            Err(error) => faults.push(ConstitutionError::Mandate { name: sanitize(name), error }),
        }
    }
    mandates
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
