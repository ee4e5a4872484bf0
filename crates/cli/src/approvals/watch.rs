//! `tribune approvals watch`: polls the waiting calls once a second, shows them, and sends decisions.

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tribune_client::{ClientError, RpcClient};
use tribune_storage::home::Home;

use super::keys::keys;
use super::raw_terminal::{self, RawTerminal};
use super::screen::{KeyAction, Screen};
use super::{MAX_SHOWN, card, decided_text, id_of, rows};
use crate::approver_connection::ApproverConnection;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Format, Output, cell, clean};

/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long the daemon may take to answer. Until then keys are not handled.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(
    client: RpcClient,
    home: &Home,
    connection: ApproverConnection,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let feed = PendingFeed { home, connection, client: Some(client), known: HashMap::new() };
    let on_screen =
        io::stdin().is_terminal() && io::stdout().is_terminal() && output.format() == Format::Text;
    let end_signals = EndSignals::new()?;
    if on_screen { live(feed, end_signals, output).await } else { lines(feed, end_signals, output).await }
}

/// The signals that end the command.
struct EndSignals([Signal; 3]);

impl EndSignals {
    fn new() -> Result<Self, CliError> {
        let on = |kind| signal(kind).map_err(CliError::System);
        Ok(Self([on(SignalKind::interrupt())?, on(SignalKind::terminate())?, on(SignalKind::hangup())?]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// The waiting calls, from the daemon. Reconnects after a lost connection.
struct PendingFeed<'a> {
    home: &'a Home,
    connection: ApproverConnection,
    client: Option<RpcClient>,
    /// The subjects of the waiting calls, which do not change.
    known: HashMap<String, String>,
}

impl PendingFeed<'_> {
    async fn call(&mut self, method: &str, params: &Value) -> Result<Value, CliError> {
        let silent = |_| CliError::Slow;
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let connecting = self.connection.connect(self.home);
                tokio::time::timeout(ANSWER_TIMEOUT, connecting).await.map_err(silent)??
            }
        };
        let answer =
            tokio::time::timeout(ANSWER_TIMEOUT, client.call(method, params)).await.map_err(silent)?;
        if !matches!(answer, Err(ClientError::Unreachable(_) | ClientError::Closed(_))) {
            self.client = Some(client);
        }
        Ok(answer?)
    }

    /// The oldest waiting calls with their subjects, and how many wait.
    async fn look(&mut self) -> Result<(Vec<Value>, u64), CliError> {
        let page = self.call("approval.list", &json!({ "limit": MAX_SHOWN })).await?;
        let mut waiting: Vec<Value> = rows(&page).cloned().collect();
        let mut known = HashMap::new();
        for row in &mut waiting {
            let id = id_of(row).to_owned();
            let what = match self.known.remove(&id) {
                Some(what) => what,
                None => card::what(&self.call("approval.show", &json!({ "id": id })).await?),
            };
            row["what"] = what.clone().into();
            known.insert(id, what);
        }
        self.known = known;
        Ok((waiting, page["pending"].as_u64().unwrap_or(0)))
    }
}

/// Whether an error may pass: the daemon is away, or the call was decided at the same time.
fn is_temporary(error: &CliError) -> bool {
    matches!(
        error,
        CliError::NoDaemon(_)
            | CliError::Silent { .. }
            | CliError::Slow
            | CliError::NoToken { .. }
            | CliError::Daemon(_)
    )
}

async fn live(
    mut feed: PendingFeed<'_>,
    mut end_signals: EndSignals,
    output: &Output,
) -> Result<CommandOutcome, CliError> {
    let mut screen = Screen::new(output.paint(), raw_terminal::size(), Instant::now());
    let mut resized = signal(SignalKind::window_change()).map_err(CliError::System)?;
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    let mut input = tokio::io::stdin();
    let mut typed = [0; 256];
    let _raw = RawTerminal::enter()?;
    loop {
        tokio::select! {
            _ = tick.tick() => look(&mut feed, &mut screen).await?,
            _ = resized.recv() => screen.resize(raw_terminal::size()),
            () = end_signals.any() => return Ok(CommandOutcome::Done),
            read = input.read(&mut typed) => {
                let read = read?;
                if read == 0 {
                    return Ok(CommandOutcome::Done);
                }
                for key in keys(&typed[..read]) {
                    match screen.key(key, Instant::now()) {
                        KeyAction::Nothing => {}
                        KeyAction::Quit => return Ok(CommandOutcome::Done),
                        KeyAction::Decide { id, decision, pattern } => {
                            let params = json!({ "id": id, "decision": decision, "pattern": pattern });
                            let note = match feed.call("approval.decide", &params).await {
                                Ok(decided) => decided_text(&decided),
                                Err(error) if is_temporary(&error) => clean(&error.to_string()),
                                Err(error) => return Err(error),
                            };
                            screen.note(note);
                            look(&mut feed, &mut screen).await?;
                        }
                    }
                }
                show(&mut feed, &mut screen).await?;
            }
        }
        raw_terminal::draw(&screen.lines())?;
    }
}

async fn look(feed: &mut PendingFeed<'_>, screen: &mut Screen) -> Result<(), CliError> {
    match feed.look().await {
        Ok((rows, pending)) => screen.refresh(rows, pending, Instant::now()),
        Err(error) if is_temporary(&error) => {
            screen.note(clean(&error.to_string()));
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    show(feed, screen).await
}

/// Fetches the card of the selected call.
async fn show(feed: &mut PendingFeed<'_>, screen: &mut Screen) -> Result<(), CliError> {
    let Some(id) = screen.selected().map(str::to_owned) else { return Ok(()) };
    match feed.call("approval.show", &json!({ "id": id })).await {
        Ok(approval) => screen.show(approval),
        Err(error) if is_temporary(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Prints a line for each new call and for each one that ended, in the order of their creation.
async fn lines(
    mut feed: PendingFeed<'_>,
    mut end_signals: EndSignals,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    let mut waiting: Vec<Value> = Vec::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = end_signals.any() => return Ok(CommandOutcome::Done),
        }
        let (now, _) = feed.look().await?;
        for row in missing(&now, &waiting) {
            let value = json!({ "event": "requested", "id": id_of(row), "approval": row });
            output.result(
                |paint| {
                    format!(
                        "{} {} by {}: {}  {}",
                        paint.unsure(&cell(&row["id"])),
                        cell(&row["tool"]),
                        cell(&row["agent_id"]),
                        cell(&row["what"]),
                        paint.faint(&cell(&row["reason"]))
                    )
                },
                &value,
            )?;
        }
        for id in missing(&waiting, &now).map(id_of) {
            let shown = feed.call("approval.show", &json!({ "id": id })).await?;
            let value = json!({ "event": "ended", "id": id, "state": shown["state"], "approval": shown });
            // A call that only moved off the first page still waits.
            if shown["state"] != "pending" {
                output.result(|_| format!("{} is {}", clean(id), cell(&shown["state"])), &value)?;
            }
        }
        waiting = now;
    }
}

/// The calls of one poll that the other lacks, in order.
fn missing<'a>(rows: &'a [Value], other: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    let known: HashSet<&str> = other.iter().map(id_of).collect();
    rows.iter().filter(move |row| !known.contains(id_of(row)))
}
