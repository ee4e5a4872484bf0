//! `tribune law explain`: why a call was decided as it was, rule by rule.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tribune_constitution::{Constitution, Explanation, Facts, RuleOutcome as StepOutcome};
use tribune_governance::policy_files;
use tribune_ledger::EntryQuality;
use tribune_storage::audit::read_small;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::store::{EntryLookup, StoredEntry};
use tribune_storage::verdict_log::{VerdictOf, Verdicts};

use super::{brief, line, load};
use crate::error::{CliError, CommandOutcome};
use crate::ledger::{ambiguous, find};
use crate::output::{Output, Paint, clean, short_cid};

/// Verdicts of one call that are explained: a call is judged when it is made, before it runs, and again if it waits
/// again.
const MAX_VERDICTS: usize = 16;

/// Explain a verdict: every rule in order, and its result.
///
/// Names a verdict in the ledger, a call (all its verdicts are explained) or an approval. A recorded verdict is
/// explained under the law of its time; with --with, under the law in a folder. Facts from a file are judged under the
/// home's law.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune law explain 4711                      the verdict at that position in the ledger\n  tribune law explain b3:0a1b2c                 a verdict or a call by its CID\n  tribune law explain 7k2m9x0q                  why this approval was needed\n  tribune law explain --facts call.json --with trial/"
)]
pub(crate) struct ExplainArgs {
    /// A verdict or a call: its position in the ledger, its CID or the start of its CID; or the id of an approval.
    #[arg(value_name = "CALL|VERDICT", required_unless_present = "facts")]
    entry: Option<String>,
    /// A file with the facts of a call, in the form of a recorded verdict.
    #[arg(long, value_name = "FILE", conflicts_with = "entry")]
    facts: Option<PathBuf>,
    /// Use the law in this folder, which has the layout of a home.
    #[arg(long, value_name = "DIR")]
    with: Option<PathBuf>,
}

/// One decision to explain.
struct DecisionToExplain {
    /// Its ledger entry, if it was recorded.
    judged: Option<VerdictOf>,
    facts: Facts,
}

pub(super) fn run(args: &ExplainArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let candidate = args.with.as_deref().map(|dir| load(Some(dir), home)).transpose()?;
    let subjects = match (&args.facts, &args.entry) {
        (Some(path), _) => {
            let text = read_small(path).map_err(CliError::file(path))?;
            let facts = Facts::parse(text.trim_end().as_bytes())
                .map_err(|error| CliError::Input(format!("`{}`: {error}", path.display())))?;
            vec![DecisionToExplain { judged: None, facts }]
        }
        (None, entry) => recorded(&Reader::open(home)?, entry.as_deref().unwrap_or_default())?,
    };
    let mut explained = Vec::new();
    for subject in &subjects {
        let law = match (&candidate, &subject.judged) {
            (Some(law), _) => law.clone(),
            (None, Some(judged)) => law_of(judged, home)?,
            (None, None) => load(None, home)?,
        };
        explained.push((subject, law.explain(&subject.facts), law));
    }
    for (n, (subject, explanation, law)) in explained.iter().enumerate() {
        let gap = if n == 0 { "" } else { "\n" };
        let value = value(subject, explanation, law);
        output.result(|paint| format!("{gap}{}", text(subject, explanation, law, paint)), &value)?;
    }
    Ok(CommandOutcome::Done)
}

/// The verdicts that a name refers to.
fn recorded(reader: &Reader, name: &str) -> Result<Vec<DecisionToExplain>, CliError> {
    let stored = match reader.lookup(name)? {
        EntryLookup::Found(stored) => *stored,
        EntryLookup::Several(cids) => return Err(ambiguous(name, &cids)),
        EntryLookup::Nothing(what) => match reader.approval(name)? {
            Some(approval) => find(reader, &approval.requested.verdict)?,
            None => return Err(CliError::Input(what)),
        },
    };
    let judged = match stored.entry.quality {
        EntryQuality::PolicyVerdict => vec![VerdictOf::new(stored)],
        EntryQuality::ToolCall => of_call(reader, &stored)?,
        other => {
            let what = format!("entry {} is of the kind {other}", stored.index);
            return Err(CliError::Input(format!("{what}: name a policy_verdict or a tool_call")));
        }
    };
    let subject = |judged: VerdictOf| match &judged.record {
        Some(record) => Ok(DecisionToExplain { facts: record.facts.clone(), judged: Some(judged) }),
        None => {
            let what = "was written by another version, whose facts this version cannot read";
            Err(CliError::Input(format!("the verdict at {} {what}", judged.stored.index)))
        }
    };
    judged.into_iter().map(subject).collect()
}

fn of_call(reader: &Reader, call: &StoredEntry) -> Result<Vec<VerdictOf>, CliError> {
    let cid = call.entry.cid;
    let mut found = Vec::new();
    for judged in Verdicts::from(reader, call.index) {
        let judged = judged?;
        if judged.stored.entry.parent_cids().contains(&cid) {
            found.push(judged);
            if found.len() == MAX_VERDICTS {
                break;
            }
        }
    }
    if found.is_empty() {
        return Err(CliError::Input(format!(
            "the call at {} has no verdict: its turn ended before the decision",
            call.index
        )));
    }
    Ok(found)
}

fn law_of(judged: &VerdictOf, home: &Home) -> Result<Constitution, CliError> {
    let hash = judged.record.as_ref().map(|record| record.constitution_hash.as_str()).unwrap_or_default();
    let hash = hash.parse().map_err(|error| CliError::Input(format!("{error}")))?;
    Ok(policy_files::kept(home.root(), hash, &tribune_tools::NAMES)?)
}

fn value(subject: &DecisionToExplain, explanation: &Explanation, law: &Constitution) -> Value {
    let recorded = subject.judged.as_ref().and_then(|judged| {
        let record = judged.record.as_ref()?;
        Some(json!({
            "index": judged.stored.index, "cid": judged.stored.entry.cid, "verdict": record.verdict,
            "constitution_hash": record.constitution_hash, "agrees": record.verdict == explanation.verdict,
        }))
    });
    json!({
        "recorded": recorded, "constitution_hash": law.hash(), "facts": subject.facts,
        "steps": explanation.steps, "verdict": explanation.verdict,
    })
}

fn text(subject: &DecisionToExplain, explanation: &Explanation, law: &Constitution, paint: Paint) -> String {
    let facts = &subject.facts;
    let field = |name: &str, value: String| format!("{} {value}", paint.faint(&format!("{name:<10}")));
    let context = crate::approvals::card::context(facts.labels.trust.as_str(), facts.labels.private);
    let mut lines = Vec::new();
    if let Some(judged) = &subject.judged {
        let cid = short_cid(&judged.stored.entry.cid.to_string());
        lines.push(field(
            "verdict",
            format!("entry {}, {cid}, {}", judged.stored.index, judged.stored.entry.timestamp),
        ));
    }
    let stage = json!(facts.stage);
    lines.push(field(
        "call",
        format!(
            "{} by {}, at the stage {}",
            brief(facts),
            clean(&facts.agent),
            clean(stage.as_str().unwrap_or_default())
        ),
    ));
    lines.push(field("session", clean(&facts.session)));
    lines.push(field("context", context));
    lines.push(field("law", law.hash().to_string()));
    let width = explanation.steps.iter().map(|step| step.rule.chars().count()).max().unwrap_or(0);
    for step in &explanation.steps {
        let word = match step.outcome {
            StepOutcome::Passed => paint.good("passed"),
            StepOutcome::Asked => paint.unsure("asked "),
            StepOutcome::Denied => paint.bad("denied"),
            StepOutcome::Noted => paint.faint("noted "),
        };
        lines.push(format!("  {word}  {:<width$}  {}", clean(&step.rule), clean(&step.why)));
    }
    lines.push(field("decision", line(&explanation.verdict)));
    if let Some(would) = &explanation.verdict.would_allow {
        lines.push(field("would help", clean(would)));
    }
    let record = subject.judged.as_ref().and_then(|judged| judged.record.as_ref());
    if let Some(record) = record.filter(|record| record.verdict != explanation.verdict) {
        lines.push(paint.bad(&format!("the record says otherwise: {}", line(&record.verdict))));
    }
    lines.join("\n")
}
