//! The attributes that a rule reads, found in its syntax tree, so that a Cedar request contains only what the rule
//! will read.

use std::collections::BTreeSet;

use cedar_policy::Policy;
use serde_json::Value;

use super::schema::{ALWAYS, OF_ARGS};

/// What a rule reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AttributeUsage {
    /// Names of the attributes of the context.
    pub(crate) context: BTreeSet<String>,
    /// Whether it reads attributes of the agent or the session.
    pub(crate) entities: bool,
    /// Whether an attribute of the arguments is among them.
    pub(crate) args: bool,
    pub(crate) approved: bool,
    pub(crate) trust: bool,
    pub(crate) private: bool,
    /// Whether the result depends on the agent: this one, or one of the chain that started it.
    pub(crate) who: bool,
}

impl AttributeUsage {
    /// The usage of one rule. Without a syntax tree, every attribute counts as read.
    pub(crate) fn of(policy: &Policy) -> Self {
        let mut usage = Self::default();
        match policy.to_json() {
            Ok(tree) => usage.walk(tree.get("conditions").unwrap_or(&Value::Null)),
            Err(_) => usage.everything(),
        }
        let has = |name: &str| usage.context.contains(name);
        Self {
            args: OF_ARGS.iter().any(|(name, _)| has(name)),
            approved: has("approved"),
            trust: has("trust"),
            private: has("private"),
            who: usage.entities || has("mandate") || has("owner_args"),
            ..usage
        }
    }

    fn everything(&mut self) {
        self.entities = true;
        self.context.extend(ALWAYS.iter().chain(&OF_ARGS).map(|(name, _)| (*name).to_owned()));
    }

    fn walk(&mut self, tree: &Value) {
        match tree {
            Value::Object(members) => {
                for (operator, operand) in members {
                    let name = match operator.as_str() {
                        "." | "has" => of_context(operand),
                        _ => None,
                    };
                    match (name, operator.as_str(), operand.as_str()) {
                        (Some(name), _, _) => {
                            self.context.insert(name.to_owned());
                        }
                        // The context as a whole, such as in a comparison.
                        (None, "Var", Some("context")) => self.everything(),
                        (None, "Var", Some("principal" | "resource")) => self.entities = true,
                        (None, _, _) => self.walk(operand),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.walk(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// The attribute, if this is `{"left": {"Var": "context"}, "attr": name}`.
fn of_context(operand: &Value) -> Option<&str> {
    let left = operand.get("left")?.get("Var")?;
    if left.as_str() == Some("context") { operand.get("attr")?.as_str() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(condition: &str) -> (String, bool) {
        let text = format!("forbid(principal, action, resource) when {{ {condition} }};");
        let usage = AttributeUsage::of(&Policy::parse(None, text).unwrap());
        (usage.context.into_iter().collect::<Vec<_>>().join(" "), usage.entities)
    }

    #[test]
    fn every_attribute_is_found() {
        assert_eq!(usage("context.trust < 2 && !context.approved"), ("approved trust".to_owned(), false));
        assert_eq!(usage("context has host && [context.host].contains(\"a\")"), ("host".to_owned(), false));
        assert_eq!(
            usage("if context.private then context has path && context.path like \"a*\" else false"),
            ("path private".to_owned(), false)
        );
        assert_eq!(usage("context[\"trust\"] == 1"), ("trust".to_owned(), false));
        assert_eq!(usage("principal.kind == \"main\""), (String::new(), true));
        assert_eq!(usage("resource has class"), (String::new(), true));
        assert_eq!(usage("context == {}").0.split(' ').count(), ALWAYS.len() + OF_ARGS.len());
        assert_eq!(usage("true"), (String::new(), false));
    }
}
