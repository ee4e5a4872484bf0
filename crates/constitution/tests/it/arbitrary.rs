//! Random laws and calls.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tribune_constitution::{
    ArgumentProvenance, CallArgs, Constitution, DecisionStage, Facts, Labels, LawTexts, SessionKind,
    ToolManifest, Trust, Veto,
};

pub(crate) const TOOLS: [&str; 17] = [
    "browser",
    "cron",
    "edit",
    "exec",
    "gateway",
    "memory",
    "message",
    "nodes",
    "read",
    "search",
    "send_message",
    "spawn",
    "web_fetch",
    "web_search",
    "write",
    "unmanifested",
    "unknown",
];

/// Rules of every kind, including some that a careful operator would not write.
const RULES: [&str; 16] = [
    "forbid(principal, action, resource) when { context.trust < 2 };",
    "forbid(principal, action, resource) when { context.trust == 3 } unless { context.approved };",
    "forbid(principal, action, resource) when { context.private };",
    "forbid(principal, action, resource) when { !context.private && context.trust == 2 };",
    "forbid(principal, action in Tribune::Action::\"read_only\", resource) unless { context.approved };",
    "forbid(principal, action == Tribune::Action::\"exec\", resource);",
    "forbid(principal, action == Tribune::Action::\"write\", resource) when { context has path && context.path like \"secrets/*\" };",
    "forbid(principal, action, resource) when { principal.kind == \"main\" && resource.channel == \"telegram\" };",
    "forbid(principal, action, resource) when { context.mandate == \"some\" } unless { context.approved };",
    "forbid(principal, action, resource) when { context.owner_args };",
    "forbid(principal, action, resource) when { context has bytes && context.bytes * 4611686018427387904 > 1 };",
    "permit(principal, action, resource);",
    "permit(principal, action in Tribune::Action::\"side_effect\", resource) when { context.trust < 2 };",
    "permit(principal, action == Tribune::Action::\"message\", resource) when { principal.kind == \"subagent\" };",
    "permit(principal, action == Tribune::Action::\"exec\", resource) when { context has programs && context.programs.contains(\"ls\") };",
    "permit(principal == Tribune::Agent::\"main\", action in Tribune::Action::\"risk_high\", resource) when { context.private };",
];

/// Conditions of every kind, including some that are always or never true, that overflow, or that `check` does not
/// understand.
const CONDITIONS: [&str; 26] = [
    "true",
    "false",
    "1 > 2",
    "context.trust < 1",
    "context.trust < 2",
    "context.trust >= 0",
    "context.trust == 3",
    "context.private",
    "context.approved",
    "context.owner_args",
    "context.mandate == \"some\"",
    "context.mandate == \"missing\"",
    "principal.kind == \"main\"",
    "resource.class == \"internal\"",
    "resource.channel like \"*l*\"",
    "context has path",
    "(context has path && context.path like \"*s*\")",
    "(context has path && context.path like \"secrets/*\")",
    "(context has path && context.path == \"notes.txt\")",
    "(context has bytes && context.bytes < 2)",
    "(context has bytes && context.bytes * 4611686018427387904 > 1)",
    "(context has bytes && context.bytes - 3 < 0)",
    "(context has programs && context.programs == [\"ls\"])",
    "(context has programs && context.programs.contains(\"ls\"))",
    "(context has programs && [\"ls\", \"git\"].containsAll(context.programs))",
    "(if context.private then context.owner_args else context.trust > 1)",
];

const SCOPES: [&str; 7] = [
    "principal, action, resource",
    "principal, action, resource",
    "principal, action == Tribune::Action::\"exec\", resource",
    "principal, action in Tribune::Action::\"side_effect\", resource",
    "principal, action in [Tribune::Action::\"exec\", Tribune::Action::\"message\"], resource",
    "principal == Tribune::Agent::\"main\", action, resource",
    "principal == Tribune::Agent::\"another\", action, resource",
];

fn condition() -> impl Strategy<Value = String> {
    let leaf = select(&CONDITIONS[..]).prop_map(str::to_owned);
    leaf.prop_recursive(3, 6, 2, |inner| {
        (inner.clone(), inner, select(&["&&", "||", "&& !", "|| !"][..]))
            .prop_map(|(left, right, operator)| format!("({left} {operator}({right}))"))
    })
}

fn rule() -> impl Strategy<Value = String> {
    rule_with(&["forbid", "forbid", "permit"])
}

/// A rule that forbids: one that a person would write, or a random one.
pub(crate) fn forbid() -> impl Strategy<Value = String> {
    let written: Vec<&str> = RULES.into_iter().filter(|rule| rule.starts_with("forbid")).collect();
    prop_oneof![select(written).prop_map(str::to_owned), rule_with(&["forbid"]), rule_with(&["forbid"])]
}

fn rule_with(effects: &'static [&'static str]) -> impl Strategy<Value = String> {
    let effect = select(effects);
    let clause = (select(&["when", "unless"][..]), condition());
    (effect, select(&SCOPES[..]), vec(clause, 0..3)).prop_map(|(effect, scope, clauses)| {
        let clauses: String = clauses.iter().map(|(kind, own)| format!(" {kind} {{ {own} }}")).collect();
        format!("{effect}({scope}){clauses};")
    })
}

/// A law with random rules, each in a file of its own.
pub(crate) fn texts_with_random_rules() -> impl Strategy<Value = LawTexts> {
    (texts(), vec(rule(), 1..7)).prop_map(|(mut texts, rules)| {
        texts.policies =
            rules.into_iter().enumerate().map(|(n, rule)| (format!("r{n}.cedar"), rule)).collect();
        texts
    })
}

const SETTINGS: [&str; 7] = [
    "{}",
    "{ belowTrust: \"deny\" }",
    "{ defaultAllow: true, overrides: { exec: \"off\" } }",
    "{ channels: { classes: { cli: \"internal\" }, allow: { internal: [\"*\"], unclassified: [\"read\", \"exec\", \"message\"] } } }",
    "{ riskAllow: { unclassified: \"high\" } }",
    "{ exceptions: [{ id: \"honeypot\", tool: \"message\", templates: [\"thanks\"], noLinks: true, minInputTrust: \"untrusted\", limit: { count: 2, perSeconds: 60 } }] }",
    "{ exceptions: [{ id: \"any\", tool: \"exec\", limit: { count: 2, perSeconds: 60 } }], overrides: { message: \"audit\" } }",
];

/// A law with settings, rules, and mandates for all tools and for some.
pub(crate) fn texts() -> impl Strategy<Value = LawTexts> {
    (select(&SETTINGS[..]), subsequence(RULES.to_vec(), 0..5)).prop_map(|(settings, rules)| {
        let mut texts = LawTexts::built_in();
        let all = TOOLS[..16].join(", ");
        texts.mandates.insert("all".to_owned(), format!("---\ntools: {all}\n---\n"));
        texts.mandates.insert("some".to_owned(), "---\ntools: read, exec, message, write\n---\n".to_owned());
        texts.law = Some(settings.to_owned());
        for (n, rule) in rules.into_iter().enumerate() {
            texts.policies.insert(format!("r{n}.cedar"), rule.to_owned());
        }
        texts
    })
}

pub(crate) fn law(texts: LawTexts) -> Constitution {
    Constitution::new(texts, &["unmanifested"]).unwrap()
}

pub(crate) fn labels() -> impl Strategy<Value = Labels> {
    (select(&Trust::ALL[..]), any::<bool>()).prop_map(|(trust, private)| Labels::new(trust, private))
}

fn args() -> impl Strategy<Value = CallArgs> {
    let word = |words: &'static [&'static str]| option::of(select(words).prop_map(str::to_owned));
    (
        word(&["notes.txt", "secrets/key", "/etc/passwd"]),
        option::of(any::<bool>()),
        option::of(vec(select(&["ls", "rm", "git"][..]).prop_map(str::to_owned), 0..3)),
        word(&["thanks", "free"]),
        option::of(any::<bool>()),
        option::of(0_u64..4),
        prop::bool::weighted(0.05),
        word(&["example.org", "b\u{fc}cher \"x\"\n"]),
    )
        .prop_map(|(path, outside, programs, template, links, bytes, malformed, host)| CallArgs {
            path,
            outside,
            programs,
            template,
            links,
            bytes,
            malformed,
            host,
            ..CallArgs::default()
        })
}

prop_compose! {
    /// A call in a main session.
    pub(crate) fn call()(
        tool in select(&TOOLS[..]),
        mandate in select(&["all", "all", "all", "some", "ghost"][..]),
        stage in select(&[DecisionStage::Call, DecisionStage::Call, DecisionStage::Dispatch, DecisionStage::Offer][..]),
        channel in select(&["cli", "telegram"][..]),
        labels in labels(),
        provenance in select(&[ArgumentProvenance::Owner, ArgumentProvenance::Other][..]),
        args in args(),
        frozen in prop::bool::weighted(0.03),
        approver in prop::bool::weighted(0.8),
        approval in option::weighted(0.2, Just("a1".to_owned())),
        grant in option::weighted(0.1, Just("g1".to_owned())),
        exception_uses in btree_map(select(&["honeypot", "any"][..]).prop_map(str::to_owned), 0_u64..4, 0..3),
        vetoes in vec(Just(Veto::new("scan", "no")), 0..2).prop_filter("mostly none", |own| own.is_empty() || own.len() == 1),
    ) -> Facts {
        Facts {
            stage, channel: channel.to_owned(), labels, provenance, args, frozen, approver, approval, grant,
            exception_uses, vetoes,
            ..Facts::for_owner_call("main", "agent:main:cli:local:dm:op", mandate, tool)
        }
    }
}

/// More calls, some of them by sub-agents.
pub(crate) fn many_calls() -> impl Strategy<Value = Vec<Facts>> {
    let by_anyone = (call(), select(&["", "", "", "all", "some"][..]))
        .prop_map(|(facts, mandate)| if mandate.is_empty() { facts } else { by_sub_agent(&facts, mandate) });
    vec(by_anyone, 200)
}

/// Calls to try one law with: to make a law costs more than to decide.
pub(crate) fn calls() -> impl Strategy<Value = Vec<Facts>> {
    vec(call(), 40)
}

/// A built-in manifest, made stricter.
pub(crate) fn stricter() -> impl Strategy<Value = ToolManifest> {
    use tribune_constitution::{Capability, Risk, ToolEffect};
    (select(&TOOLS[..15]), any::<[bool; 5]>()).prop_map(|(tool, [trust, output, effect, risk, capable])| {
        let mut own = ToolManifest::built_in(tool).unwrap();
        if trust {
            own.min_input_trust = Trust::Owner;
        }
        if output {
            own.output_trust = Trust::Untrusted;
        }
        if effect {
            own.effect = ToolEffect::SideEffect;
        }
        if risk {
            own.risk_level = Risk::Critical;
        }
        if capable {
            own.capabilities.push(Capability::DeviceControl);
        }
        own
    })
}

/// The same call by a sub-agent that the session of `facts` started.
pub(crate) fn by_sub_agent(facts: &Facts, mandate: &str) -> Facts {
    let mut mandates = vec![mandate.to_owned()];
    mandates.extend(facts.mandates.iter().cloned());
    Facts { kind: SessionKind::Subagent, mandates, labels: facts.labels.for_sub_agent(), ..facts.clone() }
}
