//! Canaries: a test makes a backend attempt something harmless that the gate must stop. If it is not stopped, the gate does not
//! hold the agents of that backend, and they are not run.
//!
//! The agent in its sandbox, the gate, the session and the ledger are the real ones. Only the model is scripted
//! ([`scripted_model`], whose answers [`scripted_reply`] encodes), so a canary costs nothing and needs no network. [`probe_run`] runs one
//! canary, [`probe_recorder`] records the gate's decisions in it, [`evaluate`] derives the outcome, and [`record`] writes it to the
//! ledger. A backend provides a [`ProbeTarget`]; [`builtin_targets`] has those of Tribune's own loops. [`turn_guard`] checks the
//! canary before each turn.
//!
//! A canary does not detect an agent that can distinguish it from a person; such an agent is bounded by its sandbox.

mod builtin_targets;
mod evaluate;
mod model_socket;
mod probe_recorder;
mod probe_run;
mod record;
mod scripted_model;
mod scripted_reply;
mod turn_guard;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_config::CanaryConfig;
use tribune_governance::turn::Governance;
use tribune_ledger::Timestamp;
use tribune_registry::Agents;
use tribune_runtime::{AgentId, ErrorKind, RuntimeError, SessionKey};

pub use self::builtin_targets::{NativeTarget, RehearsalTarget};
pub use self::evaluate::Outcome;
pub use self::probe_run::{Obstacle, ProbeRun, ProbeSetup, ProbeStep, ProbeSubject, ProbeTarget, sweep};
use self::record::Occasion;
pub use self::record::{Grounds, millis};
use self::scripted_model::ProbeKind;
pub(crate) use self::scripted_model::{Milestone, ScriptedModel};
pub use self::turn_guard::Guarded;

/// Runs the canaries and keeps their results.
pub struct Canaries {
    governance: Arc<Governance>,
    agents: Arc<Agents>,
    /// The targets, by backend name.
    targets: BTreeMap<&'static str, Arc<dyn ProbeTarget>>,
    /// The interval at which all subjects are tested; `None`: never.
    every: Option<Duration>,
    /// Subjects that the operator allows to run although they cannot be tested (`canary.untried`).
    untried: BTreeSet<String>,
    known: Mutex<BTreeMap<ProbeSubject, SubjectState>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// The state of one subject.
#[derive(Debug, Clone, Default)]
struct SubjectState {
    last: Option<LastResult>,
    /// What one of its agents did without permission in a turn.
    marked: Option<Mark>,
    /// The mark was read from the ledger.
    is_recalled: bool,
    is_running: bool,
    /// The number of canaries so far. A caller that waited for one sees that the number has changed, and needs no other.
    runs: u64,
    /// Held while a canary of the subject runs.
    run_lock: Arc<tokio::sync::Mutex<()>>,
}

impl SubjectState {
    fn outcome(&self) -> Option<&Outcome> {
        self.last.as_ref().map(|last| &last.outcome)
    }
}

/// A mark against a subject: one of its agents executed a call without permission.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    tool: String,
    what: String,
}

impl Mark {
    /// The grounds on which a canary that the operator requested clears the mark; `None` if it does not.
    fn grounds(&self, trial: &ProbeRun, clear_mark: ClearMark, is_excepted: bool) -> Option<Grounds> {
        let is_held = trial.session.is_some() && trial.outcome == Outcome::Live;
        match (&trial.outcome, clear_mark) {
            (Outcome::Live, _) if is_held && self.is_covered_by(&trial.held) => Some(Grounds::Tried),
            (Outcome::Live, ClearMark::Yes) if is_held => Some(Grounds::LookedAt),
            (Outcome::NotTried { .. }, ClearMark::Yes) if is_excepted => Some(Grounds::LookedAtUntried),
            (Outcome::Live | Outcome::NotTried { .. } | Outcome::NotStopped { .. }, _) => None,
        }
    }

    /// Whether a canary that was stopped at these probes covers the marked tool.
    fn is_covered_by(&self, held: &[ProbeKind]) -> bool {
        match self.tool.as_str() {
            "write" | "edit" => held.contains(&ProbeKind::Write),
            "read" | "search" => held.contains(&ProbeKind::Read),
            "exec" => held.contains(&ProbeKind::Run),
            _ => false,
        }
    }
}

/// Whether the operator confirms that the marked action was reviewed, which clears a mark that the canary does not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearMark {
    Yes,
    No,
}

/// The result of a canary that the operator requested.
#[derive(Debug, Clone)]
pub struct Tested {
    pub trial: ProbeRun,
    /// The mark that remains.
    pub mark: Option<String>,
    /// The grounds on which a mark was cleared.
    pub cleared: Option<Grounds>,
    /// Whether its agents are run although they cannot be tested.
    pub is_excepted: bool,
}

/// The outcome and time of the last canary of a subject.
#[derive(Debug, Clone)]
struct LastResult {
    outcome: Outcome,
    at: Timestamp,
    took: Duration,
}

/// The canary status of one subject, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryStatus {
    pub subject: ProbeSubject,
    pub agents: Vec<String>,
    /// `live`; `ungoverned` and `not_tried`, which are not run; `untried`, which is run because the operator allows it; `waiting`,
    /// `running`; or `off`.
    pub state: &'static str,
    pub detail: Option<String>,
    pub at: Option<Timestamp>,
    pub took: Option<Duration>,
}

impl std::fmt::Debug for Canaries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canaries")
    }
}

impl Canaries {
    pub fn new(
        governance: &Arc<Governance>,
        agents: &Arc<Agents>,
        targets: impl IntoIterator<Item = (&'static str, Arc<dyn ProbeTarget>)>,
        config: &CanaryConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            governance: Arc::clone(governance),
            agents: Arc::clone(agents),
            targets: targets.into_iter().collect(),
            every: config.every,
            untried: config.untried.iter().cloned().collect(),
            known: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Tests the subjects of the roster whose agents execute tools themselves, then tests all subjects at each interval, until the
    /// daemon stops.
    pub async fn keep_trying(self: Arc<Self>) {
        for (subject, _) in self.subjects() {
            self.recall(&subject).await;
        }
        let Some(every) = self.every else { return };
        for (subject, target) in self.subjects() {
            if target.executes_tools() && target.obstacle(&subject.name).is_none() {
                self.ensure_tested(&subject, Occasion::Start).await;
            }
        }
        while let Some(()) = self.shutdown.run_until_cancelled(tokio::time::sleep(every)).await {
            for (subject, target) in self.subjects() {
                if target.obstacle(&subject.name).is_none() {
                    self.test_now(&subject, Occasion::Timer).await;
                }
            }
        }
    }

    /// Cancels running canaries, and waits for their end.
    pub async fn close(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Tests the backend of an agent on the operator's request. If the canary is stopped, a mark is cleared that the canary covers
    /// or that the operator has reviewed. For a subject that cannot be tested and is listed in `canary.untried`, the operator's
    /// review is enough.
    pub async fn test(
        self: &Arc<Self>,
        agent: &AgentId,
        by: &str,
        clear_mark: ClearMark,
    ) -> Result<Tested, RuntimeError> {
        let subject = self.subject_of(agent).ok_or_else(|| {
            RuntimeError::new(ErrorKind::Unsupported, format!("the backend of `{agent}` has no canary"))
        })?;
        self.recall(&subject).await;
        let trial = self.test_now(&subject, Occasion::Operator).await.ok_or_else(draining)?;
        let is_excepted = self.is_excepted(&subject);
        let mark = self.state(&subject).marked;
        let grounds = mark.as_ref().and_then(|mark| mark.grounds(&trial, clear_mark, is_excepted));
        if let (Some(mark), Some(grounds)) = (mark, grounds) {
            // Recorded first: a mark whose clearing is not in the ledger stays.
            record::cleared(&self.governance, &subject, &mark.tool, by, grounds).await.map_err(|error| {
                RuntimeError::new(
                    ErrorKind::Internal,
                    format!("the mark stays, because its clearing could not be recorded: {error}"),
                )
            })?;
            self.change(&subject, |state| {
                // A mark that was set meanwhile is a different one.
                if state.marked.as_ref() == Some(&mark) {
                    state.marked = None;
                }
            });
        }
        let mark = self.state(&subject).marked.map(|mark| mark.what);
        Ok(Tested { trial, mark, cleared: grounds, is_excepted })
    }

    /// Whether agents of a subject are run although it cannot be tested: the operator lists it, or has turned canaries off.
    fn is_excepted(&self, subject: &ProbeSubject) -> bool {
        self.every.is_none() || self.untried.contains(&subject.name)
    }

    /// Reads the mark of a subject from the ledger, once per daemon start.
    async fn recall(&self, subject: &ProbeSubject) {
        if self.state(subject).is_recalled {
            return;
        }
        let marked = record::mark_of(&self.governance, subject).await;
        self.change(subject, |state| {
            let mark =
                |tool: String| Mark { what: format!("`{tool}` was executed without permission"), tool };
            if !std::mem::replace(&mut state.is_recalled, true) && state.marked.is_none() {
                state.marked = marked.map(mark);
            }
        });
    }

    /// Admits a turn of an agent if a canary of its subject was stopped and the subject has no mark. Waits for the first canary, and
    /// for another one if the last could not test the agent.
    pub(crate) async fn admit(self: &Arc<Self>, agent: &AgentId) -> Result<(), RuntimeError> {
        let Some(subject) = self.subject_of(agent) else { return Ok(()) };
        let Some(target) = self.targets.get(subject.backend.as_str()) else { return Ok(()) };
        self.recall(&subject).await;
        self.check(&subject, agent)?;
        if self.every.is_none() || !target.executes_tools() {
            return Ok(());
        }
        match target.obstacle(&subject.name) {
            // The start of the agent reports the error itself.
            Some(Obstacle::NotRunnable(_)) => return Ok(()),
            Some(Obstacle::NothingToTry(why)) => return self.excepted(&subject, agent, &why),
            None => {}
        }
        if self.needs_canary(&subject) {
            self.ensure_tested(&subject, Occasion::FirstUse).await;
            self.check(&subject, agent)?;
        }
        match self.state(&subject).outcome() {
            Some(Outcome::Live) => Ok(()),
            Some(Outcome::NotTried { why }) => self.excepted(&subject, agent, why),
            // `check` above refuses this.
            Some(Outcome::NotStopped { .. }) => self.check(&subject, agent),
            None => Err(draining()),
        }
    }

    /// Checks an agent against the known state, without a canary.
    fn check_known(&self, agent: &AgentId) -> Result<(), RuntimeError> {
        self.subject_of(agent).map_or(Ok(()), |subject| self.check(&subject, agent))
    }

    fn check(&self, subject: &ProbeSubject, agent: &AgentId) -> Result<(), RuntimeError> {
        let state = self.state(subject);
        let name = &subject.name;
        let refused = |what: String| Err(RuntimeError::new(ErrorKind::Ungoverned, what));
        if let Some(Outcome::NotStopped { what }) = state.outcome() {
            return refused(format!(
                "UNGOVERNED: agents of `{name}` are not run, because its canary was not stopped ({what}): look at the settings of \
                 the profile, then run `tribune agents test {agent}`"
            ));
        }
        if let Some(Mark { what, .. }) = state.marked {
            return refused(format!(
                "UNGOVERNED: agents of `{name}` are not run any more, because one acted without permission ({what}): look at the \
                 session's record and the profile's settings, then run `tribune agents test {agent}`"
            ));
        }
        Ok(())
    }

    /// An agent that cannot be tested is run only if the operator lists its subject in `canary.untried`.
    fn excepted(&self, subject: &ProbeSubject, agent: &AgentId, why: &str) -> Result<(), RuntimeError> {
        let name = &subject.name;
        if self.untried.contains(name) {
            return Ok(());
        }
        let what = format!(
            "agents of `{name}` are not run, because it is not known whether the gate holds them: the canary could not test them \
             ({why}); run `tribune agents test {agent}` to see how far it gets, or add `{name}` to canary.untried in \
             config.json5 to run them all the same"
        );
        Err(RuntimeError::new(ErrorKind::Untried, what))
    }

    /// Whether the subject must be tested before its next turn.
    fn needs_canary(&self, subject: &ProbeSubject) -> bool {
        match self.state(subject).outcome() {
            None => true,
            Some(Outcome::NotTried { .. }) => !self.untried.contains(&subject.name),
            Some(Outcome::Live | Outcome::NotStopped { .. }) => false,
        }
    }

    /// Marks a subject because an agent executed a call without permission. The mark is recorded in the ledger, so it survives a
    /// restart.
    pub(crate) fn mark(&self, session: &SessionKey, tool: &str, what: &str) {
        let Some(subject) = self.subject_of(session.agent()) else { return };
        let mark = Mark { tool: tool.to_owned(), what: what.to_owned() };
        self.change(&subject, |state| {
            // A mark that no canary covers is not replaced by one that a canary could clear.
            if state.marked.as_ref().is_none_or(|known| known.is_covered_by(&ProbeKind::ALL)) {
                state.marked = Some(mark);
            }
        });
        let (governance, tool, session) =
            (Arc::clone(&self.governance), tool.to_owned(), Some(session.to_string()));
        self.tasks.spawn(async move {
            record::marked(&governance, &subject, &tool, session).await;
        });
    }

    /// The status of every subject of the roster.
    pub fn standpoints(&self) -> Vec<CanaryStatus> {
        let mut all: BTreeMap<ProbeSubject, Vec<String>> = BTreeMap::new();
        for agent in self.agents.all() {
            if let Some(subject) = self.subject_of(&agent.id) {
                all.entry(subject).or_default().push(agent.id.to_string());
            }
        }
        all.into_iter().map(|(subject, agents)| self.status(subject, agents)).collect()
    }

    /// The status of an agent's subject as a sentence.
    fn told_of(&self, agent: &AgentId) -> Option<String> {
        let subject = self.subject_of(agent)?;
        let CanaryStatus { state, detail, at, .. } = self.status(subject, vec![agent.to_string()]);
        let (detail, at) = (detail.unwrap_or_default(), at.map(|at| at.to_string()).unwrap_or_default());
        Some(match state {
            "live" => format!("live, tested at {at}"),
            "ungoverned" => format!("UNGOVERNED, so that the agent is not run: {detail}"),
            "not_tried" => format!("not tested, so that the agent is not run: {detail}"),
            "untried" => format!("not tested, and run because canary.untried names it: {detail}"),
            "running" => "being tested".to_owned(),
            "off" => "off: no canary tests whether the gate holds it".to_owned(),
            _ => "not tested yet".to_owned(),
        })
    }

    fn status(&self, subject: ProbeSubject, agents: Vec<String>) -> CanaryStatus {
        let SubjectState { last, marked, is_running, .. } = self.state(&subject);
        let target = self.targets.get(subject.backend.as_str());
        let obstacle = target.and_then(|target| target.obstacle(&subject.name));
        let not_tried = if self.untried.contains(&subject.name) { "untried" } else { "not_tried" };
        let outcome = last.as_ref().map(|last| &last.outcome);
        let (state, detail) = match (outcome, marked) {
            (Some(Outcome::NotStopped { what }), _) => ("ungoverned", Some(what.clone())),
            (_, Some(Mark { what, .. })) => ("ungoverned", Some(what)),
            (Some(Outcome::Live), None) => ("live", None),
            (Some(Outcome::NotTried { why }), None) => (not_tried, Some(why.clone())),
            (None, None) if is_running => ("running", None),
            (None, None) if self.every.is_none() => ("off", None),
            (None, None) => match obstacle {
                Some(Obstacle::NotRunnable(error)) => ("not_tried", Some(error.message)),
                Some(Obstacle::NothingToTry(why)) => (not_tried, Some(why)),
                None => ("waiting", None),
            },
        };
        let (at, took) = (last.as_ref().map(|last| last.at), last.map(|last| last.took));
        CanaryStatus { subject, agents, state, detail, at, took }
    }

    fn state(&self, subject: &ProbeSubject) -> SubjectState {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(subject.clone()).or_default().clone()
    }

    fn subject_of(&self, agent: &AgentId) -> Option<ProbeSubject> {
        let agent = self.agents.agent(agent)?;
        let target = self.targets.get(agent.backend.as_str())?;
        let name = target.subject(agent.profile.as_deref())?;
        Some(ProbeSubject { backend: agent.backend, name })
    }

    /// The subjects of the roster, without duplicates.
    fn subjects(&self) -> Vec<(ProbeSubject, Arc<dyn ProbeTarget>)> {
        let all = self.agents.all().into_iter().filter_map(|agent| {
            let subject = self.subject_of(&agent.id)?;
            let target = Arc::clone(self.targets.get(subject.backend.as_str())?);
            Some((subject, target))
        });
        all.collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// Tests a subject without a usable result. Concurrent callers wait for the same canary.
    async fn ensure_tested(self: &Arc<Self>, subject: &ProbeSubject, occasion: Occasion) {
        let SubjectState { run_lock, runs, .. } = self.state(subject);
        let (canaries, subject) = (Arc::clone(self), subject.clone());
        let testing = self.tasks.spawn(async move {
            let _running = run_lock.lock_owned().await;
            if canaries.state(&subject).runs == runs && canaries.needs_canary(&subject) {
                canaries.run_canary(&subject, occasion).await;
            }
        });
        // It fails only when the runtime shuts down.
        let _ = testing.await;
    }

    /// Tests a subject, whatever its state is. `None` if the daemon stops meanwhile.
    async fn test_now(self: &Arc<Self>, subject: &ProbeSubject, occasion: Occasion) -> Option<ProbeRun> {
        let run_lock = Arc::clone(&self.state(subject).run_lock);
        let (canaries, subject) = (Arc::clone(self), subject.clone());
        let testing = self.tasks.spawn(async move {
            let _running = run_lock.lock_owned().await;
            canaries.run_canary(&subject, occasion).await
        });
        testing.await.ok().flatten()
    }

    async fn run_canary(&self, subject: &ProbeSubject, occasion: Occasion) -> Option<ProbeRun> {
        let target = Arc::clone(self.targets.get(subject.backend.as_str())?);
        self.change(subject, |state| state.is_running = true);
        let testing = probe_run::try_out(&self.governance, &*target, subject);
        let trial = self.shutdown.run_until_cancelled(testing).await;
        self.change(subject, |state| state.is_running = false);
        let trial = trial?;
        let (at, outcome) = (self.governance.storage.clock.now(), trial.outcome.clone());
        let last = LastResult { outcome, at, took: trial.took };
        // A canary that could not begin says nothing about the agent, so it does not replace a known result.
        let is_known = trial.session.is_some() && !self.governance.policy.gate.is_frozen();
        if is_known {
            record::write(&self.governance, subject, &trial, occasion).await;
        }
        self.change(subject, |state| {
            state.runs += 1;
            // A mark from a turn stays: only a test on the operator's request clears it, not the timer.
            if is_known || state.last.is_none() {
                state.last = Some(last);
            }
        });
        match &trial.outcome {
            Outcome::Live => {
                tracing::info!(subject = subject.name, took = millis(trial.took), "a canary was stopped")
            }
            Outcome::NotTried { why } => {
                tracing::warn!(subject = subject.name, why, "a canary could not test its subject")
            }
            Outcome::NotStopped { what } => tracing::error!(
                subject = subject.name,
                what,
                "UNGOVERNED: a canary was not stopped, and its agents are not run"
            ),
        }
        Some(trial)
    }

    fn change(&self, subject: &ProbeSubject, change: impl FnOnce(&mut SubjectState)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(subject.clone()).or_default());
    }
}

fn draining() -> RuntimeError {
    RuntimeError::new(ErrorKind::Draining, "the daemon is stopping and runs no more canaries")
}
