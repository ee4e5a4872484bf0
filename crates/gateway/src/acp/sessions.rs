//! `session/new`, `load`, `resume`, `close`, `delete` and `set_config_option`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_records::agents::RUN_BACKEND;
use tribune_records::workspace_roots;
use tribune_registry::{CLI_BACKENDS, MAIN_AGENT};
use tribune_runtime::{AgentId, SessionKey, SessionState, native};
use tribune_storage::store::SessionRow;
use tribune_tools::mcp::IfRunning;

use super::client_session::{ClientSession, SessionBinding};
use super::connection::{Connection, MAX_SESSIONS};
use super::cwd::{ADDITIONAL_DIRECTORIES, Chosen, OWN};
use super::mcp_servers::Sent;
use super::options::{OWN_MODEL, modes};
use super::update_mapper::UpdateMapper;
use super::wire::Fault;
use super::{cwd, mcp_servers, replay, wire};

/// How long the end of a cancelled prompt is waited for: longer than a turn takes to record its end.
const PROMPT_END: Duration = Duration::from_secs(5);

/// The channel of sessions that this endpoint opens.
const CHANNEL: &str = "acp";

/// The folders that a client asks for.
struct FolderRequest {
    folder: Chosen,
    /// `None` if the client may not choose them.
    additional_directories: Option<Vec<String>>,
}

type Opened = Result<(Value, Option<Arc<ClientSession>>), Fault>;

impl Connection {
    pub(super) async fn new_session(self: &Arc<Self>, params: &Value) -> Opened {
        let sent = mcp_servers::sent(&self.who, params)?;
        let folders = self.folders(params)?;
        let (wanted, agent) = {
            let mut state = self.state();
            let query = &mut state.query;
            (query.session.take(), query.agent.clone())
        };
        let session = match wanted {
            Some(key) => self.reopen(key.to_string(), key, folders).await?,
            None => {
                let key = self.new_key(agent)?;
                self.open_client_session(key.to_string(), key, folders, None).await?
            }
        };
        self.start_mcp_servers(&session, sent).await;
        self.follow_from_now(&session).await?;
        let result = self.described(&session, true);
        Ok((result, Some(session)))
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
        let session = self.open_existing(params).await?;
        let (_attaching, guard) = (session.attaching.lock().await, session.restart_following(0));
        let (sessions, key) = (&self.gateway.api.sessions, session.key());
        let mut subscription = sessions.subscribe(&key, None).await?;
        let (_, head) = sessions.live(&key).await?;
        let mut mapper = UpdateMapper::new(&session.binding().folder);
        let open = replay::send_missed(self, &session, &mut subscription, &mut mapper, head).await?;
        guard.with(subscription, mapper);
        for request in open {
            self.request_permission(&session, request);
        }
        let result = self.described(&session, false);
        Ok((result, Some(Arc::clone(&session))))
    }

    pub(super) async fn resume(self: &Arc<Self>, params: &Value) -> Opened {
        let session = self.open_existing(params).await?;
        self.follow_from_now(&session).await?;
        let result = self.described(&session, false);
        Ok((result, Some(session)))
    }

    /// Prepares a forwarder for the events from now on, and asks the client about open permission requests.
    async fn follow_from_now(self: &Arc<Self>, session: &Arc<ClientSession>) -> Result<(), Fault> {
        let (sessions, key) = (&self.gateway.api.sessions, session.key());
        let _attaching = session.attaching.lock().await;
        let (is_running, head) = sessions.live(&key).await?;
        // A running forwarder continues where it was.
        let progress = session.progress.borrow().clone();
        let from = if progress.is_over { head } else { progress.seq.min(head) };
        let mut mapper = UpdateMapper::new(&session.binding().folder);
        let waits = !sessions.governance().policy.gate.inbox.waiting_in(key.as_str()).is_empty();
        if !is_running && !waits {
            let guard = session.restart_following(from);
            guard.with(sessions.subscribe(&key, Some(from)).await?, mapper);
            return Ok(());
        }
        let guard = session.restart_following(0);
        let mut subscription = sessions.subscribe(&key, None).await?;
        let open = replay::read_missed(self, session, &mut subscription, &mut mapper, from).await?;
        guard.with(subscription, mapper);
        for request in open {
            self.request_permission(session, request);
        }
        Ok(())
    }

    /// Opens an existing session.
    async fn open_existing(self: &Arc<Self>, params: &Value) -> Result<Arc<ClientSession>, Fault> {
        let sent = mcp_servers::sent(&self.who, params)?;
        let folders = self.folders(params)?;
        let row = self.known(params).await?;
        let key: SessionKey = row.key.parse().map_err(|_| not_found())?;
        let id = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let session = self.reopen(id, key, folders).await?;
        self.start_mcp_servers(&session, sent).await;
        Ok(session)
    }

    /// The folder and the additional directories that a client asks for.
    fn folders(&self, params: &Value) -> Result<FolderRequest, Fault> {
        let home = &self.gateway.api.status.home;
        let folder = cwd::chosen(&self.who, params, home)?;
        let additional_directories = cwd::additional_directories(&self.who, params, home)?;
        Ok(FolderRequest { folder, additional_directories })
    }

    /// Starts the MCP servers that a client sent, and keeps the sentences about what is left out.
    async fn start_mcp_servers(&self, session: &ClientSession, sent: Sent) {
        let binding = {
            let mut binding = session.binding();
            binding.servers = sent.servers.into();
            binding.clone()
        };
        let unavailable = self.bring_servers(&binding, IfRunning::Replace).await;
        session.binding().left_out.extend(sent.left_out.into_iter().chain(unavailable));
    }

    /// Reopens a session on its stored terms. Only sessions of this channel can work in a folder that the client chooses.
    async fn reopen(
        self: &Arc<Self>,
        id: String,
        key: SessionKey,
        folders: FolderRequest,
    ) -> Result<Arc<ClientSession>, Fault> {
        let FolderRequest { folder: chosen, additional_directories } = folders;
        let api = &self.gateway.api;
        self.who.owns(&key)?;
        let row = api.sessions.row(&key).await?;
        let before = row
            .as_ref()
            .and_then(|row| row.terms.workspace.clone())
            .map(|folder| Chosen::Folder(folder.into()));
        let is_here = key.channel() == Some(CHANNEL);
        // A client that leaves `cwd` to the session also leaves the additional directories to it.
        let is_left = chosen == Chosen::Own && before.is_some();
        let additional_directories =
            additional_directories.filter(|folders| !(is_left && folders.is_empty()));
        let chosen = match chosen {
            Chosen::Folder(_) if is_here => chosen,
            _ => before.unwrap_or(Chosen::Own),
        };
        let (additional_directories, elsewhere) =
            if is_here { (additional_directories, None) } else { (None, additional_directories) };
        let own = api.agents.agent(key.agent()).and_then(|agent| agent.model);
        let is_chosen = |row: &&SessionRow| {
            row.terms.backend == native::BACKEND && row.terms.model != own && self.who.operator().is_ok()
        };
        let model = row.as_ref().filter(is_chosen).and_then(|row| row.terms.model.clone());
        let session = self
            .open_client_session(id, key, FolderRequest { folder: chosen, additional_directories }, model)
            .await?;
        if let Some(folders) = elsewhere.filter(|folders| !folders.is_empty()) {
            let why = "This session was not opened over ACP and keeps its folders.";
            session.binding().left_out.push(cwd::out_of_reach(why, &folders));
        }
        session.binding().has_title = row.is_some_and(|row| row.turns > 0);
        Ok(session)
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
        let row =
            sessions.row(&key).await?.filter(|row| row.terms.backend != RUN_BACKEND).ok_or_else(not_found)?;
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

    async fn open_client_session(
        self: &Arc<Self>,
        id: String,
        key: SessionKey,
        folders: FolderRequest,
        model: Option<String>,
    ) -> Result<Arc<ClientSession>, Fault> {
        let FolderRequest { folder, additional_directories } = folders;
        let folder = match folder {
            Chosen::Own => PathBuf::from(OWN),
            Chosen::Folder(folder) => folder,
        };
        let apart = |folders| {
            workspace_roots::exclude_nested(ADDITIONAL_DIRECTORIES, &folder, folders).map_err(Fault::params)
        };
        let additional_directories = additional_directories.map(apart).transpose()?;
        let mut binding =
            SessionBinding { additional_directories, ..SessionBinding::new(key, folder, model) };
        let known = self.state().sessions.get(&id).cloned();
        if known.is_none() && self.state().sessions.len() >= MAX_SESSIONS {
            let what = format!("a connection has at most {MAX_SESSIONS} sessions open: close one");
            return Err(Fault::new(wire::INVALID_REQUEST, "too_many_sessions", what));
        }
        (binding.folder, binding.left_out) = self.open(&binding).await?;
        if let Some(session) = known {
            // The client session is kept, because a running prompt holds it and must be answered.
            *session.binding() = binding;
            session.cancel_requests();
            return Ok(session);
        }
        let session = ClientSession::new(id.clone(), binding);
        let before = self.state().sessions.insert(id, Arc::clone(&session));
        if let Some(before) = before {
            before.detach();
        }
        Ok(session)
    }

    /// Opens the session of a binding, if it is not open. Returns its workspace, and sentences about what the client asked for and
    /// does not get.
    pub(super) async fn open(&self, binding: &SessionBinding) -> Result<(PathBuf, Vec<String>), Fault> {
        let SessionBinding { key, folder, additional_directories, model, .. } = binding;
        self.who.owns(key)?;
        self.gateway.api.takes_work()?;
        let mut opener = self.who.opener();
        if model.is_some() {
            // A model costs money, so only the operator chooses it.
            self.who.operator()?;
        }
        opener.requested.model.clone_from(model);
        let is_own = folder == Path::new(OWN);
        opener.requested.workspace = (!is_own).then(|| folder.to_string_lossy().into_owned());
        opener.requested.additional_directories.clone_from(additional_directories);
        let sessions = &self.gateway.api.sessions;
        sessions.ensure(key.clone(), opener).await?;
        let row = sessions.row(key).await?.ok_or_else(not_found)?;
        let found = row.terms.workspace.map_or_else(|| PathBuf::from(OWN), PathBuf::from);
        if !is_own && found != *folder {
            let what = format!(
                "a turn is running in `{}`: use that folder as `cwd`, or wait for the turn to end",
                found.display()
            );
            return Err(Fault::params(what));
        }
        let left_out = match additional_directories {
            Some(folders) if row.terms.additional_directories == *folders => Vec::new(),
            Some(folders) if CLI_BACKENDS.contains(&row.terms.backend.as_str()) => {
                vec![cwd::out_of_reach("A CLI agent works in one folder.", folders)]
            }
            Some(_) => {
                let what = format!(
                    "a turn is running with other folders: use `{ADDITIONAL_DIRECTORIES}` from `session/list`, or wait for the turn to end"
                );
                return Err(Fault::params(what));
            }
            None => Vec::new(),
        };
        Ok((found, left_out))
    }

    fn described(&self, session: &ClientSession, is_new: bool) -> Value {
        let binding = session.binding().clone();
        let mut described = json!({ "modes": modes(binding.mode), "configOptions": self.options(&binding) });
        if is_new {
            described["sessionId"] = session.id.clone().into();
        }
        described
    }

    pub(super) async fn close(&self, params: &Value) -> Result<Value, Fault> {
        self.cancel_prompt(params).await;
        let row = self.known(params).await?;
        if row.state != SessionState::Closed {
            self.gateway.api.session_close(&self.who, &row.key).await?;
        }
        self.remove_session(params);
        Ok(json!({}))
    }

    /// Erases the content of a session (crypto-shredding). The ledger keeps the hashes.
    pub(super) async fn delete(&self, params: &Value) -> Result<Value, Fault> {
        self.cancel_prompt(params).await;
        let row = self.known(params).await?;
        self.gateway.api.session_forget(&self.who, &row.key).await?;
        self.remove_session(params);
        Ok(json!({}))
    }

    /// Ends the client's own prompt in the session that a request names, if there is one.
    async fn cancel_prompt(&self, params: &Value) {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let session = self.state().sessions.get(id).cloned();
        if let Some(session) = session {
            // Closing cancels the turn again, so that a prompt which does not end cannot keep the session open.
            let _ = tokio::time::timeout(PROMPT_END, session.cancel_prompt()).await;
        }
    }

    fn remove_session(&self, params: &Value) {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let session = self.state().sessions.remove(id);
        if let Some(session) = session {
            session.detach();
        }
    }

    pub(super) async fn set_option(self: &Arc<Self>, params: &Value) -> Opened {
        let session = self.session(params)?;
        let Some(value) = params["value"].as_str() else {
            return Err(Fault::params("`value` must be a string"));
        };
        let running = "a turn is running: try again when it has ended";
        let key = session.key();
        if session.running().is_some() || self.gateway.api.sessions.live(&key).await?.0 {
            return Err(Fault::new(wire::INVALID_REQUEST, "busy", running));
        }
        let attaching = session.attaching.lock().await;
        match params["configId"].as_str().unwrap_or_default() {
            "agent" => self.change_agent(&session, self.agent_named(value)?).await?,
            "model" => {
                let offered = self.options(&session.binding());
                let models = offered.iter().find(|option| option["id"] == "model");
                let known = models.and_then(|option| option["options"].as_array());
                if !known.is_some_and(|known| known.iter().any(|option| option["value"] == value)) {
                    let what = "`value` is not a model of this session: choose one of its options";
                    return Err(Fault::params(what));
                }
                let model = Some(value.to_owned()).filter(|value| value != OWN_MODEL);
                let binding = SessionBinding { model, ..session.binding().clone() };
                self.open(&binding).await?;
                *session.binding() = binding;
                // Changing the model may have closed and reopened the session.
                let seq = session.progress.borrow().seq;
                session.stop_following(seq);
            }
            _ => return Err(Fault::params("`configId` is not an option: the options are agent and model")),
        }
        drop(attaching);
        let options = self.options(&session.binding());
        Ok((json!({ "configOptions": options }), None))
    }

    /// Changes the agent of a session that has no turns. The session gets a new key; the client keeps its session id.
    async fn change_agent(&self, session: &Arc<ClientSession>, agent: AgentId) -> Result<(), Fault> {
        let before = session.key();
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
        let own = usize::from(!session.progress.borrow().is_over);
        if sessions.followers(&before) > own {
            // The other clients would stay on a closed session.
            let what = "another client has this session open: open a new session for another agent";
            return Err(Fault::new(wire::INVALID_REQUEST, "busy", what));
        }
        let after = SessionKey::direct(&agent, CHANNEL, "local", peer)
            .map_err(|error| Fault::params(error.to_string()))?;
        self.who.owns(&after)?;
        let mut binding = SessionBinding { key: after, model: None, ..session.binding().clone() };
        binding.left_out.extend(self.open(&binding).await?.1);
        *session.binding() = binding;
        session.stop_following(0);
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
