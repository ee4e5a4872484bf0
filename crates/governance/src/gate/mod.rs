//! The gate: the policy enforcement point. Every action of an agent passes here first, from every backend and every API.
//!
//! The decision is a pure function of the law and the facts ([`tribune_constitution`]). The gate collects the facts, requests
//! the verdict, and turns an allowed call into an [`Admission`] once the verdict is durable. Code that executes a call takes
//! an `Admission` and nothing else.

mod admission;
mod authorization;
mod exception_quota;
mod freeze;
pub mod hooks;
mod label_name;
mod label_store;
mod owner_words;
mod policy_context;
mod stop_signal;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tribune_constitution::facts::FACTS_VERSION;
use tribune_constitution::provenance::{ArgumentUse, WordsUse};
use tribune_constitution::{
    ApprovalMode, ArgumentProvenance, CallArgs, Capability, Constitution, DecisionStage, Facts, LAND, Labels,
    OriginalCall, SessionKind, ToolEffect, ToolManifest, Verdict, Veto,
};
use tribune_ledger::cid::Domain;
use tribune_ledger::{Cid, jcs};
use tribune_redact::Redactor;
use tribune_runtime::{AgentId, ToolCall, ToolSpec};

pub use self::admission::Admission;
pub(crate) use self::admission::PendingAdmission;
pub(crate) use self::authorization::{AllowToken, Authorization, AuthorizationRequest};
use self::exception_quota::ExceptionQuota;
use self::freeze::Freeze;
use self::hooks::Hooks;
pub(crate) use self::label_name::LabelName;
pub use self::label_name::schedule;
use self::label_store::LabelStore;
pub use self::label_store::{CallEnd, LabelChange, SandboxWrites};
pub(crate) use self::owner_words::OwnerWords;
pub use self::policy_context::PolicyContext;
use self::stop_signal::StopSignal;
use tribune_records::agents::is_unregistered;
use tribune_records::approval::action::{Action, Files};
use tribune_records::approval::approver::Approver;
use tribune_records::approval::call_args::args_of;
use tribune_records::approval::call_roots::CallRoots;
use tribune_records::approval::grant::GrantQuery;
use tribune_records::approval::record::Requested;
use tribune_records::exec::EXEC;
use tribune_records::ledger_payloads::LabelRecord;
use tribune_records::outcome::{Access, Resource};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_registry::Agents;
use tribune_storage::store::{SessionRow, StoreError};

use crate::approval::Inbox;
use crate::storage_handles::StorageHandles;
use crate::turn::CallDependencies;

/// How long a call waits for a person unless the law sets another time.
const DEFAULT_EXPIRY: Duration = Duration::from_secs(24 * 60 * 60);

/// The tools that write to the mailbox of another agent.
const MAILBOX_TOOLS: [&str; 2] = ["message", "send_message"];

/// Name of the veto against a message that its recipient does not accept.
const NOT_ACCEPTED: &str = "mailbox.not_accepted";
/// Name of the veto against the calls of a session that a person stopped.
const SESSION_STOPPED: &str = "session.stopped";

/// The gate of a daemon.
#[derive(Debug)]
pub struct Gate {
    pub law: Arc<Constitution>,
    pub inbox: Inbox,
    /// Whether any approver can be asked.
    approvers: ApproverAvailability,
    pub hooks: Hooks,
    redactor: Arc<Redactor>,
    freeze: Freeze,
    pub stop_signal: StopSignal,
    uses: ExceptionQuota,
    storage: StorageHandles,
    /// The roster, which holds the approval mode of each agent.
    agents: Option<Arc<Agents>>,
    /// Hash of the description and schema of each built-in tool, by name.
    schema_pins: HashMap<String, String>,
}

/// Whether any approver is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApproverAvailability {
    Someone,
    Nobody,
}

impl Gate {
    pub fn new(
        law: Arc<Constitution>,
        inbox: Inbox,
        approvers: ApproverAvailability,
        storage: StorageHandles,
    ) -> Result<Self, StoreError> {
        let freeze = Freeze::load(&storage.readers)?;
        Ok(Self {
            law,
            inbox,
            approvers,
            hooks: Hooks::default(),
            redactor: Arc::default(),
            freeze,
            stop_signal: StopSignal::default(),
            uses: ExceptionQuota::default(),
            storage,
            agents: None,
            schema_pins: HashMap::new(),
        })
    }

    /// Sets the operator's hooks.
    pub fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// Sets the roster, whose approval modes apply.
    pub fn with_agents(self, agents: Arc<Agents>) -> Self {
        Self { agents: Some(agents), ..self }
    }

    /// Sets the redactor that removes secrets from the facts.
    pub fn with_redactor(self, redactor: Arc<Redactor>) -> Self {
        Self { redactor, ..self }
    }

    /// Sets the built-in tools. Approvals and grants are bound to their schemas.
    pub fn with_tools(self, specs: &[ToolSpec]) -> Self {
        let pin = |spec: &ToolSpec| {
            let schema = jcs::to_vec(&spec.input_schema).unwrap_or_default();
            let hash = Domain::Action.hash(&[b"schema", spec.description.as_bytes(), b"\n", &schema]);
            (spec.name.clone(), Cid::from_bytes(hash).to_string())
        };
        Self { schema_pins: specs.iter().map(pin).collect(), ..self }
    }

    /// Hash of a tool's description and schema; empty for a tool that is not built in.
    pub(crate) fn schema_pin(&self, tool: &str) -> String {
        self.schema_pins.get(tool).cloned().unwrap_or_default()
    }

    /// Decides a call, and counts the exception that the verdict relies on.
    pub(crate) fn judge(&self, request: AuthorizationRequest<'_>) -> Result<Authorization, StoreError> {
        let AuthorizationRequest { tool, stage, call_id, input, owner_words, .. } = request;
        let facts = self.facts(request);
        let (facts, verdict) =
            self.uses.decide(&self.law, facts, &self.storage.readers, self.storage.clock.now())?;
        let is_owners = facts.provenance == ArgumentProvenance::Owner && stage == DecisionStage::Call;
        if let (Some(words), Some(input), true) = (owner_words, input, is_owners && verdict.is_offered()) {
            let (argument_use, words_use) = self.provenance_terms(tool);
            if words_use == WordsUse::Once {
                words.use_up(call_id, input, argument_use);
            }
        }
        Ok(Authorization { facts, verdict })
    }

    /// The verdict that a call would get now. It authorizes nothing and counts no exception.
    pub(crate) fn preview(&self, request: AuthorizationRequest<'_>) -> Verdict {
        self.law.decide(&self.facts(request))
    }

    fn facts(&self, request: AuthorizationRequest<'_>) -> Facts {
        let AuthorizationRequest {
            context,
            tool,
            stage,
            call_id,
            input,
            original_input,
            runs,
            owner_words,
            mut vetoes,
            approval,
        } = request;
        vetoes.extend(context.tool_restriction(tool));
        vetoes.extend(self.session_stop(context, tool));
        let key = &context.key;
        let arguments = |input: &Value| {
            let (argument_use, words_use) = self.provenance_terms(tool);
            let is_owners =
                owner_words.is_some_and(|words| words.contain(call_id, input, argument_use, words_use));
            let provenance = if is_owners { ArgumentProvenance::Owner } else { ArgumentProvenance::Other };
            let (args, grant) = self.argument_facts(context, tool, input, runs);
            OriginalCall { provenance, args, grant }
        };
        let none =
            || OriginalCall { provenance: ArgumentProvenance::Other, args: CallArgs::default(), grant: None };
        let OriginalCall { provenance, args, grant } = input.map_or_else(none, arguments);
        Facts {
            v: FACTS_VERSION,
            stage,
            agent: key.agent().to_string(),
            session: key.to_string(),
            kind: if key.is_subagent() { SessionKind::Subagent } else { SessionKind::Main },
            channel: key.channel().unwrap_or("none").to_owned(),
            mandates: context.mandates.clone(),
            tool: tool.to_owned(),
            labels: context.labels,
            provenance,
            args,
            frozen: self.freeze.is_on(),
            approver: self.approvers == ApproverAvailability::Someone,
            guest: is_unregistered(key.agent().as_str()),
            grant,
            approval: approval.map(str::to_owned),
            exception_uses: Default::default(),
            vetoes,
            original_call: original_input.map(arguments).map(Box::new),
            approval_mode: self.mode_of(key.agent()),
        }
    }

    /// The veto against every call of a session that a person stopped. Landing its changes is not an act of the agent.
    fn session_stop(&self, context: &PolicyContext, tool: &str) -> Option<Veto> {
        let reason = self.session_stop_reason(context.key.as_str()).filter(|_| tool != LAND)?;
        Some(Veto::new(SESSION_STOPPED, &reason))
    }

    /// Why nothing of a session runs, if a person stopped it.
    pub(crate) fn session_stop_reason(&self, session: &str) -> Option<String> {
        let by = self.inbox.stopped_by(session)?;
        Some(format!(
            "{by} denied a call of this session and stopped it: nothing runs until its owner speaks in it again"
        ))
    }

    /// How a tool uses its arguments, and whether a call of it uses up the owner's words.
    fn provenance_terms(&self, tool: &str) -> (ArgumentUse, WordsUse) {
        let manifest = self.law.manifest(tool);
        // Every argument of an unknown tool may be an instruction.
        let argument_use = manifest.map_or(ArgumentUse::Instructions, ToolManifest::argument_use);
        let only_reads = manifest.is_some_and(|manifest| manifest.effect == ToolEffect::ReadOnly);
        (argument_use, if only_reads { WordsUse::Reusable } else { WordsUse::Once })
    }

    /// The facts about the arguments of a call, and the standing grant that covers it.
    fn argument_facts(
        &self,
        context: &PolicyContext,
        tool: &str,
        input: &Value,
        runs: &dyn Fn() -> Option<Files>,
    ) -> (CallArgs, Option<String>) {
        let key = &context.key;
        let ground = &context.ground;
        let mut args = args_of(tool, input, ground.additional_directories());
        if self.law.manifest(tool).is_none() {
            args.note_addresses(input);
        }
        // The workspace folder itself may lie below an autorun path.
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
            labels: context.labels,
            roots: &CallRoots::of_args(ground, &args),
        };
        // Only grants for commands are bound to the files that the command runs.
        let files = || if tool == EXEC { runs() } else { Some(Files::default()) };
        let grant = self.inbox.grant_for(&call, files);
        // Facts are written to the ledger, which must hold no secrets, so they are redacted before the law sees them.
        let args = args.map_texts(|text| self.redactor.redact(text).into_owned());
        (args, grant)
    }

    /// The exact action of a call, including the files and environment that its outcome depends on.
    pub(crate) fn action(
        &self,
        dependencies: CallDependencies,
        context: &PolicyContext,
        call: &ToolCall,
    ) -> Action {
        let CallDependencies { files, not_bound, tree, texts, cwd, env } = dependencies;
        Action {
            tool: call.name.clone(),
            schema: self.schema_pin(&call.name),
            input: call.input.clone(),
            files,
            not_bound,
            tree,
            cwd,
            env,
            constitution: self.law.hash().to_string(),
            labels: context.labels,
            texts,
            roots: CallRoots::of_call(&context.ground, call),
        }
    }

    /// The action of a call that an external harness executes. Its dependencies there are unknown.
    pub(crate) fn action_elsewhere(&self, context: &PolicyContext, call: &ToolCall) -> Action {
        Action {
            tool: call.name.clone(),
            schema: String::new(),
            input: call.input.clone(),
            files: Default::default(),
            not_bound: Vec::new(),
            tree: None,
            cwd: None,
            env: Vec::new(),
            constitution: self.law.hash().to_string(),
            labels: context.labels,
            texts: Default::default(),
            roots: CallRoots::of_call(&context.ground, call),
        }
    }

    /// The roles that may decide about a call of this tool, the number of approvals needed, and the expiry.
    pub(crate) fn terms(&self, tool: &str) -> (Vec<String>, u32, String) {
        let approvals = &self.law.settings().approvals;
        let roles = approvals.roles_for(tool).into_iter().map(str::to_owned).collect();
        let needs = if approvals.two_person.contains(tool) { 2 } else { 1 };
        let wait =
            approvals.expires_minutes.map_or(DEFAULT_EXPIRY, |minutes| Duration::from_secs(minutes * 60));
        (roles, needs, self.storage.clock.now().plus(wait).to_string())
    }

    /// The label changes after a call. `tool` is the tool that ran, if one ran.
    pub fn propagate_labels(
        &self,
        context: &PolicyContext,
        tool: Option<&str>,
        touched: &[Access],
        end: CallEnd,
    ) -> Result<LabelChange, StoreError> {
        let output = tool.map(|tool| self.law.manifest(tool));
        let store = self.label_store(&context.ground);
        label_store::propagate_labels(store, context.labels, output, touched, end)
    }

    /// The labels of what the sandbox of a session writes in a folder of the operator.
    pub(crate) fn sandbox_writes(
        &self,
        folder: &WorkspaceRoots,
        session: Labels,
        writes: SandboxWrites<'_>,
    ) -> Result<Vec<LabelRecord>, StoreError> {
        label_store::sandbox_writes(self.label_store(folder), session, writes)
    }

    fn label_store<'g>(&'g self, ground: &'g WorkspaceRoots) -> LabelStore<'g> {
        LabelStore { ground, readers: &self.storage.readers, redactor: &self.redactor }
    }

    /// The labels of everything that a call with unknown outcome may have written.
    pub(crate) fn possible_writes(
        &self,
        context: &PolicyContext,
        tool: &str,
    ) -> Result<Vec<LabelRecord>, StoreError> {
        let writes =
            |capability: &Capability| matches!(capability, Capability::FsWrite | Capability::ProcExec);
        let manifest = self.law.manifest(tool);
        if manifest.is_some_and(|manifest| !manifest.capabilities.iter().any(writes)) {
            return Ok(Vec::new());
        }
        // It may have written any file.
        let touched: Vec<Access> = Resource::all_of(&context.ground).map(Access::Wrote).collect();
        Ok(self.propagate_labels(context, None, &touched, CallEnd::Badly)?.wrote)
    }

    /// The labels of a mailbox message: those of its sender, if that was an agent of this daemon, but never those of the owner's
    /// own words.
    pub(crate) fn message_labels(&self, id: &str) -> Result<Labels, StoreError> {
        Ok(self.stored_labels(&LabelName::message(id))?.for_sub_agent())
    }

    /// The labels stored under this name, or [`Labels::UNKNOWN`] if there are none.
    pub(crate) fn stored_labels(&self, name: &LabelName) -> Result<Labels, StoreError> {
        let stored = label_store::labels_under(name, &self.storage.readers, &self.redactor)?;
        Ok(stored.unwrap_or(Labels::UNKNOWN))
    }

    /// Whether a session has a tool: all its mandates allow it, and its parent did not exclude it.
    pub fn allows_tool(&self, row: &SessionRow, tool: &str) -> bool {
        row.inherited.tools.as_ref().is_none_or(|tools| tools.iter().any(|given| given == tool))
            && row.mandates().all(|name| self.law.mandate(&name).is_some_and(|mandate| mandate.allows(tool)))
    }

    /// The approval mode of an agent, if its roster line sets one.
    pub fn mode_of(&self, agent: &AgentId) -> Option<ApprovalMode> {
        self.agents.as_ref()?.agent(agent)?.mode
    }

    /// The veto against a message to an agent of the roster that does not accept messages from the sender.
    pub(crate) fn recipient_veto(&self, from: &AgentId, call: &ToolCall) -> Option<Veto> {
        if !MAILBOX_TOOLS.contains(&call.name.as_str()) {
            return None;
        }
        let to = call.input.get("to")?.as_str()?;
        let to: AgentId = to.strip_prefix("agent:").unwrap_or(to).parse().ok()?;
        let recipient = self.agents.as_ref()?.agent(&to)?;
        let reason = || {
            format!(
                "`{to}` accepts no messages from `{from}`: an operator can name it in `accepts_from` of `{to}` in the roster"
            )
        };
        (!recipient.accepts(from)).then(|| Veto::new(NOT_ACCEPTED, &reason()))
    }

    /// The risk level in a tool's manifest.
    pub(crate) fn risk(&self, tool: &str) -> &'static str {
        self.law.manifest(tool).map_or("unknown", |manifest| manifest.risk_level.as_str())
    }

    pub fn is_frozen(&self) -> bool {
        self.freeze.is_on()
    }

    /// The current time in the format of the ledger.
    pub(crate) fn now(&self) -> String {
        self.storage.clock.now().to_string()
    }

    /// Denies every new call and turn. Running turns are ended by their sessions.
    pub async fn freeze(&self, who: &Approver) -> Result<(), StoreError> {
        self.freeze.freeze(&self.storage.ledger, &*self.storage.clock, &who.id).await
    }

    pub async fn unfreeze(&self, who: &Approver) -> Result<(), StoreError> {
        self.freeze.resume(&self.storage.ledger, &*self.storage.clock, &who.id).await
    }

    /// Whether an approved request is still for the same action: compares the digests.
    pub(crate) fn matches_digest(&self, requested: &Requested, action: &Action) -> bool {
        action.digest().is_ok_and(|digest| digest == requested.digest)
    }
}
