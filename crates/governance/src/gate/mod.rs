//! The one gate. Whatever an agent wants to do to the world comes here first, from every backend and every door.
//!
//! Deciding is a pure function of the law and the facts ([`tribune_constitution`]); this gathers the facts, asks for
//! the verdict, and turns an allowed call into an [`Admission`] once its verdict is durable. Nothing that acts takes
//! anything else.

mod admission;
mod exception_quota;
mod freeze;
pub mod hooks;
mod label_store;
mod stop_signal;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tribune_constitution::facts::FACTS_VERSION;
use tribune_constitution::provenance::{ArgumentUse, is_from_owner};
use tribune_constitution::{
    ApprovalMode, ArgumentProvenance, CallArgs, Capability, Constitution, DecisionStage, Facts, Labels,
    OriginalCall, SessionKind, ToolManifest, Verdict, Veto,
};
use tribune_ledger::cid::Domain;
use tribune_ledger::{Cid, jcs};
use tribune_redact::Redactor;
use tribune_runtime::{AgentId, SessionKey, ToolCall, ToolSpec};

pub use self::admission::Admission;
pub(crate) use self::admission::Ticket;
use self::exception_quota::ExceptionQuota;
use self::freeze::Freeze;
use self::hooks::Hooks;
pub use self::label_store::{CallEnd, LabelChange, schedule};
use self::stop_signal::StopSignal;
use tribune_records::approval::action::{Action, Files};
use tribune_records::approval::approver::Approver;
use tribune_records::approval::grant;
use tribune_records::approval::grant::GrantQuery;
use tribune_records::approval::record::Requested;
use tribune_records::ledger_payloads::LabelRecord;
use tribune_records::outcome::{Access, Resource};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_registry::Agents;
use tribune_storage::clock::Clock;
use tribune_storage::store::{LedgerWriter, Readers, SessionRow, StoreError};

use crate::approval::Inbox;
use crate::turn::CallDependencies;

/// How long a call waits for a person where the law does not say otherwise.
const DEFAULT_EXPIRY: Duration = Duration::from_secs(24 * 60 * 60);

/// Who objects to a tool that a sub-agent was not given.
const NARROWED: &str = "spawn.narrowed";

/// The gate of a daemon.
#[derive(Debug)]
pub struct Gate {
    pub law: Arc<Constitution>,
    pub inbox: Inbox,
    /// Whether someone can be asked at all.
    pub approvers: ApproverAvailability,
    pub hooks: Hooks,
    redactor: Arc<Redactor>,
    freeze: Freeze,
    pub stop_signal: StopSignal,
    uses: ExceptionQuota,
    ledger: LedgerWriter,
    readers: Readers,
    clock: Clocked,
    /// The roster, which says how far each agent is let go.
    agents: Option<Arc<Agents>>,
    /// Hash of what agents are told of each built-in tool, by name.
    schema_pins: HashMap<String, String>,
}

/// Whether anyone may approve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApproverAvailability {
    Someone,
    Nobody,
}

struct Clocked(Arc<dyn Clock>);

impl std::fmt::Debug for Clocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// A session as the gate looks at it.
#[derive(Debug, Clone)]
pub struct PolicyContext {
    pub key: Arc<SessionKey>,
    /// Its own mandate, then those of whoever started it.
    pub(crate) mandates: Vec<String>,
    /// The only tools it may use, if whoever started it said so.
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) labels: Labels,
    /// Where it works.
    pub ground: WorkspaceRoots,
}

impl PolicyContext {
    /// A session as the log tells of it. None if its name is none.
    pub fn of(row: &SessionRow) -> Option<Self> {
        let key: Arc<SessionKey> = Arc::new(row.key.parse().ok()?);
        Some(Self {
            ground: row.ground(key.agent()),
            key,
            mandates: row.mandates().collect(),
            tools: row.tools.clone(),
            labels: row.labels,
        })
    }

    /// Where it works.
    pub fn ground(&self) -> WorkspaceRoots {
        self.ground.clone()
    }

    /// Its own mandate.
    pub(crate) fn mandate(&self) -> &str {
        self.mandates.first().map_or("", String::as_str)
    }

    /// What stands against a tool that the session was not given when it was started.
    fn narrowed(&self, tool: &str) -> Option<Veto> {
        let tools = self.tools.as_ref()?;
        let is_given = tools.iter().any(|given| given == tool);
        let reason = "this sub-agent was started with other tools: do without, or leave it to who started it";
        (!is_given).then(|| Veto::new(NARROWED, reason))
    }
}

/// A call that is to be judged.
pub(crate) struct AuthorizationRequest<'a> {
    pub(crate) standing: &'a PolicyContext,
    pub(crate) tool: &'a str,
    pub(crate) stage: DecisionStage,
    /// None while the list of tools is made.
    pub(crate) input: Option<&'a Value>,
    /// The input before a hook narrowed it, if one did.
    pub(crate) asked: Option<&'a Value>,
    /// The files that its outcome depends on. Reads the disk.
    pub(crate) runs: &'a dyn Fn() -> Files,
    /// What the owner said in this turn.
    pub(crate) owner_words: &'a [&'a str],
    pub(crate) vetoes: Vec<Veto>,
    /// A person's decision about exactly this call.
    pub(crate) approval: Option<&'a str>,
}

/// A verdict with what it was made from. Only the gate makes one.
#[derive(Debug)]
pub(crate) struct Authorization {
    facts: Facts,
    verdict: Verdict,
}

/// A yes: what a ticket is made from. Only a judgement gives one.
#[derive(Debug)]
pub(crate) struct AllowToken {
    labels: Labels,
}

impl Authorization {
    /// Leave to go on, if the call may run now.
    pub(crate) fn leave(&self) -> Option<AllowToken> {
        self.verdict.is_allowed().then_some(AllowToken { labels: self.facts.labels })
    }

    /// For the record.
    pub(crate) fn into_parts(self) -> (Facts, Verdict) {
        (self.facts, self.verdict)
    }
}

impl Gate {
    pub fn new(
        law: Arc<Constitution>,
        inbox: Inbox,
        approvers: ApproverAvailability,
        (ledger, readers, clock): (LedgerWriter, Readers, Arc<dyn Clock>),
    ) -> Result<Self, StoreError> {
        let freeze = Freeze::load(&readers)?;
        Ok(Self {
            law,
            inbox,
            approvers,
            hooks: Hooks::default(),
            redactor: Arc::default(),
            freeze,
            stop_signal: StopSignal::default(),
            uses: ExceptionQuota::default(),
            ledger,
            readers,
            clock: Clocked(clock),
            agents: None,
            schema_pins: HashMap::new(),
        })
    }

    /// With programs of the operator's that have a word in it.
    pub fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// With those whose modes count.
    pub fn with_agents(self, agents: Arc<Agents>) -> Self {
        Self { agents: Some(agents), ..self }
    }

    /// With what takes secrets out of the facts.
    pub fn with_redactor(self, redactor: Arc<Redactor>) -> Self {
        Self { redactor, ..self }
    }

    /// With the built-in tools, whose schemas approvals and grants are bound to.
    pub fn with_tools(self, specs: &[ToolSpec]) -> Self {
        let pin = |spec: &ToolSpec| {
            let schema = jcs::to_vec(&spec.input_schema).unwrap_or_default();
            let hash = Domain::Action.hash(&[b"schema", spec.description.as_bytes(), b"\n", &schema]);
            (spec.name.clone(), Cid::from_bytes(hash).to_string())
        };
        Self { schema_pins: specs.iter().map(pin).collect(), ..self }
    }

    /// Hash of what agents are told of a tool; empty for a tool that is not built in.
    pub(crate) fn schema_pin(&self, tool: &str) -> String {
        self.schema_pins.get(tool).cloned().unwrap_or_default()
    }

    /// Judges a call.
    pub(crate) fn judge(&self, inquiry: AuthorizationRequest<'_>) -> Result<Authorization, StoreError> {
        let facts = self.facts(inquiry);
        let (facts, verdict) = self.uses.decide(&self.law, facts, &self.readers, self.clock.0.now())?;
        Ok(Authorization { facts, verdict })
    }

    /// How a call would be judged now. Nothing follows from it, and nothing is counted.
    pub(crate) fn preview(&self, inquiry: AuthorizationRequest<'_>) -> Verdict {
        self.law.decide(&self.facts(inquiry))
    }

    fn facts(&self, inquiry: AuthorizationRequest<'_>) -> Facts {
        let AuthorizationRequest {
            standing,
            tool,
            stage,
            input,
            asked,
            runs,
            owner_words,
            mut vetoes,
            approval,
        } = inquiry;
        vetoes.extend(standing.narrowed(tool));
        let key = &standing.key;
        let words = |input: &Value| self.as_asked(standing, (tool, input), runs, owner_words);
        let none =
            || OriginalCall { provenance: ArgumentProvenance::Other, args: CallArgs::default(), grant: None };
        let OriginalCall { provenance, args, grant } = input.map_or_else(none, words);
        Facts {
            v: FACTS_VERSION,
            stage,
            agent: key.agent().to_string(),
            session: key.to_string(),
            kind: if key.is_subagent() { SessionKind::Subagent } else { SessionKind::Main },
            channel: key.channel().unwrap_or("none").to_owned(),
            mandates: standing.mandates.clone(),
            tool: tool.to_owned(),
            labels: standing.labels,
            provenance,
            args,
            frozen: self.freeze.is_on(),
            approver: self.approvers == ApproverAvailability::Someone,
            grant,
            approval: approval.map(str::to_owned),
            exception_uses: Default::default(),
            vetoes,
            original_call: asked.map(words).map(Box::new),
            approval_mode: self.mode_of(key.agent()),
        }
    }

    /// What the law may know of the arguments of a call.
    fn as_asked(
        &self,
        standing: &PolicyContext,
        (tool, input): (&str, &Value),
        runs: &dyn Fn() -> Files,
        owner_words: &[&str],
    ) -> OriginalCall {
        let key = &standing.key;
        let ground = &standing.ground;
        let mut args = grant::args_of(tool, input, ground.further());
        // The folder may itself be one that programs of this machine obey.
        if let (Some(path), Some(folder)) = (&args.path, args.folder.as_deref().or(ground.folder_name())) {
            args.is_autorun |= tribune_contract::is_autorun_path_in(Path::new(folder), path);
        }
        let schema = self.schema_pin(tool);
        let call = GrantQuery {
            agent: key.agent().as_str(),
            session: key.as_str(),
            tool,
            schema: &schema,
            input,
            args: &args,
            labels: standing.labels,
            folder: args.folder.as_deref().or(ground.folder_name()),
            further: ground.further(),
        };
        // Only a command is granted with what it runs.
        let grant = self.inbox.grant_for(&call, || if tool == "exec" { runs() } else { Files::default() });
        // Facts are in the ledger, where no secret belongs, so the law never sees one either.
        let args = args.map_texts(|text| self.redactor.redact(text).into_owned());
        // Of a tool that nobody knows, every argument may be an order.
        let taken_as = self.law.manifest(tool).map_or(ArgumentUse::Instructions, ToolManifest::argument_use);
        let owners = is_from_owner(input, taken_as, owner_words);
        OriginalCall {
            provenance: if owners { ArgumentProvenance::Owner } else { ArgumentProvenance::Other },
            args,
            grant,
        }
    }

    /// Exactly what a call would do, where its outcome depends on these files.
    pub(crate) fn action(
        &self,
        dependencies: CallDependencies,
        standing: &PolicyContext,
        call: &ToolCall,
    ) -> Action {
        let CallDependencies { files, texts, cwd, env } = dependencies;
        Action {
            tool: call.name.clone(),
            schema: self.schema_pin(&call.name),
            input: call.input.clone(),
            files,
            cwd,
            env,
            constitution: self.law.hash().to_string(),
            labels: standing.labels,
            texts,
            workspace: grant::folder_of(&standing.ground, call),
            further: standing.ground.further().to_vec(),
        }
    }

    /// The same for a call that someone else carries out: what it depends on there is not known here.
    pub(crate) fn action_elsewhere(&self, standing: &PolicyContext, call: &ToolCall) -> Action {
        Action {
            tool: call.name.clone(),
            schema: String::new(),
            input: call.input.clone(),
            files: Default::default(),
            cwd: None,
            env: Vec::new(),
            constitution: self.law.hash().to_string(),
            labels: standing.labels,
            texts: Default::default(),
            workspace: grant::folder_of(&standing.ground, call),
            further: standing.ground.further().to_vec(),
        }
    }

    /// Who may decide about a call of this tool, how many must agree, and until when.
    pub(crate) fn terms(&self, tool: &str) -> (Vec<String>, u32, String) {
        let approvals = &self.law.settings().approvals;
        let roles = approvals.roles_for(tool).into_iter().map(str::to_owned).collect();
        let needs = if approvals.two_person.contains(tool) { 2 } else { 1 };
        let wait =
            approvals.expires_minutes.map_or(DEFAULT_EXPIRY, |minutes| Duration::from_secs(minutes * 60));
        (roles, needs, self.clock.0.now().plus(wait).to_string())
    }

    /// How labels move when a call is over. `tool` is the one that ran, if it did.
    pub fn moved(
        &self,
        standing: &PolicyContext,
        tool: Option<&str>,
        touched: (&[Access], CallEnd),
    ) -> Result<LabelChange, StoreError> {
        let output = tool.map(|tool| self.law.manifest(tool));
        let (ground, readers, redactor) = (&standing.ground(), &self.readers, &*self.redactor);
        label_store::moved(
            label_store::LabelStore { ground, readers, redactor },
            standing.labels,
            output,
            touched,
        )
    }

    /// What a call of which nobody knows how it ended may have left behind.
    pub(crate) fn left_behind(
        &self,
        standing: &PolicyContext,
        tool: &str,
    ) -> Result<Vec<LabelRecord>, StoreError> {
        let writes =
            |capability: &Capability| matches!(capability, Capability::FsWrite | Capability::ProcExec);
        let manifest = self.law.manifest(tool);
        if manifest.is_some_and(|manifest| !manifest.capabilities.iter().any(writes)) {
            return Ok(Vec::new());
        }
        // Any file may be one that it wrote.
        let touched: Vec<Access> = Resource::all_of(&standing.ground).map(Access::Wrote).collect();
        Ok(self.moved(standing, None, (&touched, CallEnd::Badly))?.wrote)
    }

    /// The labels of a letter: those of whoever wrote it, if that was one of ours, and never the owner's own word.
    pub(crate) fn letter_labels(&self, id: &str) -> Result<Labels, StoreError> {
        Ok(self.stored_labels(&format!("letter:{id}"))?.for_sub_agent())
    }

    /// The labels of words that were stored under this name. Nobody stands behind what has none.
    pub(crate) fn stored_labels(&self, resource: &str) -> Result<Labels, StoreError> {
        let stored = self.readers.now(|reader| reader.labels(resource))?;
        Ok(stored.unwrap_or(Labels::UNKNOWN))
    }

    /// Whether a session has a tool: all its mandates give it, and whoever started it did not take it away.
    pub fn allows_tool(&self, row: &SessionRow, tool: &str) -> bool {
        row.tools.as_ref().is_none_or(|tools| tools.iter().any(|given| given == tool))
            && row.mandates().all(|name| self.law.mandate(&name).is_some_and(|mandate| mandate.allows(tool)))
    }

    /// How far an agent is let go, if its line in the roster says.
    pub fn mode_of(&self, agent: &AgentId) -> Option<ApprovalMode> {
        self.agents.as_ref()?.agent(agent)?.mode
    }

    /// How risky a tool is, in the words of its manifest.
    pub(crate) fn risk(&self, tool: &str) -> &'static str {
        self.law.manifest(tool).map_or("unknown", |manifest| manifest.risk_level.as_str())
    }

    pub fn is_frozen(&self) -> bool {
        self.freeze.is_on()
    }

    /// The time, as records have it.
    pub(crate) fn now(&self) -> String {
        self.clock.0.now().to_string()
    }

    /// Stops everything that is to come; what runs is for the sessions to end.
    pub async fn freeze(&self, who: &Approver) -> Result<(), StoreError> {
        self.freeze.freeze(&self.ledger, &*self.clock.0, &who.id).await
    }

    pub async fn unfreeze(&self, who: &Approver) -> Result<(), StoreError> {
        self.freeze.resume(&self.ledger, &*self.clock.0, &who.id).await
    }

    /// Whether a request that comes back is for the same action.
    pub(crate) fn still_fits(&self, requested: &Requested, action: &Action) -> bool {
        action.digest().is_ok_and(|digest| digest == requested.digest)
    }
}
