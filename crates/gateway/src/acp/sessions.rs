//! `session/new`, `load`, `resume`, `close`, `delete` and `set_config_option`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tribune_records::agents::RUN_BACKEND;
use tribune_records::workspace_roots;
use tribune_registry::{CLI_BACKENDS, MAIN_AGENT};
use tribune_runtime::{AgentId, SessionKey, SessionState, native};
use tribune_storage::store::SessionRow;
use tribune_tools::mcp::IfRunning;

use super::client_session::{ClientSession, SessionBinding};
use super::connection::{Connection, MAX_SEATS};
use super::cwd::{Chosen, FURTHER, OWN};
use super::mcp_servers::Sent;
use super::options::{OWN_MODEL, modes};
use super::update_mapper::UpdateMapper;
use super::wire::Fault;
use super::{cwd, mcp_servers, replay, wire};

/// The channel of sessions that this endpoint opens.
const CHANNEL: &str = "acp";

type Opened = Result<(Value, Option<Arc<ClientSession>>), Fault>;

impl Connection {
    pub(super) async fn new_session(self: &Arc<Self>, params: &Value) -> Opened {
        let sent = mcp_servers::sent(&self.who, params)?;
        let chosen = self.chosen(params)?;
        let (wanted, agent) = {
            let mut state = self.state();
            let wishes = &mut state.wishes;
            (wishes.session.take(), wishes.agent.clone())
        };
        let seat = match wanted {
            Some(key) => self.sit_down_again(key.to_string(), key, chosen).await?,
            None => {
                let key = self.new_key(agent)?;
                self.sit_down(key.to_string(), key, chosen, None).await?
            }
        };
        self.furnish(&seat, sent).await;
        self.start_here(&seat).await?;
        let result = self.described(&seat, true);
        Ok((result, Some(seat)))
    }

    /// A new, random session key.
    fn new_key(&self, agent: Option<AgentId>) -> Result<SessionKey, Fault> {
        let broken = |error: String| Fault::new(wire::INTERNAL, "internal", error);
        let agent = match self.who.agent().cloned().or(agent) {
            Some(agent) => agent,
            None => MAIN_AGENT.parse().map_err(|error| broken(format!("{error}")))?,
        };
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|error| broken(error.to_string()))?;
        let peer: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        SessionKey::direct(&agent, CHANNEL, "local", &peer).map_err(|error| broken(error.to_string()))
    }

    pub(super) async fn load(self: &Arc<Self>, params: &Value) -> Opened {
        let seat = self.take_up(params).await?;
        let (_attaching, anew) = (seat.attaching.lock().await, seat.follow_anew(0));
        let (sessions, key) = (&self.gateway.api.sessions, seat.key());
        let mut subscription = sessions.subscribe(&key, None).await?;
        let (_, head) = sessions.live(&key).await?;
        let mut teller = UpdateMapper::new(&seat.place().folder);
        let open = replay::tell(self, &seat, (&mut subscription, &mut teller), head).await?;
        anew.with(subscription, teller);
        for question in open {
            self.ask_leave(&seat, question);
        }
        let result = self.described(&seat, false);
        Ok((result, Some(Arc::clone(&seat))))
    }

    pub(super) async fn resume(self: &Arc<Self>, params: &Value) -> Opened {
        let seat = self.take_up(params).await?;
        self.start_here(&seat).await?;
        let result = self.described(&seat, false);
        Ok((result, Some(seat)))
    }

    /// Prepares a forwarder for the events from now on, and asks the client about open permission requests.
    async fn start_here(self: &Arc<Self>, seat: &Arc<ClientSession>) -> Result<(), Fault> {
        let (sessions, key) = (&self.gateway.api.sessions, seat.key());
        let _attaching = seat.attaching.lock().await;
        let (is_running, head) = sessions.live(&key).await?;
        // A running forwarder continues where it was.
        let told = seat.told.borrow().clone();
        let from = if told.is_over { head } else { told.seq.min(head) };
        let mut teller = UpdateMapper::new(&seat.place().folder);
        let waits = !sessions.governance().policy.gate.inbox.waiting_in(key.as_str()).is_empty();
        if !is_running && !waits {
            let anew = seat.follow_anew(from);
            anew.with(sessions.subscribe(&key, Some(from)).await?, teller);
            return Ok(());
        }
        let anew = seat.follow_anew(0);
        let mut subscription = sessions.subscribe(&key, None).await?;
        let open = replay::take_in(self, seat, (&mut subscription, &mut teller), from).await?;
        anew.with(subscription, teller);
        for question in open {
            self.ask_leave(seat, question);
        }
        Ok(())
    }

    /// Opens an existing session.
    async fn take_up(self: &Arc<Self>, params: &Value) -> Result<Arc<ClientSession>, Fault> {
        let sent = mcp_servers::sent(&self.who, params)?;
        let chosen = self.chosen(params)?;
        let row = self.known(params).await?;
        let key: SessionKey = row.key.parse().map_err(|_| not_found())?;
        let id = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let seat = self.sit_down_again(id, key, chosen).await?;
        self.furnish(&seat, sent).await;
        Ok(seat)
    }

    /// The folder and the additional directories that a client asks for.
    fn chosen(&self, params: &Value) -> Result<(Chosen, Option<Vec<String>>), Fault> {
        let home = &self.gateway.api.status.home;
        Ok((cwd::chosen(&self.who, params, home)?, cwd::further(&self.who, params, home)?))
    }

    /// Starts the MCP servers that a client sent, and keeps the sentences about what is left out.
    async fn furnish(&self, seat: &ClientSession, sent: Sent) {
        let place = {
            let mut place = seat.place();
            place.servers = sent.servers.into();
            place.clone()
        };
        let not_there = self.bring_servers(&place, IfRunning::Replace).await;
        seat.place().left_out.extend(sent.left_out.into_iter().chain(not_there));
    }

    /// Reopens a session on its stored terms. Only sessions of this channel can work in a folder that the client chooses.
    async fn sit_down_again(
        self: &Arc<Self>,
        id: String,
        key: SessionKey,
        (chosen, further): (Chosen, Option<Vec<String>>),
    ) -> Result<Arc<ClientSession>, Fault> {
        let api = &self.gateway.api;
        self.who.owns(&key)?;
        let row = api.sessions.row(&key).await?;
        let before =
            row.as_ref().and_then(|row| row.workspace.clone()).map(|folder| Chosen::Folder(folder.into()));
        let is_here = key.channel() == Some(CHANNEL);
        // A client that leaves `cwd` to the session also leaves the additional directories to it.
        let is_left = chosen == Chosen::Own && before.is_some();
        let further = further.filter(|further| !(is_left && further.is_empty()));
        let chosen = match chosen {
            Chosen::Folder(_) if is_here => chosen,
            _ => before.unwrap_or(Chosen::Own),
        };
        let (further, elsewhere) = if is_here { (further, None) } else { (None, further) };
        let own = api.agents.agent(key.agent()).and_then(|agent| agent.model);
        let is_chosen = |row: &&SessionRow| {
            row.backend == native::BACKEND && row.model != own && self.who.operator().is_ok()
        };
        let model = row.as_ref().filter(is_chosen).and_then(|row| row.model.clone());
        let seat = self.sit_down(id, key, (chosen, further), model).await?;
        if let Some(further) = elsewhere.filter(|further| !further.is_empty()) {
            let why = "This session was not opened over ACP and keeps its folders.";
            seat.place().left_out.push(cwd::out_of_reach(why, &further));
        }
        seat.place().has_title = row.is_some_and(|row| row.turns > 0);
        Ok(seat)
    }

    /// The session that a client names, if it may use it. If the agent was changed before the first prompt, this is the session
    /// that replaced it.
    async fn known(&self, params: &Value) -> Result<SessionRow, Fault> {
        let Some(id) = params["sessionId"].as_str() else {
            return Err(Fault::params("`sessionId` is missing"));
        };
        let key: SessionKey = id.parse().map_err(|_| not_found())?;
        self.who.owns(&key)?;
        let sessions = &self.gateway.api.sessions;
        let row = sessions.row(&key).await?.filter(|row| row.backend != RUN_BACKEND).ok_or_else(not_found)?;
        if row.turns > 0 || row.state != SessionState::Closed || key.channel() != Some(CHANNEL) {
            return Ok(row);
        }
        let Some(peer) = key.as_str().rsplit(':').next() else { return Ok(row) };
        let mut newest = row;
        for agent in self.gateway.api.agents.all() {
            let Ok(other) = SessionKey::direct(&agent.id, CHANNEL, "local", peer) else { continue };
            if let Some(row) = sessions.row(&other).await?
                && row.created_at > newest.created_at
            {
                newest = row;
            }
        }
        Ok(newest)
    }

    async fn sit_down(
        self: &Arc<Self>,
        id: String,
        key: SessionKey,
        (chosen, further): (Chosen, Option<Vec<String>>),
        model: Option<String>,
    ) -> Result<Arc<ClientSession>, Fault> {
        let folder = match chosen {
            Chosen::Own => PathBuf::from(OWN),
            Chosen::Folder(folder) => folder,
        };
        let apart =
            |further| workspace_roots::exclude_nested(FURTHER, &folder, further).map_err(Fault::params);
        let further = further.map(apart).transpose()?;
        let mut place = SessionBinding { further, ..SessionBinding::new(key, folder, model) };
        let known = self.state().seats.get(&id).cloned();
        if known.is_none() && self.state().seats.len() >= MAX_SEATS {
            let what = format!("a connection has at most {MAX_SEATS} sessions open: close one");
            return Err(Fault::new(wire::INVALID_REQUEST, "too_many_sessions", what));
        }
        (place.folder, place.left_out) = self.open(&place).await?;
        if let Some(seat) = known {
            // The client session is kept, because a running prompt holds it and must be answered.
            *seat.place() = place;
            seat.take_questions_back();
            return Ok(seat);
        }
        let seat = ClientSession::new(id.clone(), place);
        let before = self.state().seats.insert(id, Arc::clone(&seat));
        if let Some(before) = before {
            before.leave();
        }
        Ok(seat)
    }

    /// Opens the session of a binding, if it is not open. Returns its workspace, and sentences about what the client asked for and
    /// does not get.
    pub(super) async fn open(&self, place: &SessionBinding) -> Result<(PathBuf, Vec<String>), Fault> {
        let SessionBinding { key, folder, further, model, .. } = place;
        self.who.owns(key)?;
        self.gateway.api.takes_work()?;
        let mut opener = self.who.opener();
        if model.is_some() {
            // A model costs money, so only the operator chooses it.
            self.who.operator()?;
        }
        opener.model.clone_from(model);
        let is_own = folder == Path::new(OWN);
        opener.workspace = (!is_own).then(|| folder.to_string_lossy().into_owned());
        opener.further.clone_from(further);
        let sessions = &self.gateway.api.sessions;
        sessions.ensure(key.clone(), None, opener).await?;
        let row = sessions.row(key).await?.ok_or_else(not_found)?;
        let found = row.workspace.map_or_else(|| PathBuf::from(OWN), PathBuf::from);
        if !is_own && found != *folder {
            let what = format!(
                "a turn is running in `{}`: use that folder as `cwd`, or wait for the turn to end",
                found.display()
            );
            return Err(Fault::params(what));
        }
        let left_out = match further {
            Some(further) if row.further == *further => Vec::new(),
            Some(further) if CLI_BACKENDS.contains(&row.backend.as_str()) => {
                vec![cwd::out_of_reach("A CLI agent works in one folder.", further)]
            }
            Some(_) => {
                let what = format!(
                    "a turn is running with other folders: use `{FURTHER}` from `session/list`, or wait for the turn to end"
                );
                return Err(Fault::params(what));
            }
            None => Vec::new(),
        };
        Ok((found, left_out))
    }

    fn described(&self, seat: &ClientSession, is_new: bool) -> Value {
        let place = seat.place().clone();
        let mut described = json!({ "modes": modes(place.mode), "configOptions": self.options(&place) });
        if is_new {
            described["sessionId"] = seat.id.clone().into();
        }
        described
    }

    pub(super) async fn close(&self, params: &Value) -> Result<Value, Fault> {
        let row = self.known(params).await?;
        if row.state != SessionState::Closed {
            self.gateway.api.session_close(&self.who, &row.key).await?;
        }
        self.get_up(params);
        Ok(json!({}))
    }

    /// Erases the content of a session (crypto-shredding). The ledger keeps the hashes.
    pub(super) async fn delete(&self, params: &Value) -> Result<Value, Fault> {
        let row = self.known(params).await?;
        self.gateway.api.session_forget(&self.who, &row.key).await?;
        self.get_up(params);
        Ok(json!({}))
    }

    fn get_up(&self, params: &Value) {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let seat = self.state().seats.remove(id);
        if let Some(seat) = seat {
            seat.leave();
        }
    }

    pub(super) async fn set_option(self: &Arc<Self>, params: &Value) -> Opened {
        let seat = self.seat(params)?;
        let Some(value) = params["value"].as_str() else {
            return Err(Fault::params("`value` must be a string"));
        };
        let running = "a turn is running: try again when it has ended";
        let key = seat.key();
        if seat.running().is_some() || self.gateway.api.sessions.live(&key).await?.0 {
            return Err(Fault::new(wire::INVALID_REQUEST, "busy", running));
        }
        let attaching = seat.attaching.lock().await;
        match params["configId"].as_str().unwrap_or_default() {
            "agent" => self.change_agent(&seat, self.agent_named(value)?).await?,
            "model" => {
                let offered = self.options(&seat.place());
                let models = offered.iter().find(|option| option["id"] == "model");
                let known = models.and_then(|option| option["options"].as_array());
                if !known.is_some_and(|known| known.iter().any(|option| option["value"] == value)) {
                    let what = "`value` is not a model of this session: choose one of its options";
                    return Err(Fault::params(what));
                }
                let model = Some(value.to_owned()).filter(|value| value != OWN_MODEL);
                let place = SessionBinding { model, ..seat.place().clone() };
                self.open(&place).await?;
                *seat.place() = place;
                // Changing the model may have closed and reopened the session.
                let told = seat.told.borrow().seq;
                seat.follow_nothing(told);
            }
            _ => return Err(Fault::params("`configId` is not an option: the options are agent and model")),
        }
        drop(attaching);
        let options = self.options(&seat.place());
        Ok((json!({ "configOptions": options }), None))
    }

    /// Changes the agent of a session that has no turns. The session gets a new key; the client keeps its session id.
    async fn change_agent(&self, seat: &Arc<ClientSession>, agent: AgentId) -> Result<(), Fault> {
        let before = seat.key();
        if *before.agent() == agent {
            return Ok(());
        }
        let sessions = &self.gateway.api.sessions;
        let said = sessions.row(&before).await?.is_some_and(|row| row.turns > 0);
        let peer = before.as_str().rsplit(':').next().unwrap_or_default();
        if said || before.channel() != Some(CHANNEL) {
            let what =
                "the agent of a session cannot be changed after the first prompt: open another session";
            return Err(Fault::params(what));
        }
        let own = usize::from(!seat.told.borrow().is_over);
        if sessions.followers(&before) > own {
            // The other clients would stay on a closed session.
            let what = "another client has this session open: open a new session for another agent";
            return Err(Fault::new(wire::INVALID_REQUEST, "busy", what));
        }
        let after = SessionKey::direct(&agent, CHANNEL, "local", peer)
            .map_err(|error| Fault::params(error.to_string()))?;
        self.who.owns(&after)?;
        let mut place = SessionBinding { key: after, model: None, ..seat.place().clone() };
        place.left_out.extend(self.open(&place).await?.1);
        *seat.place() = place;
        seat.follow_nothing(0);
        // The old session is empty; leaving it open would only use a session slot.
        let _ = self.gateway.api.session_close(&self.who, before.as_str()).await;
        Ok(())
    }
}

fn not_found() -> Fault {
    Fault::new(
        wire::NOT_FOUND,
        "not_found",
        "`sessionId` is not a session: `session/list` shows the sessions",
    )
}
