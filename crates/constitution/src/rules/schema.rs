//! The Cedar schema that operators' rules are checked against, made from the manifests.
//!
//! ```text
//! principal  Tribune::Agent    id, kind ("main" | "subagent")
//! action     Tribune::Action   one per tool, in the groups of its effect and its risk
//! resource   Tribune::Session  channel, class
//! context    what is known of the call: labels, mandate and the attributes of its arguments
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::manifest::{Effect, Manifest, Risk};

/// The namespace of everything in the schema.
pub(crate) const NAMESPACE: &str = "Tribune";

/// Attributes of the context that every call has, with their types.
pub(crate) const ALWAYS: [(&str, &str); 5] = [
    ("approved", "Bool"),
    ("mandate", "String"),
    ("owner_args", "Bool"),
    ("private", "Bool"),
    ("trust", "Long"),
];

/// Attributes of the context that depend on the arguments, with their types.
pub(crate) const OF_ARGS: [(&str, &str); 17] = [
    ("action", "String"),
    ("attachments", "Bool"),
    ("bytes", "Long"),
    ("folder", "String"),
    ("host", "String"),
    ("links", "Bool"),
    ("method", "String"),
    ("name", "String"),
    ("outside", "Bool"),
    ("parsed", "Bool"),
    ("path", "String"),
    ("port", "Long"),
    ("programs", "Set<String>"),
    ("recipient", "String"),
    ("recipient_type", "String"),
    ("scheme", "String"),
    ("template", "String"),
];

/// Attributes of the agent, all of them texts.
pub(crate) const OF_AGENT: [&str; 2] = ["id", "kind"];

/// Attributes of the session, all of them texts.
pub(crate) const OF_SESSION: [&str; 2] = ["channel", "class"];

/// The group of tools with an effect, such as `side_effect`.
pub(crate) const fn effect_group(effect: Effect) -> &'static str {
    effect.as_str()
}

/// The group of tools with a risk.
pub(crate) const fn risk_group(risk: Risk) -> &'static str {
    match risk {
        Risk::Low => "risk_low",
        Risk::Medium => "risk_medium",
        Risk::High => "risk_high",
        Risk::Critical => "risk_critical",
    }
}

/// The groups that a tool is in; none without a manifest. A built-in tool that the house made stricter stays in its old
/// groups too, so that no rule loses sight of it.
pub(crate) fn groups(manifest: Option<&Manifest>) -> BTreeSet<&'static str> {
    let Some(own) = manifest else { return BTreeSet::new() };
    let kernel = Manifest::built_in(&own.id);
    let of = |manifest: &Manifest| [effect_group(manifest.effect), risk_group(manifest.risk_level)];
    of(own).into_iter().chain(kernel.iter().flat_map(of)).collect()
}

/// Names of all groups, which no tool may have.
pub(crate) fn is_group(name: &str) -> bool {
    Effect::ALL.iter().any(|effect| effect_group(*effect) == name)
        || Risk::ALL.iter().any(|risk| risk_group(*risk) == name)
}

/// The schema in Cedar's own syntax.
pub(crate) fn text(tools: &BTreeSet<String>, manifests: &BTreeMap<String, Manifest>) -> String {
    let always = ALWAYS.iter().map(|(name, kind)| format!("    {name}: {kind},\n"));
    let optional = OF_ARGS.iter().map(|(name, kind)| format!("    {name}?: {kind},\n"));
    let context: String = always.chain(optional).collect();
    let texts = |names: [&str; 2]| names.map(|name| format!("{name}: String")).join(", ");
    let mut text = format!(
        "namespace {NAMESPACE} {{\n  entity Agent {{ {} }};\n  entity Session {{ {} }};\n  type Call = {{\n{context}  }};\n",
        texts(OF_AGENT),
        texts(OF_SESSION),
    );
    for effect in Effect::ALL {
        let _ = writeln!(text, "  action \"{}\";", effect_group(effect));
    }
    for risk in Risk::ALL {
        let _ = writeln!(text, "  action \"{}\";", risk_group(risk));
    }
    for tool in tools {
        let groups: Vec<String> =
            groups(manifests.get(tool)).iter().map(|group| format!("\"{group}\"")).collect();
        let within = if groups.is_empty() { String::new() } else { format!(" in [{}]", groups.join(", ")) };
        let _ = writeln!(
            text,
            "  action {tool:?}{within} appliesTo {{ principal: Agent, resource: Session, context: Call }};"
        );
    }
    text.push_str("}\n");
    text
}
