//! Times and spans as people type and read them.

use std::time::Duration;

use jiff::SignedDuration;
use tribune_ledger::Timestamp;
use tribune_storage::clock::{Clock as _, SystemClock, parse_time};

use crate::error::CliError;

/// The longest span that is taken: ten years, in days.
const MAX_DAYS: u64 = 3_650;

/// A span such as `90s`, `30m`, `2h` or `7d`.
pub(crate) fn span(text: &str) -> Result<Duration, CliError> {
    let wrong =
        || CliError::Input(format!("`{text}` is no span of time: write one such as 90s, 30m, 2h or 7d"));
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

/// A moment: a time such as `2030-01-31T18:00:00Z`, or the beginning of a day (in UTC).
pub(crate) fn moment(text: &str) -> Result<Timestamp, CliError> {
    let day = || parse_time(&format!("{text}T00:00:00Z"));
    parse_time(text).or_else(day).ok_or_else(|| {
        CliError::Input(format!("`{text}` is no time: write one such as 2030-01-31T18:00:00Z or 2030-01-31"))
    })
}

/// A moment, or how long before now.
pub(crate) fn past(text: &str) -> Result<Timestamp, CliError> {
    let wrong = || {
        let forms = "2030-01-31T18:00:00Z, 2030-01-31 or, counted back from now, 7d";
        CliError::Input(format!("`{text}` is no time: write one such as {forms}"))
    };
    match span(text) {
        Ok(span) => Ok(SystemClock.now().minus(span)),
        Err(_) => moment(text).map_err(|_| wrong()),
    }
}

/// How long ago a moment of the log was, such as `4m`; `-` if that cannot be told.
pub(crate) fn since(time: &str) -> String {
    distance(time, |then, now| now.duration_since(then))
}

/// How long until a moment, such as `55m`, to the nearest of its unit: a day ahead is not called 23h.
pub(crate) fn until(time: &str) -> String {
    distance(time, |then, now| SignedDuration::from_secs(rounded(then.duration_since(now).as_secs())))
}

/// Half a unit more, so that cutting off the rest leaves the nearest.
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
        (Ok(then), Ok(now)) => short(between(then, now).as_secs()),
        _ => "-".to_owned(),
    }
}

fn short(seconds: i64) -> String {
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
    fn spans_and_moments_are_read_as_people_write_them() {
        assert_eq!(span("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(span("2h").unwrap(), Duration::from_secs(7_200));
        assert_eq!(span("7d").unwrap(), Duration::from_secs(604_800));
        for wrong in ["", "h", "2", "0s", "-1h", "2w", "2 h", "9999999999d", "ü"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        assert_eq!(moment("2030-01-31").unwrap().to_string(), "2030-01-31T00:00:00.000000Z");
        assert_eq!(moment("2030-01-31T18:00:00Z").unwrap().to_string(), "2030-01-31T18:00:00.000000Z");
        assert!(moment("tomorrow").is_err() && past("1d").is_ok() && past("soon").is_err());
        let words: Vec<String> = [-5, 59, 60, 3_599, 7_200, 90_000, 400_000].map(short).to_vec();
        assert_eq!(words, ["0s", "59s", "1m", "59m", "2h", "25h", "4d"]);
        let words = [-5, 59, 89, 3_599, 14_399, 86_399, 400_000].map(|left| short(rounded(left)));
        assert_eq!(words, ["0s", "59s", "1m", "1h", "4h", "24h", "5d"]);
    }
}
