//! `tribune law check` finds mistakes in a law; `tribune law test` runs the examples of its rules.

use std::path::Path;

use serde_json::{Value, json};
use tribune_constitution::{Constitution, ExampleResult, LawFinding, Severity, check_agents};
use tribune_records::agents::RUN_AGENT;
use tribune_registry::Roster;
use tribune_storage::home::Home;

use super::{line, texts};
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean, count};

/// The roster file.
const ROSTER: &str = "data/agent-roster.jsonl";

pub(super) fn check(
    dir: Option<&Path>,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let texts = texts(dir, home)?;
    let mut findings = tribune_constitution::check(&texts, &tribune_tools::NAMES);
    let law = Constitution::new(texts, &tribune_tools::NAMES).ok();
    if let Some(law) = &law {
        findings.extend(unknown_agent_findings(law, home));
        findings.sort();
    }
    let hash = law.map(|law| law.hash().to_string());
    print_findings(&findings, hash.as_deref(), dir.unwrap_or(home.root()), output)
}

/// Findings about rules for agents that are not in the roster, if the roster can be read.
fn unknown_agent_findings(law: &Constitution, home: &Home) -> Vec<LawFinding> {
    let roster = Roster::load(&home.root().join(ROSTER)).unwrap_or_default();
    if roster.is_empty() {
        return Vec::new();
    }
    let own = roster.iter().map(|agent| agent.id.as_str());
    let agents: Vec<&str> = own.chain([RUN_AGENT]).collect();
    check_agents(law, &agents)
}

fn print_findings(
    findings: &[LawFinding],
    hash: Option<&str>,
    folder: &Path,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count() as u64;
    let warnings = findings.len() as u64 - errors;
    let value = json!({ "findings": findings, "errors": errors, "warnings": warnings, "hash": hash });
    output.verdict(
        |paint| {
            let mut lines: Vec<String> =
                findings.iter().map(|finding| finding_text(finding, folder, paint)).collect();
            let counted =
                format!("{}, {}", count(errors, "error", "errors"), count(warnings, "warning", "warnings"));
            lines.push(match (errors, hash) {
                (0, Some(hash)) => format!("law: {}, {counted}; its hash is {hash}", paint.good("sound")),
                _ => format!("law: {}, {counted}", paint.bad("REFUSED")),
            });
            lines.join("\n")
        },
        &value,
    )?;
    Ok(if errors > 0 { CommandOutcome::Broken } else { CommandOutcome::Done })
}

fn finding_text(finding: &LawFinding, folder: &Path, paint: Paint) -> String {
    let LawFinding { file, line, column, severity, message } = finding;
    let place = clean(&format!("{}:{line}:{column}", folder.join(file).display()));
    let word = match severity {
        Severity::Error => paint.bad("error"),
        Severity::Warning => paint.unsure("warning"),
    };
    format!("{place}: {word}: {}", clean(message))
}

pub(super) fn test(dir: Option<&Path>, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let texts = texts(dir, home)?;
    let folder = dir.unwrap_or(home.root());
    let law = match Constitution::new(texts.clone(), &tribune_tools::NAMES) {
        Ok(law) => law,
        // A law that cannot be read cannot be tested.
        Err(_) => {
            return print_findings(
                &tribune_constitution::check(&texts, &tribune_tools::NAMES),
                None,
                folder,
                output,
            );
        }
    };
    let tested = law.test();
    let failed = tested.iter().filter(|tested| !tested.passed()).count() as u64;
    let results: Vec<Value> = tested.iter().map(result).collect();
    let value = json!({ "hash": law.hash(), "tested": tested.len(), "failed": failed, "examples": results });
    output.verdict(
        |paint| {
            let mut lines: Vec<String> =
                tested.iter().map(|tested| tested_text(tested, folder, paint)).collect();
            let all = tested.len() as u64;
            lines.push(match (all, failed) {
                (0, _) => {
                    "no rule has an example: `tribune law test --help` shows how to write one".to_owned()
                }
                (_, 0) => format!("{}: {}", paint.good("passed"), count(all, "example", "examples")),
                _ => format!("{}: {failed} of {}", paint.bad("FAILED"), count(all, "example", "examples")),
            });
            lines.join("\n")
        },
        &value,
    )?;
    Ok(if failed > 0 { CommandOutcome::Broken } else { CommandOutcome::Done })
}

fn result(tested: &ExampleResult) -> Value {
    let (verdict, error) = match &tested.got {
        Ok(verdict) => (json!(verdict), Value::Null),
        Err(error) => (Value::Null, json!(error)),
    };
    json!({
        "rule": tested.rule, "file": tested.file, "line": tested.line, "example": tested.example,
        "wanted": tested.wanted, "passed": tested.passed(), "verdict": verdict, "error": error,
    })
}

fn tested_text(tested: &ExampleResult, folder: &Path, paint: Paint) -> String {
    let name = clean(&format!("{} @{}", tested.rule, tested.example));
    if tested.passed() {
        return format!("{} {name}", paint.good("ok  "));
    }
    let got = match &tested.got {
        Ok(verdict) => format!("the law says {}", line(verdict)),
        Err(error) => clean(error),
    };
    let place = clean(&format!("{}:{}", folder.join(&tested.file).display(), tested.line));
    format!("{} {name} ({place}): wanted {}, {got}", paint.bad("FAIL"), tested.wanted.as_str())
}
