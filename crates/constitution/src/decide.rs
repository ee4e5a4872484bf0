//! The decision about a call: kernel rules first, then the operator's texts. The strictest decision wins.
//!
//! The floor (stop switch, mandates, hooks) is never relaxed. Above it, operators' texts can only make a decision
//! stricter, except that they can name the side effects that need no person. The decision is a pure function of the
//! law and the facts.
//!
//! Verdicts are recorded with their reasons and compared to the letter when they are replayed. A changed sentence
//! here makes old verdicts differ.

use crate::bundle::Constitution;
use crate::decision_trace::DecisionTrace;
use crate::facts::{ApprovalMode, ArgumentProvenance, DecisionStage, Facts, SessionKind};
use crate::mandate::listed_as;
use crate::manifest::{Capability, Risk, ToolEffect, ToolManifest};
use crate::settings::{ANY_TOOL, BelowTrust, EnforcementMode, Exception};
use crate::suggest_name::nearest;
use crate::text::sanitize;
use crate::tool_names::{BY_OPERATOR, EGRESS, LAND, LISTED, MCP_SERVER, SPEND};
use crate::trust::Trust;
use crate::verdict::{Decision, Verdict};

impl Constitution {
    /// Decides a call.
    pub fn decide(&self, facts: &Facts) -> Verdict {
        self.decide_traced(facts, &mut DecisionTrace::without_steps())
    }

    /// Decides a call and reports every rule to `trace`. If a hook narrowed the call, the original call is decided
    /// too, so that a hook cannot remove from a call what a rule objects to.
    pub(crate) fn decide_traced(&self, facts: &Facts, trace: &mut DecisionTrace<'_>) -> Verdict {
        let verdict = self.decide_one(facts, trace);
        let Some(original) = facts.original() else { return verdict };
        let original = self.decide_one(&original, &mut DecisionTrace::without_steps());
        let strictness = |verdict: &Verdict| (verdict.decision, verdict.decision_if_enforced());
        // Of two equal verdicts the one with a waiver is recorded, because it uses up an exception.
        let rank = |verdict: &Verdict| (strictness(verdict), verdict.waived_by.is_some());
        if rank(&original) <= rank(&verdict) {
            trace.record_pass("hook.narrowed", || "the original call gets no stricter verdict".to_owned());
            return verdict;
        }
        trace.record_note("hook.narrowed", "the original call gets the stricter verdict");
        original
    }

    fn decide_one(&self, facts: &Facts, trace: &mut DecisionTrace<'_>) -> Verdict {
        if let Some(denied) = self.check_floor(facts, trace) {
            return denied;
        }
        let mode = self.settings().mode_of(&facts.tool);
        let verdict = match mode {
            EnforcementMode::Off => {
                let reason = format!("the law is switched off for `{}`", sanitize(&facts.tool));
                trace.record_note("mode.off", &reason);
                return Verdict::allow("mode.off", reason);
            }
            EnforcementMode::Enforce | EnforcementMode::Audit => self.check_above_floor(facts, trace),
        };
        match mode {
            EnforcementMode::Audit => {
                Verdict { decision: Decision::Allow, audited: Some(verdict.decision), ..verdict }
            }
            EnforcementMode::Enforce | EnforcementMode::Off => verdict,
        }
    }

    /// What no mode and no text relaxes.
    fn check_floor(&self, facts: &Facts, trace: &mut DecisionTrace<'_>) -> Option<Verdict> {
        if facts.frozen {
            let resume = "an approver can let the agents go on with `tribune resume`";
            return Some(trace.deny("kernel.frozen", "everything is stopped", Some(resume)));
        }
        trace.record_pass("kernel.frozen", || "nothing is stopped".to_owned());
        if facts.mandates.is_empty() {
            let would_allow = "an operator can give the agent a mandate in data/agent-roster.jsonl";
            return Some(trace.deny("mandate.unknown", "the agent has no mandate", Some(would_allow)));
        }
        let tool = sanitize(listed_as(&facts.tool));
        for name in &facts.mandates {
            let Some(mandate) = self.mandate(name) else {
                let reason = format!("there is no mandate `{}`", sanitize(name));
                let would_allow = "an operator can write it to mandates/, or give the agent another one";
                return Some(trace.deny("mandate.unknown", reason, Some(would_allow)));
            };
            if mandate.allows(&facts.tool) || [SPEND, LAND].contains(&facts.tool.as_str()) {
                continue;
            }
            if !self.knows_tool(&facts.tool) {
                // Only tools of the mandate are suggested, so that an agent learns nothing about other tools.
                let own: Vec<&str> = mandate.tools().iter().map(String::as_str).collect();
                let meant = nearest(&facts.tool, &own)
                    .map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
                return Some(trace.deny("tool.unknown", format!("there is no tool `{tool}`{meant}"), None));
            }
            let allowed = match mandate.tools() {
                [] => "no tools".to_owned(),
                tools => tools.join(", "),
            };
            let reason = format!("`{tool}` is not in the mandate `{}`, which allows {allowed}", mandate.name);
            let would_allow = "an operator can give the agent another mandate in data/agent-roster.jsonl";
            return Some(trace.deny("mandate.not_listed", reason, Some(would_allow)));
        }
        trace.record_pass("mandate.allow", || format!("`{tool}` is in {}", quoted_mandates(&facts.mandates)));
        for veto in &facts.vetoes {
            trace.object(Decision::Deny, format!("hook.{}", veto.by), veto.reason.clone(), None);
        }
        if facts.vetoes.is_empty() {
            trace.record_pass("hook", || "no hook or verifier objects".to_owned());
            return self.check_approval_mode(facts, trace);
        }
        Some(trace.take_verdict().unwrap_or_else(|| Verdict::deny("hook", "a hook objects", None)))
    }

    /// The approval mode of the agent's roster entry, which holds whatever the mandate allows.
    fn check_approval_mode(&self, facts: &Facts, trace: &mut DecisionTrace<'_>) -> Option<Verdict> {
        // Paying for a model and landing changes are not acts of the agent.
        if [SPEND, LAND].contains(&facts.tool.as_str()) {
            return None;
        }
        let effect = self.manifest(&facts.tool).map(|manifest| manifest.effect);
        let rule = match facts.approval_mode {
            None | Some(ApprovalMode::Ask | ApprovalMode::ApproveAll) => return None,
            Some(ApprovalMode::ApproveReads) if effect == Some(ToolEffect::ReadOnly) => return None,
            Some(ApprovalMode::ApproveReads) => "asking.approve_reads",
            Some(ApprovalMode::DenyAll) => "asking.deny_all",
        };
        let mode = facts.approval_mode.map_or("", ApprovalMode::as_str);
        let reason = format!(
            "the agent is in the mode `{mode}`, which does not let it use `{}`",
            sanitize(&facts.tool)
        );
        let would_allow = "an operator can give the agent another mode in data/agent-roster.jsonl";
        Some(trace.deny(rule, reason, Some(would_allow)))
    }

    fn check_above_floor(&self, facts: &Facts, trace: &mut DecisionTrace<'_>) -> Verdict {
        let bounded = facts.args.is_bounded();
        if facts.args.malformed || !bounded {
            let reason = "an argument that rules look at is too long, or is not what the tool takes";
            let would_allow = "call again with shorter, well-formed arguments";
            if !bounded {
                return trace.deny("args.malformed", reason, Some(would_allow));
            }
            trace.object(Decision::Deny, "args.malformed", reason, Some(would_allow.to_owned()));
        }
        let manifest = self.manifest(&facts.tool);
        self.check_manifest(facts, manifest, trace);
        self.check_channel(facts, manifest, trace);
        let exception = self.find_exception(facts, trace);
        self.check_trust(facts, manifest, exception, trace);
        check_trifecta(facts, manifest, trace);
        check_autorun_path(facts, manifest, trace);
        let ruled = self.rules().decide(self.settings().class_of(&facts.channel), facts, trace);
        let waiver =
            exception.map(|own| format!("exception.{}", own.id)).or(ruled).or_else(|| operator_waiver(facts));
        let waived_by = check_side_effect(facts, manifest, waiver, trace);
        match trace.take_verdict() {
            None => {
                let reason =
                    format!("`{}` is in {}", sanitize(&facts.tool), quoted_mandates(&facts.mandates));
                Verdict { waived_by, ..Verdict::allow("mandate.allow", reason) }
            }
            Some(verdict) => resolve_question(facts, verdict, trace),
        }
    }

    fn check_manifest(&self, facts: &Facts, manifest: Option<&ToolManifest>, trace: &mut DecisionTrace<'_>) {
        match manifest {
            Some(_) => trace.record_pass("manifest.missing", || "the tool has a manifest".to_owned()),
            None if self.settings().default_allow => trace.record_pass("manifest.missing", || {
                "the tool has no manifest, which `defaultAllow` permits".to_owned()
            }),
            None => {
                let tool = sanitize(&facts.tool);
                let would_allow = format!("an operator can describe the tool in manifests/{tool}.json");
                let reason = format!("nobody has said what `{tool}` can do");
                trace.object(Decision::Deny, "manifest.missing", reason, Some(would_allow));
            }
        }
    }

    fn check_channel(&self, facts: &Facts, manifest: Option<&ToolManifest>, trace: &mut DecisionTrace<'_>) {
        let settings = self.settings();
        let class = settings.class_of(&facts.channel);
        let (tool, channel) = (sanitize(&facts.tool), sanitize(&facts.channel));
        if let Some(allow) = &settings.channels.allow {
            let listed = allow.get(class);
            if listed.is_some_and(|tools| tools.contains(&facts.tool) || tools.contains(ANY_TOOL)) {
                trace.record_pass("channel.not_allowed", || {
                    format!("`{tool}` is allowed on {class} channels")
                });
            } else {
                let would_allow =
                    format!("an operator can add it to channels.allow.{class} in policy/law.json5");
                let reason =
                    format!("`{tool}` is not allowed on `{channel}`, a channel of the class `{class}`");
                trace.object(Decision::Deny, "channel.not_allowed", reason, Some(would_allow));
            }
        }
        if settings.risk_allow.is_empty() {
            return;
        }
        let risk = manifest.map_or(Risk::Critical, |manifest| manifest.risk_level);
        if settings.risk_allow.get(class).is_some_and(|most| risk <= *most) {
            trace.record_pass("risk.not_allowed", || format!("{class} channels may take the risk"));
        } else {
            let would_allow = format!("an operator can raise riskAllow.{class} in policy/law.json5");
            let reason =
                format!("the risk of `{tool}` is {}, too high for the class `{class}`", risk.as_str());
            trace.object(Decision::Deny, "risk.not_allowed", reason, Some(would_allow));
        }
    }

    /// The first exception that covers the call.
    fn find_exception(&self, facts: &Facts, trace: &mut DecisionTrace<'_>) -> Option<&Exception> {
        for exception in self.settings().exceptions_for(&facts.tool) {
            match exception.covers(facts) {
                Ok(()) => {
                    trace.record_note(&format!("exception.{}", exception.id), "it covers this call");
                    return Some(exception);
                }
                Err(why) => trace.record_note(&format!("exception.{}", exception.id), why),
            }
        }
        None
    }

    fn check_trust(
        &self,
        facts: &Facts,
        manifest: Option<&ToolManifest>,
        exception: Option<&Exception>,
        trace: &mut DecisionTrace<'_>,
    ) {
        let Some(manifest) = manifest else { return };
        let (trust, least) = (input_trust(facts), manifest.min_input_trust);
        let excepted = exception.and_then(|own| own.min_input_trust).is_some_and(|least| trust >= least);
        if trust >= least || excepted {
            return trace.record_pass("trust.below", || {
                format!("the input is {}, and {} is enough", trust.as_str(), least.as_str())
            });
        }
        let (decision, would_allow) = match (facts.kind, self.settings().below_trust) {
            (SessionKind::Subagent, _) => {
                (Decision::Deny, "the agent that started this one can call it itself")
            }
            (SessionKind::Main, BelowTrust::Ask) => (Decision::Ask, "a person can allow this one call"),
            (SessionKind::Main, BelowTrust::Deny) => {
                (Decision::Deny, "ask for it in a session that has read nothing less trusted")
            }
        };
        let reason = format!(
            "`{}` takes input that is {} or better, and this session's is {}",
            sanitize(&facts.tool),
            least.as_str(),
            trust.as_str()
        );
        trace.object(decision, "trust.below", reason, Some(would_allow.to_owned()));
    }
}

/// The trust of the call's input.
fn input_trust(facts: &Facts) -> Trust {
    match facts.kind {
        // The words come from another agent, whatever their origin.
        SessionKind::Subagent => facts.labels.trust.min(Trust::Verified),
        SessionKind::Main if are_owners_args(facts) => Trust::Owner,
        SessionKind::Main => facts.labels.trust,
    }
}

/// Whether the arguments are the owner's own words. An offer has no arguments yet, and those of the later call may
/// be.
fn are_owners_args(facts: &Facts) -> bool {
    let owners = facts.provenance == ArgumentProvenance::Owner || facts.stage == DecisionStage::Offer;
    facts.kind == SessionKind::Main && owners
}

/// Untrusted words, private data and a way out never meet without a person.
fn check_trifecta(facts: &Facts, manifest: Option<&ToolManifest>, trace: &mut DecisionTrace<'_>) {
    let outside = facts.args.outside == Some(true) || facts.args.unseen.iter().any(|name| name == "outside");
    // A tool that nobody describes is one unless nothing in its arguments looks like an address. Facts from before this
    // was looked at do not say, so their verdicts stay.
    let way_out = manifest.map_or(facts.args.links != Some(false), |manifest| manifest.is_way_out(outside));
    let tainted = facts.labels.trust <= Trust::Community && facts.labels.private;
    if !(way_out && tainted) || are_owners_args(facts) {
        return trace.record_pass("trust.trifecta", || {
            "untrusted words, private data and a way out do not meet here".to_owned()
        });
    }
    let (decision, would_allow) = match facts.kind {
        SessionKind::Main => (Decision::Ask, "a person can allow this one call"),
        SessionKind::Subagent => (Decision::Deny, "the agent that started this one can call it itself"),
    };
    let reason = format!(
        "this session has read untrusted words and private data, and `{}` is a way out",
        sanitize(&facts.tool)
    );
    trace.object(decision, "trust.trifecta", reason, Some(would_allow.to_owned()));
}

/// Nothing that host programs execute or load is written without a person: it would run on the host, outside of
/// every sandbox.
fn check_autorun_path(facts: &Facts, manifest: Option<&ToolManifest>, trace: &mut DecisionTrace<'_>) {
    let is_autorun = facts.args.is_autorun || facts.args.unseen.iter().any(|name| name == "path");
    let writes = manifest.is_none_or(|manifest| manifest.capabilities.contains(&Capability::FsWrite));
    if !(is_autorun && writes) || are_owners_args(facts) {
        return trace.record_pass("path.obeyed", || match is_autorun && writes {
            true => "host programs execute or load files of this name, and the owner named it".to_owned(),
            false => "it writes no file that host programs execute or load".to_owned(),
        });
    }
    let (decision, would_allow) = match facts.kind {
        SessionKind::Main => (Decision::Ask, "a person can allow this one call"),
        SessionKind::Subagent => (Decision::Deny, "the agent that started this one can call it itself"),
    };
    let reason = match &facts.args.path {
        Some(path) => format!("programs of this machine obey `{}`, outside of every sandbox", sanitize(path)),
        None => "programs of this machine may obey what it writes, outside of every sandbox".to_owned(),
    };
    trace.object(decision, "path.obeyed", reason, Some(would_allow.to_owned()));
}

/// The operator's decision in advance: an allowlist contains the host that a sandbox wants to connect to, or the
/// operator lands changes or starts an MCP server.
fn operator_waiver(facts: &Facts) -> Option<String> {
    match (facts.tool.as_str(), facts.args.action.as_deref()) {
        (EGRESS, Some(LISTED)) => Some("egress.listed".to_owned()),
        (LAND, Some(BY_OPERATOR)) => Some("landing.operator".to_owned()),
        (MCP_SERVER, Some(BY_OPERATOR)) => Some("mcp_server.operator".to_owned()),
        (EGRESS | LAND | MCP_SERVER | SPEND, _) => None,
        _ => (facts.approval_mode == Some(ApprovalMode::ApproveAll)).then(|| "asking.approve_all".to_owned()),
    }
}

/// Whether a person must approve the effect; returns the waiver that replaces the approval.
fn check_side_effect(
    facts: &Facts,
    manifest: Option<&ToolManifest>,
    waiver: Option<String>,
    trace: &mut DecisionTrace<'_>,
) -> Option<String> {
    match manifest.map(|manifest| manifest.effect) {
        Some(ToolEffect::SideEffect) => {}
        Some(ToolEffect::ReadOnly | ToolEffect::DraftOnly) | None => {
            trace.record_pass("effect.side_effect", || "it can be undone".to_owned());
            return None;
        }
    }
    if let Some(waiver) = waiver {
        trace.record_pass("effect.side_effect", || format!("{waiver} replaces the approval"));
        return Some(waiver);
    }
    let reason = format!("`{}` has effects that cannot be taken back", sanitize(&facts.tool));
    let would_allow = "a person can approve it".to_owned();
    trace.object(Decision::Ask, "effect.side_effect", reason, Some(would_allow));
    None
}

/// Resolves a verdict that asks: someone has answered, or no one can answer. A denial stays a denial.
fn resolve_question(facts: &Facts, verdict: Verdict, trace: &mut DecisionTrace<'_>) -> Verdict {
    if verdict.decision != Decision::Ask {
        return verdict;
    }
    let answer = match (&facts.approval, &facts.grant) {
        (Some(id), _) => Some(("approval", id)),
        (None, Some(id)) => Some(("grant", id)),
        (None, None) => None,
    };
    if let Some((kind, id)) = answer {
        let waived_by = format!("{kind}.{}", sanitize(id));
        trace.record_note(&waived_by, "a person allowed it");
        return Verdict {
            decision: Decision::Allow,
            would_allow: None,
            waived_by: Some(waived_by),
            ..verdict
        };
    }
    // An exception or a rule may still cover an offered tool once there are arguments.
    if facts.stage == DecisionStage::Offer {
        return verdict;
    }
    if facts.guest {
        let mut rules = vec!["ask.guest".to_owned()];
        rules.extend(verdict.rules);
        let reason = format!("{}; nobody is asked about calls of guests", verdict.reason);
        trace.record_note("ask.guest", "the agent is a guest");
        let would_allow = Some("an operator can add the agent to the roster".to_owned());
        return Verdict { decision: Decision::Deny, rules, reason, would_allow, ..verdict };
    }
    if facts.approver {
        return verdict;
    }
    let mut rules = vec!["ask.no_approver".to_owned()];
    rules.extend(verdict.rules);
    let reason = format!("{}; a person would have to decide, and none can be reached", verdict.reason);
    trace.record_note("ask.no_approver", "no approver can be reached");
    let would_allow = Some("name an approver, and see that they can be reached".to_owned());
    Verdict { decision: Decision::Deny, rules, reason, would_allow, ..verdict }
}

fn quoted_mandates(names: &[String]) -> String {
    let listed: Vec<String> = names.iter().map(|name| format!("`{}`", sanitize(name))).collect();
    let plural = if listed.len() == 1 { "" } else { "s" };
    format!("the mandate{plural} {}", listed.join(", "))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
