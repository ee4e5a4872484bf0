//! The Cedar schema that operators' rules are validated against, generated from the manifests.
//!
//! ```text
//! principal  Tribune::Agent    id, kind ("main" | "subagent")
//! action     Tribune::Action   one per tool, in the groups of its effect and its risk
//! resource   Tribune::Session  channel, class
//! context    what is known of the call: labels, mandate and the attributes of its arguments
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::manifest::tool_groups::{effect_group, groups, risk_group};
use crate::manifest::{Risk, ToolEffect, ToolManifest};

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

/// Attributes of the agent, all of them strings.
pub(crate) const OF_AGENT: [&str; 2] = ["id", "kind"];

/// Attributes of the session, all of them strings.
pub(crate) const OF_SESSION: [&str; 2] = ["channel", "class"];

/// The schema in Cedar's own syntax.
pub(crate) fn text(tools: &BTreeSet<String>, manifests: &BTreeMap<String, ToolManifest>) -> String {
    let always = ALWAYS.iter().map(|(name, kind)| format!("    {name}: {kind},\n"));
    let optional = OF_ARGS.iter().map(|(name, kind)| format!("    {name}?: {kind},\n"));
    let context: String = always.chain(optional).collect();
    let texts = |names: [&str; 2]| names.map(|name| format!("{name}: String")).join(", ");
    let mut text = format!(
        "namespace {NAMESPACE} {{\n  entity Agent {{ {} }};\n  entity Session {{ {} }};\n  type Call = {{\n{context}  }};\n",
        texts(OF_AGENT),
        texts(OF_SESSION),
    );
    for effect in ToolEffect::ALL {
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
