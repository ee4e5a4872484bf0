//! `tribune law suggest`: suggests rules that would have saved approvals.

use std::collections::VecDeque;

use clap::Args;
use serde_json::json;
use tribune_constitution::{DecisionStage, RecordedCall, Suggestion, suggest_rules};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::Verdicts;

use super::{answer, backtest, load};
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean, clean_text, count};
use crate::progress::EntryProgress;

/// The newest calls that are read: as many as fit into some tens of megabytes.
const MAX_CALLS: usize = 50_000;

/// Suggest the narrowest rules that would have saved approvals.
///
/// Finds calls that people were asked about and always allowed, and prints the narrowest rule that allows them, with
/// its effect on all recorded calls. A rule that would let pass what a person denied even once is not suggested, and a
/// critical tool only for arguments that the owner wrote. Nothing is changed: to use a rule, put its text into a file in
/// policy/.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune law suggest\n  tribune law suggest --min 3\n  tribune law suggest --json | jq -r '.suggestions[0].rule' > ~/.tribune/policy/saved.cedar"
)]
pub(crate) struct SuggestArgs {
    /// The smallest number of approvals that a rule must have saved.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    min: u64,
}

pub(super) fn run(args: &SuggestArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let law = load(None, home)?;
    let reader = Reader::open(home)?;
    let (calls, left_out) = calls(&reader)?;
    let suggestions = suggest_rules(&law, &calls, args.min);
    let value = json!({
        "hash": law.hash(), "calls": calls.len(), "left_out": left_out, "suggestions": suggestions,
    });
    output.result(|paint| text(&suggestions, calls.len() as u64, args.min, paint), &value)?;
    if left_out > 0 {
        output.notice(&format!("only the newest {MAX_CALLS} calls were read; {left_out} are older"));
    }
    Ok(CommandOutcome::Done)
}

/// The newest calls with the decisions of people, and the number of older ones.
fn calls(reader: &Reader) -> Result<(Vec<RecordedCall>, u64), CliError> {
    let mut calls = VecDeque::new();
    let mut left_out = 0;
    let mut progress = EntryProgress::new("reading", reader.size()?);
    for judged in Verdicts::from(reader, 0) {
        let judged = judged?;
        progress.set(judged.stored.index);
        let answer = answer(reader, &judged)?;
        let Some(record) = judged.record.filter(|record| record.facts.stage == DecisionStage::Call) else {
            continue;
        };
        if calls.len() == MAX_CALLS {
            calls.pop_front();
            left_out += 1;
        }
        calls.push_back(RecordedCall { facts: record.facts, verdict: record.verdict, answer });
    }
    Ok((calls.into(), left_out))
}

fn text(suggestions: &[Suggestion], calls: u64, least: u64, paint: Paint) -> String {
    if suggestions.is_empty() {
        return format!(
            "no rule to suggest: of {}, none that needed an approval only for its side effect was allowed {} or more and never denied",
            count(calls, "call", "calls"),
            count(least, "time", "times")
        );
    }
    let one = |own: &Suggestion| {
        let mut lines =
            vec![paint.good(&format!("would have saved {}", count(own.saved, "prompt", "prompts")))];
        lines.extend(own.caution.iter().map(|caution| paint.unsure(&clean(&format!("mind: {caution}")))));
        lines.push(clean_text(own.rule.trim_end()));
        lines.push(paint.faint("the whole record with this rule:"));
        lines.extend(backtest::text(&own.backtest, paint).lines().map(|line| format!("  {line}")));
        lines.join("\n")
    };
    let all: Vec<String> = suggestions.iter().map(one).collect();
    format!("{}\n\nput a rule into a file in policy/, then run: tribune law check", all.join("\n\n"))
}
