//! `tribune ledger graph`: entries and their parents as a graph.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::json;
use tribune_ledger::Cid;
use tribune_storage::store::{EntryFilter, Reader, StoredEntry};

use crate::error::CliError;
use crate::output::Output;

pub(super) fn run(
    reader: &Reader,
    filter: &EntryFilter,
    lines: usize,
    mermaid: bool,
    output: &mut Output,
) -> Result<(), CliError> {
    let entries = reader.tail(filter, lines)?;
    let nodes: Vec<_> = entries
        .iter()
        .map(|stored| json!({ "index": stored.index, "cid": stored.entry.cid, "quality": stored.entry.quality, "entity_id": stored.entry.entity_id }))
        .collect();
    let edges: Vec<_> =
        edges(&entries).into_iter().map(|(from, to)| json!({ "parent": from, "child": to })).collect();
    let graph = if mermaid { to_mermaid(&entries) } else { to_dot(&entries) };
    output.verbatim(&graph, &json!({ "nodes": nodes, "edges": edges }))?;
    Ok(())
}

/// Edges from parent to child; a parent may be older than the entries shown.
fn edges(entries: &[StoredEntry]) -> Vec<(Cid, Cid)> {
    let children = entries.iter().map(|stored| &stored.entry);
    children.flat_map(|entry| entry.parent_cids().into_iter().map(|parent| (parent, entry.cid))).collect()
}

/// Parents that are not among the entries shown.
fn older(entries: &[StoredEntry]) -> Vec<Cid> {
    let mut known: HashSet<Cid> = entries.iter().map(|stored| stored.entry.cid).collect();
    edges(entries).into_iter().map(|(parent, _)| parent).filter(|parent| known.insert(*parent)).collect()
}

/// A node name that is valid in both languages.
fn id(cid: &Cid) -> String {
    format!("n{}", &cid.to_string()[3..15])
}

fn short(cid: &Cid) -> String {
    cid.to_string()[..11].to_owned()
}

fn to_dot(entries: &[StoredEntry]) -> String {
    let mut dot =
        String::from("digraph ledger {\n  rankdir = LR;\n  node [shape = box, fontname = \"monospace\"];\n");
    for stored in entries {
        let entry = &stored.entry;
        let label = format!(
            "{} {}\\n{}\\n{}",
            stored.index,
            entry.quality,
            escape_dot(&entry.target),
            short(&entry.cid)
        );
        let _ = writeln!(dot, "  {} [label = \"{label}\"];", id(&entry.cid));
    }
    for cid in older(entries) {
        let _ = writeln!(dot, "  {} [label = \"{}\", style = dashed];", id(&cid), short(&cid));
    }
    for (parent, child) in edges(entries) {
        let _ = writeln!(dot, "  {} -> {};", id(&parent), id(&child));
    }
    dot.push_str("}\n");
    dot
}

fn escape_dot(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn to_mermaid(entries: &[StoredEntry]) -> String {
    let mut graph = String::from("graph LR\n");
    for stored in entries {
        let entry = &stored.entry;
        let target = escape_mermaid(&entry.target);
        let _ = writeln!(
            graph,
            "  {}[\"{} {}<br/>{target}<br/>{}\"]",
            id(&entry.cid),
            stored.index,
            entry.quality,
            short(&entry.cid)
        );
    }
    for cid in older(entries) {
        let _ = writeln!(graph, "  {}([\"{}\"])", id(&cid), short(&cid));
    }
    for (parent, child) in edges(entries) {
        let _ = writeln!(graph, "  {} --> {}", id(&parent), id(&child));
    }
    graph
}

/// Mermaid reads HTML; its own escapes begin with `#`.
fn escape_mermaid(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_alphanumeric() || " :._-/".contains(c) {
                c.to_string()
            } else {
                format!("#{};", u32::from(c))
            }
        })
        .collect()
}
