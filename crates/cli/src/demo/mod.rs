//! `tribune demo`: a real daemon in a throw-away home, and a story that is checked while it is told.
//!
//! Nothing is simulated but the model: what is told here was read from answers and events, and if any of it is not as it
//! should be, the story ends there with exit code 2.

mod demo_home;
mod story;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tribune_host::SystemClock;
use tribune_host::config::Config;
use tribune_host::daemon::Daemon;

use self::demo_home::Stage;
use self::story::{Mishap, Story};
use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::{Output, clean};

/// How long the whole story may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// See it all at work in a minute: no key, no set-up, nothing left behind.
///
/// Starts a real daemon in a throw-away home and lets a rehearsed agent read a file, try a shell, write to another agent
/// and be cancelled. Then it verifies the log of all that. Each step is checked; what is told is what happened.
///
/// Exit codes: 0 all went as told, 2 something did not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tribune demo\n  tribune demo --keep\n  tribune demo --json")]
pub(crate) struct DemoArgs {
    /// Keep the home, and say where it is.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &DemoArgs, output: &mut Output) -> Result<Outcome, CliError> {
    let stage = Stage::build(args.keep)?;
    // The stage outlives the runtime, so that nobody writes into it while it is taken down.
    let runtime = daemon::runtime()?;
    let played = runtime.block_on(play(&stage, output));
    drop(runtime);
    played
}

async fn play(stage: &Stage, output: &mut Output) -> Result<Outcome, CliError> {
    let listen = |kind| signal(kind).map_err(CliError::System);
    let (mut interrupt, mut terminate, mut hangup) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let mut config = Config::default();
    config.gateway.address.set_port(0);
    config.gateway.drain = Duration::ZERO;
    let daemon = Daemon::start(stage.home(), &config, Arc::new(SystemClock)).await?;

    let mut story = Story::new(stage, output);
    let told = tokio::select! {
        told = tokio::time::timeout(PATIENCE, story.tell()) => {
            told.unwrap_or_else(|_| Err(Mishap::Strange("it took longer than a minute".to_owned())))
        }
        _ = interrupt.recv() => Err(Mishap::Stopped),
        _ = terminate.recv() => Err(Mishap::Stopped),
        _ = hangup.recv() => Err(Mishap::Stopped),
    };
    daemon.stop(std::future::ready(())).await;
    let told = told.and_then(|()| story.prove());
    let facts = story.into_facts();
    conclude(told, facts, stage, output)
}

fn conclude(
    told: Result<u64, Mishap>,
    mut facts: serde_json::Map<String, Value>,
    stage: &Stage,
    output: &mut Output,
) -> Result<Outcome, CliError> {
    let kept = stage.kept().map(|path| path.display().to_string());
    facts.insert("kept".to_owned(), json!(kept));
    match told {
        Ok(entries) => {
            facts.insert("ok".to_owned(), true.into());
            output.verdict(
                |paint| {
                    let next = story::what_next(kept.as_deref());
                    format!("{next}\n\nintegrity: {}, {entries} entries", paint.good("sound"))
                },
                &Value::Object(facts),
            )?;
            Ok(Outcome::Done)
        }
        Err(Mishap::Output(error)) => Err(error),
        Err(Mishap::Stopped) => {
            output.aside("stopped");
            Ok(Outcome::Cancelled)
        }
        Err(Mishap::Strange(what)) => {
            facts.insert("ok".to_owned(), false.into());
            facts.insert("failed".to_owned(), what.clone().into());
            output.verdict(
                |paint| format!("{}: {}", paint.bad("this did not go as it should"), clean(&what)),
                &Value::Object(facts),
            )?;
            Ok(Outcome::Broken)
        }
    }
}
