//! What the log knows of spending.

use serde::{Deserialize, Serialize};
use tribune_providers::TokenUsage;

use super::amount::Amount;
use super::money::Money;

/// Where the spending of a session, or of whoever uses the proxy, is written down.
pub fn spend_entity(who: &str) -> String {
    format!("spend:{who}")
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SpendRecord {
    /// A request is about to be sent, and costs at most this.
    Reserved(Spent),
    /// A request has ended. The entry that began it is its parent.
    Spent(Spent),
    /// A request cost nothing. The entry that began it is its parent.
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
    /// The day that it counts for; without one, the day of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    pub usage: TokenUsage,
    /// In thousand-millionths; none if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// The provider did not tell; this is the most that it can have been.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// A limit was raised, because a person allowed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// `session`, `agent` or `day`.
    pub scope: String,
    /// The session or the agent; empty for the whole house.
    pub name: String,
    /// For an agent or the house: the day that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    pub by: Amount,
}
