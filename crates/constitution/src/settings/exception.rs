//! A named exception: the calls of a side-effect tool that need no person, and how many of them.
//!
//! Example: the answer of a honeypot, with a fixed template, to the kind of person who wrote in, without links or
//! attachments, limited per hour.

use serde::{Deserialize, Serialize};

use super::SettingFault;
use crate::facts::Facts;
use crate::trust::Trust;

/// Bytes of an exception's id: a word in verdicts.
const MAX_ID_BYTES: usize = 64;

/// The most uses of one exception in its period. A higher limit would limit nothing.
const MAX_COUNT: u64 = 1_000_000;

/// The longest period: a year.
const MAX_PER_SECONDS: u64 = 31_536_000;

/// An exception for calls that match it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Exception {
    pub id: String,
    pub tool: String,
    /// The templates that it covers; empty: any text.
    #[serde(default)]
    pub templates: Vec<String>,
    /// The kinds of recipients that it covers; empty: any.
    #[serde(default)]
    pub recipient_types: Vec<String>,
    #[serde(default)]
    pub no_links: bool,
    #[serde(default)]
    pub no_attachments: bool,
    /// The least input trust that it covers, if that is lower than the tool's: an answer to an unknown sender is
    /// written in a session that read the sender's words. Requires `templates`, so that those words do not choose
    /// the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_input_trust: Option<Trust>,
    pub limit: RateLimit,
}

/// A number of uses in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RateLimit {
    pub count: u64,
    pub per_seconds: u64,
}

impl Exception {
    /// Whether it covers a call. A missing fact never counts in favor of the call.
    pub fn covers(&self, facts: &Facts) -> Result<(), &'static str> {
        let args = &facts.args;
        let among = |list: &[String], value: &Option<String>| {
            list.is_empty() || value.as_ref().is_some_and(|value| list.contains(value))
        };
        if facts.tool != self.tool {
            return Err("it is for another tool");
        }
        if !among(&self.templates, &args.template) {
            return Err("the template is not among its own");
        }
        if !among(&self.recipient_types, &args.recipient_type) {
            return Err("the kind of recipient is not among its own");
        }
        if self.no_links && args.links != Some(false) {
            return Err("the text holds a link");
        }
        if self.no_attachments && args.attachments != Some(false) {
            return Err("something is attached");
        }
        match facts.exception_uses.get(&self.id) {
            Some(uses) if *uses < self.limit.count => Ok(()),
            Some(_) => Err("its limit is used up"),
            None => Err("its uses were not counted"),
        }
    }

    /// The values that are wrong, by their paths in the exception.
    pub(super) fn faults(&self) -> Vec<SettingFault> {
        let mut faults = Vec::new();
        let mut add =
            |path: &str, message: String| faults.push(SettingFault { path: path.to_owned(), message });
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !(1..=MAX_ID_BYTES).contains(&self.id.len()) || !self.id.bytes().all(word) {
            let message =
                format!("cannot name an exception: use letters, digits, `_` and `-`, at most {MAX_ID_BYTES}");
            add("id", message);
        }
        let bounded = [
            ("limit.count", self.limit.count, MAX_COUNT),
            ("limit.perSeconds", self.limit.per_seconds, MAX_PER_SECONDS),
        ];
        for (path, value, most) in bounded {
            if !(1..=most).contains(&value) {
                add(path, format!("is {value}: use a whole number from 1 to {most}"));
            }
        }
        if self.min_input_trust.is_some() && self.templates.is_empty() {
            let message =
                "lets less trusted words choose the text: list the `templates` it is for, or remove it";
            add("minInputTrust", message.to_owned());
        }
        faults
    }
}
