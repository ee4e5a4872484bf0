//! A call as rules see it: the agent, the labels, and the value of every attribute in the schema.

use cedar_policy::RestrictedExpression;

use super::attribute_usage::AttributeUsage;
use crate::facts::{ArgumentProvenance, Facts, SessionKind};
use crate::trust::Trust;

/// One view of a call: as it is, as if an agent of its chain made it, or as if its session were cleaner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallView<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) class: &'a str,
    pub(crate) kind: SessionKind,
    pub(crate) mandate: &'a str,
    pub(crate) trust: Trust,
    pub(crate) private: bool,
    pub(crate) approved: bool,
}

/// The value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeValue<'a> {
    Text(&'a str),
    Flag(bool),
    Long(i64),
    Set(&'a [String]),
}

impl AttributeValue<'_> {
    pub(crate) fn expression(self) -> RestrictedExpression {
        match self {
            Self::Text(text) => RestrictedExpression::new_string(text.to_owned()),
            Self::Flag(flag) => RestrictedExpression::new_bool(flag),
            Self::Long(number) => RestrictedExpression::new_long(number),
            Self::Set(texts) => {
                RestrictedExpression::new_set(texts.iter().cloned().map(RestrictedExpression::new_string))
            }
        }
    }
}

/// The views in which a call must be allowed. Besides its own these are the views of the agents that started this
/// one, each under its own mandate, and of cleaner sessions: so neither a sub-agent nor something that was read
/// gets an agent past a rule, however the rule is written. A rule that does not read what differs has one view.
pub(crate) fn call_views<'a>(
    usage: &AttributeUsage,
    facts: &'a Facts,
    class: &'a str,
) -> impl Iterator<Item = CallView<'a>> {
    let trusts =
        if usage.trust { &Trust::ALL[usize::from(facts.labels.trust.level())..] } else { &Trust::ALL[3..] };
    let privates: &[bool] = if usage.private && facts.labels.private { &[true, false] } else { &[false] };
    let chain = if usage.who { facts.mandates.len() } else { 1 };
    let last = facts.mandates.len().saturating_sub(1);
    facts.mandates.iter().take(chain).enumerate().flat_map(move |(index, mandate)| {
        let kind = if index == last && index > 0 { SessionKind::Main } else { facts.kind };
        trusts.iter().flat_map(move |trust| {
            let view =
                CallView { facts, class, kind, mandate, trust: *trust, private: false, approved: false };
            privates.iter().map(move |private| CallView { private: *private, ..view })
        })
    })
}

impl<'a> CallView<'a> {
    /// The same call, approved by a person.
    pub(crate) const fn with_approval(self) -> Self {
        Self { approved: true, ..self }
    }

    /// The value of an attribute of the context; `None` if the call has none.
    pub(crate) fn attribute(&self, name: &str) -> Option<AttributeValue<'a>> {
        let args = &self.facts.args;
        let text = |text: &'a Option<String>| text.as_deref().map(AttributeValue::Text);
        match name {
            "approved" => Some(AttributeValue::Flag(self.approved)),
            "mandate" => Some(AttributeValue::Text(self.mandate)),
            "owner_args" => {
                let owners =
                    self.facts.provenance == ArgumentProvenance::Owner && self.kind == SessionKind::Main;
                Some(AttributeValue::Flag(owners))
            }
            "private" => Some(AttributeValue::Flag(self.private)),
            "trust" => Some(AttributeValue::Long(self.trust.level().into())),
            "path" => text(&args.path),
            "folder" => text(&args.folder),
            "outside" => args.outside.map(AttributeValue::Flag),
            "host" => text(&args.host),
            "port" => args.port.map(|port| AttributeValue::Long(port.into())),
            "scheme" => text(&args.scheme),
            "method" => text(&args.method),
            "programs" => args.programs.as_deref().map(AttributeValue::Set),
            "parsed" => args.parsed.map(AttributeValue::Flag),
            "recipient" => text(&args.recipient),
            "recipient_type" => text(&args.recipient_type),
            "template" => text(&args.template),
            "links" => args.links.map(AttributeValue::Flag),
            "attachments" => args.attachments.map(AttributeValue::Flag),
            "bytes" => args.bytes.map(|bytes| AttributeValue::Long(i64::try_from(bytes).unwrap_or(i64::MAX))),
            "action" => text(&args.action),
            "name" => text(&args.name),
            _ => None,
        }
    }

    /// An attribute of the agent.
    pub(crate) fn of_agent(&self, name: &str) -> Option<AttributeValue<'a>> {
        match name {
            "id" => Some(AttributeValue::Text(&self.facts.agent)),
            "kind" => Some(AttributeValue::Text(self.kind.as_str())),
            _ => None,
        }
    }

    /// An attribute of the session.
    pub(crate) fn of_session(&self, name: &str) -> Option<AttributeValue<'a>> {
        match name {
            "channel" => Some(AttributeValue::Text(&self.facts.channel)),
            "class" => Some(AttributeValue::Text(self.class)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::{ALWAYS, OF_ARGS};
    use super::*;
    use crate::args::CallArgs;

    #[test]
    fn every_attribute_of_the_schema_has_a_value() {
        let mut facts = Facts::for_owner_call("main", "s", "m", "read");
        let usage = AttributeUsage::default();
        for (name, _) in ALWAYS.iter().chain(&OF_ARGS) {
            let view = call_views(&usage, &facts, "c").next().unwrap();
            assert_eq!(view.attribute(name).is_some(), ALWAYS.iter().any(|(own, _)| own == name), "{name}");
        }
        let some = || Some("x".to_owned());
        facts.args = CallArgs {
            path: some(),
            folder: some(),
            outside: Some(true),
            is_autorun: false,
            host: some(),
            port: Some(1),
            scheme: some(),
            method: some(),
            programs: Some(vec![]),
            parsed: Some(true),
            recipient: some(),
            recipient_type: some(),
            template: some(),
            links: Some(true),
            attachments: Some(true),
            bytes: Some(1),
            action: some(),
            name: some(),
            malformed: false,
            unseen: vec![],
        };
        let view = call_views(&usage, &facts, "c").next().unwrap();
        for (name, kind) in ALWAYS.iter().chain(&OF_ARGS) {
            let own = match view.attribute(name).unwrap() {
                AttributeValue::Text(_) => "String",
                AttributeValue::Flag(_) => "Bool",
                AttributeValue::Long(_) => "Long",
                AttributeValue::Set(_) => "Set<String>",
            };
            assert_eq!(own, *kind, "{name}");
        }
        assert_eq!(view.attribute("colour"), None);
    }
}
