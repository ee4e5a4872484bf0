//! `tribune law`: the law as a text to check, test and try, and the verdicts that were made under it. Everything here
//! reads files and the log; no daemon is needed, and none is disturbed.

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
use tribune_constitution::{Constitution, Facts, Texts, Verdict};
use tribune_host::law::LawError;
use tribune_host::{Home, law};

use self::backtest::BacktestArgs;
use self::explain::ExplainArgs;
use self::suggest::SuggestArgs;
use crate::error::{CliError, Outcome};
use crate::output::{Output, clean};

#[derive(Debug, Subcommand)]
pub(crate) enum LawCommand {
    /// Show the law: its hash, its mode, its mandates, manifests, rules and exceptions.
    #[command(after_help = "Examples:\n  tribune law show\n  tribune law show trial/")]
    Show {
        /// A folder laid out like a home [default: the home].
        dir: Option<PathBuf>,
    },
    /// Look through the law for mistakes, before it is in force.
    ///
    /// Every finding has its place, as file:line:column, and ends with what to do.
    ///
    /// Errors are what the daemon would refuse to start with, all of them at once: broken files, misspelt attributes and
    /// keys, unknown tools, ids given twice.
    ///
    /// Warnings are about what holds and does not do what it seems to: rules that are never reached, whose conditions never
    /// hold together, or that others cover; permits for what is allowed anyway, and for everything; rules without an id;
    /// annotations nobody reads and examples that cannot be tried; manifests, exceptions and channels without effect. A
    /// rule that is said to do nothing can be removed, and no call is decided otherwise. Not every such rule is found:
    /// only comparisons with constants are understood.
    ///
    /// Nothing is changed, and no daemon is needed. Whether rules do what you want is for `tribune law test` and
    /// `tribune law backtest`.
    ///
    /// Exit codes: 0 no errors, 2 errors, 64 there is no law in that folder.
    #[command(after_help = "\
Examples:
  tribune law check
  tribune law check trial/ && tribune law backtest --with trial/
  tribune --json law check trial/ | jq -r '.findings[].message'

What it says of a rule whose work another does, in trial/policy/house.cedar:
  1  @id(\"no-reading\")
  2  forbid(principal, action == Tribune::Action::\"read\", resource);
  3  @id(\"no-secrets\")
  4  forbid(principal, action == Tribune::Action::\"read\", resource)
  5  when { context has path && context.path like \"secrets/*\" };

  trial/policy/house.cedar:3:1: warning: the rule `no-secrets` forbids nothing more: `no-reading`
  (policy/house.cedar:1) forbids the same calls; remove one of them, or mend their conditions
  law: sound, 0 errors, 1 warning; its hash is b3:…")]
    Check {
        /// A folder laid out like a home: constitution.md, mandates/, manifests/, policy/ [default: the home].
        dir: Option<PathBuf>,
    },
    /// Try every rule on its own examples.
    ///
    /// A rule in policy/*.cedar carries examples as annotations: @example_deny, @example_ask and @example_allow, each a
    /// JSON object of what is different from a plain call.
    ///
    /// Exit codes: 0 all as the examples say, 2 not.
    #[command(
        after_help = "Example of a rule with examples:\n  @id(\"no-secrets\")\n  @example_deny(\"{\\\"args\\\": {\\\"path\\\": \\\"secrets/key\\\"}}\")\n  @example_allow(\"{\\\"args\\\": {\\\"path\\\": \\\"notes.txt\\\"}}\")\n  forbid(principal, action == Tribune::Action::\"read\", resource)\n  when { context has path && context.path like \"secrets/*\" };"
    )]
    Test {
        /// A folder laid out like a home [default: the home].
        dir: Option<PathBuf>,
    },
    Explain(ExplainArgs),
    /// Decide every recorded call again, each under the law of its time. Every verdict must be the same to the bit.
    ///
    /// The daemon keeps the texts of every law that was in force in constitutions/, under their hash. Texts that are
    /// missing or of another kernel leave their verdicts undecided, and it says how many those are.
    ///
    /// Exit codes: 0 all identical, 2 something differs or a kept law was changed, 3 some could not be decided again.
    #[command(after_help = "Examples:\n  tribune law replay\n  tribune law replay --json | jq .different")]
    Replay,
    Backtest(BacktestArgs),
    Suggest(SuggestArgs),
}

pub(crate) fn run(command: &LawCommand, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
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

/// The texts in a folder that was named, or in the home.
fn texts(dir: Option<&Path>, home: &Home) -> Result<Texts, CliError> {
    if let Some(dir) = dir {
        has_law(dir)?;
    }
    Ok(law::texts(dir.unwrap_or(home.root()))?)
}

/// The law in a folder that was named, or in the home.
fn load(dir: Option<&Path>, home: &Home) -> Result<Constitution, CliError> {
    if let Some(dir) = dir {
        has_law(dir)?;
    }
    law::load(dir.unwrap_or(home.root())).map_err(|error| match error {
        LawError::Refused { .. } => CliError::Input(format!("{error}; `tribune law check` shows where")),
        error => error.into(),
    })
}

/// A folder without a law would pass for one with the built-in texts.
fn has_law(dir: &Path) -> Result<(), CliError> {
    let parts = ["constitution.md", "mandates", "manifests", "policy"];
    if parts.iter().any(|part| dir.join(part).exists()) {
        return Ok(());
    }
    let what = if dir.is_dir() { "holds no law" } else { "is no folder" };
    Err(CliError::Input(format!(
        "`{}` {what}: name one with constitution.md, mandates/, manifests/ or policy/ in it",
        dir.display()
    )))
}

/// A call in a few words: its tool and what it is about.
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

/// `1 call`, `2 calls`.
fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
