//! Canaries: a backend is made to try something harmless that the gate must stop. If it is not stopped, whatever is said of its
//! agents, the gate does not hold them, and they are not run.
//!
//! The agent is the real one, in its box; the gate, the session and the log are the real ones; only the model is played ([`play`],
//! in the [`dialect`]s that agents speak), so that trying costs nothing and needs no network. [`trial`] is one canary, [`watch`]
//! sees what is asked in it, [`judge`] says what it comes to, [`record`] writes it down. A backend is tried through what it brings
//! as a [`Stage`]; [`loops`] are those of the house. [`guard`] stands before each turn.
//!
//! An agent that can tell a canary from a person is not found out by one: the box is what bounds it.

mod builtin_targets;
mod dialect;
mod evaluate;
mod model_socket;
mod probe_recorder;
mod probe_run;
pub mod record;
mod scripted_model;
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
use tribune_runtime::{AgentId, RuntimeError, SessionKey};

pub use self::builtin_targets::{NativeStage, RehearsalStage};
pub use self::evaluate::Outcome;
pub use self::probe_run::{Obstacle, ProbeRun, ProbeSetup, ProbeStep, ProbeSubject, ProbeTarget, sweep};
use self::record::Occasion;
pub use self::record::{Grounds, millis};
use self::scripted_model::ProbeKind;
pub(crate) use self::scripted_model::{Milestone, ScriptedModel};
pub use self::turn_guard::Guarded;

/// The canaries of a house.
pub struct Canaries {
    governance: Arc<Governance>,
    agents: Arc<Agents>,
    /// By the name of the backend.
    stages: BTreeMap<&'static str, Arc<dyn ProbeTarget>>,
    /// How often all of them are tried; `None`: never.
    every: Option<Duration>,
    /// Subjects that are run though nobody could try them, because the operator says so.
    untried: BTreeSet<String>,
    known: Mutex<BTreeMap<ProbeSubject, Standing>>,
    tasks: TaskTracker,
    leaving: CancellationToken,
}

/// What is known of one subject.
#[derive(Debug, Clone, Default)]
struct Standing {
    told: Option<Told>,
    /// What one of its agents did in a turn that nobody allowed.
    marked: Option<Mark>,
    /// The log was asked what stands against it.
    is_recalled: bool,
    is_running: bool,
    /// Canaries so far: whoever waited for one need not have another.
    trials: u64,
    /// One at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Standing {
    fn outcome(&self) -> Option<&Outcome> {
        self.told.as_ref().map(|told| &told.outcome)
    }
}

/// What stands against a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    tool: String,
    what: String,
}

impl Mark {
    /// On which grounds it is cleared by a canary that somebody asked for, if it is.
    fn grounds(&self, trial: &ProbeRun, absolve: ClearMark, is_excepted: bool) -> Option<Grounds> {
        let is_held = trial.session.is_some() && trial.outcome == Outcome::Live;
        match (&trial.outcome, absolve) {
            (Outcome::Live, _) if is_held && self.is_answered_by(&trial.held) => Some(Grounds::Tried),
            (Outcome::Live, ClearMark::Yes) if is_held => Some(Grounds::LookedAt),
            (Outcome::NotTried { .. }, ClearMark::Yes) if is_excepted => Some(Grounds::LookedAtUntried),
            (Outcome::Live | Outcome::NotTried { .. } | Outcome::NotStopped { .. }, _) => None,
        }
    }

    /// Whether a canary that held the agent at these says anything of what it did.
    fn is_answered_by(&self, held: &[ProbeKind]) -> bool {
        match self.tool.as_str() {
            "write" | "edit" => held.contains(&ProbeKind::Write),
            "read" | "search" => held.contains(&ProbeKind::Read),
            "exec" => held.contains(&ProbeKind::Run),
            _ => false,
        }
    }
}

/// Whether whoever has an agent tried says that what it did was looked at, whatever the canary tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearMark {
    Yes,
    No,
}

/// A canary that somebody asked for, and what stood and stands against its subject.
#[derive(Debug, Clone)]
pub struct Tested {
    pub trial: ProbeRun,
    /// What stands against it now.
    pub mark: Option<String>,
    /// Why nothing does any more, if something did.
    pub cleared: Option<Grounds>,
    /// Whether its agents are run though nobody could try them.
    pub is_excepted: bool,
}

/// What a canary came to, and when.
#[derive(Debug, Clone)]
struct Told {
    outcome: Outcome,
    at: Timestamp,
    took: Duration,
}

/// How one subject stands, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryStatus {
    pub subject: ProbeSubject,
    pub agents: Vec<String>,
    /// `live`; `ungoverned` and `not_tried`, which are not run; `untried`, which is, because the operator says so; `waiting`,
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
        stages: impl IntoIterator<Item = (&'static str, Arc<dyn ProbeTarget>)>,
        config: &CanaryConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            governance: Arc::clone(governance),
            agents: Arc::clone(agents),
            stages: stages.into_iter().collect(),
            every: config.every,
            untried: config.untried.iter().cloned().collect(),
            known: Mutex::default(),
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
        })
    }

    /// Tries the agents of the roster that have hands, and then all of the backends again and again. Until the house leaves.
    pub async fn keep_trying(self: Arc<Self>) {
        for (subject, _) in self.subjects() {
            self.recall(&subject).await;
        }
        let Some(every) = self.every else { return };
        for (subject, stage) in self.subjects() {
            if stage.has_hands() && stage.obstacle(&subject.name).is_none() {
                self.first(&subject, Occasion::Start).await;
            }
        }
        while let Some(()) = self.leaving.run_until_cancelled(tokio::time::sleep(every)).await {
            for (subject, stage) in self.subjects() {
                if stage.obstacle(&subject.name).is_none() {
                    self.try_now(&subject, Occasion::Timer).await;
                }
            }
        }
    }

    /// Ends what is under way. Returns when it is over.
    pub async fn leave(&self) {
        self.leaving.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Tries the backend of an agent, because somebody wants to know. A good end clears what one of its agents did before, if
    /// that was tried, or somebody says that it was looked at. Where nobody can try it and the operator has it run all the same,
    /// that word is enough.
    pub async fn test(
        self: &Arc<Self>,
        agent: &AgentId,
        (by, absolve): (&str, ClearMark),
    ) -> Result<Tested, RuntimeError> {
        let subject = self.subject_of(agent).ok_or_else(|| {
            RuntimeError::new(
                "unsupported",
                format!("the backend of `{agent}` brings nothing to try it with"),
            )
        })?;
        self.recall(&subject).await;
        let trial = self.try_now(&subject, Occasion::Operator).await.ok_or_else(draining)?;
        let is_excepted = self.is_excepted(&subject);
        let mark = self.standing(&subject).marked;
        let grounds = mark.as_ref().and_then(|mark| mark.grounds(&trial, absolve, is_excepted));
        if let (Some(mark), Some(grounds)) = (mark, grounds) {
            // On record first: what is not written down is not lifted.
            record::cleared(&self.governance, &subject, &mark.tool, (by, grounds)).await.map_err(
                |error| {
                    RuntimeError::new(
                        "internal",
                        format!("the mark stays, because its end could not be recorded: {error}"),
                    )
                },
            )?;
            self.change(&subject, |standing| {
                // One that was made meanwhile is another one.
                if standing.marked.as_ref() == Some(&mark) {
                    standing.marked = None;
                }
            });
        }
        let mark = self.standing(&subject).marked.map(|mark| mark.what);
        Ok(Tested { trial, mark, cleared: grounds, is_excepted })
    }

    /// Whether agents of a subject are run though nobody could try them: the operator names it, or has nobody tried.
    fn is_excepted(&self, subject: &ProbeSubject) -> bool {
        self.every.is_none() || self.untried.contains(&subject.name)
    }

    /// Takes up what the log has against a subject from before this daemon was started.
    async fn recall(&self, subject: &ProbeSubject) {
        if self.standing(subject).is_recalled {
            return;
        }
        let marked = record::mark_of(&self.governance, subject).await;
        self.change(subject, |standing| {
            let mark = |tool: String| Mark { what: format!("`{tool}` was carried out without leave"), tool };
            if !std::mem::replace(&mut standing.is_recalled, true) && standing.marked.is_none() {
                standing.marked = marked.map(mark);
            }
        });
    }

    /// Whether an agent may be spoken to: a canary of its kind was stopped, and nothing stands against it. Waits for the first
    /// canary, and for another where the last one could not be tried.
    pub(crate) async fn admit(self: &Arc<Self>, agent: &AgentId) -> Result<(), RuntimeError> {
        let Some(subject) = self.subject_of(agent) else { return Ok(()) };
        let Some(stage) = self.stages.get(subject.backend.as_str()) else { return Ok(()) };
        self.recall(&subject).await;
        self.check(&subject, agent)?;
        if self.every.is_none() || !stage.has_hands() {
            return Ok(());
        }
        match stage.obstacle(&subject.name) {
            // Whoever would start it says so in its own words.
            Some(Obstacle::NotRunnable(_)) => return Ok(()),
            Some(Obstacle::NothingToTry(why)) => return self.excepted(&subject, agent, &why),
            None => {}
        }
        if self.wants_canary(&subject) {
            self.first(&subject, Occasion::FirstUse).await;
            self.check(&subject, agent)?;
        }
        match self.standing(&subject).outcome() {
            Some(Outcome::Live) => Ok(()),
            Some(Outcome::NotTried { why }) => self.excepted(&subject, agent, why),
            // Looked at above.
            Some(Outcome::NotStopped { .. }) => self.check(&subject, agent),
            None => Err(draining()),
        }
    }

    /// What stands against an agent by what is known already.
    fn check_known(&self, agent: &AgentId) -> Result<(), RuntimeError> {
        self.subject_of(agent).map_or(Ok(()), |subject| self.check(&subject, agent))
    }

    fn check(&self, subject: &ProbeSubject, agent: &AgentId) -> Result<(), RuntimeError> {
        let standing = self.standing(subject);
        let name = &subject.name;
        let refused = |what: String| Err(RuntimeError::new("ungoverned", what));
        if let Some(Outcome::NotStopped { what }) = standing.outcome() {
            return refused(format!(
                "UNGOVERNED: agents of `{name}` are not run, because its canary was not stopped ({what}): look at the settings of \
                 the profile, then run `tribune agents test {agent}`"
            ));
        }
        if let Some(Mark { what, .. }) = standing.marked {
            return refused(format!(
                "UNGOVERNED: agents of `{name}` are not run any more, because one did what nobody allowed ({what}): look at the \
                 session's record and the profile's settings, then run `tribune agents test {agent}`"
            ));
        }
        Ok(())
    }

    /// What could not be tried is run only if the operator says so.
    fn excepted(&self, subject: &ProbeSubject, agent: &AgentId, why: &str) -> Result<(), RuntimeError> {
        let name = &subject.name;
        if self.untried.contains(name) {
            return Ok(());
        }
        let what = format!(
            "agents of `{name}` are not run, because nobody knows whether the gate holds them: its canary could not be tried \
             ({why}); run `tribune agents test {agent}` to see how far it comes, or name `{name}` in canary.untried in \
             config.json5 to have it run all the same"
        );
        Err(RuntimeError::new("untried", what))
    }

    /// Whether nobody knows yet how the subject stands, and somebody has to.
    fn wants_canary(&self, subject: &ProbeSubject) -> bool {
        match self.standing(subject).outcome() {
            None => true,
            Some(Outcome::NotTried { .. }) => !self.untried.contains(&subject.name),
            Some(Outcome::Live | Outcome::NotStopped { .. }) => false,
        }
    }

    /// An agent did what nobody allowed. That is on record too, for whoever starts the daemon next.
    pub(crate) fn mark(&self, session: &SessionKey, tool: &str, what: &str) {
        let Some(subject) = self.subject_of(session.agent()) else { return };
        let mark = Mark { tool: tool.to_owned(), what: what.to_owned() };
        self.change(&subject, |standing| {
            // One that no canary answers is not covered up by one that is.
            if standing.marked.as_ref().is_none_or(|known| known.is_answered_by(&ProbeKind::ALL)) {
                standing.marked = Some(mark);
            }
        });
        let (governance, tool, session) =
            (Arc::clone(&self.governance), tool.to_owned(), Some(session.to_string()));
        self.tasks.spawn(async move {
            record::marked(&governance, &subject, (&tool, session)).await;
        });
    }

    /// How all of them stand.
    pub fn standpoints(&self) -> Vec<CanaryStatus> {
        let mut all: BTreeMap<ProbeSubject, Vec<String>> = BTreeMap::new();
        for agent in self.agents.all() {
            if let Some(subject) = self.subject_of(&agent.id) {
                all.entry(subject).or_default().push(agent.id.to_string());
            }
        }
        all.into_iter().map(|(subject, agents)| self.standpoint(subject, agents)).collect()
    }

    /// How the one of an agent stands, in words.
    fn told_of(&self, agent: &AgentId) -> Option<String> {
        let subject = self.subject_of(agent)?;
        let CanaryStatus { state, detail, at, .. } = self.standpoint(subject, vec![agent.to_string()]);
        let (detail, at) = (detail.unwrap_or_default(), at.map(|at| at.to_string()).unwrap_or_default());
        Some(match state {
            "live" => format!("live, tried at {at}"),
            "ungoverned" => format!("UNGOVERNED, so that the agent is not run: {detail}"),
            "not_tried" => format!("not tried, so that the agent is not run: {detail}"),
            "untried" => format!("not tried, and run because canary.untried names it: {detail}"),
            "running" => "being tried".to_owned(),
            "off" => "nobody tries whether it holds".to_owned(),
            _ => "not tried yet".to_owned(),
        })
    }

    fn standpoint(&self, subject: ProbeSubject, agents: Vec<String>) -> CanaryStatus {
        let Standing { told, marked, is_running, .. } = self.standing(&subject);
        let stage = self.stages.get(subject.backend.as_str());
        let obstacle = stage.and_then(|stage| stage.obstacle(&subject.name));
        let not_tried = if self.untried.contains(&subject.name) { "untried" } else { "not_tried" };
        let outcome = told.as_ref().map(|told| &told.outcome);
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
        let (at, took) = (told.as_ref().map(|told| told.at), told.map(|told| told.took));
        CanaryStatus { subject, agents, state, detail, at, took }
    }

    fn standing(&self, subject: &ProbeSubject) -> Standing {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(subject.clone()).or_default().clone()
    }

    fn subject_of(&self, agent: &AgentId) -> Option<ProbeSubject> {
        let agent = self.agents.agent(agent)?;
        let stage = self.stages.get(agent.backend.as_str())?;
        let name = stage.subject(agent.profile.as_deref())?;
        Some(ProbeSubject { backend: agent.backend, name })
    }

    /// What the roster stands for, each once.
    fn subjects(&self) -> Vec<(ProbeSubject, Arc<dyn ProbeTarget>)> {
        let all = self.agents.all().into_iter().filter_map(|agent| {
            let subject = self.subject_of(&agent.id)?;
            let stage = Arc::clone(self.stages.get(subject.backend.as_str())?);
            Some((subject, stage))
        });
        all.collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// Tries a subject of which nothing is known; whoever comes meanwhile waits for the same canary.
    async fn first(self: &Arc<Self>, subject: &ProbeSubject, occasion: Occasion) {
        let Standing { turn, trials, .. } = self.standing(subject);
        let (canaries, subject) = (Arc::clone(self), subject.clone());
        let trying = self.tasks.spawn(async move {
            let _turn = turn.lock_owned().await;
            if canaries.standing(&subject).trials == trials && canaries.wants_canary(&subject) {
                canaries.carry_out(&subject, occasion).await;
            }
        });
        // It fails only when the daemon is being torn down.
        let _ = trying.await;
    }

    /// Tries a subject, whatever is known of it. Nothing if the house leaves meanwhile.
    async fn try_now(self: &Arc<Self>, subject: &ProbeSubject, occasion: Occasion) -> Option<ProbeRun> {
        let turn = Arc::clone(&self.standing(subject).turn);
        let (canaries, subject) = (Arc::clone(self), subject.clone());
        let trying = self.tasks.spawn(async move {
            let _turn = turn.lock_owned().await;
            canaries.carry_out(&subject, occasion).await
        });
        trying.await.ok().flatten()
    }

    async fn carry_out(&self, subject: &ProbeSubject, occasion: Occasion) -> Option<ProbeRun> {
        let stage = Arc::clone(self.stages.get(subject.backend.as_str())?);
        self.change(subject, |standing| standing.is_running = true);
        let trying = probe_run::try_out(&self.governance, &*stage, subject);
        let trial = self.leaving.run_until_cancelled(trying).await;
        self.change(subject, |standing| standing.is_running = false);
        let trial = trial?;
        let (at, told) = (self.governance.clock.now(), trial.outcome.clone());
        let told = Told { outcome: told, at, took: trial.took };
        // What could not begin says nothing of the agent: it takes away nothing that is known of it.
        let is_known = trial.session.is_some() && !self.governance.gate.is_frozen();
        if is_known {
            record::write(&self.governance, subject, &trial, occasion).await;
        }
        self.change(subject, |standing| {
            standing.trials += 1;
            // What stands against it from a turn stays: somebody looks at what happened; a clock does not.
            if is_known || standing.told.is_none() {
                standing.told = Some(told);
            }
        });
        match &trial.outcome {
            Outcome::Live => {
                tracing::info!(subject = subject.name, took = millis(trial.took), "a canary was stopped")
            }
            Outcome::NotTried { why } => {
                tracing::warn!(subject = subject.name, why, "a canary could not be tried")
            }
            Outcome::NotStopped { what } => tracing::error!(
                subject = subject.name,
                what,
                "UNGOVERNED: a canary was not stopped, and its agents are not run"
            ),
        }
        Some(trial)
    }

    fn change(&self, subject: &ProbeSubject, change: impl FnOnce(&mut Standing)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(subject.clone()).or_default());
    }
}

fn draining() -> RuntimeError {
    RuntimeError::new("draining", "the daemon is stopping and tries nothing any more")
}
