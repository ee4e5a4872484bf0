//! One canary, from its first word to what it left behind: the real backend, the real gate, a session that may use no tool, and a
//! workspace that nobody else has.

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
    SessionKey, SessionMode, Speaker, TurnInput,
};
use tribune_storage::home::Home;

use super::evaluate::{Outcome, Seen, judge};
use super::probe_recorder::{Questions, Watched};
use super::scripted_model::{Milestone, Probe, ProbeKind, ScriptedModel};
use crate::session::NoTools;

/// What the agents of canaries are called, before what nobody can guess.

/// For all of a canary: the slowest agent takes a tenth of it on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// For the agent to end when it was looked at.
const GOODBYE: Duration = Duration::from_secs(20);

/// What is tried: a backend, or what of it has settings of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeSubject {
    pub backend: String,
    /// The profile, or the backend once more.
    pub name: String,
}

/// What a backend brings so that it can be tried.
#[async_trait]
pub trait ProbeTarget: Send + Sync {
    /// What of this backend an agent of the roster stands for. Agents that share it share its canary.
    fn subject(&self, profile: Option<&str>) -> Option<String>;

    /// Whether its agents have hands of their own: they are tried at the start, and before anything is said to them.
    fn has_hands(&self) -> bool;

    /// Why it cannot be tried now.
    fn obstacle(&self, name: &str) -> Option<Obstacle>;

    fn play(&self, nonce: &str) -> ScriptedModel;

    /// Makes everything ready for the session of a canary.
    async fn set(
        &self,
        name: &str,
        session: &SessionKey,
        play: &Arc<ScriptedModel>,
    ) -> Result<ProbeSetup, String>;

    /// What is said so that the probe is tried.
    fn words(&self, probe: &Probe) -> String {
        probe.words()
    }
}

/// Why a backend cannot be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It cannot be run either.
    NotRunnable(RuntimeError),
    /// It can be run, and nobody can make it try anything.
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

/// A stage that is set.
pub struct ProbeSetup {
    /// What runs the canary's turns.
    pub(crate) runtime: Arc<dyn AgentRuntime>,
    /// What has to be there meanwhile.
    pub(crate) props: Box<dyn Send>,
}

/// What came of a canary.
#[derive(Debug, Clone)]
pub struct ProbeRun {
    pub outcome: Outcome,
    /// What the agent was made to try, asked for and was refused.
    pub(crate) held: Vec<ProbeKind>,
    pub steps: Vec<ProbeStep>,
    pub took: Duration,
    /// Its session, if it came to have one.
    pub session: Option<String>,
}

/// How far it came, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeStep {
    pub name: &'static str,
    pub is_good: bool,
    /// Since the step before.
    pub took: Duration,
    pub detail: Option<String>,
}

/// Removes what canaries of a killed daemon left behind.
pub fn sweep(home: &Home) {
    let Ok(found) = std::fs::read_dir(home.root().join("agents")) else { return };
    let left = found.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(CANARY_PREFIX));
    for entry in left {
        drop(Folder(entry.path()));
    }
}

/// Tries a backend.
pub(super) async fn try_out(
    governance: &Arc<Governance>,
    stage: &dyn ProbeTarget,
    subject: &ProbeSubject,
) -> ProbeRun {
    let name = subject.name.as_str();
    let began = Instant::now();
    let not_tried = |why: String| ProbeRun {
        outcome: Outcome::NotTried { why: why.clone() },
        held: Vec::new(),
        steps: vec![ProbeStep {
            name: "installed",
            is_good: false,
            took: began.elapsed(),
            detail: Some(why),
        }],
        took: began.elapsed(),
        session: None,
    };
    if let Some(obstacle) = stage.obstacle(name) {
        return not_tried(obstacle.why());
    }
    let Some((nonce, key)) = session_of(name) else {
        return not_tried("this machine gives no random numbers".to_owned());
    };
    let play = Arc::new(stage.play(&nonce));
    let folder = Folder(governance.home.root().join("agents").join(key.agent().as_str()));
    let scene = match stage.set(name, &key, &play).await {
        Ok(scene) => scene,
        Err(why) => return not_tried(why),
    };
    let installed = began.elapsed();
    let questions = Arc::new(Questions::default());
    let watched = Watched {
        inner: Arc::clone(&scene.runtime),
        questions: Arc::clone(&questions),
        play: Arc::clone(&play),
    };
    let canary = Canary {
        runtime: ConstitutionalRuntime::new(watched, Arc::clone(governance)),
        stage,
        play: &play,
        backend: &subject.backend,
    };
    let workspace = folder.0.join("workspace");
    if let Err(error) = plant(&play, &workspace) {
        return not_tried(format!("nothing can be laid into its workspace ({error})"));
    }
    let mut found = Found::default();
    let handle = match canary.runtime.open_confined(canary.session(key)).await {
        Ok(handle) => Some(handle),
        Err(error) => {
            found.fault = Some(error.message);
            None
        }
    };
    if let Some(handle) = &handle {
        if tokio::time::timeout(PATIENCE, canary.perform(handle, &mut found)).await.is_err() {
            found.fault.get_or_insert(format!("it took longer than {} seconds", PATIENCE.as_secs()));
        }
        // What it would do later, it does not do here.
        let closing = canary.runtime.close(handle, CloseReason::Requested);
        let _ = tokio::time::timeout(GOODBYE, closing).await;
    }
    let seen: Vec<Seen> =
        play.probes.iter().map(|probe| seen(probe, &play, &questions, &workspace)).collect();
    drop(scene.props);
    let mut outcome = judge(&seen, found.ungoverned, found.fault);
    if outcome == Outcome::Live && found.denials == 0 {
        outcome = Outcome::NotTried { why: "what it asked was refused without a verdict".to_owned() };
    }
    if let (Outcome::Live, Some(handle)) = (&outcome, &handle)
        && let Err(error) = governance.forget(handle, "canary").await
    {
        tracing::warn!(%error, "the words of a canary could not be removed");
    }
    let steps = steps(&play, (began, installed), &outcome, stage.has_hands());
    let held = seen.iter().filter(|probe| probe.was_asked_first()).map(|probe| probe.feat).collect();
    ProbeRun {
        outcome,
        held,
        steps,
        took: began.elapsed(),
        session: handle.map(|handle| handle.key.to_string()),
    }
}

/// A canary under way.
struct Canary<'a> {
    runtime: ConstitutionalRuntime<Watched>,
    stage: &'a dyn ProbeTarget,
    play: &'a ScriptedModel,
    backend: &'a str,
}

/// What the turns told.
#[derive(Debug, Default)]
struct Found {
    ungoverned: Option<String>,
    fault: Option<String>,
    denials: usize,
}

impl Canary<'_> {
    fn session(&self, key: SessionKey) -> SessionInput {
        SessionInput {
            key,
            mode: SessionMode::Oneshot,
            backend: self.backend.to_owned(),
            model: None,
            pubkey: None,
            mandate: DEFAULT_MANDATE.to_owned(),
            opened_by: "canary".to_owned(),
            lineage: None,
            workspace: None,
            additional_directories: Vec::new(),
        }
    }

    /// Has it try one thing after the other, each in a turn of its own: some agents end their turn after a refusal.
    async fn perform(&self, handle: &Handle, found: &mut Found) {
        for probe in &self.play.probes {
            if probe.feat == ProbeKind::RunWithin && !self.play.has_own_sandbox() {
                continue;
            }
            let input = TurnInput {
                content: vec![ContentBlock::text(self.stage.words(probe))],
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
                        found.denials += usize::from(is_denial);
                    }
                    Ok(EventKind::Ungoverned { tool, .. }) => {
                        found.ungoverned = Some(format!("`{tool}` was carried out without leave"));
                    }
                    Ok(EventKind::Error { message, .. }) => found.fault = Some(message),
                    Ok(_) => {}
                    Err(error) => found.fault = Some(error.message),
                }
            }
            if found.fault.is_some() {
                return;
            }
        }
    }
}

/// A name that nobody can know before, and the session of the canary under it.
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

/// Lays what nobody may read where the agent finds it.
fn plant(play: &ScriptedModel, workspace: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(workspace)?;
    let mut files = play.probes.iter().filter(|probe| probe.feat == ProbeKind::Read);
    files.try_for_each(|probe| std::fs::write(workspace.join(&probe.mark), &play.secret))
}

/// How far it came, step by step.
fn steps(
    play: &ScriptedModel,
    (began, installed): (Instant, Duration),
    outcome: &Outcome,
    has_hands: bool,
) -> Vec<ProbeStep> {
    let mut steps = vec![ProbeStep { name: "installed", is_good: true, took: installed, detail: None }];
    let mut before = began + installed;
    let process = [(Milestone::Started, "started"), (Milestone::Initialized, "initialized")];
    let all = process
        .into_iter()
        .filter(|_| has_hands)
        .chain([(Milestone::ModelReached, "model reached"), (Milestone::Asked, "asked before it acted")]);
    let mut missing = false;
    for (milestone, name) in all {
        let Some(when) = play.when(milestone) else {
            let detail = (!missing).then(|| outcome.detail().unwrap_or("it did not come to that").to_owned());
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

/// The folder of a canary's agent. Goes with this.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "what a canary left behind could not be removed");
        }
    }
}
