//! `tribune law`: shows, checks and tests the law, and explains the verdicts made under it. These commands read files
//! and the ledger; they need no daemon and do not affect one.

mod backtest;
mod check;
pub(crate) mod denials;
mod explain;
mod replay;
mod show;
pub(crate) mod state;
mod suggest;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;
use tribune_constitution::{Constitution, Decision, Facts, LawTexts, Verdict};
use tribune_governance::policy_files;
use tribune_governance::policy_files::LawError;
use tribune_records::approval::record::ApprovalState;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::VerdictOf;

use self::backtest::BacktestArgs;
use self::explain::ExplainArgs;
use self::suggest::SuggestArgs;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, clean, excerpt};

/// Characters of a list of rules that are shown.
const RULES_CHARS: usize = 300;

#[derive(Debug, Subcommand)]
pub(crate) enum LawCommand {
    /// Show the law: its hash, its mode, its mandates, manifests, rules and exceptions.
    #[command(after_help = "Examples:\n  tribune law show\n  tribune law show trial/")]
    Show {
        /// A folder with the layout of a home [default: the home].
        dir: Option<PathBuf>,
    },
    /// Find mistakes in the law before it is in force.
    ///
    /// Each finding has its position, as file:line:column, and says what to do.
    ///
    /// Errors keep the daemon from starting; all of them are listed: broken files, misspelt attributes and keys,
    /// unknown tools, duplicate ids.
    ///
    /// Warnings are about parts of the law without the effect that they seem to have: rules that are never reached,
    /// whose conditions contradict each other, or that other rules cover; permits for calls that are allowed anyway,
    /// and permits for everything; rules without an id; unknown annotations and examples that cannot be tested;
    /// manifests, exceptions and channels without effect. Removing a rule that is said to do nothing changes no
    /// decision. Not every such rule is found, because only comparisons with constants are analysed.
    ///
    /// Nothing is changed, and no daemon is needed. To check that rules do what you want, use `tribune law test` and
    /// `tribune law backtest`.
    ///
    /// Exit codes: 0 no errors, 2 errors, 64 the folder has no law.
    #[command(after_help = "\
Examples:
  tribune law check
  tribune law check trial/ && tribune law backtest --with trial/
  tribune --json law check trial/ | jq -r '.findings[].message'

Its output for a redundant rule, in trial/policy/local.cedar:
  1  @id(\"no-reading\")
  2  forbid(principal, action == Tribune::Action::\"read\", resource);
  3  @id(\"no-secrets\")
  4  forbid(principal, action == Tribune::Action::\"read\", resource)
  5  when { context has path && context.path like \"secrets/*\" };

  trial/policy/local.cedar:3:1: warning: the rule `no-secrets` forbids nothing more: `no-reading`
  (policy/local.cedar:1) forbids the same calls; remove one of them, or mend their conditions
  law: sound, 0 errors, 1 warning; its hash is b3:…")]
    Check {
        /// A folder with the layout of a home: constitution.md, mandates/, manifests/, policy/ [default: the home].
        dir: Option<PathBuf>,
    },
    /// Test every rule with its own examples.
    ///
    /// A rule in policy/*.cedar can have examples as annotations: @example_deny, @example_ask and @example_allow. Each
    /// is a JSON object with the differences from a plain call.
    ///
    /// Exit codes: 0 all examples pass, 2 an example fails.
    #[command(
        after_help = "Example of a rule with examples:\n  @id(\"no-secrets\")\n  @example_deny(\"{\\\"args\\\": {\\\"path\\\": \\\"secrets/key\\\"}}\")\n  @example_allow(\"{\\\"args\\\": {\\\"path\\\": \\\"notes.txt\\\"}}\")\n  forbid(principal, action == Tribune::Action::\"read\", resource)\n  when { context has path && context.path like \"secrets/*\" };"
    )]
    Test {
        /// A folder with the layout of a home [default: the home].
        dir: Option<PathBuf>,
    },
    Explain(ExplainArgs),
    /// Decide every recorded call again under the law of its time, and compare the verdicts. Every verdict must be
    /// identical.
    ///
    /// The daemon keeps the texts of every law that was in force in constitutions/, by hash. Verdicts whose law is
    /// missing or belongs to another kernel cannot be decided again; they are counted.
    ///
    /// Exit codes: 0 all identical, 2 a verdict differs or a kept law was changed, 3 some could not be decided again.
    #[command(after_help = "Examples:\n  tribune law replay\n  tribune law replay --json | jq .different")]
    Replay,
    Backtest(BacktestArgs),
    Suggest(SuggestArgs),
}

pub(crate) fn run(
    command: &LawCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    match command {
        LawCommand::Show { dir } => show::run(dir.as_deref(), home, output),
        LawCommand::Check { dir } => check::check(dir.as_deref(), home, output),
        LawCommand::Test { dir } => check::test(dir.as_deref(), home, output),
        LawCommand::Explain(args) => explain::run(args, home, output),
        LawCommand::Replay => replay::run(home, output),
        LawCommand::Backtest(args) => backtest::run(args, home, output),
        LawCommand::Suggest(args) => suggest::run(args, home, output),
    }
}

/// The law's texts from the given folder, or from the home.
fn texts(dir: Option<&Path>, home: &Home) -> Result<LawTexts, CliError> {
    if let Some(dir) = dir {
        require_law(dir)?;
    }
    Ok(policy_files::texts(dir.unwrap_or(home.root()))?)
}

/// The law from the given folder, or from the home.
fn load(dir: Option<&Path>, home: &Home) -> Result<Constitution, CliError> {
    if let Some(dir) = dir {
        require_law(dir)?;
    }
    policy_files::load(dir.unwrap_or(home.root()), &tribune_tools::NAMES).map_err(|error| match error {
        LawError::Refused { .. } => CliError::Input(format!("{error}; `tribune law check` shows where")),
        error => error.into(),
    })
}

/// Refuses a folder without a law, because the built-in texts would be used silently.
fn require_law(dir: &Path) -> Result<(), CliError> {
    let parts = ["constitution.md", "mandates", "manifests", "policy"];
    if parts.iter().any(|part| dir.join(part).exists()) {
        return Ok(());
    }
    let what = if dir.is_dir() { "has no law" } else { "is not a folder" };
    Err(CliError::Input(format!(
        "`{}` {what}: name one with constitution.md, mandates/, manifests/ or policy/ in it",
        dir.display()
    )))
}

/// A call on one line: its tool and its subject.
fn brief(facts: &Facts) -> String {
    let args = &facts.args;
    let one =
        [&args.path, &args.host, &args.recipient, &args.name, &args.action].into_iter().flatten().next();
    let about = match &args.programs {
        Some(programs) => programs.join(", "),
        None => one.cloned().unwrap_or_default(),
    };
    clean(format!("{} {about}", facts.tool).trim_end())
}

/// A verdict on one line.
fn line(verdict: &Verdict) -> String {
    let waived = verdict.waived_by.as_ref().map_or_else(String::new, |by| format!(", through {by}"));
    let audited =
        verdict.audited.map_or_else(String::new, |would| format!(", audited: would be {}", would.as_str()));
    let reason = if verdict.reason.is_empty() { String::new() } else { format!(": {}", verdict.reason) };
    clean(&format!("{} ({}{waived}{audited}){reason}", verdict.decision.as_str(), verdict.rule_list()))
}

/// The rules that decided, on one line.
pub(crate) fn rules(verdict: &Value) -> String {
    let rules = verdict["rules"].as_array().into_iter().flatten().filter_map(Value::as_str);
    excerpt(&rules.collect::<Vec<_>>().join(", "), RULES_CHARS)
}

/// A person's decision about the call, if there is one.
fn answer(reader: &Reader, judged: &VerdictOf) -> Result<Option<bool>, CliError> {
    let asked = |decision: Decision| decision == Decision::Ask;
    if !judged.record.as_ref().is_some_and(|record| asked(record.verdict.decision)) {
        return Ok(None);
    }
    // What the daemon asks outside of turns has no call but its verdict.
    let entry = &judged.stored.entry;
    let mut approval = reader.approval_of_call(&entry.cid.to_string())?;
    if let (None, Some(call)) = (&approval, entry.parent_cids().first()) {
        approval = reader.approval_of_call(&call.to_string())?;
    }
    Ok(approval.and_then(|approval| match approval.state {
        ApprovalState::Allowed => Some(true),
        ApprovalState::Denied => Some(false),
        ApprovalState::Pending | ApprovalState::Expired | ApprovalState::Withdrawn => None,
    }))
}
