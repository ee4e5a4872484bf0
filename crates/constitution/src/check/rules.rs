//! Findings about valid rules: rules without an effect, rules that permit everything, and unknown annotations.

use std::collections::BTreeSet;

use super::redundant_rules::{Redundancy, RuleComparison, RuleDomains};
use super::{LawFinding, Severity, impossible_values, needs_approval};
use crate::bundle::Constitution;
use crate::examples;
use crate::rules::{Rule, SourcePosition};
use crate::suggest_name::suggestion;
use crate::text::sanitize;
use crate::tool_names::{LAND, MCP, MCP_SERVER, SPEND};

pub(super) fn check_rules(law: &Constitution) -> Vec<LawFinding> {
    let domains = RuleDomains::of(law);
    let rules = RuleComparison::new(law.rules().all(), &domains);
    let redundant = rules.find_redundant();
    let of_mandates = law.mandates().values().flat_map(|mandate| mandate.tools().iter().map(String::as_str));
    // Calls of the daemon, which no mandate has to name.
    let mut mandated: BTreeSet<&str> = of_mandates.chain([SPEND, LAND]).collect();
    if mandated.contains(MCP) {
        mandated.insert(MCP_SERVER);
    }
    let mut findings = Vec::new();
    for (at, (rule, redundant)) in law.rules().all().iter().zip(redundant).enumerate() {
        findings
            .extend(rule.warnings.iter().map(|error| LawFinding::of_text(error.clone(), Severity::Warning)));
        findings.extend(check_annotations(law, rule));
        findings.extend(
            impossible_values::find_impossible_values(law, rule)
                .into_iter()
                .map(|message| finding(rule, None, message)),
        );
        let messages = [
            missing_id(rule),
            unreachable_or_idle(law, rule, &mandated, &rules, at),
            reads_approval(rule)
                .or_else(|| redundant.and_then(|why| redundant_message(law, rule, why)))
                .or_else(|| permits_everything(law, rule, &rules, at)),
        ];
        findings.extend(messages.into_iter().flatten().map(|message| finding(rule, None, message)));
    }
    findings
}

/// Rules for an agent that is not among `agents`.
pub(super) fn check_agents(law: &Constitution, agents: &[&str]) -> Vec<LawFinding> {
    let rules = law.rules().all().iter();
    let strange = rules.filter_map(|rule| {
        let agent = rule.prefilter.agent().filter(|agent| !agents.contains(agent))?;
        let message = format!(
            "the rule `{}` is for the agent `{}`, which is not in the roster: {}",
            rule.id,
            sanitize(agent),
            suggestion(agent, agents, "agents")
        );
        Some(finding(rule, None, message))
    });
    strange.collect()
}

/// A finding about a rule, at one of its annotations or at its beginning.
fn finding(rule: &Rule, annotation: Option<&str>, message: String) -> LawFinding {
    let of_annotation = annotation.and_then(|name| rule.annotations.get(name));
    let SourcePosition { line, column } = of_annotation.copied().unwrap_or(rule.position);
    LawFinding { file: rule.file.clone(), line, column, severity: Severity::Warning, message }
}

fn missing_id(rule: &Rule) -> Option<String> {
    let id = &rule.id;
    rule.is_unnamed.then(|| {
        format!(
            "the rule has no id and is called `{id}` after its position, which changes when rules move: put `@id(\"…\")` before it"
        )
    })
}

fn unreachable_or_idle(
    law: &Constitution,
    rule: &Rule,
    mandated: &BTreeSet<&str>,
    rules: &RuleComparison<'_>,
    at: usize,
) -> Option<String> {
    let id = &rule.id;
    let tools = law.rules().tools_of(rule);
    if !tools.iter().any(|tool| mandated.contains(tool.as_str())) {
        return Some(format!(
            "the rule `{id}` is never reached: no mandate allows a tool that it is for; add the tool to a mandate, or remove the rule"
        ));
    }
    let idle =
        !rule.forbids && !rules.can_fail(at) && !tools.iter().any(|tool| needs_approval(law.manifest(tool)));
    idle.then(|| {
        format!(
            "the rule `{id}` permits nothing that is not allowed already: a `permit` only waives the approval of a side effect; remove it, or name a tool that has one"
        )
    })
}

fn reads_approval(rule: &Rule) -> Option<String> {
    (!rule.forbids && rule.usage.approved).then(|| {
        format!(
            "the rule `{}` looks at `context.approved`: a `permit` is for calls without an approval; remove that condition",
            rule.id
        )
    })
}

fn redundant_message(law: &Constitution, rule: &Rule, why: Redundancy) -> Option<String> {
    let (id, forbids) = (&rule.id, rule.forbids);
    match why {
        Redundancy::NeverHolds => {
            let doing = if forbids { "forbids" } else { "permits" };
            Some(format!(
                "the rule `{id}` {doing} nothing: its conditions never hold together; correct them, or remove the rule"
            ))
        }
        Redundancy::CoveredBy(cover) => {
            let cover = law.rules().all().get(cover)?;
            let doing = match (forbids, cover.forbids) {
                (true, _) => "forbids nothing more",
                (false, true) => "permits nothing",
                (false, false) => "permits nothing more",
            };
            let verb = if cover.forbids { "forbids" } else { "permits" };
            Some(format!(
                "the rule `{id}` {doing}: `{}` ({}:{}) {verb} the same calls; remove one of them, or correct their conditions",
                cover.id, cover.file, cover.position.line
            ))
        }
    }
}

/// A permit for every tool and every call.
fn permits_everything(
    law: &Constitution,
    rule: &Rule,
    rules: &RuleComparison<'_>,
    at: usize,
) -> Option<String> {
    let every_tool = law.rules().tools_of(rule).len() == law.tools().len();
    (!rule.forbids && every_tool && rules.always_holds(at)).then(|| {
        format!(
            "the rule `{}` waives the approval of every side effect of every tool: name the tools that need no approval, or add a condition",
            rule.id
        )
    })
}

/// Unknown annotations, and examples that cannot be read.
fn check_annotations(law: &Constitution, rule: &Rule) -> Vec<LawFinding> {
    let mut findings = Vec::new();
    for (name, _) in rule.policy.annotations() {
        if matches!(name, "id" | "reason") || examples::expected_decision(name).is_some() {
            continue;
        }
        let names = ["id", "reason", "example_allow", "example_ask", "example_deny"];
        let message = format!(
            "`@{}` is not a known annotation: {}; further examples have names such as `@example_deny_2`",
            sanitize(name),
            suggestion(name, &names, "annotations")
        );
        findings.push(finding(rule, Some(name), message));
    }
    for tested in law.test_rule(rule) {
        if let Err(error) = tested.got {
            let message = format!("`@{}` cannot be tested: {error}", tested.example);
            findings.push(finding(rule, Some(&tested.example), message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::fixtures::texts;
    use crate::texts::LawTexts;

    fn findings(rules: &str) -> Vec<String> {
        let policies = [("rules.cedar".to_owned(), rules.to_owned())].into();
        let findings = check(&LawTexts { policies, ..texts() }, &["read"]);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clean_law_has_no_findings() {
        assert_eq!(check(&texts(), &[]), []);
        let fine = r#"@id("a") forbid(principal, action, resource) when { context.trust < 1 };
                      @id("b") permit(principal, action == Tribune::Action::"exec", resource);"#;
        assert_eq!(findings(fine), [""; 0]);
    }

    #[test]
    fn impossible_constants_are_found() {
        let of = |action: &str, when: &str| {
            let rule = format!(
                "@id(\"a\") forbid(principal, action == Tribune::Action::\"{action}\", resource) when {{ {when} }};"
            );
            findings(&rule)
        };
        for (action, when, said) in [
            ("web_fetch", "context has host && context.host == \"EXAMPLE.org\"", "write `example.org`"),
            ("web_fetch", "context has host && context.host like \"*.Example.org\"", "write `.example.org`"),
            ("read", "context has path && context.path == \"./x/../y\"", "write `y`"),
            ("read", "context has path && context.path == \"secrets/\"", "write `secrets`"),
            ("read", "context has path && context.path like \"./secrets/*\"", "write `secrets/`"),
            ("read", "context has path && !(context.path like \"a//*\")", "write `a/`"),
        ] {
            let found = of(action, when);
            assert!(found.iter().any(|finding| finding.contains(said)), "{when}: {found:?}");
        }
        for (action, when) in [
            ("web_fetch", "context has host && context.host like \"*.example.org\""),
            ("read", "context has path && context.path like \"../*\""),
            ("read", "context has path && context.path like \"*/.env\""),
            ("read", "context has path && (context.path == \"/etc/passwd\" || context.path == \"secrets\")"),
        ] {
            assert_eq!(of(action, when), [""; 0], "{when}");
        }
    }

    #[test]
    fn impossible_attributes_are_found() {
        let of = |action: &str, when: &str| {
            findings(&format!("@id(\"a\") forbid(principal, {action}, resource) when {{ {when} }};"))
        };
        let read = "action == Tribune::Action::\"read\"";
        let host = "context has host && context.host == \"a.example\"";
        let said = "policy/rules.cedar:1:1: warning: `context has host` never holds: calls of `read` have no `host`, and tools that have one are browser, egress, web_fetch; look at what they can have (folder, outside, path), or leave it out";
        assert_eq!(of(read, host), [said]);
        // At any position, and with any other conditions.
        assert_eq!(of(read, &format!("context.private || !({host})")), [said]);
        let group = of("action in Tribune::Action::\"read_only\"", "context has programs");
        assert!(group.len() == 1 && group[0].contains("never holds: calls of "), "{group:?}");
        for (action, when) in [
            (read, "context has path && context.path == \"x\""),
            ("action in [Tribune::Action::\"read\", Tribune::Action::\"web_fetch\"]", host),
            ("action", "context has programs && context.programs.contains(\"ls\")"),
        ] {
            assert_eq!(of(action, when), [""; 0], "{when}");
        }
    }

    #[test]
    fn rules_without_effect_are_found() {
        for (rules, said) in [
            (
                "forbid(principal, action, resource) when { context.private };",
                "rules.cedar:1:1: warning: the rule has no id and is called `rules.1`",
            ),
            (
                "@id(\"a\") permit(principal, action == Tribune::Action::\"read\", resource);",
                "rules.cedar:1:1: warning: the rule `a` permits nothing that is not allowed already",
            ),
            (
                "@id(\"a\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.approved };",
                "the rule `a` looks at `context.approved`",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource);\n\n@id(\"b\") forbid(principal, action == Tribune::Action::\"exec\", resource);",
                "rules.cedar:3:1: warning: the rule `b` forbids nothing more: `a` (policy/rules.cedar:1) forbids the same calls",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource) when { context.trust < 2 };\n@id(\"b\") forbid(principal, action, resource) when { context.private && context.trust < 1 };",
                "rules.cedar:2:1: warning: the rule `b` forbids nothing more: `a`",
            ),
            (
                "@id(\"a\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.trust > 1 };\n@id(\"b\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.trust > 2 };",
                "rules.cedar:2:1: warning: the rule `b` permits nothing more: `a` (policy/rules.cedar:1) permits",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource) when { context.private } unless { context.approved };\n@id(\"b\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.private };",
                "rules.cedar:2:1: warning: the rule `b` permits nothing: `a`",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource) when { false };",
                "`a` forbids nothing: its conditions never hold",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource) when { 1 > 2 };",
                "`a` forbids nothing: its conditions never hold",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource) unless { context.private || true };",
                "`a` forbids nothing: its conditions never hold",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource) when { context.mandate == \"missing\" };",
                "`a` forbids nothing: its conditions never hold",
            ),
            (
                "@id(\"a\") permit(principal, action, resource);",
                "`a` waives the approval of every side effect of every tool",
            ),
            (
                "@id(\"a\")\n@exmaple_deny(\"{}\")\nforbid(principal, action, resource);",
                "rules.cedar:2:1: warning: `@exmaple_deny` is not a known annotation: did you mean `example_deny`?",
            ),
            (
                "@id(\"a\")\n@example_denied(\"{}\")\nforbid(principal, action, resource);",
                "rules.cedar:2:1: warning: `@example_denied` is not a known annotation",
            ),
            (
                "@id(\"a\")\n@example_deny(\"{\\\"tool\\\": \\\"raed\\\"}\")\nforbid(principal, action, resource);",
                "rules.cedar:2:1: warning: `@example_deny` cannot be tested: there is no tool `raed`: did you mean `read`?",
            ),
            (
                "@id(\"a\") forbid(principal, action == Tribune::Action::\"raed\", resource);",
                "error: there is no tool or group `raed`: did you mean `read`?",
            ),
            (
                "@id(\"b\") permit(principal, action == Tribune::Action::\"exec\", resource);\n@id(\"a\") forbid(principal, action, resource);",
                "rules.cedar:1:1: warning: the rule `b` permits nothing: `a`",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource);\n@id(\"b\") forbid(principal, action, resource);",
                "rules.cedar:2:1: warning: the rule `b` forbids nothing more",
            ),
            ("forbid(", "policy/rules.cedar:1:8: error: "),
        ] {
            let found = findings(rules);
            assert!(found.len() == 1 && found[0].contains(said), "{found:?}");
        }
    }

    /// Each of these rules changes the decision about some call.
    #[test]
    fn rules_with_an_effect_are_not_reported() {
        for rules in [
            // An overflow comes before the `false`, and a rule that fails denies.
            "@id(\"a\") forbid(principal, action, resource) when { context has bytes && context.bytes * 9223372036854775807 > 5 && false };",
            "@id(\"a\") permit(principal, action == Tribune::Action::\"write\", resource) when { context has bytes && context.bytes * 9223372036854775807 > 5 };",
            // For one agent only.
            "@id(\"a\") permit(principal == Tribune::Agent::\"main\", action, resource);",
            // The character is one like any other.
            "@id(\"a\") forbid(principal, action, resource) when { context has path && context.path like \"a\\u{10ffff}*\" };\n@id(\"b\") forbid(principal, action, resource) when { context has path && context.path like \"a*\" && context.path like \"*b\" };",
            // An offer has no arguments, so `a` does not decide about it.
            "@id(\"a\") forbid(principal, action, resource) when { context has path || !(context has path) };\n@id(\"b\") forbid(principal, action == Tribune::Action::\"read\", resource);",
        ] {
            assert_eq!(findings(rules), [""; 0], "{rules}");
        }
    }

    /// Every rule is compared with every other, so this is the slow part.
    #[test]
    fn a_thousand_rules_are_checked() {
        let rule = |n: usize| {
            format!(
                "@id(\"r{n}\") forbid(principal, action == Tribune::Action::\"read\", resource) \
                 when {{ context has path && (context.path == \"d{n}\" || context.path like \"d{n}/*\") }};\n"
            )
        };
        let mut rules: String = (0..1000).map(rule).collect();
        assert_eq!(findings(&rules), [""; 0]);
        rules.push_str(&rule(7).replace("\"r7\"", "\"again\""));
        let found = findings(&rules);
        assert!(found.len() == 1 && found[0].contains("`again` forbids nothing more: `r7`"), "{found:?}");
    }
}
