//! Parses and prints times and time spans.

use std::time::Duration;

use jiff::SignedDuration;
use tribune_ledger::Timestamp;
use tribune_storage::clock::{Clock as _, SystemClock, parse_time};

use crate::error::CliError;

/// The longest span that is accepted: ten years, in days.
const MAX_DAYS: u64 = 3_650;

/// Parses a time span such as `90s`, `30m`, `2h` or `7d`.
pub(crate) fn parse_span(text: &str) -> Result<Duration, CliError> {
    let wrong =
        || CliError::Input(format!("`{text}` is not a time span: write one such as 90s, 30m, 2h or 7d"));
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let total = number.checked_mul(seconds).filter(|total| (1..=MAX_DAYS * 86_400).contains(total));
    total.map(Duration::from_secs).ok_or_else(wrong)
}

/// Parses a time such as `2030-01-31T18:00:00Z`, or a day, which stands for its start in UTC.
pub(crate) fn parse_time_point(text: &str) -> Result<Timestamp, CliError> {
    let day = || parse_time(&format!("{text}T00:00:00Z"));
    parse_time(text).or_else(day).ok_or_else(|| {
        CliError::Input(format!(
            "`{text}` is not a time: write one such as 2030-01-31T18:00:00Z or 2030-01-31"
        ))
    })
}

/// Parses a time, or a span that is counted back from now.
pub(crate) fn parse_past(text: &str) -> Result<Timestamp, CliError> {
    let wrong = || {
        let forms = "2030-01-31T18:00:00Z, 2030-01-31 or, counted back from now, 7d";
        CliError::Input(format!("`{text}` is not a time: write one such as {forms}"))
    };
    match parse_span(text) {
        Ok(span) => Ok(SystemClock.now().minus(span)),
        Err(_) => parse_time_point(text).map_err(|_| wrong()),
    }
}

/// How long ago a time was, such as `4m`; `-` if the time cannot be read.
pub(crate) fn age(time: &str) -> String {
    distance(time, |then, now| now.duration_since(then))
}

/// How long until a time, such as `55m`, rounded to the nearest unit: a day ahead is not called 23h.
pub(crate) fn time_left(time: &str) -> String {
    distance(time, |then, now| SignedDuration::from_secs(rounded(then.duration_since(now).as_secs())))
}

/// Adds half a unit, so that truncation rounds to the nearest unit.
const fn rounded(seconds: i64) -> i64 {
    let half = match seconds {
        ..60 => 0,
        60..3_600 => 30,
        3_600..172_800 => 1_800,
        _ => 43_200,
    };
    seconds.saturating_add(half)
}

fn distance(time: &str, between: impl Fn(jiff::Timestamp, jiff::Timestamp) -> SignedDuration) -> String {
    let now = SystemClock.now().to_string();
    match (time.parse(), now.parse()) {
        (Ok(then), Ok(now)) => short_span(between(then, now).as_secs()),
        _ => "-".to_owned(),
    }
}

fn short_span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_times_parse_as_people_write_them() {
        assert_eq!(parse_span("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_span("2h").unwrap(), Duration::from_secs(7_200));
        assert_eq!(parse_span("7d").unwrap(), Duration::from_secs(604_800));
        for wrong in ["", "h", "2", "0s", "-1h", "2w", "2 h", "9999999999d", "ü"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_time_point("2030-01-31").unwrap().to_string(), "2030-01-31T00:00:00.000000Z");
        assert_eq!(
            parse_time_point("2030-01-31T18:00:00Z").unwrap().to_string(),
            "2030-01-31T18:00:00.000000Z"
        );
        assert!(
            parse_time_point("tomorrow").is_err() && parse_past("1d").is_ok() && parse_past("soon").is_err()
        );
        let words: Vec<String> = [-5, 59, 60, 3_599, 7_200, 90_000, 400_000].map(short_span).to_vec();
        assert_eq!(words, ["0s", "59s", "1m", "59m", "2h", "25h", "4d"]);
        let words = [-5, 59, 89, 3_599, 14_399, 86_399, 400_000].map(|left| short_span(rounded(left)));
        assert_eq!(words, ["0s", "59s", "1m", "1h", "4h", "24h", "5d"]);
    }
}
