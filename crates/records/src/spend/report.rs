//! Reports of spending, aggregated for people.

use serde::Serialize;

use super::money::Money;

/// What a report groups spending by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpendGrouping {
    Day,
    Agent,
    Session,
    Model,
}

impl SpendGrouping {
    pub const ALL: [Self; 4] = [Self::Day, Self::Agent, Self::Session, Self::Model];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Model => "model",
        }
    }
}

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpendLine {
    /// A day, an agent, a session or a model.
    pub name: String,
    pub requests: u64,
    /// Prompt tokens that were not read from a cache.
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_written: u64,
    /// A decimal number in the unit of the prices. Requests to models without a price are not included.
    #[serde(serialize_with = "as_text")]
    pub cost: Money,
    /// Requests to models that have no price.
    pub without_price: u64,
    /// Requests for which the provider reported no tokens: they are counted as the most that they can have been.
    pub estimated: u64,
}

/// All lines and their sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpendReport {
    pub by: String,
    /// The first day that is included, if not all days are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    pub lines: Vec<SpendLine>,
    pub all: SpendLine,
}

impl SpendReport {
    pub fn new(by: SpendGrouping, since: Option<String>, lines: Vec<SpendLine>) -> Self {
        let none = SpendLine {
            name: "all".to_owned(),
            requests: 0,
            input: 0,
            output: 0,
            cache_read: 0,
            cache_written: 0,
            cost: Money::ZERO,
            without_price: 0,
            estimated: 0,
        };
        let all = lines.iter().fold(none, |sum, line| SpendLine {
            name: sum.name,
            requests: sum.requests + line.requests,
            input: sum.input.saturating_add(line.input),
            output: sum.output.saturating_add(line.output),
            cache_read: sum.cache_read.saturating_add(line.cache_read),
            cache_written: sum.cache_written.saturating_add(line.cache_written),
            cost: sum.cost + line.cost,
            without_price: sum.without_price + line.without_price,
            estimated: sum.estimated + line.estimated,
        });
        Self { by: by.as_str().to_owned(), since, lines, all }
    }
}

fn as_text<S: serde::Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(money)
}
