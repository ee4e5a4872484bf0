//! `tribune approvals watch`: looks about once a second, shows what waits, and passes decisions on.

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tribune_client::{Client, ClientError};
use tribune_host::Home;

use super::keys::keys;
use super::raw_terminal::{self, Raw};
use super::screen::{Effect, Screen};
use super::{MAX_SHOWN, card, decided_text, id_of, rows};
use crate::approver_connection::Door;
use crate::error::{CliError, Outcome};
use crate::output::{Format, Output, clean};
use crate::sessions::cell;

/// How often it looks.
const TICK: Duration = Duration::from_secs(1);

/// How long the daemon may take to answer. Until then no key is heard.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(
    client: Client,
    home: &Home,
    door: Door,
    output: &mut Output,
) -> Result<Outcome, CliError> {
    let inbox = Inbox { home, door, client: Some(client), known: HashMap::new() };
    let on_screen =
        io::stdin().is_terminal() && io::stdout().is_terminal() && output.format() == Format::Text;
    let ends = Ends::new()?;
    if on_screen { live(inbox, ends, output).await } else { lines(inbox, ends, output).await }
}

/// The signals that end it.
struct Ends([Signal; 3]);

impl Ends {
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

/// What waits, as the daemon tells it; the daemon is looked for again when it was lost.
struct Inbox<'a> {
    home: &'a Home,
    door: Door,
    client: Option<Client>,
    /// What the calls that wait are about, which does not change.
    known: HashMap<String, String>,
}

impl Inbox<'_> {
    async fn call(&mut self, method: &str, params: &Value) -> Result<Value, CliError> {
        let silent = |_| CliError::Slow;
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let connecting = self.door.connect(self.home);
                tokio::time::timeout(PATIENCE, connecting).await.map_err(silent)??
            }
        };
        let answer = tokio::time::timeout(PATIENCE, client.call(method, params)).await.map_err(silent)?;
        if !matches!(answer, Err(ClientError::Unreachable(_) | ClientError::Closed(_))) {
            self.client = Some(client);
        }
        Ok(answer?)
    }

    /// The oldest calls that wait, each with what it is about, and how many wait.
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

/// Whether it can be tried again: the daemon is away, or a call was decided while it was looked at.
fn passes(error: &CliError) -> bool {
    matches!(
        error,
        CliError::NoDaemon(_)
            | CliError::Silent { .. }
            | CliError::Slow
            | CliError::NoToken { .. }
            | CliError::Daemon(_)
    )
}

async fn live(mut inbox: Inbox<'_>, mut ends: Ends, output: &Output) -> Result<Outcome, CliError> {
    let mut screen = Screen::new(output.paint(), raw_terminal::size(), Instant::now());
    let mut resized = signal(SignalKind::window_change()).map_err(CliError::System)?;
    let mut tick = tokio::time::interval(TICK);
    let mut input = tokio::io::stdin();
    let mut typed = [0; 256];
    let _raw = Raw::enter()?;
    loop {
        tokio::select! {
            _ = tick.tick() => look(&mut inbox, &mut screen).await?,
            _ = resized.recv() => screen.resize(raw_terminal::size()),
            () = ends.any() => return Ok(Outcome::Done),
            read = input.read(&mut typed) => {
                let read = read?;
                if read == 0 {
                    return Ok(Outcome::Done);
                }
                for key in keys(&typed[..read]) {
                    match screen.key(key, Instant::now()) {
                        Effect::Nothing => {}
                        Effect::Leave => return Ok(Outcome::Done),
                        Effect::Decide { id, decision, pattern } => {
                            let params = json!({ "id": id, "decision": decision, "pattern": pattern });
                            let note = match inbox.call("approval.decide", &params).await {
                                Ok(decided) => decided_text(&decided),
                                Err(error) if passes(&error) => clean(&error.to_string()),
                                Err(error) => return Err(error),
                            };
                            screen.note(note);
                            look(&mut inbox, &mut screen).await?;
                        }
                    }
                }
                show(&mut inbox, &mut screen).await?;
            }
        }
        raw_terminal::draw(&screen.lines())?;
    }
}

async fn look(inbox: &mut Inbox<'_>, screen: &mut Screen) -> Result<(), CliError> {
    match inbox.look().await {
        Ok((rows, pending)) => screen.refresh(rows, pending, Instant::now()),
        Err(error) if passes(&error) => {
            screen.note(clean(&error.to_string()));
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    show(inbox, screen).await
}

/// Fetches the card of what is selected.
async fn show(inbox: &mut Inbox<'_>, screen: &mut Screen) -> Result<(), CliError> {
    let Some(id) = screen.selected().map(str::to_owned) else { return Ok(()) };
    match inbox.call("approval.show", &json!({ "id": id })).await {
        Ok(approval) => screen.show(approval),
        Err(error) if passes(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// A line for each call as it comes, and one as it goes; those that are found together in the order in which they came.
async fn lines(mut inbox: Inbox<'_>, mut ends: Ends, output: &mut Output) -> Result<Outcome, CliError> {
    let mut tick = tokio::time::interval(TICK);
    let mut waiting: Vec<Value> = Vec::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = ends.any() => return Ok(Outcome::Done),
        }
        let (now, _) = inbox.look().await?;
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
            let shown = inbox.call("approval.show", &json!({ "id": id })).await?;
            let value = json!({ "event": "ended", "id": id, "state": shown["state"], "approval": shown });
            // One that is only behind the first page of the list waits still.
            if shown["state"] != "pending" {
                output.result(|_| format!("{} is {}", clean(id), cell(&shown["state"])), &value)?;
            }
        }
        waiting = now;
    }
}

/// The calls of one look that another does not have, in their order.
fn missing<'a>(rows: &'a [Value], other: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    let known: HashSet<&str> = other.iter().map(id_of).collect();
    rows.iter().filter(move |row| !known.contains(id_of(row)))
}
