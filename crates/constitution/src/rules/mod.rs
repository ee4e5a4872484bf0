//! Operators' rules, in Cedar: what is denied beyond the kernel's rules, what a person must approve, and which side
//! effects need no approval.
//!
//! `forbid` denies, unless it lets approved calls pass (`unless { context.approved }`): then it asks. `permit`
//! waives the approval that a side effect needs, and nothing else. A call that no rule matches is not affected.
//!
//! Rules are grouped by tool when they are loaded, so that a call only meets the rules whose scope can match it.
//! The prefilter then excludes most of these by the first comparisons of their condition. A rule that fails during
//! evaluation denies the call.

mod attribute_domain;
mod attribute_usage;
mod call_view;
pub(crate) mod condition;
mod glob;
mod load;
mod prefilter;
mod request;
pub(crate) mod satisfiability;
pub(crate) mod schema;
mod scope;
mod source_span;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Authorizer, Entities, Entity, EntityId, EntityTypeName, EntityUid, Schema,
};

pub(crate) use load::Rule;
pub use load::{MAX_RULE_BYTES, MAX_RULES};
pub(crate) use source_span::SourcePosition;

use self::call_view::{CallView, call_views};
use self::request::{CedarAction, CedarRequestError, EntityTypes};
use crate::decision_trace::DecisionTrace;
use crate::facts::{DecisionStage, Facts};
use crate::json5::TextError;
use crate::manifest::ToolManifest;
use crate::manifest::tool_groups::groups;
use crate::verdict::Decision;

/// Agents in a chain of agents that started each other. Each of them must be allowed the call.
const MAX_CHAIN: usize = 16;

/// All rules of a law.
#[derive(Debug, Clone)]
pub(crate) struct RuleSet {
    all: Vec<Arc<Rule>>,
    /// The index in `all` of each id.
    indexes: BTreeMap<String, usize>,
    /// For each rule in `all`, the tools that its scope can match, sorted.
    tools: Vec<Vec<String>>,
    by_tool: BTreeMap<String, ToolRules>,
    entity_types: EntityTypes,
}

/// The rules whose scope can match one tool.
#[derive(Debug, Clone)]
struct ToolRules {
    action: CedarAction,
    rules: Vec<Arc<Rule>>,
}

/// The ids of the rules that match a call, by their effect.
#[derive(Debug, Default)]
struct MatchedRules<'a> {
    denying: Vec<&'a str>,
    asking: Vec<&'a str>,
    permitting: Option<&'a str>,
}

/// The effect of one rule on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleEffect {
    None,
    Permit,
    Ask,
    Deny,
}

impl RuleSet {
    /// Parses and checks all rule files, by name.
    pub(crate) fn load(
        files: &BTreeMap<String, String>,
        tools: &BTreeSet<String>,
        manifests: &BTreeMap<String, ToolManifest>,
    ) -> Result<Self, Vec<TextError>> {
        let broken =
            |message: String| vec![TextError { file: "policy".to_owned(), line: 1, column: 1, message }];
        let no_schema =
            || broken("the schema of the rules cannot be generated: report this as a bug".to_owned());
        let entity_types = EntityTypes::new().ok_or_else(no_schema)?;
        if files.is_empty() {
            let (all, indexes, tools) = (Vec::new(), BTreeMap::new(), Vec::new());
            return Ok(Self { all, indexes, tools, by_tool: BTreeMap::new(), entity_types });
        }
        let (schema, _) = Schema::from_cedarschema_str(&schema::text(tools, manifests)).map_err(|error| {
            broken(format!("the schema of the rules cannot be generated ({error}): report this as a bug"))
        })?;
        let all: Vec<Arc<Rule>> = load::load(files, &schema)?.into_iter().map(Arc::new).collect();
        let mut by_tool: BTreeMap<String, ToolRules> = BTreeMap::new();
        for tool in tools {
            let tool_rules = ToolRules::new(&all, tool, manifests.get(tool)).ok_or_else(no_schema)?;
            if !tool_rules.rules.is_empty() {
                by_tool.insert(tool.clone(), tool_rules);
            }
        }
        let indexes: BTreeMap<String, usize> =
            all.iter().enumerate().map(|(at, rule)| (rule.id.clone(), at)).collect();
        let mut own = vec![Vec::new(); all.len()];
        for (tool, tool_rules) in &by_tool {
            for at in tool_rules.rules.iter().filter_map(|rule| indexes.get(&rule.id)) {
                own[*at].push(tool.clone());
            }
        }
        Ok(Self { all, indexes, tools: own, by_tool, entity_types })
    }

    pub(crate) fn all(&self) -> &[Arc<Rule>] {
        &self.all
    }

    /// The tools that a rule's scope can match, sorted.
    pub(crate) fn tools_of(&self, rule: &Rule) -> &[String] {
        self.indexes.get(&rule.id).and_then(|at| self.tools.get(*at)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn rule(&self, id: &str) -> Option<&Rule> {
        self.indexes.get(id).and_then(|at| self.all.get(*at)).map(AsRef::as_ref)
    }

    /// Reports to `trace` what the rules decide about a call on a channel of this class, and returns the permit
    /// that waives its approval.
    pub(crate) fn decide(&self, class: &str, facts: &Facts, trace: &mut DecisionTrace<'_>) -> Option<String> {
        let tool_rules = self.by_tool.get(&facts.tool)?;
        let matched = match self.matched_rules(tool_rules, class, facts) {
            Ok(matched) => matched,
            Err(reason) => {
                let would_allow = Some("an operator can mend the rule, or the call its arguments".to_owned());
                trace.object(Decision::Deny, "policy.error", reason, would_allow);
                return None;
            }
        };
        for id in &matched.denying {
            trace.object(Decision::Deny, format!("policy.{id}"), self.reason(id, "forbids it"), None);
        }
        for id in &matched.asking {
            let (reason, would_allow) =
                (self.reason(id, "wants a person to see it"), "a person can approve it");
            trace.object(Decision::Ask, format!("policy.{id}"), reason, Some(would_allow.to_owned()));
        }
        if matched.denying.is_empty() && matched.asking.is_empty() {
            trace.record_pass("policy", || "no rule of the operator objects".to_owned());
        }
        matched.permitting.map(|id| {
            trace.record_note(&format!("policy.{id}"), "it permits the call without an approval");
            format!("permit.{id}")
        })
    }

    /// The rule's own reason, or `otherwise`.
    fn reason(&self, id: &str, otherwise: &str) -> String {
        let own = self.rule(id).and_then(|rule| rule.policy.annotation("reason"));
        own.map_or_else(|| format!("the rule `{id}` {otherwise}"), str::to_owned)
    }

    /// What all rules of the tool decide. The error is a sentence that names the rule that failed.
    fn matched_rules<'a>(
        &self,
        tool_rules: &'a ToolRules,
        class: &str,
        facts: &Facts,
    ) -> Result<MatchedRules<'a>, String> {
        if facts.mandates.len() > MAX_CHAIN {
            return Err(format!("more than {MAX_CHAIN} agents stand behind this call"));
        }
        let mut matched = MatchedRules::default();
        for rule in &tool_rules.rules {
            // An offer has no arguments yet; rules about arguments decide when there are some.
            if facts.stage == DecisionStage::Offer && rule.usage.args {
                continue;
            }
            if let Some(unseen) = facts.args.unseen.iter().find(|name| rule.usage.context.contains(*name)) {
                // A permit that cannot read an attribute does not hold, but such a `forbid` must not be passed.
                if rule.forbids {
                    let form = "which this call has in a form that no rule can look at";
                    return Err(format!("the rule `{}` looks at `{unseen}`, {form}", rule.id));
                }
                continue;
            }
            let call_views = call_views(&rule.usage, facts, class);
            let effect = self.effect_of(&tool_rules.action, rule, call_views);
            match effect
                .map_err(|_| format!("the rule `{}` could not be evaluated for this call", rule.id))?
            {
                RuleEffect::None => {}
                RuleEffect::Deny => matched.denying.push(&rule.id),
                RuleEffect::Ask => matched.asking.push(&rule.id),
                RuleEffect::Permit => matched.permitting = matched.permitting.or(Some(&rule.id)),
            }
        }
        Ok(matched)
    }

    /// A rule forbids what it forbids in any view, and permits what it permits in every view.
    fn effect_of<'v>(
        &self,
        action: &CedarAction,
        rule: &Rule,
        mut call_views: impl Iterator<Item = CallView<'v>>,
    ) -> Result<RuleEffect, CedarRequestError> {
        if !rule.forbids {
            let all = call_views.try_fold(true, |all, view| Ok(all && self.matches(action, rule, &view)?))?;
            return Ok(if all { RuleEffect::Permit } else { RuleEffect::None });
        }
        let mut effect = RuleEffect::None;
        for view in call_views {
            let before = self.matches(action, rule, &view)?;
            let after =
                if rule.usage.approved { self.matches(action, rule, &view.with_approval())? } else { before };
            match (before, after) {
                (_, true) => return Ok(RuleEffect::Deny),
                (true, false) => effect = RuleEffect::Ask,
                (false, false) => {}
            }
        }
        Ok(effect)
    }

    fn matches(
        &self,
        action: &CedarAction,
        rule: &Rule,
        view: &CallView<'_>,
    ) -> Result<bool, CedarRequestError> {
        if !rule.prefilter.may_match(view) {
            return Ok(false);
        }
        let own;
        let entities = if rule.usage.entities {
            own = self.entity_types.entities(action, view)?;
            &own
        } else {
            &action.alone
        };
        let request = self.entity_types.request(action, &rule.usage, view)?;
        let response = Authorizer::new().is_authorized(&request, &rule.set, entities);
        if response.diagnostics().errors().next().is_some() {
            return Err(CedarRequestError);
        }
        Ok(response.diagnostics().reason().next().is_some())
    }
}

impl ToolRules {
    fn new(all: &[Arc<Rule>], tool: &str, manifest: Option<&ToolManifest>) -> Option<Self> {
        let kind: EntityTypeName = format!("{}::Action", schema::NAMESPACE).parse().ok()?;
        let name = |name: &str| EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(name));
        let uid = name(tool);
        let groups: Vec<EntityUid> = groups(manifest).into_iter().map(name).collect();
        let matching = |rule: &&Arc<Rule>| match &rule.scope.action {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(own) => *own == uid,
            ActionConstraint::In(any) => any.iter().any(|own| *own == uid || groups.contains(own)),
        };
        let rules: Vec<Arc<Rule>> = all.iter().filter(matching).cloned().collect();
        let entity = Entity::new_no_attrs(uid.clone(), groups.into_iter().collect());
        let alone = Entities::from_entities([entity.clone()], None).ok()?;
        Some(Self { action: CedarAction { uid, entity, alone }, rules })
    }
}

#[cfg(test)]
mod tests;
