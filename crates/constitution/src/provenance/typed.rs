//! Numbers and dates by their value: `50` is `50.0`, and 13 June 2024 is 2024-06-13.

use std::ops::Range;

/// Digits of a number that is compared by its value.
const MAX_DIGITS: usize = 40;

/// Bytes of a date in the longest notation.
const MAX_DATE_BYTES: usize = 32;

/// A decimal number: its sign, its digits without zeros on either side, and the power of ten of the last digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

/// A day, without a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CalendarDate {
    year: u16,
    month: u8,
    day: u8,
}

impl Decimal {
    /// Parses a number: JSON's notation, a sign, and groups of three digits if a decimal point follows them. One comma
    /// alone could be a decimal comma as well as a group, so it is neither.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (number, power) = match text.split_once(['e', 'E']) {
            Some((number, power)) => (number, power.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole =
            if whole.contains(',') && number.contains('.') { ungrouped(whole)? } else { whole.to_owned() };
        let all = format!("{whole}{fraction}");
        let is_number =
            !whole.is_empty() && all.len() <= MAX_DIGITS && all.bytes().all(|b| b.is_ascii_digit());
        if !is_number || (number.contains('.') && fraction.is_empty()) {
            return None;
        }
        let digits = all.trim_end_matches('0');
        let dropped = all.len() - digits.len();
        let exponent = i64::from(power) - fraction.len() as i64 + dropped as i64;
        match digits.trim_start_matches('0') {
            "" => Some(Self { is_negative: false, digits: String::new(), exponent: 0 }),
            digits => Some(Self { is_negative, digits: digits.to_owned(), exponent }),
        }
    }
}

/// The digits of `1,234,567`.
fn ungrouped(text: &str) -> Option<String> {
    let mut groups = text.split(',');
    let first = groups.next().filter(|first| (1..=3).contains(&first.len()))?;
    groups.try_fold(first.to_owned(), |all, group| (group.len() == 3).then(|| all + group))
}

impl CalendarDate {
    /// Parses a text that is a date and nothing else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_DATE_BYTES {
            return None;
        }
        let words: Vec<Range<usize>> = words(text);
        let (range, date) = Self::at(text, &words)?;
        (range == (0..text.len())).then_some(date)
    }

    /// Every date in a text with its year, and where it stands.
    pub(super) fn all_in(text: &str) -> Vec<(Range<usize>, Self)> {
        let words = words(text);
        (0..words.len()).filter_map(|from| Self::at(text, &words[from..])).collect()
    }

    /// The date that begins with the first word: `2024-06-13`, `13.6.2024`, `13 June 2024`, `June 13, 2024`.
    fn at(text: &str, words: &[Range<usize>]) -> Option<(Range<usize>, Self)> {
        let word = |n: usize| words.get(n).map(|range: &Range<usize>| &text[range.clone()]);
        let first = words.first()?;
        let bare = word(0)?.trim_end_matches(['.', ',', ';', ':', '!', '?']);
        if let Some(date) = Self::of_digits(bare) {
            return Some((first.start..first.start + bare.len(), date));
        }
        let third = words.get(2)?;
        let year = text[third.clone()].trim_end_matches(['.', ',', ';', ':', '!', '?']);
        let (one, two) = (word(0)?, word(1)?);
        let (day, month) = match month(two.trim_end_matches(',')) {
            Some(month) => (day(one)?, month),
            None => (day(two.trim_end_matches(','))?, month(one)?),
        };
        let date = Self::checked(number(year, 4)?, month, day)?;
        Some((first.start..third.start + year.len(), date))
    }

    /// `2024-06-13`, `2024/06/13` and `13.6.2024`. With slashes and the year last, day and month could be exchanged.
    fn of_digits(text: &str) -> Option<Self> {
        let parts = |separator: char| -> Option<[&str; 3]> {
            text.split(separator).collect::<Vec<_>>().try_into().ok()
        };
        if let Some([year, month, day]) = parts('-').or_else(|| parts('/')) {
            return Self::checked(number(year, 4)?, number(month, 2)?, number(day, 2)?);
        }
        let [day, month, year] = parts('.')?;
        let short = |text: &str| number(text, 1).or_else(|| number(text, 2));
        Self::checked(number(year, 4)?, short(month)?, short(day)?)
    }

    fn checked(year: u16, month: u16, day: u16) -> Option<Self> {
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        Some(Self { year, month: u8::try_from(month).ok()?, day: u8::try_from(day).ok()? })
    }
}

/// The words of a text: what stands between spaces, without quotes and brackets around it.
fn words(text: &str) -> Vec<Range<usize>> {
    let around = |c: char| super::statement::delimits(c);
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (around(c), start) {
            (true, Some(from)) => {
                words.push(from..at);
                start = None;
            }
            (false, None) => start = Some(at),
            (true, None) | (false, Some(_)) => {}
        }
    }
    words
}

/// A number with exactly this many digits.
fn number(text: &str, digits: usize) -> Option<u16> {
    (text.len() == digits && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// `13`, `13.` or `13th`.
fn day(text: &str) -> Option<u16> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, ending) = text.split_at(end);
    let is_day = ["", ".", "st", "nd", "rd", "th"].contains(&ending);
    number(digits, 1).or_else(|| number(digits, 2)).filter(|_| is_day)
}

/// The number of a month from its English name or the first three letters of it.
fn month(text: &str) -> Option<u16> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let text = text.to_lowercase();
    let name = text.trim_end_matches('.');
    let found =
        MONTHS.iter().position(|month| *month == name || (name.len() == 3 && month.starts_with(name)))?;
    u16::try_from(found + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_equal_in_every_notation() {
        for (one, other) in [
            ("50", "50.0"),
            ("50", "5e1"),
            ("50.00", "+50"),
            ("0.5", "0.50"),
            ("-0", "0.0"),
            ("1,234.50", "1234.5"),
            ("007", "7"),
        ] {
            assert_eq!(Decimal::parse(one).unwrap(), Decimal::parse(other).unwrap(), "{one} {other}");
        }
        for (one, other) in [("50", "5"), ("50", "500"), ("-5", "5"), ("1.5", "15"), ("0.5", "0.05")] {
            assert_ne!(Decimal::parse(one), Decimal::parse(other), "{one} {other}");
        }
        for text in ["", "-", "1,000", "50,0", "1,00.5", "5.", ".5", "1e", "0x1", "٥", "1 000", "NaN"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn equal_dates_are_equal_in_every_notation() {
        let date = CalendarDate::parse("2024-06-03").unwrap();
        for text in [
            "2024/06/03",
            "3.6.2024",
            "03.06.2024",
            "3 June 2024",
            "3rd Jun 2024",
            "June 3, 2024",
            "jun 3rd 2024",
        ] {
            assert_eq!(CalendarDate::parse(text), Some(date), "{text}");
        }
        for text in [
            "",
            "03/06/2024",
            "2024-6-3",
            "2024-13-01",
            "2024-06-32",
            "June 3",
            "2024-06-03T10:00",
            "on 2024-06-03",
        ] {
            assert_eq!(CalendarDate::parse(text), None, "{text}");
        }
        let text = "from 2024-06-03, or (June 4, 2024) to '5 June 2024'.";
        let found: Vec<&str> =
            CalendarDate::all_in(text).into_iter().map(|(range, _)| &text[range]).collect();
        assert_eq!(found, ["2024-06-03", "June 4, 2024", "5 June 2024"]);
    }
}
