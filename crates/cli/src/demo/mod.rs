//! `tribune demo`: a real daemon in a temporary home, and a story whose steps are checked.
//!
//! Only the model is scripted: everything that is printed was read from answers and events. If anything is not as it
//! should be, the story ends there with exit code 2.

mod demo_home;
mod story;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tribune_config::Config;
use tribune_daemon::daemon::Daemon;
use tribune_storage::clock::SystemClock;

use self::demo_home::DemoHome;
use self::story::{DemoError, Story};
use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, clean};

/// How long the whole story may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// See Tribune at work in a minute: no API key, no setup, nothing left behind.
///
/// Starts a real daemon in a temporary home. A scripted agent reads a file, tries a shell command, writes to another
/// agent and is cancelled. Then the ledger of all this is verified. Each step is checked before it is printed.
///
/// Exit codes: 0 every step went as described, 2 a step did not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tribune demo\n  tribune demo --keep\n  tribune demo --json")]
pub(crate) struct DemoArgs {
    /// Keep the temporary home, and print its path.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &DemoArgs, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let demo_home = DemoHome::create(args.keep)?;
    // The folder outlives the runtime, so that no task writes into it while it is removed.
    let runtime = daemon::runtime()?;
    let played = runtime.block_on(play(&demo_home, output));
    drop(runtime);
    played
}

async fn play(demo_home: &DemoHome, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let listen = |kind| signal(kind).map_err(CliError::System);
    let (mut interrupt, mut terminate, mut hangup) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let mut config = Config::default();
    config.gateway.address.set_port(0);
    config.gateway.drain = Duration::ZERO;
    let daemon = Daemon::start(demo_home.home(), &config, Arc::new(SystemClock)).await?;

    let mut story = Story::new(demo_home, output);
    let result = tokio::select! {
        result = tokio::time::timeout(TIMEOUT, story.run()) => {
            result.unwrap_or_else(|_| Err(DemoError::Unexpected("it took longer than a minute".to_owned())))
        }
        _ = interrupt.recv() => Err(DemoError::Stopped),
        _ = terminate.recv() => Err(DemoError::Stopped),
        _ = hangup.recv() => Err(DemoError::Stopped),
    };
    daemon.stop(std::future::ready(())).await;
    let result = result.and_then(|()| story.verify());
    let facts = story.into_facts();
    conclude(result, facts, demo_home, output)
}

fn conclude(
    result: Result<u64, DemoError>,
    mut facts: serde_json::Map<String, Value>,
    demo_home: &DemoHome,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let kept = demo_home.kept().map(|path| path.display().to_string());
    facts.insert("kept".to_owned(), json!(kept));
    match result {
        Ok(entries) => {
            facts.insert("ok".to_owned(), true.into());
            output.verdict(
                |paint| {
                    let next = story::what_next(kept.as_deref());
                    format!("{next}\n\nintegrity: {}, {entries} entries", paint.good("sound"))
                },
                &Value::Object(facts),
            )?;
            Ok(CommandOutcome::Done)
        }
        Err(DemoError::Output(error)) => Err(error),
        Err(DemoError::Stopped) => {
            output.notice("stopped");
            Ok(CommandOutcome::Cancelled)
        }
        Err(DemoError::Unexpected(what)) => {
            facts.insert("ok".to_owned(), false.into());
            facts.insert("failed".to_owned(), what.clone().into());
            output.verdict(
                |paint| format!("{}: {}", paint.bad("this step failed"), clean(&what)),
                &Value::Object(facts),
            )?;
            Ok(CommandOutcome::Broken)
        }
    }
}
