//! `tribune law show`: prints the contents of a law.

use std::path::Path;

use serde_json::{Value, json};
use tribune_constitution::{Constitution, EnforcementMode, RuleSummary, ToolManifest};
use tribune_storage::home::Home;

use super::load;
use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean, table};

pub(super) fn run(dir: Option<&Path>, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let law = load(dir, home)?;
    let value = value(&law);
    output.result(|paint| text(&law, &value, paint), &value)?;
    if dir.is_none() && daemon::is_running(home).is_some() {
        let status = daemon::ask(home, "daemon.status", &json!({}))?;
        if status["constitution_hash"] != json!(law.hash()) {
            output.notice("the running daemon uses another law: restart it to put this one in force");
        }
    }
    Ok(CommandOutcome::Done)
}

fn value(law: &Constitution) -> Value {
    let settings = law.settings();
    let mandates: Vec<Value> = law
        .mandates()
        .values()
        .map(|mandate| json!({ "name": mandate.name, "tools": mandate.tools() }))
        .collect();
    let own = |tool: &str| law.texts().manifests.contains_key(tool);
    let manifests: Vec<Value> = law
        .manifests()
        .values()
        .map(|manifest| json!({ "manifest": manifest, "built_in": !own(&manifest.id) }))
        .collect();
    let rules: Vec<Value> = law.rule_summaries().map(rule).collect();
    json!({
        "hash": law.hash(), "mode": settings.mode, "overrides": settings.overrides, "settings": settings,
        "mandates": mandates, "manifests": manifests, "rules": rules, "exceptions": settings.exceptions,
    })
}

fn rule(head: RuleSummary<'_>) -> Value {
    let effect = if head.forbids { "forbid" } else { "permit" };
    json!({ "id": head.id, "effect": effect, "file": head.file, "line": head.line })
}

fn text(law: &Constitution, value: &Value, paint: Paint) -> String {
    let heading = |name: &str| paint.faint(name);
    let settings = law.settings();
    let mode = |mode: EnforcementMode| match mode {
        EnforcementMode::Enforce => paint.good("enforce"),
        EnforcementMode::Audit => paint.unsure("audit: verdicts are recorded, and calls allowed"),
        EnforcementMode::Off => paint.bad("off: only mandates, hooks and the stop switch hold"),
    };
    let mut lines = vec![
        format!("{} {}", heading("hash    "), law.hash()),
        format!("{} {}", heading("mode    "), mode(settings.mode)),
    ];
    lines.extend(settings.overrides.iter().map(|(tool, own)| format!("  {}: {}", clean(tool), mode(*own))));
    lines.push(heading("\nMANDATES"));
    lines.extend(law.mandates().values().map(|mandate| {
        let tools = mandate.tools().join(", ");
        format!("  {}: {}", clean(&mandate.name), if tools.is_empty() { "nothing" } else { &tools })
    }));
    lines.push(String::new());
    lines.push(manifests(law, paint));
    let all = value["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.push(heading(&format!("\nRULES ({})", all.len())));
    lines.extend(all.iter().map(|rule| {
        let word = |name: &str| clean(rule[name].as_str().unwrap_or_default());
        format!(
            "  {} {}  {}",
            word("effect"),
            word("id"),
            paint.faint(&format!("{}:{}", word("file"), rule["line"]))
        )
    }));
    lines.push(heading(&format!("\nEXCEPTIONS ({})", settings.exceptions.len())));
    lines.extend(settings.exceptions.iter().map(|own| {
        clean(&format!(
            "  {}: {}, {} in {} seconds",
            own.id, own.tool, own.limit.count, own.limit.per_seconds
        ))
    }));
    lines.join("\n")
}

fn manifests(law: &Constitution, paint: Paint) -> String {
    let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
    let row = |manifest: &ToolManifest| {
        let own = law.texts().manifests.contains_key(&manifest.id);
        vec![
            clean(&manifest.id),
            word(json!(manifest.effect)),
            word(json!(manifest.risk_level)),
            word(json!(manifest.min_input_trust)),
            word(json!(manifest.output_trust)),
            if own { "this home".to_owned() } else { "built in".to_owned() },
        ]
    };
    let rows: Vec<Vec<String>> = law.manifests().values().map(row).collect();
    table(&["MANIFEST", "EFFECT", "RISK", "INPUT AT LEAST", "OUTPUT", "FROM"], &rows, paint)
}
