//! The law that an agent acts under.
//!
//! A [`Constitution`] is made from texts: prose for every agent, mandates, manifests, settings and rules; its hash
//! covers every byte of them. It turns the [`Facts`] of a call into a [`Verdict`]: allow, ask a person, or deny,
//! with the rules, the reason, and what would allow the call. The same law and the same facts always give the same
//! verdict, so a recorded call can be decided again.
//!
//! This crate is pure: it opens no file, reads no clock and starts no thread or process. `tribune-governance` loads the
//! texts, gathers the facts and acts on the verdicts.
//!
//! Start with [`bundle`] for what is hashed, [`facts`] for what a decision knows, `decide` for the order of the
//! rules, [`prompt`] for what an agent is told.

mod address;
pub mod args;
pub mod backtest;
pub mod bundle;
pub mod check;
pub mod command;
mod decide;
pub mod decision_trace;
pub mod examples;
pub mod explain;
pub mod facts;
#[cfg(test)]
mod fixtures;
mod footer;
pub mod hash;
pub mod json5;
pub mod labels;
pub mod mandate;
pub mod manifest;
mod paths;
pub mod prompt;
pub mod provenance;
pub mod rules;
pub mod settings;
pub mod suggest;
mod text;
pub mod texts;
pub mod tool_names;
pub mod trust;
pub mod verdict;

pub use self::json5::TextError;
pub use args::{CallArgs, CommandFacts};
pub use backtest::{Backtest, RecordedCall, backtest};
pub use bundle::{Constitution, ConstitutionError, RuleSummary};
pub use check::{LawFinding, Severity, check, check_agents};
pub use decision_trace::{RuleOutcome, TraceStep};
pub use examples::ExampleResult;
pub use explain::Explanation;
pub use facts::{
    ApprovalMode, ArgumentProvenance, DecisionStage, Facts, FactsError, OriginalCall, SessionKind, Veto,
};
pub use hash::{ConstitutionHash, KERNEL_VERSION};
pub use labels::Labels;
pub use mandate::{
    ANONYMOUS_TOOLS, DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT, Mandate, MandateError, RUN_MANDATE,
    RUN_MANDATE_TEXT,
};
pub use manifest::{Capability, Risk, ToolEffect, ToolManifest};
pub use prompt::{AgentPrompt, ChannelClass, DisclosureFilter, PromptStack};
pub use settings::{EnforcementMode, Settings};
pub use suggest::{Suggestion, suggest_rules};
pub use texts::{DEFAULT_CONSTITUTION, LawTexts};
pub use tool_names::{BY_OPERATOR, EGRESS, LAND, LISTED, MCP, MCP_SERVER, SPEND};
pub use tribune_nearest_name as suggest_name;
pub use trust::Trust;
pub use verdict::{Decision, Verdict};
