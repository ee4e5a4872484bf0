//! A view of a call in Cedar's own types. It contains only what the rule reads, because to create a value costs
//! more than to compare it.

use cedar_policy::{Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request};

use super::attribute_usage::AttributeUsage;
use super::call_view::{AttributeValue, CallView};
use super::schema::{OF_AGENT, OF_SESSION};

/// A part of the facts has no form in Cedar. It must not be left out, so the call is denied.
#[derive(Debug)]
pub(crate) struct CedarRequestError;

/// The entity types that every request needs.
#[derive(Debug, Clone)]
pub(crate) struct EntityTypes {
    agent: EntityTypeName,
    session: EntityTypeName,
}

/// A tool as an action of Cedar.
#[derive(Debug, Clone)]
pub(crate) struct CedarAction {
    pub(crate) uid: EntityUid,
    /// With the groups that it is in.
    pub(crate) entity: Entity,
    /// The entities of rules that read no attributes of agent or session: the action alone.
    pub(crate) alone: Entities,
}

impl EntityTypes {
    pub(crate) fn new() -> Option<Self> {
        Some(Self { agent: "Tribune::Agent".parse().ok()?, session: "Tribune::Session".parse().ok()? })
    }

    fn agent(&self, view: &CallView<'_>) -> EntityUid {
        EntityUid::from_type_name_and_id(self.agent.clone(), EntityId::new(&view.facts.agent))
    }

    fn session(&self, view: &CallView<'_>) -> EntityUid {
        EntityUid::from_type_name_and_id(self.session.clone(), EntityId::new(&view.facts.session))
    }

    /// The agent, the session and the action, for rules that read their attributes.
    pub(crate) fn entities(
        &self,
        action: &CedarAction,
        view: &CallView<'_>,
    ) -> Result<Entities, CedarRequestError> {
        let pairs = |named: [(&str, Option<AttributeValue<'_>>); 2]| {
            let own =
                named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.expression())));
            own.collect()
        };
        let agent = pairs(OF_AGENT.map(|name| (name, view.of_agent(name))));
        let session = pairs(OF_SESSION.map(|name| (name, view.of_session(name))));
        let agent = Entity::new(self.agent(view), agent, [].into()).map_err(|_| CedarRequestError)?;
        let session = Entity::new(self.session(view), session, [].into()).map_err(|_| CedarRequestError)?;
        Entities::from_entities([agent, session, action.entity.clone()], None).map_err(|_| CedarRequestError)
    }

    pub(crate) fn request(
        &self,
        action: &CedarAction,
        usage: &AttributeUsage,
        view: &CallView<'_>,
    ) -> Result<Request, CedarRequestError> {
        let pairs =
            usage.context.iter().filter_map(|name| Some((name.clone(), view.attribute(name)?.expression())));
        let context = Context::from_pairs(pairs).map_err(|_| CedarRequestError)?;
        let (agent, session) = (self.agent(view), self.session(view));
        Request::new(agent, action.uid.clone(), session, context, None).map_err(|_| CedarRequestError)
    }
}
