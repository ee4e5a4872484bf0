//! Amounts of tokens and their cost, limits on them, and prices.

use std::ops::Add;

use serde::{Deserialize, Serialize};
use tribune_providers::TokenUsage;

use super::money::Money;

/// Tokens and their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    pub tokens: u64,
    /// In thousand-millionths.
    pub cost: Money,
}

impl Amount {
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost: self.cost.saturating_sub(other.cost) }
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost: self.cost + other.cost }
    }
}

/// A limit on spending. A part that is not set is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpendLimit {
    pub tokens: Option<u64>,
    pub cost: Option<Money>,
}

impl SpendLimit {
    pub const fn is_none(&self) -> bool {
        self.tokens.is_none() && self.cost.is_none()
    }

    /// Whether an amount is within the limit, raised by `raised`.
    pub fn holds(&self, amount: Amount, raised: Amount) -> bool {
        self.tokens.is_none_or(|limit| amount.tokens <= limit.saturating_add(raised.tokens))
            && self.cost.is_none_or(|limit| amount.cost <= limit + raised.cost)
    }
}

/// The price of a million tokens of a model, by kind of token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub input: Money,
    pub output: Money,
    pub cache_read: Money,
    pub cache_written: Money,
}

impl Price {
    pub fn of(&self, usage: &TokenUsage) -> Money {
        self.input.for_tokens(usage.input)
            + self.output.for_tokens(usage.output)
            + self.cache_read.for_tokens(usage.cache_read)
            + self.cache_written.for_tokens(usage.cache_written)
    }

    /// The most that a request with this many prompt and answer tokens can cost.
    pub fn at_most(&self, prompt: u64, answer: u64) -> Money {
        self.input.max(self.cache_written).max(self.cache_read).for_tokens(prompt)
            + self.output.for_tokens(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let price = Price {
            input: money("3"),
            output: money("15"),
            cache_read: money("0.3"),
            cache_written: money("3.75"),
        };
        let usage = TokenUsage { input: 1_000, output: 200, cache_read: 10_000, cache_written: 100 };
        assert_eq!(price.of(&usage), money("0.009375"));
        assert!(price.at_most(11_100, 200) >= price.of(&usage));
    }

    #[test]
    fn a_limit_includes_its_value_and_raises_add_to_it() {
        let limit = SpendLimit { tokens: Some(100), cost: None };
        let spent = |tokens| Amount { tokens, cost: money("9") };
        assert!(limit.holds(spent(100), Amount::default()));
        assert!(!limit.holds(spent(101), Amount::default()));
        assert!(limit.holds(spent(150), spent(50)));
        let limit = SpendLimit { tokens: None, cost: Some(money("8.99")) };
        assert!(!limit.holds(spent(0), Amount::default()));
    }
}
