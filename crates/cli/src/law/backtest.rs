//! `tribune law backtest`: what a changed law would have decided for the recorded calls.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tribune_constitution::backtest::VerdictChanges;
use tribune_constitution::{Backtest, Constitution, RecordedCall, backtest};
use tribune_governance::policy_files;
use tribune_ledger::Timestamp;
use tribune_records::ledger_payloads::VerdictRecord;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::Verdicts;

use super::{answer, brief, line, load};
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean, count};
use crate::progress::EntryProgress;
use crate::times;

/// Try a law on the recorded calls before it is in force.
///
/// Decides every recorded call again and reports the differences: first where the law would contradict what people
/// decided about these calls, then newly denied, newly allowed, approvals added and approvals saved, by tool and by
/// agent, with examples. It reads only recorded facts, no conversations.
///
/// A call that ran because a person allowed it counts as asked. It cannot know whether later calls would have been made
/// at all under the other law.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cp -r ~/.tribune/{constitution.md,mandates,policy} trial/\n  tribune law backtest --with trial/ --since 30d"
)]
pub(crate) struct BacktestArgs {
    /// The law to try: a folder with the layout of a home. Missing files are replaced by the built-in ones, not by
    /// those of the home.
    #[arg(long, value_name = "DIR")]
    with: PathBuf,
    /// Only calls since a time: 2030-01-31T18:00:00Z, 2030-01-31, or 30d for the last thirty days.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

pub(super) fn run(args: &BacktestArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let candidate = load(Some(&args.with), home)?;
    let since = args.since.as_deref().map(times::parse_past).transpose()?;
    warn_missing_mandates(&args.with, &candidate, home, output);
    let reader = Reader::open(home)?;
    let mut calls = RecordedCalls::new(&reader, since)?;
    let result = backtest(&candidate, calls.by_ref());
    calls.end()?;
    let value = json!({ "hash": candidate.hash(), "since": since, "backtest": result, "unreadable": calls.unreadable });
    output.result(
        |paint| {
            let mut text =
                format!("{}\n{}", paint.faint(&format!("law {}", candidate.hash())), text(&result, paint));
            if calls.unreadable > 0 {
                text.push_str(&format!("\nnot read: {}, written by another version", calls.unreadable));
            }
            text
        },
        &value,
    )?;
    Ok(CommandOutcome::Done)
}

/// Warns about mandates that the folder lacks: every call under them would count as denied.
fn warn_missing_mandates(dir: &Path, candidate: &Constitution, home: &Home, output: &Output) {
    let Ok(present) = policy_files::load(home.root(), &tribune_tools::NAMES) else { return };
    let missing: Vec<&str> = present
        .mandates()
        .keys()
        .map(String::as_str)
        .filter(|name| candidate.mandate(name).is_none())
        .collect();
    if !missing.is_empty() {
        output.notice(&format!(
            "`{}` lacks mandates of this home ({}): calls under them count as denied; copy mandates/ there if you do not want that",
            dir.display(),
            clean(&missing.join(", "))
        ));
    }
}

/// The recorded facts and verdicts since a time.
struct RecordedCalls<'a> {
    reader: &'a Reader,
    verdicts: Verdicts<'a>,
    progress: EntryProgress,
    since: Option<Timestamp>,
    unreadable: u64,
    failed: Option<CliError>,
}

impl<'a> RecordedCalls<'a> {
    fn new(reader: &'a Reader, since: Option<Timestamp>) -> Result<Self, CliError> {
        let progress = EntryProgress::new("deciding", reader.size()?);
        Ok(Self { reader, verdicts: Verdicts::from(reader, 0), progress, since, unreadable: 0, failed: None })
    }

    /// Returns the error that stopped the iteration, if there was one.
    fn end(&mut self) -> Result<(), CliError> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Iterator for RecordedCalls<'_> {
    type Item = RecordedCall;

    fn next(&mut self) -> Option<RecordedCall> {
        self.next_call().unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        })
    }
}

impl RecordedCalls<'_> {
    fn next_call(&mut self) -> Result<Option<RecordedCall>, CliError> {
        for judged in self.verdicts.by_ref() {
            let judged = judged?;
            self.progress.set(judged.stored.index);
            if self.since.is_some_and(|since| judged.stored.entry.timestamp < since) {
                continue;
            }
            let answer = answer(self.reader, &judged)?;
            match judged.record {
                Some(VerdictRecord { facts, verdict, .. }) => {
                    return Ok(Some(RecordedCall { facts, verdict, answer }));
                }
                None => self.unreadable += 1,
            }
        }
        Ok(None)
    }
}

/// The differences, as text.
pub(super) fn text(result: &Backtest, paint: Paint) -> String {
    let mut lines = Vec::new();
    for (what, changes) in [
        ("that a person denied would run without asking", &result.overrides_denials),
        ("that a person allowed would be denied", &result.overrides_approvals),
    ] {
        if changes.count > 0 {
            let head = format!("{} {what}:", count(changes.count, "call", "calls"));
            lines.push(paint.bad(&head));
            lines.extend(changes_text("against them", changes, paint));
        }
    }
    lines.push(format!(
        "{} decided again, {} as before",
        count(result.calls, "call", "calls"),
        result.unchanged
    ));
    let kinds = [
        ("newly denied", &result.newly_denied),
        ("newly allowed", &result.newly_allowed),
        ("prompts added", &result.prompts_added),
        ("prompts saved", &result.prompts_saved),
    ];
    for (name, changes) in kinds {
        lines.extend(changes_text(name, changes, paint));
    }
    lines.join("\n")
}

fn changes_text(name: &str, changes: &VerdictChanges, paint: Paint) -> Vec<String> {
    let counts = |of: &std::collections::BTreeMap<String, u64>| {
        let counts: Vec<String> = of.iter().map(|(name, n)| format!("{} {n}", clean(name))).collect();
        counts.join(", ")
    };
    let mut lines = vec![match changes.count {
        0 => format!("{name:<14} {}", paint.faint("0")),
        n => format!(
            "{name:<14} {n}   {}",
            paint.faint(&format!(
                "tools: {}; agents: {}",
                counts(&changes.by_tool),
                counts(&changes.by_agent)
            ))
        ),
    }];
    for example in &changes.examples {
        lines.push(format!("  {} by {}", brief(&example.facts), clean(&example.facts.agent)));
        lines.push(format!("    was {}", line(&example.before)));
        lines.push(format!("    now {}", line(&example.after)));
    }
    lines
}
