//! Constants that no call can have: facts have one form, and a rule that compares them with another never holds.

use crate::mandate::shown;
use crate::paths::normalised;
use crate::rules::Rule;
use crate::rules::condition::{Condition, Subject};

/// Nesting that is looked into: as deep as conditions are understood.
const MAX_DEPTH: usize = 64;

/// What is strange about the constants of a rule, each in a sentence.
pub(super) fn of_rule(rule: &Rule) -> Vec<String> {
    let mut found = Vec::new();
    for condition in rule.guard.conditions() {
        look(condition, MAX_DEPTH, &mut found);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn look(condition: &Condition, depth: usize, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match condition {
        Condition::And(left, right) | Condition::Or(left, right) => {
            look(left, depth, found);
            look(right, depth, found);
        }
        Condition::Not(inner) => look(inner, depth, found),
        Condition::Text(Subject::Context(name), text) => found.extend(of_text(name, text)),
        Condition::Like(Subject::Context(name), pattern) => {
            found.extend(pattern.literals().enumerate().find_map(|(at, part)| of_part(name, part, at == 0)));
        }
        Condition::Text(..)
        | Condition::Like(..)
        | Condition::Unknown
        | Condition::Opaque
        | Condition::Always(_)
        | Condition::Has(_)
        | Condition::Flag(..)
        | Condition::Less(..)
        | Condition::AtMost(..)
        | Condition::Contains(..)
        | Condition::Set(..) => {}
    }
}

/// A text that the attribute is compared with.
fn of_text(name: &str, text: &str) -> Option<String> {
    let right = match name {
        "host" | "scheme" => text.to_ascii_lowercase(),
        "path" => normalised(text).0,
        _ => return None,
    };
    (right != text).then(|| sentence(name, text, &right))
}

/// A part of a pattern, and whether it is the first.
fn of_part(name: &str, part: &str, is_first: bool) -> Option<String> {
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
    let (text, right) = (shown(text), shown(right));
    let form = match name {
        "path" => "paths are told without `.`, `..` inside them and doubled slashes",
        _ => "it is told in lowercase",
    };
    format!("`context.{name}` is never like `{text}`: {form}; write `{right}`")
}
