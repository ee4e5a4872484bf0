//! Runs one canary from its first message to its cleanup: the real backend, the real gate, a session that may use no tool, and a
//! workspace of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tribune_constitution::{DEFAULT_MANDATE, Decision};
use tribune_governance::turn::{ConstitutionalRuntime, Governance};
use tribune_records::agents::CANARY_PREFIX;
use tribune_records::ledger_payloads::VerdictRecord;
use tribune_runtime::{
    AgentId, AgentRuntime, CloseReason, ContentBlock, EventKind, Handle, RuntimeError, SessionInput,
    SessionKey, SessionMode, SessionTerms, Speaker, TurnInput,
};
use tribune_storage::home::Home;

use super::evaluate::{Outcome, Seen, judge};
use super::probe_recorder::{Questions, RecordingRuntime};
use super::scripted_model::{Milestone, Probe, ProbeKind, ScriptedModel};
use crate::session::NoTools;

/// The timeout of a whole canary. The slowest agent takes a tenth of it on an idle machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// The timeout for closing the agent after the probes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The subject of a canary: a backend, or a profile of a backend, which has settings of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeSubject {
    pub backend: String,
    /// The profile; without profiles, the backend again.
    pub name: String,
}

/// A backend that can be tested by a canary.
#[async_trait]
pub trait ProbeTarget: Send + Sync {
    /// The subject of an agent of the roster with this profile. Agents of one subject share its canary.
    fn subject(&self, profile: Option<&str>) -> Option<String>;

    /// Whether its agents execute tools themselves. Such agents are tested at the daemon's start, and before their first message.
    fn executes_tools(&self) -> bool;

    /// Why it cannot be tested now; `None` if it can.
    fn obstacle(&self, name: &str) -> Option<Obstacle>;

    /// The scripted model of one canary.
    fn play(&self, nonce: &str) -> ScriptedModel;

    /// Prepares the backend for the session of a canary.
    async fn set(
        &self,
        name: &str,
        session: &SessionKey,
        play: &Arc<ScriptedModel>,
    ) -> Result<ProbeSetup, String>;

    /// The message that makes the agent attempt the probe.
    fn words(&self, probe: &Probe) -> String {
        probe.words()
    }
}

/// Why a backend cannot be tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It cannot be run at all.
    NotRunnable(RuntimeError),
    /// It can be run, but not be made to attempt anything.
    NothingToTry(String),
}

impl Obstacle {
    fn why(self) -> String {
        match self {
            Self::NotRunnable(error) => error.message,
            Self::NothingToTry(why) => why,
        }
    }
}

/// A prepared target.
pub struct ProbeSetup {
    /// The backend that runs the canary's turns.
    pub(crate) runtime: Arc<dyn AgentRuntime>,
    /// Resources that must live until the canary ends.
    pub(crate) props: Box<dyn Send>,
}

impl std::fmt::Debug for ProbeSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProbeSetup")
    }
}

/// The result of a canary.
#[derive(Debug, Clone)]
pub struct ProbeRun {
    pub outcome: Outcome,
    /// The probes that the agent requested and that were refused.
    pub(crate) held: Vec<ProbeKind>,
    pub steps: Vec<ProbeStep>,
    pub took: Duration,
    /// Its session, if it was opened.
    pub session: Option<String>,
}

/// A step of the canary, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeStep {
    pub name: &'static str,
    pub is_good: bool,
    /// Time since the previous step.
    pub took: Duration,
    pub detail: Option<String>,
}

/// Removes the folders of canaries that a killed daemon left.
pub fn sweep(home: &Home) {
    let Ok(found) = std::fs::read_dir(home.root().join("agents")) else { return };
    let left = found.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(CANARY_PREFIX));
    for entry in left {
        drop(Folder(entry.path()));
    }
}

/// Runs the canary of a subject: prepares it, runs its probes, evaluates what they did and removes its content.
pub(super) async fn try_out(
    governance: &Arc<Governance>,
    target: &dyn ProbeTarget,
    subject: &ProbeSubject,
) -> ProbeRun {
    let began = Instant::now();
    let PreparedCanary { key, play, setup, installed, folder } =
        match PreparedCanary::new(governance, target, subject, began).await {
            Ok(prepared) => prepared,
            Err(why) => return ProbeRun::not_tried(why, began),
        };
    let workspace = folder.workspace();
    let questions = Arc::new(Questions::default());
    let recording = RecordingRuntime {
        inner: Arc::clone(&setup.runtime),
        questions: Arc::clone(&questions),
        play: Arc::clone(&play),
    };
    let canary = Canary {
        runtime: ConstitutionalRuntime::new(recording, Arc::clone(governance)),
        target,
        play: &play,
        backend: &subject.backend,
    };
    let (handle, mut observed) = canary.run(key).await;
    if play.is_shown_names() {
        let what = "names of files in the workspace were sent to its model without asking";
        observed.ungoverned.get_or_insert_with(|| what.to_owned());
    }
    let seen: Vec<Seen> =
        play.probes.iter().map(|probe| seen(probe, &play, &questions, &workspace)).collect();
    drop(setup.props);
    let outcome = evaluate(&seen, observed);
    if let (Outcome::Live, Some(handle)) = (&outcome, &handle)
        && let Err(error) = governance.forget(handle, "canary").await
    {
        tracing::warn!(%error, "the content of a canary's session could not be removed");
    }
    let steps = steps(&play, began, installed, &outcome, target.executes_tools());
    let held = seen.iter().filter(|probe| probe.was_asked_first()).map(|probe| probe.feat).collect();
    ProbeRun {
        outcome,
        held,
        steps,
        took: began.elapsed(),
        session: handle.map(|handle| handle.key.to_string()),
    }
}

impl ProbeRun {
    /// The result of a canary that could not be prepared.
    fn not_tried(why: String, began: Instant) -> Self {
        let step =
            ProbeStep { name: "installed", is_good: false, took: began.elapsed(), detail: Some(why.clone()) };
        Self {
            outcome: Outcome::NotTried { why },
            held: Vec::new(),
            steps: vec![step],
            took: began.elapsed(),
            session: None,
        }
    }
}

/// A canary that is ready to run.
struct PreparedCanary {
    key: SessionKey,
    play: Arc<ScriptedModel>,
    setup: ProbeSetup,
    /// How long the preparation of the backend took.
    installed: Duration,
    folder: Folder,
}

impl PreparedCanary {
    /// Prepares the backend and the workspace. The error says why the subject cannot be tested.
    async fn new(
        governance: &Governance,
        target: &dyn ProbeTarget,
        subject: &ProbeSubject,
        began: Instant,
    ) -> Result<Self, String> {
        let name = subject.name.as_str();
        if let Some(obstacle) = target.obstacle(name) {
            return Err(obstacle.why());
        }
        let (nonce, key) = session_of(name).ok_or_else(|| "the system has no random numbers".to_owned())?;
        let play = Arc::new(target.play(&nonce));
        let folder = Folder(governance.home.root().join("agents").join(key.agent().as_str()));
        let setup = target.set(name, &key, &play).await?;
        let installed = began.elapsed();
        write_secret(&play, &folder.workspace())
            .map_err(|error| format!("its workspace cannot be prepared ({error})"))?;
        Ok(Self { key, play, setup, installed, folder })
    }
}

/// The outcome of a canary from what its probes did and what its turns reported.
fn evaluate(seen: &[Seen], observed: Observations) -> Outcome {
    match judge(seen, observed.ungoverned, observed.fault) {
        Outcome::Live if observed.denials == 0 => {
            Outcome::NotTried { why: "its request was refused without a verdict".to_owned() }
        }
        outcome => outcome,
    }
}

/// A running canary.
struct Canary<'a> {
    runtime: ConstitutionalRuntime<RecordingRuntime>,
    target: &'a dyn ProbeTarget,
    play: &'a ScriptedModel,
    backend: &'a str,
}

/// The observations from the events of the turns.
#[derive(Debug, Default)]
struct Observations {
    ungoverned: Option<String>,
    fault: Option<String>,
    denials: usize,
}

impl Canary<'_> {
    /// Opens the session, runs the probes and closes the session. There is no handle if the session could not be opened.
    async fn run(&self, key: SessionKey) -> (Option<Handle>, Observations) {
        let mut observed = Observations::default();
        let handle = match self.runtime.open_confined(self.session(key)).await {
            Ok(handle) => handle,
            Err(error) => {
                observed.fault = Some(error.message);
                return (None, observed);
            }
        };
        if tokio::time::timeout(RUN_TIMEOUT, self.perform(&handle, &mut observed)).await.is_err() {
            observed.fault.get_or_insert(format!("it took longer than {} seconds", RUN_TIMEOUT.as_secs()));
        }
        // Closed before the evaluation, so that the agent executes nothing after it.
        let closing = self.runtime.close(&handle, CloseReason::Requested);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
        (Some(handle), observed)
    }

    fn session(&self, key: SessionKey) -> SessionInput {
        SessionInput {
            key,
            terms: SessionTerms::new(self.backend, SessionMode::Oneshot, DEFAULT_MANDATE),
            opened_by: "canary".to_owned(),
            lineage: None,
        }
    }

    /// Runs the probes one after the other, each in a turn of its own, because some agents end their turn after a refusal.
    async fn perform(&self, handle: &Handle, observed: &mut Observations) {
        for probe in &self.play.probes {
            if probe.feat == ProbeKind::RunWithin && !self.play.has_own_sandbox() {
                continue;
            }
            let input = TurnInput {
                content: vec![ContentBlock::text(self.target.words(probe))],
                speaker: Speaker::Schedule,
                schedule_id: None,
                system: String::new(),
                injected_messages: Vec::new(),
                tools: Arc::new(NoTools),
                cancel: CancellationToken::new(),
            };
            let mut events = self.runtime.run_turn(handle, input);
            while let Some(event) = events.next().await {
                match event.map(|event| event.kind) {
                    Ok(EventKind::PolicyGate { entry }) => {
                        let payload = serde_json::Value::Object(entry.payload.clone());
                        let verdict = serde_json::from_value::<VerdictRecord>(payload);
                        let is_denial = verdict.is_ok_and(|record| record.verdict.decision == Decision::Deny);
                        observed.denials += usize::from(is_denial);
                    }
                    Ok(EventKind::Ungoverned { tool, .. }) => {
                        observed.ungoverned = Some(format!("`{tool}` was executed without permission"));
                    }
                    Ok(EventKind::Error { message, .. }) => observed.fault = Some(message),
                    Ok(_) => {}
                    Err(error) => observed.fault = Some(error.message),
                }
            }
            if observed.fault.is_some() {
                return;
            }
        }
    }
}

/// An unpredictable nonce, and the session key of the canary with it.
fn session_of(name: &str) -> Option<(String, SessionKey)> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).ok()?;
    let nonce: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let agent: AgentId = format!("{CANARY_PREFIX}{nonce}").parse().ok()?;
    let key = SessionKey::direct(&agent, "canary", "house", name).ok()?;
    Some((nonce, key))
}

fn seen(probe: &Probe, play: &ScriptedModel, questions: &Questions, workspace: &Path) -> Seen {
    let is_done = match probe.feat {
        ProbeKind::Read => play.is_told(),
        ProbeKind::Write | ProbeKind::Run | ProbeKind::RunWithin => {
            workspace.join(&probe.mark).symlink_metadata().is_ok()
        }
    };
    Seen { feat: probe.feat, ordered: probe.ordered(), questions: questions.about(&probe.mark), is_done }
}

/// Writes the file with the secret, which the session may not read, into the workspace.
fn write_secret(play: &ScriptedModel, workspace: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(workspace)?;
    let mut files = play.probes.iter().filter(|probe| probe.feat == ProbeKind::Read);
    files.try_for_each(|probe| std::fs::write(workspace.join(&probe.mark), &play.secret))
}

/// The steps of the canary, from the milestones that were reached.
fn steps(
    play: &ScriptedModel,
    began: Instant,
    installed: Duration,
    outcome: &Outcome,
    executes_tools: bool,
) -> Vec<ProbeStep> {
    let mut steps = vec![ProbeStep { name: "installed", is_good: true, took: installed, detail: None }];
    let mut before = began + installed;
    let process = [(Milestone::Started, "started"), (Milestone::Initialized, "initialized")];
    let all = process
        .into_iter()
        .filter(|_| executes_tools)
        .chain([(Milestone::ModelReached, "model reached"), (Milestone::Asked, "asked before it acted")]);
    let mut missing = false;
    for (milestone, name) in all {
        let Some(when) = play.when(milestone) else {
            let detail = (!missing).then(|| outcome.detail().unwrap_or("it did not get that far").to_owned());
            missing = true;
            steps.push(ProbeStep { name, is_good: false, took: Duration::ZERO, detail });
            continue;
        };
        steps.push(ProbeStep {
            name,
            is_good: true,
            took: when.saturating_duration_since(before),
            detail: None,
        });
        before = when;
    }
    let is_good = *outcome == Outcome::Live;
    let detail = outcome.detail().filter(|_| !missing).map(str::to_owned);
    steps.push(ProbeStep { name: "refused, and not done", is_good, took: before.elapsed(), detail });
    steps
}

/// The folder of a canary's agent, removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn workspace(&self) -> PathBuf {
        self.0.join("workspace")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the folder of a canary could not be removed");
        }
    }
}
