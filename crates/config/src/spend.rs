//! The `spend` section: budgets and model prices.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use tribune_providers::ModelRef;
use tribune_records::spend::amount::{Price, SpendLimit};
use tribune_records::spend::money::Money;

use super::values::{Bounded, Word, Words};

/// Most models with a price.
const MAX_PRICES: usize = 4096;

/// What happens when a request would exceed a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtLimit {
    /// The turn waits until a person allows more.
    Ask,
    /// The turn ends.
    Stop,
}

impl Words for AtLimit {
    const WORDS: &'static [(&'static str, Self)] = &[("ask", Self::Ask), ("stop", Self::Stop)];
}

/// Budgets and prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendConfig {
    pub limits: SpendLimits,
    pub at_limit: AtLimit,
    pub prices: BTreeMap<ModelRef, Price>,
}

/// The budget limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpendLimits {
    /// For one session over its whole lifetime.
    pub session: SpendLimit,
    /// For one agent per day.
    pub agent: SpendLimit,
    /// For all agents together per day.
    pub day: SpendLimit,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawSpend {
    per_session: RawLimit,
    per_agent_and_day: RawLimit,
    per_day: RawLimit,
    at_limit: Word<AtLimit>,
    prices: Prices,
}

impl Default for RawSpend {
    fn default() -> Self {
        Self {
            per_session: RawLimit::default(),
            per_agent_and_day: RawLimit::default(),
            per_day: RawLimit::default(),
            at_limit: Word(AtLimit::Ask),
            prices: Prices::default(),
        }
    }
}

impl From<RawSpend> for SpendConfig {
    fn from(raw: RawSpend) -> Self {
        let (session, agent, day) = (raw.per_session, raw.per_agent_and_day, raw.per_day);
        let limits = SpendLimits { session: session.into(), agent: agent.into(), day: day.into() };
        Self { limits, at_limit: raw.at_limit.0, prices: raw.prices.0 }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawLimit {
    tokens: Option<Bounded<1, 1_000_000_000_000>>,
    cost: Option<Sum>,
}

impl From<RawLimit> for SpendLimit {
    fn from(raw: RawLimit) -> Self {
        Self { tokens: raw.tokens.map(|tokens| tokens.0), cost: raw.cost.map(|cost| cost.0) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawPrice {
    input: Sum,
    output: Sum,
    cache_read: Option<Sum>,
    cache_write: Option<Sum>,
}

#[derive(Debug, Default)]
struct Prices(BTreeMap<ModelRef, Price>);

/// An amount of money, up to a million.
#[derive(Debug, Clone, Copy)]
struct Sum(Money);

impl<'de> Deserialize<'de> for Prices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = BTreeMap::<String, RawPrice>::deserialize(deserializer)?;
        if raw.len() > MAX_PRICES {
            return Err(D::Error::custom(format!("has more than {MAX_PRICES} entries: remove some")));
        }
        let price = |(name, raw): (String, RawPrice)| {
            let model: ModelRef =
                name.parse().map_err(|error| D::Error::custom(format!("is wrong: {error}")))?;
            let (input, output) = (raw.input.0, raw.output.0);
            let cache_read = raw.cache_read.map_or(input, |sum| sum.0);
            let cache_written = raw.cache_write.map_or(input, |sum| sum.0);
            Ok((model, Price { input, output, cache_read, cache_written }))
        };
        raw.into_iter().map(price).collect::<Result<_, _>>().map(Self)
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_f64(SumVisitor)
    }
}

struct SumVisitor;

impl SumVisitor {
    fn read<E: Error>(number: impl fmt::Display) -> Result<Sum, E> {
        let most = Money::from_nanos(1_000_000 * 1_000_000_000);
        let text = number.to_string();
        text.parse().ok().filter(|sum| *sum <= most).map(Sum).ok_or_else(|| {
            E::custom(format!(
                "is {text}: use a number from 0 to 1000000, with at most nine digits after the decimal point"
            ))
        })
    }
}

impl Visitor<'_> for SumVisitor {
    type Value = Sum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0 to 1000000")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Sum, E> {
        Self::read(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Sum, E> {
        Self::read(number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Sum, E> {
        Self::read(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(text: &str) -> Result<SpendConfig, String> {
        let config = Config::parse("config.json5", &format!("{{ spend: {text} }}"));
        config.map(|config| config.spend).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_and_prices_are_parsed() {
        let money = |text: &str| text.parse::<Money>().unwrap();
        let spend = read(
            r#"{ perSession: { tokens: 5 }, perDay: { cost: 2.5 }, atLimit: "stop",
                 prices: { "a:b:c": { input: 3, output: 0.075 }, "x:y": { input: 0, output: 0, cacheRead: 1, cacheWrite: 2 } } }"#,
        );
        let spend = spend.unwrap();
        assert_eq!(spend.at_limit, AtLimit::Stop);
        assert_eq!(spend.limits.session, SpendLimit { tokens: Some(5), cost: None });
        assert_eq!(spend.limits.day, SpendLimit { tokens: None, cost: Some(money("2.5")) });
        assert!(spend.limits.agent.is_none());
        let price = spend.prices[&"a:b:c".parse().unwrap()];
        assert_eq!(
            (price.cache_read, price.cache_written, price.output),
            (money("3"), money("3"), money("0.075"))
        );
    }

    #[test]
    fn invalid_prices_and_limits_are_rejected_with_their_position() {
        for (text, said) in [
            (
                "{ perDay: { cost: -1 } }",
                "config.json5:1:28: `spend.perDay.cost` is -1: use a number from 0 to 1000000",
            ),
            ("{ perDay: { cost: 1000001 } }", "`spend.perDay.cost` is 1000001"),
            ("{ perDay: { tokens: 0 } }", "`spend.perDay.tokens` is 0: use a whole number from 1"),
            ("{ perday: {} }", "did you mean `perDay`?"),
            ("{ prices: { gpt: { input: 1, output: 1 } } }", "names no provider"),
            (
                "{ prices: { 'a:b': { input: 1 } } }",
                "has no `output`: add it; `output: 15` means that a million such tokens cost 15",
            ),
            ("{ prices: { 'a:b': { input: NaN, output: 1 } } }", "is NaN"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }
}
