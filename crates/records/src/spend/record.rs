//! The ledger records of spending.

use serde::{Deserialize, Serialize};
use tribune_providers::TokenUsage;

use super::amount::Amount;
use super::money::Money;

/// The entity id under which the spending of a session, or of a caller of the model proxy, is recorded.
pub fn spend_entity(who: &str) -> String {
    format!("spend:{who}")
}

/// The payload of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SpendRecord {
    /// A request is about to be sent and costs at most this.
    Reserved(Spent),
    /// A request has ended. Its reservation is the parent.
    Spent(Spent),
    /// A request cost nothing. Its reservation is the parent.
    Released {},
    Raised(Raised),
}

/// One request to a model, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub agent: String,
    /// None if it did not come from a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub provider: String,
    pub model: String,
    /// The day to which it is charged; without one, the day of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    pub usage: TokenUsage,
    /// In thousand-millionths; none if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// The provider reported no usage; this is the most that it can have been.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// A limit was raised, because a person allowed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// `session`, `agent` or `day`.
    pub scope: String,
    /// The session or the agent; empty for the daemon as a whole.
    pub name: String,
    /// For an agent or the daemon: the day for which the limit is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    pub by: Amount,
}
