//! Rules with examples, so that an operator can test a law like a program:
//!
//! ```text
//! @id("no-secrets")
//! @example_deny("{\"tool\": \"read\", \"args\": {\"path\": \"secrets/key\"}}")
//! @example_allow("{\"tool\": \"read\", \"args\": {\"path\": \"notes.txt\"}}")
//! forbid(principal, action == Tribune::Action::"read", resource)
//! when { context has path && context.path like "secrets/*" };
//! ```
//!
//! An example is a patch over the facts of a plain call: by `main`, in its owner's own session that has read nothing yet,
//! with an approver who can be reached, under a mandate that allows the tool. Several examples of a kind have names such
//! as `@example_deny_2`.

use serde::Serialize;
use serde_json::Value;

use crate::bundle::Constitution;
use crate::facts::Facts;
use crate::json5;
use crate::rules::Rule;
use crate::suggest_name::suggestion;
use crate::text::sanitize;
use crate::verdict::{Decision, Verdict};

/// The kinds of examples, by the prefix of their annotation.
const KINDS: [(&str, Decision); 3] =
    [("example_allow", Decision::Allow), ("example_ask", Decision::Ask), ("example_deny", Decision::Deny)];

/// The decision that an annotation such as `example_deny` or `example_deny_2` expects; `None` if it is no example.
pub(crate) fn expected_decision(annotation: &str) -> Option<Decision> {
    let of = |(kind, decision): &(&str, Decision)| {
        let rest = annotation.strip_prefix(kind)?;
        (rest.is_empty() || rest.len() > 1 && rest.starts_with('_')).then_some(*decision)
    };
    KINDS.iter().find_map(of)
}

/// The result of one example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExampleResult {
    pub rule: String,
    pub file: String,
    /// The line of the example.
    pub line: usize,
    /// The annotation, such as `example_deny`.
    pub example: String,
    pub wanted: Decision,
    pub got: Result<Verdict, String>,
}

impl ExampleResult {
    /// Whether the law decides as the example says. A rule that denies or asks must be among the rules of the
    /// verdict: otherwise the example tests another rule.
    pub fn passed(&self) -> bool {
        let own = format!("policy.{}", self.rule);
        self.got.as_ref().is_ok_and(|verdict| {
            verdict.decision_if_enforced() == self.wanted
                && (self.wanted == Decision::Allow || verdict.rules.contains(&own))
        })
    }
}

impl Constitution {
    /// Decides every example of every rule, in the order of the files.
    pub fn test(&self) -> Vec<ExampleResult> {
        self.rules().all().iter().flat_map(|rule| self.test_rule(rule)).collect()
    }

    pub(crate) fn test_rule(&self, rule: &Rule) -> Vec<ExampleResult> {
        let mut examples: Vec<(&str, &str)> = rule.policy.annotations().collect();
        examples.sort_unstable();
        let tested = |(name, patch): (&str, &str)| {
            let wanted = expected_decision(name)?;
            let got = self.example(rule, patch).map(|facts| self.decide(&facts));
            let line = rule.annotations.get(name).map_or(rule.position.line, |position| position.line);
            let (rule, file) = (rule.id.clone(), rule.file.clone());
            Some(ExampleResult { rule, file, line, example: name.to_owned(), wanted, got })
        };
        examples.into_iter().filter_map(tested).collect()
    }

    /// The facts of an example.
    fn example(&self, rule: &Rule, patch: &str) -> Result<Facts, String> {
        let patch: Value = serde_json::from_str(patch)
            .map_err(|error| format!("the example is not JSON ({error}): correct it"))?;
        let Value::Object(members) = &patch else {
            return Err("the example is not an object: write it in `{ }`".to_owned());
        };
        let tools = self.rules().tools_of(rule);
        let tool = match (members.get("tool").and_then(Value::as_str), tools) {
            (Some(tool), _) => tool,
            (None, [only]) => only,
            (None, _) => {
                return Err("the rule is for several tools: say which `tool` the example calls".to_owned());
            }
        };
        if !self.knows_tool(tool) {
            let names: Vec<&str> = self.tools().iter().map(String::as_str).collect();
            return Err(format!(
                "there is no tool `{}`: {}",
                sanitize(tool),
                suggestion(tool, &names, "tools")
            ));
        }
        let mandate = self.mandates().values().find(|mandate| mandate.allows(tool));
        let mandate = mandate.map_or("", |mandate| mandate.name.as_str());
        let plain = Facts::for_owner_call("main", "agent:main:cli:local:dm:example", mandate, tool);
        let mut facts = serde_json::to_value(plain).map_err(|error| error.to_string())?;
        merge(&mut facts, patch);
        let facts: Facts = json5::read_value("the example", facts)?;
        facts.check_version().map_err(|error| error.to_string())
    }
}

/// Merges the members of `patch` into `value`, object by object.
fn merge(value: &mut Value, patch: Value) {
    match (value, patch) {
        (Value::Object(own), Value::Object(patch)) => {
            for (key, patch) in patch {
                merge(own.entry(key).or_insert(Value::Null), patch);
            }
        }
        (value, patch) => *value = patch,
    }
}

#[cfg(test)]
mod tests {
    use crate::fixtures::law;

    #[test]
    fn rules_are_tested_by_their_own_examples() {
        let law = law(
            "",
            r#"
            @id("no-secrets")
            @example_deny("{\"args\": {\"path\": \"secrets/key\"}}")
            @example_allow("{\"args\": {\"path\": \"notes.txt\"}}")
            @example_deny_2("{\"args\": {\"path\": \"notes.txt\"}}")
            forbid(principal, action == Tribune::Action::"read", resource)
            when { context has path && context.path like "secrets/*" };

            @id("ask")
            @example_ask("{\"tool\": \"write\"}")
            @example_deny("{\"tool\": \"write\", \"approver\": false}")
            @example_allow("{\"tool\": \"write\", \"approval\": \"x\"}")
            @example_ask_2("{}")
            @example_ask_3("{\"tool\": \"write\", \"args\": {\"colour\": 1}}")
            @example_ask_4("nonsense")
            @example_ask_5("{\"tool\": \"exec\"}")
            forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource)
            unless { context.approved };
            "#,
        );
        let tested: Vec<(String, String, bool)> =
            law.test().into_iter().map(|own| (own.rule.clone(), own.example.clone(), own.passed())).collect();
        let expected = [
            ("no-secrets", "example_allow", true),
            ("no-secrets", "example_deny", true),
            ("no-secrets", "example_deny_2", false),
            ("ask", "example_allow", true),
            ("ask", "example_ask", true),
            ("ask", "example_ask_2", false),
            ("ask", "example_ask_3", false),
            ("ask", "example_ask_4", false),
            ("ask", "example_ask_5", false),
            ("ask", "example_deny", true),
        ];
        assert_eq!(
            tested,
            expected.map(|(rule, example, passed)| (rule.to_owned(), example.to_owned(), passed))
        );
    }

    #[test]
    fn a_misspelt_example_names_the_key_and_a_suggestion() {
        for (example, said) in [
            (
                r#"{"args": {"paht": "a"}}"#,
                "unknown key `args.paht`: did you mean `path`? The keys here are path, ",
            ),
            (r#"{"lables": {}}"#, "unknown key `lables`: did you mean `labels`? The keys here are "),
            (
                r#"{"labels": {"trust": "onwer"}}"#,
                "`labels.trust` is `onwer`: did you mean `owner`? The words are ",
            ),
            (
                r#"{"args": {"path": 1}}"#,
                "`args.path` cannot be read (invalid type: integer `1`, expected a string)",
            ),
            (r#"{"mandates": null}"#, "`mandates` cannot be read (invalid type: null, expected a sequence)"),
            (r#"{"v": 2}"#, "the facts have version 2"),
        ] {
            let escaped = example.replace('"', "\\\"");
            let law = law(
                "",
                &format!(
                    "@id(\"a\") @example_deny(\"{escaped}\") forbid(principal, action == Tribune::Action::\"read\", resource);"
                ),
            );
            let got = law.test().remove(0).got.unwrap_err();
            assert!(got.starts_with(said), "{got}");
        }
    }
}
