//! Operators' rules, in Cedar: what is forbidden beyond the kernel's rules, what a person must see, and which side
//! effects need nobody.
//!
//! `forbid` denies, unless it lets approved calls pass (`unless { context.approved }`): then it asks. `permit` waives
//! the approval that a side effect needs, and nothing else. A call that no rule matches is left as it was.
//!
//! Rules are sorted by tool when they are loaded, so that a call meets only those whose scope can match it. A rule that
//! fails while it is evaluated denies the call.

mod load;
mod reads;
mod request;
pub(crate) mod schema;

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{
    ActionConstraint, Authorizer, Decision as Answer, Entities, Entity, EntityId, EntityTypeName, EntityUid,
    PolicySet, Schema,
};

pub(crate) use load::Rule;
pub use load::{MAX_RULE_BYTES, MAX_RULES};

use self::reads::Reads;
use self::request::{Names, NoRequest, View};
use crate::bundle::Constitution;
use crate::facts::{Facts, SessionKind, Stage};
use crate::inquiry::Inquiry;
use crate::manifest::Manifest;
use crate::reading::TextError;
use crate::trust::Trust;
use crate::verdict::Decision;

/// Agents that may stand behind one another. Each must be allowed what the last one does.
const MAX_CHAIN: usize = 16;

/// All rules of a house.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    all: Vec<Rule>,
    /// Where each id stands in `all`.
    places: BTreeMap<String, usize>,
    slices: BTreeMap<String, Slice>,
    names: Names,
}

/// The rules whose scope can match one tool.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    set: PolicySet,
    /// Those that do not look at the arguments, which an offer does not have.
    without_args: PolicySet,
    /// What the rules in `set` look at.
    reads: Reads,
    action: EntityUid,
    /// The action with the groups it is in.
    entity: Entity,
    /// Of the action alone, for rules that read nobody's attributes.
    entities: Entities,
}

/// What the rules say of a call, in one of its views.
#[derive(Debug, Default)]
struct Answers {
    denied: BTreeSet<String>,
    asked: BTreeSet<String>,
    permitted: BTreeSet<String>,
}

impl Rules {
    /// Reads all files of rules, by name.
    pub(crate) fn load(
        files: &BTreeMap<String, String>,
        tools: &BTreeSet<String>,
        manifests: &BTreeMap<String, Manifest>,
    ) -> Result<Self, Vec<TextError>> {
        let broken =
            |message: String| vec![TextError { file: "policy".to_owned(), line: 1, column: 1, message }];
        let no_schema = || broken("the schema of the rules cannot be made: report this as a bug".to_owned());
        let names = Names::new().ok_or_else(no_schema)?;
        if files.is_empty() {
            return Ok(Self { all: Vec::new(), places: BTreeMap::new(), slices: BTreeMap::new(), names });
        }
        let (schema, _) = Schema::from_cedarschema_str(&schema::text(tools, manifests)).map_err(|error| {
            broken(format!("the schema of the rules cannot be made ({error}): report this as a bug"))
        })?;
        let all = load::load(files, &schema)?;
        let mut slices = BTreeMap::new();
        for tool in tools {
            let slice = Slice::new(&all, tool, manifests.get(tool)).ok_or_else(no_schema)?;
            if !slice.set.is_empty() {
                slices.insert(tool.clone(), slice);
            }
        }
        let places = all.iter().enumerate().map(|(at, rule)| (rule.id.clone(), at)).collect();
        Ok(Self { all, places, slices, names })
    }

    pub(crate) fn all(&self) -> &[Rule] {
        &self.all
    }

    /// The tools that a rule's scope can match, sorted.
    pub(crate) fn tools_of(&self, rule: &Rule) -> Vec<&str> {
        let id = rule.policy.id();
        let own = self.slices.iter().filter(|(_, slice)| slice.set.policy(id).is_some());
        own.map(|(tool, _)| tool.as_str()).collect()
    }

    pub(crate) fn rule(&self, id: &str) -> Option<&Rule> {
        self.places.get(id).and_then(|at| self.all.get(*at))
    }

    /// Tells `inquiry` what the rules say of a call, and names the permit that waives its approval.
    pub(crate) fn decide(
        &self,
        law: &Constitution,
        facts: &Facts,
        inquiry: &mut Inquiry<'_>,
    ) -> Option<String> {
        let slice = self.slices.get(&facts.tool)?;
        let answers = match self.answers(slice, law, facts) {
            Ok(answers) => answers,
            Err(NoRequest) => {
                let reason = "a rule could not be evaluated for this call";
                let would_allow =
                    Some("an operator can see which with `tribune law explain`, and mend it".to_owned());
                inquiry.spoke(Decision::Deny, "policy.error", reason, would_allow);
                return None;
            }
        };
        for id in &answers.denied {
            inquiry.spoke(Decision::Deny, format!("policy.{id}"), self.reason(id, "forbids it"), None);
        }
        for id in answers.asked.difference(&answers.denied) {
            let would_allow = Some("a person can approve it".to_owned());
            inquiry.spoke(
                Decision::Ask,
                format!("policy.{id}"),
                self.reason(id, "wants a person to see it"),
                would_allow,
            );
        }
        let permit = answers.permitted.first();
        if let Some(id) = permit {
            inquiry.noted(&format!("policy.{id}"), "it permits the call without a person");
        }
        if answers.denied.is_empty() && answers.asked.is_empty() {
            inquiry.passed("policy", || "no rule of the operator objects".to_owned());
        }
        permit.map(|id| format!("permit.{id}"))
    }

    /// The rule's own words for it, or `otherwise`.
    fn reason(&self, id: &str, otherwise: &str) -> String {
        let own = self.rule(id).and_then(|rule| rule.policy.annotation("reason"));
        own.map_or_else(|| format!("the rule `{id}` {otherwise}"), str::to_owned)
    }

    fn answers(&self, slice: &Slice, law: &Constitution, facts: &Facts) -> Result<Answers, NoRequest> {
        let class = law.settings().class_of(&facts.channel);
        if facts.mandates.len() > MAX_CHAIN {
            return Err(NoRequest);
        }
        let mut answers: Option<Answers> = None;
        for view in views(slice, facts, class) {
            let own = self.answers_in(slice, facts, view)?;
            answers = Some(match answers {
                None => own,
                Some(before) => before.and(own),
            });
        }
        Ok(answers.unwrap_or_default())
    }

    fn answers_in(&self, slice: &Slice, facts: &Facts, view: View<'_>) -> Result<Answers, NoRequest> {
        let set = match facts.stage {
            Stage::Offer => &slice.without_args,
            Stage::Call | Stage::Dispatch => &slice.set,
        };
        let own;
        let entities = if slice.reads.entities {
            own = self.names.entities(slice, facts, view)?;
            &own
        } else {
            &slice.entities
        };
        let matched = |approved: bool| -> Result<(bool, BTreeSet<String>), NoRequest> {
            let request = self.names.request(slice, facts, view, approved)?;
            let response = Authorizer::new().is_authorized(&request, set, entities);
            if response.diagnostics().errors().next().is_some() {
                return Err(NoRequest);
            }
            let ids = response.diagnostics().reason().map(ToString::to_string).collect();
            Ok((response.decision() == Answer::Allow, ids))
        };
        let (permits, ids) = matched(false)?;
        let mut answers = Answers::default();
        match (permits, slice.reads.approved()) {
            (true, _) => answers.permitted = ids,
            (false, false) => answers.denied = ids,
            (false, true) => answers.asked = ids,
        }
        if slice.reads.approved() {
            let (permits, ids) = matched(true)?;
            if !permits {
                answers.denied = ids;
            }
        }
        Ok(answers)
    }
}

impl Answers {
    /// What holds in both views: every objection, and a permit only if each has one.
    fn and(mut self, other: Self) -> Self {
        self.denied.extend(other.denied);
        self.asked.extend(other.asked);
        if other.permitted.is_empty() {
            self.permitted.clear();
        }
        self
    }
}

/// The views in which a call must be allowed. Beside its own there are those of the agents that started this one, each
/// under its own mandate, and those of cleaner sessions: so neither starting a sub-agent nor reading something can get
/// an agent past a rule, however the rule is written.
fn views<'a>(slice: &'a Slice, facts: &'a Facts, class: &'a str) -> impl Iterator<Item = View<'a>> {
    let reads = |name: &str| slice.reads.context.contains(name);
    let trusts: &[Trust] = if reads("trust") { &Trust::ALL } else { &[Trust::Owner] };
    let privates: &[bool] = if reads("private") && facts.labels.private { &[true, false] } else { &[false] };
    let last = facts.mandates.len().saturating_sub(1);
    facts.mandates.iter().enumerate().flat_map(move |(index, mandate)| {
        let kind = if index == last && index > 0 { SessionKind::Main } else { facts.kind };
        let trusts = trusts.iter().filter(|trust| **trust >= facts.labels.trust || trusts.len() == 1);
        trusts.flat_map(move |trust| {
            privates.iter().map(move |private| View {
                kind,
                mandate,
                class,
                trust: *trust,
                private: *private,
            })
        })
    })
}

impl Slice {
    fn new(all: &[Rule], tool: &str, manifest: Option<&Manifest>) -> Option<Self> {
        let kind: EntityTypeName = format!("{}::Action", schema::NAMESPACE).parse().ok()?;
        let uid = |name: &str| EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(name));
        let action = uid(tool);
        let groups: Vec<EntityUid> = schema::groups(manifest).into_iter().map(uid).collect();
        let matching = |rule: &&Rule| match rule.policy.action_constraint() {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(own) => own == action,
            ActionConstraint::In(any) => any.iter().any(|own| *own == action || groups.contains(own)),
        };
        let own: Vec<&Rule> = all.iter().filter(matching).collect();
        let policies = |rules: &mut dyn Iterator<Item = &&Rule>| {
            PolicySet::from_policies(rules.map(|rule| rule.policy.clone())).ok()
        };
        let mut reads = Reads::default();
        own.iter().for_each(|rule| reads.join(&rule.reads));
        let entity = Entity::new_no_attrs(action.clone(), groups.into_iter().collect());
        Some(Self {
            set: policies(&mut own.iter())?,
            without_args: policies(&mut own.iter().filter(|rule| !rule.reads.args()))?,
            reads,
            action,
            entities: Entities::from_entities([entity.clone()], None).ok()?,
            entity,
        })
    }
}

#[cfg(test)]
mod tests;
