//! How a call is decided: kernel rules first, then what the operator wrote. The strictest word holds.
//!
//! The floor (stop switch, mandates, hooks) is never relaxed. Above it, operators' texts can only make a decision
//! stricter, except that they may name which side effects need no person. Deciding is a pure function of the law and
//! the facts.

use crate::bundle::Constitution;
use crate::decision_trace::Inquiry;
use crate::facts::{Asking, Facts, Provenance, SessionKind, Stage};
use crate::mandate::{listed_as, shown};
use crate::manifest::builtin_manifests::{BY_OPERATOR, EGRESS, LAND, LISTED, MCP_SERVER, SPEND};
use crate::manifest::{Capability, Effect, Manifest, Risk};
use crate::settings::{ANY_TOOL, BelowTrust, Exception, Mode};
use crate::suggest_name::nearest;
use crate::trust::Trust;
use crate::verdict::{Decision, Verdict};

impl Constitution {
    /// Decides a call.
    pub fn decide(&self, facts: &Facts) -> Verdict {
        self.inquire(facts, &mut Inquiry::quiet())
    }

    /// Decides a call, telling `inquiry` of every rule on the way. One that a hook narrowed is decided as it was asked for
    /// as well, so that no hook can take out of a call what a rule holds against it.
    pub(crate) fn inquire(&self, facts: &Facts, inquiry: &mut Inquiry<'_>) -> Verdict {
        let verdict = self.look(facts, inquiry);
        let Some(asked) = facts.as_asked() else { return verdict };
        let asked = self.look(&asked, &mut Inquiry::quiet());
        let strictness = |verdict: &Verdict| (verdict.decision, verdict.enforced());
        // Where both say the same, the one that somebody stood in for is told: an exception is used up by it.
        let rank = |verdict: &Verdict| (strictness(verdict), verdict.waived_by.is_some());
        if rank(&asked) <= rank(&verdict) {
            inquiry.passed("hook.narrowed", || "the call as it was asked for is no worse".to_owned());
            return verdict;
        }
        inquiry.noted("hook.narrowed", "the call as it was asked for is looked at more strictly");
        asked
    }

    fn look(&self, facts: &Facts, inquiry: &mut Inquiry<'_>) -> Verdict {
        if let Some(denied) = self.floor(facts, inquiry) {
            return denied;
        }
        let mode = self.settings().mode_of(&facts.tool);
        let verdict = match mode {
            Mode::Off => {
                let reason = format!("the law is switched off for `{}`", shown(&facts.tool));
                inquiry.noted("mode.off", &reason);
                return Verdict::allow("mode.off", reason);
            }
            Mode::Enforce | Mode::Audit => self.above_floor(facts, inquiry),
        };
        match mode {
            Mode::Audit => Verdict { decision: Decision::Allow, audited: Some(verdict.decision), ..verdict },
            Mode::Enforce | Mode::Off => verdict,
        }
    }

    /// What no mode and no text relaxes.
    fn floor(&self, facts: &Facts, inquiry: &mut Inquiry<'_>) -> Option<Verdict> {
        if facts.frozen {
            let resume = "an approver can let the agents go on with `tribune resume`";
            return Some(inquiry.denied("kernel.frozen", "everything is stopped", Some(resume)));
        }
        inquiry.passed("kernel.frozen", || "nothing is stopped".to_owned());
        if facts.mandates.is_empty() {
            let would_allow = "an operator can give the agent a mandate in data/agent-roster.jsonl";
            return Some(inquiry.denied("mandate.unknown", "the agent has no mandate", Some(would_allow)));
        }
        let tool = shown(listed_as(&facts.tool));
        for name in &facts.mandates {
            let Some(mandate) = self.mandate(name) else {
                let reason = format!("there is no mandate `{}`", shown(name));
                let would_allow = "an operator can write it to mandates/, or give the agent another one";
                return Some(inquiry.denied("mandate.unknown", reason, Some(would_allow)));
            };
            if mandate.allows(&facts.tool) || [SPEND, LAND].contains(&facts.tool.as_str()) {
                continue;
            }
            if !self.knows_tool(&facts.tool) {
                // Only what the mandate allows is suggested: other tools are none of the agent's business.
                let own: Vec<&str> = mandate.tools().iter().map(String::as_str).collect();
                let meant = nearest(&facts.tool, &own)
                    .map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
                return Some(inquiry.denied(
                    "tool.unknown",
                    format!("there is no tool `{tool}`{meant}"),
                    None,
                ));
            }
            let allowed = match mandate.tools() {
                [] => "no tools".to_owned(),
                tools => tools.join(", "),
            };
            let reason = format!("`{tool}` is not in the mandate `{}`, which allows {allowed}", mandate.name);
            let would_allow = "an operator can give the agent another mandate in data/agent-roster.jsonl";
            return Some(inquiry.denied("mandate.not_listed", reason, Some(would_allow)));
        }
        inquiry.passed("mandate.allow", || format!("`{tool}` is in {}", mandates(&facts.mandates)));
        for veto in &facts.vetoes {
            inquiry.spoke(Decision::Deny, format!("hook.{}", veto.by), veto.reason.clone(), None);
        }
        if facts.vetoes.is_empty() {
            inquiry.passed("hook", || "no hook or verifier objects".to_owned());
            return self.held_back(facts, inquiry);
        }
        Some(inquiry.verdict().unwrap_or_else(|| Verdict::deny("hook", "a hook objects", None)))
    }

    /// What an agent's line in the roster does not let it do, whatever its mandate has.
    fn held_back(&self, facts: &Facts, inquiry: &mut Inquiry<'_>) -> Option<Verdict> {
        // Paying for a model, and landing what a person lands, are no acts of the agent's.
        if [SPEND, LAND].contains(&facts.tool.as_str()) {
            return None;
        }
        let effect = self.manifest(&facts.tool).map(|manifest| manifest.effect);
        let rule = match facts.asking {
            None | Some(Asking::Ask | Asking::ApproveAll) => return None,
            Some(Asking::ApproveReads) if effect == Some(Effect::ReadOnly) => return None,
            Some(Asking::ApproveReads) => "asking.approve_reads",
            Some(Asking::DenyAll) => "asking.deny_all",
        };
        let mode = facts.asking.map_or("", Asking::as_str);
        let reason =
            format!("the agent is in the mode `{mode}`, which does not let it use `{}`", shown(&facts.tool));
        let would_allow = "an operator can give the agent another mode in data/agent-roster.jsonl";
        Some(inquiry.denied(rule, reason, Some(would_allow)))
    }

    fn above_floor(&self, facts: &Facts, inquiry: &mut Inquiry<'_>) -> Verdict {
        let bounded = facts.args.is_bounded();
        if facts.args.malformed || !bounded {
            let reason = "an argument that rules look at is too long, or is not what the tool takes";
            let would_allow = "call again with shorter, well-formed arguments";
            if !bounded {
                return inquiry.denied("args.malformed", reason, Some(would_allow));
            }
            inquiry.spoke(Decision::Deny, "args.malformed", reason, Some(would_allow.to_owned()));
        }
        let manifest = self.manifest(&facts.tool);
        self.manifested(facts, manifest, inquiry);
        self.channel(facts, manifest, inquiry);
        let exception = self.exception(facts, inquiry);
        self.trust(facts, manifest, exception, inquiry);
        trifecta(facts, manifest, inquiry);
        obeyed(facts, manifest, inquiry);
        let ruled = self.rules().decide(self, facts, inquiry);
        let waiver =
            exception.map(|own| format!("exception.{}", own.id)).or(ruled).or_else(|| decided(facts));
        let waived_by = side_effect(facts, manifest, waiver, inquiry);
        match inquiry.verdict() {
            None => {
                let reason = format!("`{}` is in {}", shown(&facts.tool), mandates(&facts.mandates));
                Verdict { waived_by, ..Verdict::allow("mandate.allow", reason) }
            }
            Some(verdict) => settle(facts, verdict, inquiry),
        }
    }

    fn manifested(&self, facts: &Facts, manifest: Option<&Manifest>, inquiry: &mut Inquiry<'_>) {
        match manifest {
            Some(_) => inquiry.passed("manifest.missing", || "the tool has a manifest".to_owned()),
            None if self.settings().default_allow => inquiry.passed("manifest.missing", || {
                "the tool has no manifest, which `defaultAllow` permits".to_owned()
            }),
            None => {
                let tool = shown(&facts.tool);
                let would_allow = format!("an operator can describe the tool in manifests/{tool}.json");
                let reason = format!("nobody has said what `{tool}` can do");
                inquiry.spoke(Decision::Deny, "manifest.missing", reason, Some(would_allow));
            }
        }
    }

    fn channel(&self, facts: &Facts, manifest: Option<&Manifest>, inquiry: &mut Inquiry<'_>) {
        let settings = self.settings();
        let class = settings.class_of(&facts.channel);
        let (tool, channel) = (shown(&facts.tool), shown(&facts.channel));
        if let Some(allow) = &settings.channels.allow {
            let listed = allow.get(class);
            if listed.is_some_and(|tools| tools.contains(&facts.tool) || tools.contains(ANY_TOOL)) {
                inquiry.passed("channel.not_allowed", || format!("`{tool}` is allowed on {class} channels"));
            } else {
                let would_allow =
                    format!("an operator can add it to channels.allow.{class} in policy/law.json5");
                let reason =
                    format!("`{tool}` is not allowed on `{channel}`, a channel of the class `{class}`");
                inquiry.spoke(Decision::Deny, "channel.not_allowed", reason, Some(would_allow));
            }
        }
        if settings.risk_allow.is_empty() {
            return;
        }
        let risk = manifest.map_or(Risk::Critical, |manifest| manifest.risk_level);
        if settings.risk_allow.get(class).is_some_and(|most| risk <= *most) {
            inquiry.passed("risk.not_allowed", || format!("{class} channels may take the risk"));
        } else {
            let would_allow = format!("an operator can raise riskAllow.{class} in policy/law.json5");
            let reason =
                format!("the risk of `{tool}` is {}, too high for the class `{class}`", risk.as_str());
            inquiry.spoke(Decision::Deny, "risk.not_allowed", reason, Some(would_allow));
        }
    }

    /// The first exception that covers the call.
    fn exception(&self, facts: &Facts, inquiry: &mut Inquiry<'_>) -> Option<&Exception> {
        for exception in self.settings().exceptions_for(&facts.tool) {
            match exception.covers(facts) {
                Ok(()) => {
                    inquiry.noted(&format!("exception.{}", exception.id), "it covers this call");
                    return Some(exception);
                }
                Err(why) => inquiry.noted(&format!("exception.{}", exception.id), why),
            }
        }
        None
    }

    fn trust(
        &self,
        facts: &Facts,
        manifest: Option<&Manifest>,
        exception: Option<&Exception>,
        inquiry: &mut Inquiry<'_>,
    ) {
        let Some(manifest) = manifest else { return };
        let (trust, least) = (input_trust(facts), manifest.min_input_trust);
        let excepted = exception.and_then(|own| own.min_input_trust).is_some_and(|least| trust >= least);
        if trust >= least || excepted {
            return inquiry.passed("trust.below", || {
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
            shown(&facts.tool),
            least.as_str(),
            trust.as_str()
        );
        inquiry.spoke(decision, "trust.below", reason, Some(would_allow.to_owned()));
    }
}

/// How far the input of the call may be believed.
fn input_trust(facts: &Facts) -> Trust {
    match facts.kind {
        // The words are another agent's, whoever they came from first.
        SessionKind::Subagent => facts.labels.trust.min(Trust::Verified),
        SessionKind::Main if is_owners(facts) => Trust::Owner,
        SessionKind::Main => facts.labels.trust,
    }
}

/// Whether the arguments are the owner's own words. An offer has no arguments yet, and those of the call may be.
fn is_owners(facts: &Facts) -> bool {
    let owners = facts.provenance == Provenance::Owner || facts.stage == Stage::Offer;
    facts.kind == SessionKind::Main && owners
}

/// Untrusted words, private data and a way out never meet without a person.
fn trifecta(facts: &Facts, manifest: Option<&Manifest>, inquiry: &mut Inquiry<'_>) {
    let outside = facts.args.outside == Some(true) || facts.args.unseen.iter().any(|name| name == "outside");
    let way_out = manifest.is_none_or(|manifest| manifest.is_way_out(outside));
    let tainted = facts.labels.trust <= Trust::Community && facts.labels.private;
    if !(way_out && tainted) || is_owners(facts) {
        return inquiry.passed("trust.trifecta", || {
            "untrusted words, private data and a way out do not meet here".to_owned()
        });
    }
    let (decision, would_allow) = match facts.kind {
        SessionKind::Main => (Decision::Ask, "a person can allow this one call"),
        SessionKind::Subagent => (Decision::Deny, "the agent that started this one can call it itself"),
    };
    let reason = format!(
        "this session has read untrusted words and private data, and `{}` is a way out",
        shown(&facts.tool)
    );
    inquiry.spoke(decision, "trust.trifecta", reason, Some(would_allow.to_owned()));
}

/// Nobody writes what programs of the host obey without a person: it would run there, outside of every box.
fn obeyed(facts: &Facts, manifest: Option<&Manifest>, inquiry: &mut Inquiry<'_>) {
    let is_obeyed = facts.args.obeyed || facts.args.unseen.iter().any(|name| name == "path");
    let writes = manifest.is_none_or(|manifest| manifest.capabilities.contains(&Capability::FsWrite));
    if !(is_obeyed && writes) || is_owners(facts) {
        return inquiry.passed("path.obeyed", || match is_obeyed && writes {
            true => "programs of this machine obey the name, and the owner wrote it".to_owned(),
            false => "it writes nothing that programs of this machine obey".to_owned(),
        });
    }
    let (decision, would_allow) = match facts.kind {
        SessionKind::Main => (Decision::Ask, "a person can allow this one call"),
        SessionKind::Subagent => (Decision::Deny, "the agent that started this one can call it itself"),
    };
    let reason = match &facts.args.path {
        Some(path) => format!("programs of this machine obey `{}`, outside of every sandbox", shown(path)),
        None => "programs of this machine may obey what it writes, outside of every sandbox".to_owned(),
    };
    inquiry.spoke(decision, "path.obeyed", reason, Some(would_allow.to_owned()));
}

/// Where the operator has decided already: a list has the place that a box wants to connect to, or they land changes or bring an
/// MCP server themselves.
fn decided(facts: &Facts) -> Option<String> {
    match (facts.tool.as_str(), facts.args.action.as_deref()) {
        (EGRESS, Some(LISTED)) => Some("egress.listed".to_owned()),
        (LAND, Some(BY_OPERATOR)) => Some("landing.operator".to_owned()),
        (MCP_SERVER, Some(BY_OPERATOR)) => Some("mcp_server.operator".to_owned()),
        (EGRESS | LAND | MCP_SERVER | SPEND, _) => None,
        _ => (facts.asking == Some(Asking::ApproveAll)).then(|| "asking.approve_all".to_owned()),
    }
}

/// Whether a person must approve the effect; says what stood in for one.
fn side_effect(
    facts: &Facts,
    manifest: Option<&Manifest>,
    waiver: Option<String>,
    inquiry: &mut Inquiry<'_>,
) -> Option<String> {
    match manifest.map(|manifest| manifest.effect) {
        Some(Effect::SideEffect) => {}
        Some(Effect::ReadOnly | Effect::DraftOnly) | None => {
            inquiry.passed("effect.side_effect", || "it can be taken back".to_owned());
            return None;
        }
    }
    if let Some(waiver) = waiver {
        inquiry.passed("effect.side_effect", || format!("{waiver} needs no person for it"));
        return Some(waiver);
    }
    let reason = format!("`{}` has effects that cannot be taken back", shown(&facts.tool));
    let would_allow = "a person can approve it".to_owned();
    inquiry.spoke(Decision::Ask, "effect.side_effect", reason, Some(would_allow));
    None
}

/// What becomes of a question: answered already, or nobody there to answer it. A denial stands.
fn settle(facts: &Facts, verdict: Verdict, inquiry: &mut Inquiry<'_>) -> Verdict {
    if verdict.decision != Decision::Ask {
        return verdict;
    }
    let answer = match (&facts.approval, &facts.grant) {
        (Some(id), _) => Some(("approval", id)),
        (None, Some(id)) => Some(("grant", id)),
        (None, None) => None,
    };
    if let Some((kind, id)) = answer {
        let waived_by = format!("{kind}.{}", shown(id));
        inquiry.noted(&waived_by, "a person allowed it");
        return Verdict {
            decision: Decision::Allow,
            would_allow: None,
            waived_by: Some(waived_by),
            ..verdict
        };
    }
    // What an agent is offered may still be covered by an exception or a rule once there are arguments.
    if facts.approver || facts.stage == Stage::Offer {
        return verdict;
    }
    let mut rules = vec!["ask.no_approver".to_owned()];
    rules.extend(verdict.rules);
    let reason = format!("{}; a person would have to decide, and none can be reached", verdict.reason);
    inquiry.noted("ask.no_approver", "nobody can be asked");
    let would_allow = Some("name an approver, and see that they can be reached".to_owned());
    Verdict { decision: Decision::Deny, rules, reason, would_allow, ..verdict }
}

fn mandates(names: &[String]) -> String {
    let listed: Vec<String> = names.iter().map(|name| format!("`{}`", shown(name))).collect();
    let plural = if listed.len() == 1 { "" } else { "s" };
    format!("the mandate{plural} {}", listed.join(", "))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
