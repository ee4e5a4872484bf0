//! The connection of a conversation: starts turns, and delivers their events in order, each once, across lost
//! connections.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::{ClientError, Notification, RpcClient, RpcIncoming};
use tribune_runtime::{SessionKey, StopReason};
use tribune_storage::home::Home;

use super::view::{ChatView, DecisionCommands};
use crate::error::CliError;
use crate::hints::next_command;
use crate::output::clean;
use crate::{approvals, daemon};

/// How often and at which interval a lost daemon is tried again: together as long as a restart takes.
const RECONNECT_ATTEMPTS: u32 = 60;
const RECONNECT_INTERVAL: Duration = Duration::from_millis(250);

/// Pending approvals that are read to find those of this session.
const MAX_PENDING_READ: usize = 1_000;

/// How long closing the connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a session uses instead of the agent's own settings.
pub(super) struct SessionOverrides {
    pub(super) model: Option<String>,
    /// The folder that the agent works in.
    pub(super) workspace: Option<PathBuf>,
}

/// A connection to one session.
pub(super) struct ChatConnection<'a> {
    home: &'a Home,
    key: SessionKey,
    overrides: SessionOverrides,
    client: Option<RpcClient>,
    /// The newest event that was shown or existed before this connection.
    last_seq: u64,
    /// The running turn.
    turn: RunningTurn,
}

#[derive(Default)]
struct RunningTurn {
    /// The number of its request, on the connection that sent it.
    request: Option<u64>,
    /// Its first event has arrived, so the daemon has its input.
    has_started: bool,
    /// The subscription that delivers it after a lost connection.
    subscription: Option<u64>,
    /// The number of the request that cancels it.
    cancel: Option<u64>,
    /// A cancel must still be sent: there was no connection, or the turn had not begun.
    cancel_pending: bool,
    /// How it ended.
    ended: Option<StopReason>,
    /// The ids of its calls that wait for a person.
    waiting: Vec<String>,
    /// The numbers of the requests that decide them.
    decisions: Vec<u64>,
}

/// How waiting for a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitEnd {
    Ended(StopReason),
    /// The turn goes on, but is no longer awaited.
    Detached,
}

impl<'a> ChatConnection<'a> {
    /// Connects and opens the session.
    pub(super) async fn open(
        home: &'a Home,
        key: SessionKey,
        overrides: SessionOverrides,
    ) -> Result<Self, CliError> {
        let client = daemon::connect(home).await?;
        let mut connection =
            Self { home, key, overrides, client: Some(client), last_seq: 0, turn: RunningTurn::default() };
        connection.init().await?;
        Ok(connection)
    }

    pub(super) const fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Continues in another session.
    pub(super) async fn switch_to(&mut self, key: SessionKey) -> Result<(), CliError> {
        self.key = key;
        self.overrides.workspace = None;
        self.init().await.map(drop)
    }

    /// Opens the session if it is not open. Events from before are not shown.
    async fn init(&mut self) -> Result<Value, CliError> {
        let mut params = json!({ "session_key": self.key });
        if let Some(model) = &self.overrides.model {
            params["model"] = model.as_str().into();
        }
        if let Some(folder) = &self.overrides.workspace {
            params["workspace"] = json!(folder);
        }
        let info = self.call("session.init", &params).await?;
        self.last_seq = info["last_seq"].as_u64().unwrap_or(0);
        Ok(info)
    }

    /// Prints the approvals that the running turn waits for, because the next turn waits for them too.
    async fn print_blocking_approvals(&mut self, view: &mut ChatView<'_>) -> Result<Vec<String>, CliError> {
        let page = self.call("approval.list", &json!({ "limit": MAX_PENDING_READ })).await?;
        let own = approvals::rows(&page).filter(|row| row["session_key"] == self.key.as_str());
        let own: Vec<Value> = own.cloned().collect();
        if own.is_empty() {
            view.note("the session is busy with another turn: this message is queued");
        }
        for row in &own {
            let decide = |word: &str| {
                next_command(self.home, &format!("approvals {word} {}", clean(approvals::id_of(row))))
            };
            view.queued_behind(row, &DecisionCommands { allow: decide("allow"), deny: decide("deny") });
        }
        Ok(own.iter().map(|row| approvals::id_of(row).to_owned()).collect())
    }

    /// Sends a request between turns.
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

    async fn connected(&mut self) -> Result<&mut RpcClient, CliError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => daemon::connect(self.home).await?,
        };
        Ok(self.client.insert(client))
    }

    /// Keeps an idle connection alive. Returns when it is lost, and never if there is none.
    pub(super) async fn wait_idle(&mut self, view: &mut ChatView<'_>) {
        let Some(client) = &mut self.client else { return std::future::pending().await };
        while client.next().await.is_ok() {}
        self.client = None;
        view.note("the connection to the daemon was lost; the next message connects again");
    }

    /// Starts a turn.
    pub(super) async fn start_turn(&mut self, text: &str, view: &mut ChatView<'_>) -> Result<(), CliError> {
        if self.client.is_none() {
            self.client = Some(self.reconnect().await?);
            view.note("connected again");
        }
        let info = self.init().await?;
        self.turn = RunningTurn::default();
        if info["state"] == "running" {
            self.turn.waiting = self.print_blocking_approvals(view).await?;
        }
        let params =
            json!({ "session_key": self.key, "input": { "content": [{ "type": "text", "text": text }] } });
        let request = self.connected().await?.send("turn.run", &params).await?;
        self.turn.request = Some(request);
        view.begin_turn();
        Ok(())
    }

    /// Shows the turn to its end. Cancel-safe: after a drop, the next call loses no event and repeats none.
    pub(super) async fn follow_turn(&mut self, view: &mut ChatView<'_>) -> Result<WaitEnd, CliError> {
        loop {
            if let Some(stop_reason) = self.turn.ended {
                self.unsubscribe().await;
                return Ok(WaitEnd::Ended(stop_reason));
            }
            if self.turn.cancel_pending && self.turn.has_started && self.client.is_some() {
                self.send_cancel().await;
            }
            let Some(client) = &mut self.client else {
                self.resume_turn(view).await?;
                continue;
            };
            match client.next().await {
                Ok(RpcIncoming::Notification(event)) => self.on_notification(&event, view)?,
                Ok(RpcIncoming::Response(request, answer)) if self.turn.request == Some(request) => {
                    // The events of a turn come before the answer to it, unless they could not be sent.
                    let result = answer?;
                    self.end(result["stop_reason"].as_str(), view)?;
                }
                Ok(RpcIncoming::Response(request, answer)) if self.turn.cancel == Some(request) => {
                    self.turn.cancel_pending = answer?["cancelled"] == false;
                }
                Ok(RpcIncoming::Response(request, answer)) if self.turn.decisions.contains(&request) => {
                    self.turn.decisions.retain(|own| *own != request);
                    match answer {
                        // The outcome arrives as an event, unless more people must agree.
                        Ok(decided) if decided["missing"].as_u64() == Some(0) => {}
                        Ok(decided) => view.note(&approvals::decided_text(&decided)),
                        Err(error) => view.failed(&error.to_string()),
                    }
                }
                Ok(RpcIncoming::Response(..)) => {}
                Err(error) if is_lost(&error) => {
                    self.client = None;
                    view.note("the connection to the daemon was lost: connecting again");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shows an event unless it was shown before.
    fn on_notification(
        &mut self,
        notification: &Notification,
        view: &mut ChatView<'_>,
    ) -> Result<(), CliError> {
        let subscription = notification.params["subscription"].as_u64();
        if notification.method == "session.ended" && subscription == self.turn.subscription {
            self.turn.subscription = None;
            // The turn was followed to its end, unless its events ended before.
            let error = notification.error();
            return error.map_or_else(|| self.end(None, view), |error| Err(error.into()));
        }
        let event = &notification.params["event"];
        let seq = event["seq"].as_u64().unwrap_or(0);
        let is_ours =
            notification.method == "session.event" && notification.params["session_key"] == self.key.as_str();
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

    fn end(&mut self, stop_reason: Option<&str>, view: &mut ChatView<'_>) -> Result<(), CliError> {
        let stop_reason = stop_reason.and_then(StopReason::parse).unwrap_or(StopReason::Error);
        self.turn.ended = Some(stop_reason);
        view.turn_ended(&self.key, stop_reason, self.last_seq)
    }

    /// Decides a call of the running turn. The answer arrives while the turn is followed.
    pub(super) async fn decide(&mut self, typed: &str, decision: &str, view: &mut ChatView<'_>) {
        let found: Vec<&String> = self.turn.waiting.iter().filter(|id| id.starts_with(typed)).collect();
        let id = match found.as_slice() {
            [one] => (*one).clone(),
            [] if self.turn.waiting.is_empty() => {
                return view.failed("no call of this turn waits for a decision");
            }
            _ => {
                let waiting = self.turn.waiting.join(", ");
                return view.failed(&format!("name the call: {waiting}"));
            }
        };
        let Some(client) = &mut self.client else {
            return view.failed("there is no connection to the daemon now: try again");
        };
        match client.send("approval.decide", &json!({ "id": id, "decision": decision })).await {
            Ok(request) => self.turn.decisions.push(request),
            Err(error) => view.failed(&error.to_string()),
        }
    }

    /// The client, for requests between turns.
    pub(super) async fn client(&mut self) -> Result<&mut RpcClient, CliError> {
        self.connected().await
    }

    pub(super) const fn home(&self) -> &'a Home {
        self.home
    }

    /// Cancels the running turn.
    pub(super) async fn cancel(&mut self, view: &mut ChatView<'_>) {
        view.note("cancelling");
        self.send_cancel().await;
    }

    async fn send_cancel(&mut self) {
        let params = json!({ "session_key": self.key });
        self.turn.cancel = match &mut self.client {
            Some(client) => client.send("session.cancel", &params).await.ok(),
            None => None,
        };
        self.turn.cancel_pending = self.turn.cancel.is_none();
    }

    /// Resumes the turn on a new connection, after the last event that was shown.
    async fn resume_turn(&mut self, view: &mut ChatView<'_>) -> Result<(), CliError> {
        let mut attempt = 1;
        loop {
            let client = self.reconnect().await?;
            match self.subscribe(client).await {
                // The daemon was lost again.
                Err(CliError::Daemon(error)) if is_lost(&error) && attempt < RECONNECT_ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
            attempt += 1;
            tokio::time::sleep(RECONNECT_INTERVAL).await;
        }
        view.note("connected again");
        if !self.turn.has_started {
            let what =
                " before it had the message: check the history, and send the message again if it is missing";
            return Err(ClientError::Closed(what.to_owned()).into());
        }
        Ok(())
    }

    async fn subscribe(&mut self, mut client: RpcClient) -> Result<(), CliError> {
        let of_session = json!({ "session_key": self.key });
        let newest = client.call("session.status", &of_session).await?["last_seq"].as_u64().unwrap_or(0);
        if self.turn.has_started || newest > self.last_seq {
            let params = json!({ "session_key": self.key, "after": self.last_seq });
            let following = client.call("session.events", &params).await?;
            self.turn.subscription = following["subscription"].as_u64();
            self.turn.has_started = true;
        }
        // Request numbers of the lost connection are not valid on this one.
        (self.turn.request, self.turn.cancel) = (None, None);
        self.client = Some(client);
        Ok(())
    }

    async fn reconnect(&self) -> Result<RpcClient, CliError> {
        let mut attempt = 1;
        loop {
            match daemon::connect(self.home).await {
                Ok(client) => return Ok(client),
                Err(error) if attempt == RECONNECT_ATTEMPTS => return Err(error),
                Err(_) => {}
            }
            attempt += 1;
            tokio::time::sleep(RECONNECT_INTERVAL).await;
        }
    }

    /// Ends the subscription, so that later events of the session are not shown.
    async fn unsubscribe(&mut self) {
        if let (Some(client), Some(subscription)) = (&mut self.client, self.turn.subscription.take()) {
            if client.call("session.unfollow", &json!({ "subscription": subscription })).await.is_err() {
                self.client = None;
                return;
            }
            client.take_notifications();
        }
    }

    pub(super) async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            // A daemon that does not answer is not waited for.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, client.close()).await;
        }
    }
}

const fn is_lost(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable(_) | ClientError::Closed(_) => true,
        ClientError::Rejected(_)
        | ClientError::Unproven(_)
        | ClientError::InvalidMessage
        | ClientError::Rpc { .. } => false,
    }
}
