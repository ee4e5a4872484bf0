//! Constants and attributes that no call can have. Facts have a canonical form, and a rule that compares them with
//! another form never holds. Neither does a rule that reads an attribute which calls of its tools never have.

use std::collections::BTreeSet;

use crate::args::CallArgs;
use crate::bundle::Constitution;
use crate::paths::normalize;
use crate::rules::Rule;
use crate::rules::condition::{AttributeRef, Condition};
use crate::rules::schema::OF_ARGS;
use crate::text::sanitize;
use crate::tool_names::SPEND;

/// Nesting of conditions that is searched: as deep as conditions are understood.
const MAX_DEPTH: usize = 64;

/// Tools that a sentence names; more are only counted.
const MAX_NAMED: usize = 4;

/// The impossible constants and attributes of a rule, each as a sentence.
pub(super) fn find_impossible_values(law: &Constitution, rule: &Rule) -> Vec<String> {
    let calls = RuleCalls::new(law, rule);
    let mut found = Vec::new();
    for condition in rule.prefilter.conditions() {
        collect(condition, &calls, MAX_DEPTH, &mut found);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn collect(condition: &Condition, calls: &RuleCalls<'_>, depth: usize, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match condition {
        Condition::And(left, right) | Condition::Or(left, right) => {
            collect(left, calls, depth, found);
            collect(right, calls, depth, found);
        }
        Condition::Not(inner) => collect(inner, calls, depth, found),
        Condition::Has(AttributeRef::Context(name)) => found.extend(calls.never_have(name)),
        Condition::Text(AttributeRef::Context(name), text) => found.extend(impossible_text(name, text)),
        Condition::Like(AttributeRef::Context(name), pattern) => {
            found.extend(
                pattern.literals().enumerate().find_map(|(at, part)| impossible_literal(name, part, at == 0)),
            );
        }
        Condition::Text(..)
        | Condition::Like(..)
        | Condition::Unknown
        | Condition::Opaque
        | Condition::Always(_)
        | Condition::Has(AttributeRef::Agent(_) | AttributeRef::Session(_))
        | Condition::Flag(..)
        | Condition::Less(..)
        | Condition::AtMost(..)
        | Condition::Contains(..)
        | Condition::Set(..) => {}
    }
}

/// The calls that a rule is for.
struct RuleCalls<'a> {
    law: &'a Constitution,
    tools: &'a [String],
    /// The attributes of the arguments that any of them can have.
    attributes: BTreeSet<&'static str>,
}

impl<'a> RuleCalls<'a> {
    fn new(law: &'a Constitution, rule: &Rule) -> Self {
        let tools = law.rules().tools_of(rule);
        Self { law, tools, attributes: tools.iter().flat_map(|tool| CallArgs::attributes(tool)).collect() }
    }

    /// A sentence if none of the calls can have this attribute.
    fn never_have(&self, name: &str) -> Option<String> {
        let is_of_args = OF_ARGS.iter().any(|(own, _)| *own == name);
        // A rule for no tool has another finding.
        if !is_of_args || self.attributes.contains(name) || self.tools.is_empty() {
            return None;
        }
        // The daemon makes the calls about budgets, with arguments that no rule should read.
        let others = self.law.tools().iter().filter(|tool| *tool != SPEND);
        let others = others.filter(|tool| CallArgs::attributes(tool).contains(name));
        let others: Vec<&str> = others.map(String::as_str).collect();
        let elsewhere = match others.as_slice() {
            [] => "no tool has one".to_owned(),
            others => format!("tools that have one are {}", others.join(", ")),
        };
        let own: Vec<&str> = self.attributes.iter().copied().collect();
        let instead = match own.as_slice() {
            [] => "leave it out".to_owned(),
            own => format!("look at what they can have ({}), or leave it out", own.join(", ")),
        };
        Some(format!(
            "`context has {name}` never holds: calls of {} have no `{name}`, and {elsewhere}; {instead}",
            self.tool_list()
        ))
    }

    fn tool_list(&self) -> String {
        if self.tools.len() > MAX_NAMED {
            return format!("these {} tools", self.tools.len());
        }
        let names: Vec<String> = self.tools.iter().map(|tool| format!("`{tool}`")).collect();
        names.join(", ")
    }
}

/// A text that the attribute is compared with.
fn impossible_text(name: &str, text: &str) -> Option<String> {
    let right = match name {
        "host" | "scheme" => text.to_ascii_lowercase(),
        "path" => normalize(text).0,
        _ => return None,
    };
    (right != text).then(|| sentence(name, text, &right))
}

/// A literal part of a pattern, and whether it is the first.
fn impossible_literal(name: &str, part: &str, is_first: bool) -> Option<String> {
    match name {
        "host" | "scheme" => {
            let right = part.to_ascii_lowercase();
            (right != part).then(|| sentence(name, part, &right))
        }
        "path" => {
            let right = part.strip_prefix("./").filter(|_| is_first).unwrap_or(part);
            let right = right.replace("/./", "/").replace("//", "/");
            (right != part).then(|| sentence(name, part, &right))
        }
        _ => None,
    }
}

fn sentence(name: &str, text: &str, right: &str) -> String {
    let (text, right) = (sanitize(text), sanitize(right));
    let form = match name {
        "path" => "paths have no `.`, no `..` inside them and no repeated slashes",
        _ => "its value is in lowercase",
    };
    format!("`context.{name}` is never like `{text}`: {form}; write `{right}`")
}
