//! Amounts of money in the unit of the configured prices, to a thousand-millionth of it.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const NANOS: u64 = 1_000_000_000;

/// Digits after the decimal point.
const DIGITS: usize = 9;

/// An amount of money. Sums saturate at the largest amount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(u64);

impl Money {
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The cost of `tokens` if a million of them cost this, rounded up.
    pub fn for_tokens(self, tokens: u64) -> Self {
        let nanos = (u128::from(self.0) * u128::from(tokens)).div_ceil(1_000_000);
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl FromStr for Money {
    type Err = ();

    /// Parses a decimal number that is not negative, such as `12` or `0.075`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > DIGITS {
            return Err(());
        }
        let whole: u64 = whole.parse().map_err(drop)?;
        let part: u64 = format!("{part:0<DIGITS$}").parse().map_err(drop)?;
        let nanos = whole.checked_mul(NANOS).and_then(|nanos| nanos.checked_add(part));
        nanos.map(Self).ok_or(())
    }
}

/// Prints as many digits after the decimal point as needed, at least two.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = format!("{:09}", self.0 % NANOS);
        let shown = part.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / NANOS, part.get(..shown).unwrap_or(&part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_amounts_parse_to_the_same_value() {
        for (text, nanos, shown) in [
            ("0", 0, "0.00"),
            ("3", 3 * NANOS, "3.00"),
            ("0.075", 75_000_000, "0.075"),
            ("12.5", 12_500_000_000, "12.50"),
            ("0.000000001", 1, "0.000000001"),
        ] {
            let money: Money = text.parse().unwrap();
            assert_eq!((money, money.to_string().as_str()), (Money(nanos), shown));
            assert_eq!(shown.parse(), Ok(money));
        }
        for wrong in
            ["", ".5", "-1", "1e3", "1,5", "0.0000000001", "99999999999999999999", "18446744074", "NaN"]
        {
            assert_eq!(wrong.parse::<Money>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn the_cost_of_tokens_is_rounded_up() {
        let price: Money = "3".parse().unwrap();
        assert_eq!(price.for_tokens(1_000_000), price);
        assert_eq!(price.for_tokens(1), Money(3_000));
        assert_eq!(Money(1).for_tokens(1), Money(1));
        assert_eq!(Money(1).for_tokens(0), Money::ZERO);
        assert_eq!(Money(u64::MAX).for_tokens(u64::MAX), Money(u64::MAX));
    }
}
