//! A call as Cedar sees it. Only what some rule of the tool reads is put in, since making a value costs more than
//! comparing it.

use cedar_policy::{
    Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request, RestrictedExpression,
};

use super::Slice;
use crate::args::Args;
use crate::facts::{Facts, Provenance, SessionKind};
use crate::trust::Trust;

/// Names that every request needs.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    agent: EntityTypeName,
    session: EntityTypeName,
}

/// Who is asking, as far as rules can see: an agent, or one of those that stand behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) kind: SessionKind,
    pub(crate) mandate: &'a str,
    pub(crate) class: &'a str,
    pub(crate) trust: Trust,
    pub(crate) private: bool,
}

/// Something in the facts has no form in Cedar. It cannot be left out either, so the call is denied.
#[derive(Debug)]
pub(crate) struct NoRequest;

impl Names {
    pub(crate) fn new() -> Option<Self> {
        Some(Self { agent: "Tribune::Agent".parse().ok()?, session: "Tribune::Session".parse().ok()? })
    }

    fn agent(&self, facts: &Facts) -> EntityUid {
        EntityUid::from_type_name_and_id(self.agent.clone(), EntityId::new(&facts.agent))
    }

    fn session(&self, facts: &Facts) -> EntityUid {
        EntityUid::from_type_name_and_id(self.session.clone(), EntityId::new(&facts.session))
    }

    /// The agent, the session and the action, for rules that read their attributes.
    pub(crate) fn entities(
        &self,
        slice: &Slice,
        facts: &Facts,
        view: View<'_>,
    ) -> Result<Entities, NoRequest> {
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let agent = [("id".to_owned(), text(&facts.agent)), ("kind".to_owned(), text(view.kind.as_str()))];
        let session = [("channel".to_owned(), text(&facts.channel)), ("class".to_owned(), text(view.class))];
        let agent = Entity::new(self.agent(facts), agent.into(), [].into()).map_err(|_| NoRequest)?;
        let session = Entity::new(self.session(facts), session.into(), [].into()).map_err(|_| NoRequest)?;
        Entities::from_entities([agent, session, slice.entity.clone()], None).map_err(|_| NoRequest)
    }

    pub(crate) fn request(
        &self,
        slice: &Slice,
        facts: &Facts,
        view: View<'_>,
        approved: bool,
    ) -> Result<Request, NoRequest> {
        let mut pairs = Vec::with_capacity(slice.reads.context.len());
        for name in &slice.reads.context {
            if let Some(value) = attribute(name, facts, view, approved)? {
                pairs.push((name.clone(), value));
            }
        }
        let context = Context::from_pairs(pairs).map_err(|_| NoRequest)?;
        let (agent, session) = (self.agent(facts), self.session(facts));
        Request::new(agent, slice.action.clone(), session, context, None).map_err(|_| NoRequest)
    }
}

/// The value of an attribute of the schema; `None` where the call has none.
fn attribute(
    name: &str,
    facts: &Facts,
    view: View<'_>,
    approved: bool,
) -> Result<Option<RestrictedExpression>, NoRequest> {
    let flag = |flag: bool| Some(RestrictedExpression::new_bool(flag));
    let text = |text: &Option<String>| text.clone().map(RestrictedExpression::new_string);
    let Args {
        path,
        outside,
        host,
        port,
        scheme,
        method,
        programs,
        parsed,
        recipient,
        recipient_type,
        template,
        links,
        attachments,
        bytes,
        action,
        name: own_name,
        malformed: _,
    } = &facts.args;
    Ok(match name {
        "approved" => flag(approved),
        "mandate" => Some(RestrictedExpression::new_string(view.mandate.to_owned())),
        "owner_args" => flag(facts.provenance == Provenance::Owner && view.kind == SessionKind::Main),
        "private" => flag(view.private),
        "trust" => Some(RestrictedExpression::new_long(view.trust.level().into())),
        "path" => text(path),
        "outside" => outside.and_then(flag),
        "host" => text(host),
        "port" => port.map(|port| RestrictedExpression::new_long(port.into())),
        "scheme" => text(scheme),
        "method" => text(method),
        "programs" => programs.as_ref().map(|programs| {
            RestrictedExpression::new_set(programs.iter().cloned().map(RestrictedExpression::new_string))
        }),
        "parsed" => parsed.and_then(flag),
        "recipient" => text(recipient),
        "recipient_type" => text(recipient_type),
        "template" => text(template),
        "links" => links.and_then(flag),
        "attachments" => attachments.and_then(flag),
        "bytes" => match bytes {
            None => None,
            Some(bytes) => {
                Some(RestrictedExpression::new_long(i64::try_from(*bytes).map_err(|_| NoRequest)?))
            }
        },
        "action" => text(action),
        "name" => text(own_name),
        _ => return Err(NoRequest),
    })
}

#[cfg(test)]
mod tests {
    use super::super::schema::{ALWAYS, OF_ARGS};
    use super::*;

    #[test]
    fn every_attribute_of_the_schema_is_known() {
        let facts = Facts::of_call("main", "s", "m", "read");
        let view =
            View { kind: SessionKind::Main, mandate: "m", class: "c", trust: Trust::Owner, private: false };
        for (name, _) in ALWAYS {
            assert!(matches!(attribute(name, &facts, view, false), Ok(Some(_))), "{name}");
        }
        for (name, _) in OF_ARGS {
            assert!(matches!(attribute(name, &facts, view, false), Ok(None)), "{name}");
        }
        assert!(attribute("colour", &facts, view, false).is_err());
    }
}
