//! The narrowest rules that would have saved people the questions that they always answered with yes.
//!
//! A rule can only waive the approval of a side effect, so only calls that were asked about for that reason alone
//! are considered. Each suggestion contains a backtest, and none would let pass what a person denied. For a critical tool,
//! a suggestion covers the owner's own arguments alone.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::args::CallArgs;
use crate::backtest::{Backtest, RecordedCall, backtest};
use crate::bundle::Constitution;
use crate::facts::{ArgumentProvenance, DecisionStage, Facts};
use crate::manifest::Risk;
use crate::trust::Trust;
use crate::verdict::Decision;

/// Suggestions of one run: a person reads each of them, and each is backtested.
const MAX_SUGGESTIONS: usize = 10;

/// The file that suggested rules are tried in.
const FILE: &str = "suggested.cedar";

/// A rule that would have saved questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// Cedar text, ready for a file in `policy/`.
    pub rule: String,
    /// Questions about such calls that people answered with yes; none was answered with no.
    pub saved: u64,
    /// What the rule cannot distinguish, if that matters.
    pub caution: Option<String>,
    /// All recorded calls under the present law with this rule.
    pub backtest: Backtest,
}

/// Calls that a rule cannot distinguish.
struct CallGroup<'a> {
    example: &'a Facts,
    trust: Trust,
    private: bool,
    allowed: u64,
    refused: u64,
}

/// Suggests rules that would each have saved at least `least` questions, the most useful first.
pub fn suggest_rules(law: &Constitution, history: &[RecordedCall], least: u64) -> Vec<Suggestion> {
    let mut groups: BTreeMap<Vec<u8>, CallGroup<'_>> = BTreeMap::new();
    for recorded in history {
        let (facts, verdict) = (&recorded.facts, &recorded.verdict);
        let waivable = verdict.decision == Decision::Ask && verdict.rules == ["effect.side_effect"];
        let (Some(allowed), true, DecisionStage::Call) = (recorded.answer, waivable, facts.stage) else {
            continue;
        };
        if needs_owner_args(law, &facts.tool) && facts.provenance != ArgumentProvenance::Owner {
            continue;
        }
        // A rule cannot read these attributes, so it cannot distinguish the calls by them.
        let Some(key) = grouping_key(facts).filter(|_| facts.args.unseen.is_empty()) else { continue };
        let group = groups.entry(key).or_insert(CallGroup {
            example: facts,
            trust: facts.labels.trust,
            private: false,
            allowed: 0,
            refused: 0,
        });
        group.trust = group.trust.min(facts.labels.trust);
        group.private |= facts.labels.private;
        if allowed {
            group.allowed += 1;
        } else {
            group.refused += 1;
        }
    }
    // A rule must not allow what a person once denied.
    let mut groups: Vec<CallGroup<'_>> =
        groups.into_values().filter(|group| group.refused == 0 && group.allowed >= least.max(1)).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.allowed));
    groups.iter().take(MAX_SUGGESTIONS).filter_map(|group| group.suggestion(law, history)).collect()
}

/// Whether a rule may permit this tool only for the owner's own arguments: a mistake costs too much.
fn needs_owner_args(law: &Constitution, tool: &str) -> bool {
    law.manifest(tool).is_none_or(|manifest| manifest.risk_level == Risk::Critical)
}

/// The facts that a rule can distinguish calls by.
fn grouping_key(facts: &Facts) -> Option<Vec<u8>> {
    let mut same = Facts::for_owner_call(&facts.agent, "", facts.mandates.first()?, &facts.tool);
    same.channel.clone_from(&facts.channel);
    same.kind = facts.kind;
    same.args = CallArgs { bytes: None, ..facts.args.clone() };
    same.canonical().ok()
}

impl CallGroup<'_> {
    fn suggestion(&self, law: &Constitution, history: &[RecordedCall]) -> Option<Suggestion> {
        let rule = self.rule(law);
        let mut texts = law.texts().clone();
        if texts.policies.insert(FILE.to_owned(), rule.clone()).is_some() {
            return None;
        }
        let known: Vec<&str> = law.tools().iter().map(String::as_str).collect();
        let candidate = Constitution::new(texts, &known).ok()?;
        let backtest = backtest(&candidate, history);
        // The rule covers another call too, which a person denied.
        if backtest.overrides_denials.count > 0 {
            return None;
        }
        let caution = self.example.args.programs.as_ref().map(|programs| {
            format!(
                "a rule sees the programs of a command, not its arguments: every call of {} would pass; a grant for \
                 the exact command is narrower",
                programs.join(", ")
            )
        });
        Some(Suggestion { rule, saved: self.allowed, caution, backtest })
    }

    fn rule(&self, law: &Constitution) -> String {
        let facts = self.example;
        let mut conditions = vec![
            format!("resource.channel == {:?}", facts.channel),
            format!("context.mandate == {:?}", facts.mandates.first().map_or("", String::as_str)),
            format!("context.trust >= {}", self.trust.level()),
        ];
        if !self.private {
            conditions.push("!context.private".to_owned());
        }
        if needs_owner_args(law, &facts.tool) {
            conditions.push("context.owner_args".to_owned());
        }
        conditions.extend(attributes(&facts.args));
        let id = (1..)
            .map(|n: u32| format!("suggested-{}-{n}", facts.tool))
            .find(|id| law.rules().rule(id).is_none())
            .unwrap_or_default();
        format!(
            "@id(\"{id}\")\npermit(\n  principal == Tribune::Agent::{:?},\n  action == Tribune::Action::\"{}\",\n  \
             resource\n)\nwhen {{\n  {}\n}};\n",
            facts.agent,
            facts.tool,
            conditions.join(" &&\n  ")
        )
    }
}

/// A condition for each attribute of the arguments, so that the rule matches nothing else.
fn attributes(args: &CallArgs) -> Vec<String> {
    let text = |name: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!("context has {name} && context.{name} == {value:?}"))
    };
    let flag = |name: &str, value: Option<bool>| {
        value.map(|value| format!("context has {name} && context.{name} == {value}"))
    };
    let port = args.port.map(|port| format!("context has port && context.port == {port}"));
    let programs = args
        .programs
        .as_ref()
        .map(|programs| format!("context has programs && context.programs == {programs:?}"));
    [
        text("path", &args.path),
        text("folder", &args.folder),
        flag("outside", args.outside),
        text("scheme", &args.scheme),
        text("host", &args.host),
        port,
        text("method", &args.method),
        programs,
        flag("parsed", args.parsed),
        text("recipient", &args.recipient),
        text("recipient_type", &args.recipient_type),
        text("template", &args.template),
        flag("links", args.links),
        flag("attachments", args.attachments),
        text("action", &args.action),
        text("name", &args.name),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{call, law};

    #[test]
    fn always_approved_calls_become_narrow_suggestions() {
        let law = law("", "@id(\"keep\") forbid(principal, action == Tribune::Action::\"nodes\", resource);");
        let recorded = |programs: &[&str], answer: Option<bool>| {
            let mut facts = call("exec");
            facts.args.programs = Some(programs.iter().map(|own| (*own).to_owned()).collect());
            facts.args.parsed = Some(true);
            facts.provenance = ArgumentProvenance::Owner;
            let verdict = law.decide(&facts);
            RecordedCall { facts, verdict, answer }
        };
        let mut history =
            vec![recorded(&["rm"], Some(true)), recorded(&["rm"], Some(false)), recorded(&["ls"], None)];
        history.extend((0..3).map(|_| recorded(&["git", "say \"hi\\"], Some(true))));
        history.push(recorded(&["make"], Some(true)));
        history.push(RecordedCall {
            facts: call("nodes"),
            verdict: law.decide(&call("nodes")),
            answer: None,
        });

        let suggested = suggest_rules(&law, &history, 2);
        assert_eq!(suggested.len(), 1);
        let own = &suggested[0];
        assert_eq!(
            own.rule,
            "@id(\"suggested-exec-1\")\npermit(\n  principal == Tribune::Agent::\"main\",\n  action == Tribune::Action::\"exec\",\n  resource\n)\nwhen {\n  resource.channel == \"cli\" &&\n  context.mandate == \"all\" &&\n  context.trust >= 3 &&\n  !context.private &&\n  context.owner_args &&\n  context has programs && context.programs == [\"git\", \"say \\\"hi\\\\\"] &&\n  context has parsed && context.parsed == true\n};\n"
        );
        assert_eq!((own.saved, own.backtest.prompts_saved.count, own.backtest.unchanged), (3, 3, 5));
        assert_eq!((own.backtest.newly_denied.count, own.backtest.newly_allowed.count), (0, 0));
        assert!(own.caution.as_ref().unwrap().contains("every call of git"));
        assert_eq!(suggest_rules(&law, &history, 1).len(), 2, "make as well; rm was refused once");
    }

    #[test]
    fn a_critical_tool_is_suggested_for_the_owners_arguments_alone() {
        let law = law("", "");
        let recorded = |tool: &str, provenance: ArgumentProvenance, answer: bool| {
            let facts = Facts { provenance, ..call(tool) };
            RecordedCall { verdict: law.decide(&facts), facts, answer: Some(answer) }
        };
        let rules = |history: &[RecordedCall]| {
            let all = suggest_rules(&law, history, 2).into_iter();
            all.map(|own| own.rule.contains("context.owner_args")).collect::<Vec<_>>()
        };
        let (owner, other) = (ArgumentProvenance::Owner, ArgumentProvenance::Other);
        let thrice = |tool: &str, provenance| vec![recorded(tool, provenance, true); 3];
        assert_eq!(rules(&thrice("exec", other)), [false; 0]);
        assert_eq!(rules(&thrice("exec", owner)), [true]);
        assert_eq!(rules(&thrice("message", other)), [false]);
        // What a person denied in a call that the rule would cover too is not suggested.
        let mut history = thrice("message", other);
        history[0].facts.args.recipient = None;
        let mut denied = recorded("message", other, false);
        denied.facts.args.host = Some("evil.example".to_owned());
        history.push(denied);
        assert_eq!(rules(&history), [false; 0]);
    }
}
