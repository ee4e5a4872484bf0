//! Looks through a house's texts for what is wrong or does nothing, before they are in force.

use std::collections::BTreeSet;
use std::fmt;

use cedar_policy::{ActionConstraint, PrincipalConstraint, ResourceConstraint};
use serde::Serialize;

use crate::bundle::{Constitution, ConstitutionError, Texts};
use crate::manifest::{Effect, Manifest};
use crate::nearest::nearest;
use crate::reading::{self, TextError};
use crate::rules::Rule;
use crate::settings::SETTINGS_FILE;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The texts are refused.
    Error,
    /// The texts hold, but a part of them does not do what it seems to.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// Something to mend. Line and column count from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub severity: Severity,
    /// A sentence that ends with what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, severity, message } = self;
        write!(f, "{file}:{line}:{column}: {severity}: {message}")
    }
}

/// Checks the texts; `known_tools` are the tools of the program. Without findings there is nothing to mend. Sorted by
/// file and place.
pub fn check(texts: &Texts, known_tools: &[&str]) -> Vec<Finding> {
    let mut findings = match Constitution::new(texts.clone(), known_tools) {
        Ok(law) => {
            let mut findings = of_rules(&law);
            findings.extend(of_manifests(&law, known_tools));
            findings.extend(of_exceptions(&law));
            findings
        }
        Err(error) => errors(error),
    };
    findings.sort();
    findings
}

fn errors(error: ConstitutionError) -> Vec<Finding> {
    let of_text = |TextError { file, line, column, message }| Finding {
        file,
        line,
        column,
        severity: Severity::Error,
        message,
    };
    let whole = |file: String, line: usize, message: String| {
        vec![Finding { file, line, column: 1, severity: Severity::Error, message }]
    };
    match error {
        ConstitutionError::Rules(errors) => errors.into_iter().map(of_text).collect(),
        ConstitutionError::Text(error) => vec![of_text(error)],
        ConstitutionError::Mandate { name, error } => {
            whole(format!("mandates/{name}.md"), error.line(), error.to_string())
        }
        ConstitutionError::TooManyMandates => whole("mandates".to_owned(), 1, error.to_string()),
        ConstitutionError::TooManyManifests => whole("manifests".to_owned(), 1, error.to_string()),
        ConstitutionError::Footer { line } => whole("constitution.md".to_owned(), line, error.to_string()),
        ConstitutionError::TooLarge { .. } | ConstitutionError::Empty | ConstitutionError::Canonical(_) => {
            whole("constitution.md".to_owned(), 1, error.to_string())
        }
    }
}

fn of_rules(law: &Constitution) -> Vec<Finding> {
    let rules = law.rules().all();
    let mandated: BTreeSet<&str> =
        law.mandates().values().flat_map(|mandate| mandate.tools().iter().map(String::as_str)).collect();
    let bans: Vec<(usize, &Rule)> = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.forbids && !rule.policy.has_non_scope_constraint())
        .map(|(at, rule)| (at, rule.as_ref()))
        .collect();
    let mut findings = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let mut found = |message: String| {
            let (file, severity) = (rule.file.clone(), Severity::Warning);
            findings.push(Finding { file, line: rule.line, column: rule.column, severity, message });
        };
        let id = &rule.id;
        if rule.unnamed {
            found(format!(
                "the rule has no id and is called `{id}` after its place, which changes when rules move: put `@id(\"…\")` before it"
            ));
        }
        let tools = law.rules().tools_of(rule);
        if !tools.iter().any(|tool| mandated.contains(tool)) {
            found(format!(
                "the rule `{id}` is never reached: no mandate allows a tool that it is for; add the tool to a mandate, or remove the rule"
            ));
        } else if !rule.forbids && !tools.iter().any(|tool| asks(law.manifest(tool))) {
            found(format!(
                "the rule `{id}` permits nothing that is not allowed already: a `permit` only waives the approval of a side effect; remove it, or name a tool that has one"
            ));
        }
        if !rule.forbids && rule.reads.approved {
            found(format!(
                "the rule `{id}` looks at `context.approved`: a `permit` is there for calls nobody approves; leave that out"
            ));
        }
        let covering = bans.iter().find(|(other, ban)| *other != at && covers(ban, rule, at < *other));
        if let Some((_, cover)) = covering {
            let doing = if rule.forbids { "forbids nothing more" } else { "permits nothing" };
            found(format!(
                "the rule `{id}` {doing}: `{}` ({}:{}) forbids the same calls without a condition; remove one of them",
                cover.id, cover.file, cover.line
            ));
        }
    }
    findings
}

/// Whether calls of the tool need an approval that a permit can waive.
fn asks(manifest: Option<&Manifest>) -> bool {
    manifest.is_some_and(|manifest| match manifest.effect {
        Effect::SideEffect => true,
        Effect::ReadOnly | Effect::DraftOnly => false,
    })
}

/// Whether `cover`, which forbids without a condition, has every call in the scope of `rule`. Of two that cover each
/// other, the first is kept (`earlier`: whether `rule` stands before `cover`).
fn covers(cover: &Rule, rule: &Rule, earlier: bool) -> bool {
    let principal = match cover.policy.principal_constraint() {
        PrincipalConstraint::Any => true,
        own => own == rule.policy.principal_constraint(),
    };
    let action = match cover.policy.action_constraint() {
        ActionConstraint::Any => true,
        own => own == rule.policy.action_constraint(),
    };
    let resource = match cover.policy.resource_constraint() {
        ResourceConstraint::Any => true,
        own => own == rule.policy.resource_constraint(),
    };
    let both = !rule.policy.has_non_scope_constraint()
        && rule.forbids
        && cover.policy.principal_constraint() == rule.policy.principal_constraint()
        && cover.policy.action_constraint() == rule.policy.action_constraint()
        && cover.policy.resource_constraint() == rule.policy.resource_constraint();
    principal && action && resource && !(both && earlier)
}

fn of_manifests(law: &Constitution, known_tools: &[&str]) -> Vec<Finding> {
    let own = law.texts().manifests.keys().map(String::as_str);
    let strange = own.filter(|tool| !known_tools.contains(tool) && Manifest::built_in(tool).is_none());
    let finding = |tool: &str| {
        let meant = nearest(tool, known_tools)
            .map_or_else(String::new, |name| format!(" did you mean `{name}`? Otherwise"));
        Finding {
            file: format!("manifests/{tool}.json"),
            line: 1,
            column: 1,
            severity: Severity::Warning,
            message: format!(
                "there is no tool `{tool}` in this program:{meant} keep the manifest only if another server provides the tool"
            ),
        }
    };
    strange.map(finding).collect()
}

/// Exceptions that cover nothing a person would be asked about.
fn of_exceptions(law: &Constitution) -> Vec<Finding> {
    let Some(text) = &law.texts().law else { return Vec::new() };
    let all = law.settings().exceptions.iter().enumerate();
    let idle = all.filter(|(_, own)| !asks(law.manifest(&own.tool)) && own.min_input_trust.is_none());
    idle.map(|(index, own)| {
        let message = format!(
            "is for `{}`, whose calls need no approval, so the exception `{}` covers nothing: remove it, or name a tool with side effects",
            own.tool, own.id
        );
        let place = reading::refusal(SETTINGS_FILE, text, &format!("exceptions[{index}].tool"), message);
        let TextError { file, line, column, message } = place;
        Finding { file, line, column, severity: Severity::Warning, message }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::texts;

    fn findings(rules: &str) -> Vec<String> {
        let policies = [("house.cedar".to_owned(), rules.to_owned())].into();
        let findings = check(&Texts { policies, ..texts() }, &["read"]);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clean_house_has_no_findings() {
        assert_eq!(check(&texts(), &[]), []);
        let fine = r#"@id("a") forbid(principal, action, resource) when { context.trust < 1 };
                      @id("b") permit(principal, action == Tribune::Action::"exec", resource);"#;
        assert_eq!(findings(fine), [""; 0]);
    }

    #[test]
    fn what_does_nothing_is_found() {
        for (rules, said) in [
            (
                "forbid(principal, action, resource) when { context.private };",
                "house.cedar:1:1: warning: the rule has no id and is called `house.1`",
            ),
            (
                "@id(\"a\") permit(principal, action == Tribune::Action::\"read\", resource);",
                "house.cedar:1:1: warning: the rule `a` permits nothing that is not allowed already",
            ),
            (
                "@id(\"a\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.approved };",
                "the rule `a` looks at `context.approved`",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource);\n\n@id(\"b\") forbid(principal, action == Tribune::Action::\"exec\", resource);",
                "house.cedar:3:1: warning: the rule `b` forbids nothing more: `a` (policy/house.cedar:1) forbids the same calls",
            ),
            (
                "@id(\"b\") permit(principal, action == Tribune::Action::\"exec\", resource);\n@id(\"a\") forbid(principal, action, resource);",
                "house.cedar:1:1: warning: the rule `b` permits nothing: `a`",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource);\n@id(\"b\") forbid(principal, action, resource);",
                "house.cedar:2:1: warning: the rule `b` forbids nothing more",
            ),
            ("forbid(", "policy/house.cedar:1:8: error: "),
        ] {
            let found = findings(rules);
            assert!(found.len() == 1 && found[0].contains(said), "{found:?}");
        }
    }

    #[test]
    fn exceptions_without_use_are_found() {
        let law = "{\n  exceptions: [{ id: \"a\", tool: \"read\", limit: { count: 1, perSeconds: 1 } }],\n}";
        let found = check(&Texts { law: Some(law.to_owned()), ..texts() }, &[]);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "policy/law.json5:2:27: warning: `exceptions[0].tool` is for `read`, whose calls need no approval, so the exception `a` covers nothing: remove it, or name a tool with side effects"
            ]
        );
    }

    #[test]
    fn rules_and_manifests_for_nobody_are_found() {
        let mut texts = Texts::built_in();
        let rule = "@id(\"a\") forbid(principal, action == Tribune::Action::\"exec\", resource);";
        texts.policies.insert("a.cedar".to_owned(), rule.to_owned());
        let manifest =
            serde_json::to_string(&Manifest { id: "raed".into(), ..Manifest::built_in("read").unwrap() });
        texts.manifests.insert("raed".to_owned(), manifest.unwrap());
        let found: Vec<String> = check(&texts, &["read"]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "manifests/raed.json:1:1: warning: there is no tool `raed` in this program: did you mean `read`? Otherwise keep the manifest only if another server provides the tool",
                "policy/a.cedar:1:1: warning: the rule `a` is never reached: no mandate allows a tool that it is for; add the tool to a mandate, or remove the rule",
            ]
        );
        texts.mandates.insert("x".to_owned(), "---\ntools: fly\n---\n".to_owned());
        let found = check(&texts, &[]);
        assert!(
            found[0].to_string().starts_with("mandates/x.md:2:1: error: line 2: unknown tool `fly`"),
            "{found:?}"
        );
    }
}
