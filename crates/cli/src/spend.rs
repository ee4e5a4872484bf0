//! `tribune spend`: what models cost, from the ledger.

use clap::ValueEnum;
use serde_json::{Value, json};
use tribune_records::spend::report::{SpendGrouping, SpendLine, SpendReport};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean, table};

/// Show what models cost.
///
/// The ledger has every model request with its tokens, and with its cost if config.json5 has a price for the model.
/// This command adds them up, with or without a running daemon. Limits are in config.json5, under `spend`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tribune spend\n  tribune spend --by agent --since 2026-11-01\n  tribune spend --by model --json"
)]
pub(crate) struct SpendArgs {
    /// How to group the sums.
    #[arg(long, value_enum, default_value_t = GroupBy::Day)]
    by: GroupBy,
    /// Start at this day (UTC), such as 2026-11-01.
    #[arg(long, value_name = "DAY", value_parser = day)]
    since: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GroupBy {
    Day,
    Agent,
    Session,
    Model,
}

impl From<GroupBy> for SpendGrouping {
    fn from(word: GroupBy) -> Self {
        match word {
            GroupBy::Day => Self::Day,
            GroupBy::Agent => Self::Agent,
            GroupBy::Session => Self::Session,
            GroupBy::Model => Self::Model,
        }
    }
}

/// Checks that a text is a day.
fn day(text: &str) -> Result<String, String> {
    let parsed = tribune_storage::clock::parse_time(&format!("{text}T00:00:00Z"));
    match parsed {
        Some(_) if text.len() == 10 => Ok(text.to_owned()),
        _ => Err("write a day such as 2026-11-01".to_owned()),
    }
}

pub(crate) fn run(args: &SpendArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let report = Reader::open(home)?.spend_report(args.by.into(), args.since.as_deref())?;
    let value: Value = serde_json::to_value(&report).unwrap_or_else(|_| json!({}));
    output.result(|paint| text(&report, paint), &value)?;
    Ok(CommandOutcome::Done)
}

fn text(report: &SpendReport, paint: Paint) -> String {
    if report.lines.is_empty() {
        let since = report.since.as_ref().map_or_else(String::new, |day| format!(" since {day}"));
        return format!("No model requests{since}.");
    }
    let heading = [report.by.as_str(), "requests", "input", "cached", "output", "cost"];
    let mut rows: Vec<Vec<String>> = report.lines.iter().map(row).collect();
    if report.lines.len() > 1 {
        rows.push(row(&report.all));
    }
    let mut text = table(&heading, &rows, paint);
    if report.all.without_price > 0 {
        let what = format!(
            "\n{} requests went to models without a price: add prices to spend.prices in config.json5",
            report.all.without_price
        );
        text.push_str(&paint.faint(&what));
    }
    if report.all.estimated > 0 {
        let what = format!(
            "\nfor {} requests the provider did not report tokens: they count with the most that they can have used",
            report.all.estimated
        );
        text.push_str(&paint.faint(&what));
    }
    text
}

fn row(line: &SpendLine) -> Vec<String> {
    let name = if line.name.is_empty() { "no session".to_owned() } else { clean(&line.name) };
    let cost = if line.without_price == line.requests { "-".to_owned() } else { line.cost.to_string() };
    let input = line.input.saturating_add(line.cache_written);
    vec![
        name,
        line.requests.to_string(),
        input.to_string(),
        line.cache_read.to_string(),
        line.output.to_string(),
        cost,
    ]
}
