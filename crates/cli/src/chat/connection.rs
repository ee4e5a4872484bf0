//! The connection of a conversation: asks for turns, and hands on their events in order, each once, across connections
//! that break.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_agents::{SessionKey, StopReason};
use tribune_client::{Client, ClientError, Incoming, Notification};
use tribune_host::Home;

use super::view::View;
use crate::error::CliError;
use crate::output::clean;
use crate::up::next_command;
use crate::{approvals, daemon};

/// How often and how long a lost daemon is looked for: as long as a restart takes.
const ATTEMPTS: u32 = 60;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(250);

/// Approvals that are looked through for those of this session.
const LOOKED_THROUGH: usize = 1_000;

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Where a conversation stands.
pub(super) struct Talk<'a> {
    home: &'a Home,
    key: SessionKey,
    /// The model to talk to, instead of the agent's own.
    model: Option<String>,
    /// The folder that its agent works in, instead of its own.
    folder: Option<PathBuf>,
    client: Option<Client>,
    /// The newest event that was shown, or that was there before.
    last_seq: u64,
    /// The turn under way.
    turn: Turn,
}

#[derive(Default)]
struct Turn {
    /// Number of the request, on the connection that it was made on.
    request: Option<u64>,
    /// Its first event was seen, so the daemon has its input.
    has_started: bool,
    /// The subscription through which it is followed after a lost connection.
    subscription: Option<u64>,
    /// Number of the request to cancel it.
    cancel: Option<u64>,
    /// It is to be cancelled, and could not be told: there was no connection, or it had not begun.
    owes_cancel: bool,
    /// How it ended.
    ended: Option<StopReason>,
    /// Its calls that wait for a person.
    waiting: Vec<String>,
    /// Numbers of the requests that decide about them.
    decisions: Vec<u64>,
}

/// How waiting for a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    Ended(StopReason),
    /// It goes on, but nobody waits for it.
    Left,
}

impl<'a> Talk<'a> {
    /// Connects and opens the session.
    pub(super) async fn open(
        home: &'a Home,
        key: SessionKey,
        (model, folder): (Option<String>, Option<PathBuf>),
    ) -> Result<Self, CliError> {
        let client = daemon::connect(home).await?;
        let mut talk =
            Self { home, key, model, folder, client: Some(client), last_seq: 0, turn: Turn::default() };
        talk.init().await?;
        Ok(talk)
    }

    pub(super) const fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Goes on in another session.
    pub(super) async fn move_to(&mut self, key: SessionKey) -> Result<(), CliError> {
        self.key = key;
        self.folder = None;
        self.init().await.map(drop)
    }

    /// Opens the session, or finds it open. What others did in it meanwhile is theirs.
    async fn init(&mut self) -> Result<Value, CliError> {
        let mut params = json!({ "session_key": self.key });
        if let Some(model) = &self.model {
            params["model"] = model.as_str().into();
        }
        if let Some(folder) = &self.folder {
            params["workspace"] = json!(folder);
        }
        let info = self.call("session.init", &params).await?;
        self.last_seq = info["last_seq"].as_u64().unwrap_or(0);
        Ok(info)
    }

    /// Says what the turn before waits for, which the next one waits for too.
    async fn tell_what_waits(&mut self, view: &mut View<'_>) -> Result<Vec<String>, CliError> {
        let page = self.call("approval.list", &json!({ "limit": LOOKED_THROUGH })).await?;
        let own = approvals::rows(&page).filter(|row| row["session_key"] == self.key.as_str());
        let own: Vec<Value> = own.cloned().collect();
        if own.is_empty() {
            view.note("the session is busy with another turn: this message comes after it");
        }
        for row in &own {
            let decide = |word: &str| {
                next_command(self.home, &format!("approvals {word} {}", clean(approvals::id_of(row))))
            };
            view.queued_behind(row, (&decide("allow"), &decide("deny")));
        }
        Ok(own.iter().map(|row| approvals::id_of(row).to_owned()).collect())
    }

    /// Asks something between turns.
    pub(super) async fn call(&mut self, method: &str, params: &Value) -> Result<Value, CliError> {
        match self.connected().await?.call(method, params).await {
            Ok(result) => Ok(result),
            Err(error) => {
                if is_lost(&error) {
                    self.client = None;
                }
                Err(error.into())
            }
        }
    }

    async fn connected(&mut self) -> Result<&mut Client, CliError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => daemon::connect(self.home).await?,
        };
        Ok(self.client.insert(client))
    }

    /// Keeps an idle connection alive. Returns when it was lost, and never while there is none.
    pub(super) async fn idle(&mut self, view: &mut View<'_>) {
        let Some(client) = &mut self.client else { return std::future::pending().await };
        while client.next().await.is_ok() {}
        self.client = None;
        view.note("the connection to the daemon was lost; the next message looks for it again");
    }

    /// Asks for a turn.
    pub(super) async fn ask(&mut self, text: &str, view: &mut View<'_>) -> Result<(), CliError> {
        if self.client.is_none() {
            self.client = Some(self.find_daemon().await?);
            view.note("connected again");
        }
        let info = self.init().await?;
        self.turn = Turn::default();
        if info["state"] == "running" {
            self.turn.waiting = self.tell_what_waits(view).await?;
        }
        let params =
            json!({ "session_key": self.key, "input": { "content": [{ "type": "text", "text": text }] } });
        let request = self.connected().await?.send("turn.run", &params).await?;
        self.turn.request = Some(request);
        view.begin();
        Ok(())
    }

    /// Shows the turn to its end. May be dropped and called again: nothing is lost or shown twice.
    pub(super) async fn listen(&mut self, view: &mut View<'_>) -> Result<Turned, CliError> {
        loop {
            if let Some(stop_reason) = self.turn.ended {
                self.unfollow().await;
                return Ok(Turned::Ended(stop_reason));
            }
            if self.turn.owes_cancel && self.turn.has_started && self.client.is_some() {
                self.send_cancel().await;
            }
            let Some(client) = &mut self.client else {
                self.resume(view).await?;
                continue;
            };
            match client.next().await {
                Ok(Incoming::Notification(said)) => self.heard(&said, view)?,
                Ok(Incoming::Answer(request, answer)) if self.turn.request == Some(request) => {
                    // The events of a turn come before the answer to it, unless they could not be sent.
                    let result = answer?;
                    self.end(result["stop_reason"].as_str(), view)?;
                }
                Ok(Incoming::Answer(request, answer)) if self.turn.cancel == Some(request) => {
                    self.turn.owes_cancel = answer?["cancelled"] == false;
                }
                Ok(Incoming::Answer(request, answer)) if self.turn.decisions.contains(&request) => {
                    self.turn.decisions.retain(|own| *own != request);
                    match answer {
                        // What came of it is an event of its own, unless more people must agree.
                        Ok(decided) if decided["missing"].as_u64() == Some(0) => {}
                        Ok(decided) => view.note(&approvals::decided_text(&decided)),
                        Err(error) => view.failed(&error.to_string()),
                    }
                }
                Ok(Incoming::Answer(..)) => {}
                Err(error) if is_lost(&error) => {
                    self.client = None;
                    view.note("the connection to the daemon was lost: looking for it again");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shows an event, unless it was shown before.
    fn heard(&mut self, said: &Notification, view: &mut View<'_>) -> Result<(), CliError> {
        let event = &said.params["event"];
        let seq = event["seq"].as_u64().unwrap_or(0);
        let is_ours = said.method == "session.event" && said.params["session_key"] == self.key.as_str();
        if !is_ours || seq <= self.last_seq {
            return Ok(());
        }
        self.last_seq = seq;
        self.turn.has_started = true;
        view.event(event)?;
        let id = || event["id"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("done") => return self.end(event["stop_reason"].as_str(), view),
            Some("approval_requested") => self.turn.waiting.push(id()),
            Some("approval_decided") => self.turn.waiting.retain(|own| *own != id()),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, stop_reason: Option<&str>, view: &mut View<'_>) -> Result<(), CliError> {
        let stop_reason = stop_reason.and_then(StopReason::parse).unwrap_or(StopReason::Error);
        self.turn.ended = Some(stop_reason);
        view.ended(&self.key, stop_reason, self.last_seq)
    }

    /// Decides about a call of the running turn. Its answer comes while the turn is listened to.
    pub(super) async fn decide(&mut self, typed: &str, decision: &str, view: &mut View<'_>) {
        let found: Vec<&String> = self.turn.waiting.iter().filter(|id| id.starts_with(typed)).collect();
        let id = match found.as_slice() {
            [one] => (*one).clone(),
            [] if self.turn.waiting.is_empty() => {
                return view.failed("no call of this turn waits for a decision");
            }
            _ => {
                let waiting = self.turn.waiting.join(", ");
                return view.failed(&format!("say which call is meant: {waiting}"));
            }
        };
        let Some(client) = &mut self.client else {
            return view.failed("there is no connection to the daemon at the moment: try again");
        };
        match client.send("approval.decide", &json!({ "id": id, "decision": decision })).await {
            Ok(request) => self.turn.decisions.push(request),
            Err(error) => view.failed(&error.to_string()),
        }
    }

    /// The connection, for what others ask through it between turns.
    pub(super) async fn client(&mut self) -> Result<&mut Client, CliError> {
        self.connected().await
    }

    pub(super) const fn home(&self) -> &'a Home {
        self.home
    }

    /// Tells the running turn to end.
    pub(super) async fn cancel(&mut self, view: &mut View<'_>) {
        view.note("cancelling");
        self.send_cancel().await;
    }

    async fn send_cancel(&mut self) {
        let params = json!({ "session_key": self.key });
        self.turn.cancel = match &mut self.client {
            Some(client) => client.send("session.cancel", &params).await.ok(),
            None => None,
        };
        self.turn.owes_cancel = self.turn.cancel.is_none();
    }

    /// Takes up the turn on a new connection, behind the last event that was shown.
    async fn resume(&mut self, view: &mut View<'_>) -> Result<(), CliError> {
        let mut attempt = 1;
        loop {
            let client = self.find_daemon().await?;
            match self.follow(client).await {
                // It went away again.
                Err(CliError::Daemon(error)) if is_lost(&error) && attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
            attempt += 1;
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
        view.note("connected again");
        if !self.turn.has_started {
            let what = " before it had the message: look at the history, and send it again if it is missing";
            return Err(ClientError::Closed(what.to_owned()).into());
        }
        Ok(())
    }

    async fn follow(&mut self, mut client: Client) -> Result<(), CliError> {
        let of_session = json!({ "session_key": self.key });
        let newest = client.call("session.status", &of_session).await?["last_seq"].as_u64().unwrap_or(0);
        if self.turn.has_started || newest > self.last_seq {
            let params = json!({ "session_key": self.key, "after": self.last_seq });
            let following = client.call("session.events", &params).await?;
            self.turn.subscription = following["subscription"].as_u64();
            self.turn.has_started = true;
        }
        // Numbers of the connection that was lost mean nothing on this one.
        (self.turn.request, self.turn.cancel) = (None, None);
        self.client = Some(client);
        Ok(())
    }

    async fn find_daemon(&self) -> Result<Client, CliError> {
        let mut attempt = 1;
        loop {
            match daemon::connect(self.home).await {
                Ok(client) => return Ok(client),
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => {}
            }
            attempt += 1;
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    /// What others do in the session from here on is not shown.
    async fn unfollow(&mut self) {
        if let (Some(client), Some(subscription)) = (&mut self.client, self.turn.subscription.take()) {
            if client.call("session.unfollow", &json!({ "subscription": subscription })).await.is_err() {
                self.client = None;
                return;
            }
            client.take_kept();
        }
    }

    pub(super) async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            // A daemon that does not answer hears no goodbye.
            let _ = tokio::time::timeout(GOODBYE, client.close()).await;
        }
    }
}

const fn is_lost(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable(_) | ClientError::Closed(_) => true,
        ClientError::Refused(_) | ClientError::Garbled | ClientError::Rpc { .. } => false,
    }
}
