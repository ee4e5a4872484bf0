//! What is strange about rules that are valid: those that never match, do what others do already, permit everything, or
//! carry annotations that mean nothing.

use std::collections::BTreeSet;

use cedar_policy::{ActionConstraint, PrincipalConstraint, ResourceConstraint};

use super::{Finding, Severity, asks};
use crate::bundle::Constitution;
use crate::examples;
use crate::facts::SessionKind;
use crate::mandate::shown;
use crate::reading::suggestion;
use crate::rules::Rule;
use crate::rules::condition::Subject;
use crate::rules::logic::World;
use crate::settings::UNCLASSIFIED;
use crate::trust::Trust;

/// A rule with its scope, which is costly to ask for.
struct Scoped<'a> {
    rule: &'a Rule,
    principal: PrincipalConstraint,
    action: ActionConstraint,
    resource: ResourceConstraint,
}

impl<'a> Scoped<'a> {
    fn new(rule: &'a Rule) -> Self {
        let Rule { policy, .. } = rule;
        let (principal, action) = (policy.principal_constraint(), policy.action_constraint());
        Self { rule, principal, action, resource: policy.resource_constraint() }
    }
}

pub(super) fn of_rules(law: &Constitution) -> Vec<Finding> {
    let world = world(law);
    let all: Vec<Scoped<'_>> = law.rules().all().iter().map(|rule| Scoped::new(rule)).collect();
    let mandated: BTreeSet<&str> =
        law.mandates().values().flat_map(|mandate| mandate.tools().iter().map(String::as_str)).collect();
    let mut findings = Vec::new();
    for (at, Scoped { rule, .. }) in all.iter().enumerate() {
        findings.extend(rule.noticed.iter().map(|error| Finding::of_text(error.clone(), Severity::Warning)));
        findings.extend(of_annotations(law, rule));
        let messages = [
            no_id(rule),
            for_nobody(law, rule, &mandated),
            looks_at_approval(rule),
            blanket(law, rule),
            never(rule, &world).or_else(|| covered(&all, at, &world)),
        ];
        findings.extend(messages.into_iter().flatten().map(|message| finding(rule, None, message)));
    }
    findings
}

/// A finding about a rule, at one of its annotations or at its beginning.
fn finding(rule: &Rule, annotation: Option<&str>, message: String) -> Finding {
    let place = annotation.and_then(|name| rule.annotations.get(name));
    let (line, column) = place.copied().unwrap_or((rule.line, rule.column));
    Finding { file: rule.file.clone(), line, column, severity: Severity::Warning, message }
}

fn no_id(rule: &Rule) -> Option<String> {
    let id = &rule.id;
    rule.unnamed.then(|| {
        format!(
            "the rule has no id and is called `{id}` after its place, which changes when rules move: put `@id(\"…\")` before it"
        )
    })
}

fn for_nobody(law: &Constitution, rule: &Rule, mandated: &BTreeSet<&str>) -> Option<String> {
    let id = &rule.id;
    let tools = law.rules().tools_of(rule);
    if !tools.iter().any(|tool| mandated.contains(tool)) {
        return Some(format!(
            "the rule `{id}` is never reached: no mandate allows a tool that it is for; add the tool to a mandate, or remove the rule"
        ));
    }
    let idle = !rule.forbids && !tools.iter().any(|tool| asks(law.manifest(tool)));
    idle.then(|| {
        format!(
            "the rule `{id}` permits nothing that is not allowed already: a `permit` only waives the approval of a side effect; remove it, or name a tool that has one"
        )
    })
}

fn looks_at_approval(rule: &Rule) -> Option<String> {
    (!rule.forbids && rule.reads.approved).then(|| {
        format!(
            "the rule `{}` looks at `context.approved`: a `permit` is there for calls nobody approves; leave that out",
            rule.id
        )
    })
}

/// A permit for every tool and every call.
fn blanket(law: &Constitution, rule: &Rule) -> Option<String> {
    let every_tool = law.tools().iter().all(|tool| law.rules().tools_of(rule).contains(&tool.as_str()));
    let unconditional = !World::default().allows(&[], Some(rule.guard.conditions()));
    (!rule.forbids && every_tool && unconditional).then(|| {
        format!(
            "the rule `{}` waives the approval of every side effect of every tool: name the tools that need nobody, or say when",
            rule.id
        )
    })
}

fn never(rule: &Rule, world: &World) -> Option<String> {
    let never = rule.impossible || !world.allows(rule.guard.conditions(), None);
    never.then(|| {
        let doing = if rule.forbids { "forbids" } else { "permits" };
        format!("the rule `{}` {doing} nothing: its conditions never hold together; mend them, or remove the rule", rule.id)
    })
}

/// Another rule that does everything this one does. Of two that cover each other, the first is kept.
fn covered(all: &[Scoped<'_>], at: usize, world: &World) -> Option<String> {
    let own = all.get(at)?;
    let others = all.iter().enumerate().filter(|(other, _)| *other != at);
    let Scoped { rule: cover, .. } = others.into_iter().find_map(|(other, cover)| {
        if cover.rule.impossible || !covers(cover, own, world) {
            return None;
        }
        let both = cover.rule.forbids == own.rule.forbids && covers(own, cover, world);
        (!both || other < at).then_some(cover)
    })?;
    let doing = match (own.rule.forbids, cover.forbids) {
        (true, _) => "forbids nothing more",
        (false, true) => "permits nothing",
        (false, false) => "permits nothing more",
    };
    let verb = if cover.forbids { "forbids" } else { "permits" };
    Some(format!(
        "the rule `{}` {doing}: `{}` ({}:{}) {verb} the same calls; remove one of them, or mend their conditions",
        own.rule.id, cover.id, cover.file, cover.line
    ))
}

/// Whether `cover` says of every call that `own` matches what makes `own` needless.
fn covers(cover: &Scoped<'_>, own: &Scoped<'_>, world: &World) -> bool {
    let principal = cover.principal == PrincipalConstraint::Any || cover.principal == own.principal;
    let action = cover.action == ActionConstraint::Any || cover.action == own.action;
    let resource = cover.resource == ResourceConstraint::Any || cover.resource == own.resource;
    if own.rule.forbids && !cover.rule.forbids || !(principal && action && resource) {
        return false;
    }
    let (narrow, wide) = (own.rule.guard.conditions(), cover.rule.guard.conditions());
    if own.rule.forbids {
        return !world.allows(narrow, Some(wide));
    }
    // A permit is for calls that nobody approved.
    let world = world.clone().flag(Subject::Context("approved".to_owned()), false);
    !world.allows(narrow, Some(wide))
}

/// What calls can be like in this house.
fn world(law: &Constitution) -> World {
    let context = |name: &str| Subject::Context(name.to_owned());
    let highest = Trust::ALL.map(|trust| i64::from(trust.level())).into_iter().max().unwrap_or_default();
    let classes = law.settings().channels.classes.values().map(String::as_str);
    World::default()
        .between(context("trust"), 0, highest)
        .between(context("bytes"), 0, i64::MAX)
        .between(context("port"), 0, i64::from(u16::MAX))
        .one_of(context("mandate"), law.mandates().keys().map(String::as_str))
        .one_of(Subject::Agent("kind".to_owned()), SessionKind::ALL.map(SessionKind::as_str))
        .one_of(Subject::Session("class".to_owned()), classes.chain([UNCLASSIFIED]))
}

/// Annotations that mean nothing, and examples that cannot be read.
fn of_annotations(law: &Constitution, rule: &Rule) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, _) in rule.policy.annotations() {
        if matches!(name, "id" | "reason") || examples::kind(name).is_some() {
            continue;
        }
        let names = ["id", "reason", "example_allow", "example_ask", "example_deny"];
        let message = format!(
            "`@{}` means nothing here: {}; further examples have names such as `@example_deny_2`",
            shown(name),
            suggestion(name, &names, "annotations")
        );
        findings.push(finding(rule, Some(name), message));
    }
    for tested in law.test_rule(rule) {
        if let Err(error) = tested.got {
            let message = format!("`@{}` cannot be tried: {error}", tested.example);
            findings.push(finding(rule, Some(&tested.example), message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::bundle::Texts;
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
                "@id(\"a\") forbid(principal, action, resource) when { context.trust < 2 };\n@id(\"b\") forbid(principal, action, resource) when { context.private && context.trust < 1 };",
                "house.cedar:2:1: warning: the rule `b` forbids nothing more: `a`",
            ),
            (
                "@id(\"a\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.trust > 1 };\n@id(\"b\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.trust > 2 };",
                "house.cedar:2:1: warning: the rule `b` permits nothing more: `a` (policy/house.cedar:1) permits",
            ),
            (
                "@id(\"a\") forbid(principal, action, resource) when { context.private } unless { context.approved };\n@id(\"b\") permit(principal, action == Tribune::Action::\"exec\", resource) when { context.private };",
                "house.cedar:2:1: warning: the rule `b` permits nothing: `a`",
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
                "@id(\"a\") forbid(principal, action, resource) when { context.mandate == \"nobodys\" };",
                "`a` forbids nothing: its conditions never hold",
            ),
            (
                "@id(\"a\") permit(principal, action, resource);",
                "`a` waives the approval of every side effect of every tool",
            ),
            (
                "@id(\"a\")\n@exmaple_deny(\"{}\")\nforbid(principal, action, resource);",
                "house.cedar:2:1: warning: `@exmaple_deny` means nothing here: did you mean `example_deny`?",
            ),
            (
                "@id(\"a\")\n@example_denied(\"{}\")\nforbid(principal, action, resource);",
                "house.cedar:2:1: warning: `@example_denied` means nothing here",
            ),
            (
                "@id(\"a\")\n@example_deny(\"{\\\"tool\\\": \\\"raed\\\"}\")\nforbid(principal, action, resource);",
                "house.cedar:2:1: warning: `@example_deny` cannot be tried: there is no tool `raed`: did you mean `read`?",
            ),
            (
                "@id(\"a\") forbid(principal, action == Tribune::Action::\"raed\", resource);",
                "error: there is no tool or group `raed`: did you mean `read`?",
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
}
