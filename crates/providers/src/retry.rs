//! When a request is sent again.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use super::endpoint::Patience;
use super::error::{Again, ProviderError};

/// When the provider wants to be asked again: seconds, or a date, which is measured by the provider's own clock if it tells
/// the time.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Again {
    let date =
        |name| headers.get(name).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
    let text = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = text.and_then(|text| text.parse::<f64>().ok()).filter(|seconds| seconds.is_finite());
    if let Some(seconds) = seconds {
        return Again(Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    }
    let now = date(DATE).unwrap_or(now);
    Again(date(RETRY_AFTER).map(|then| then.duration_since(now).unwrap_or_default()))
}

/// How long to wait before the attempt after this one; `None` if there is none.
///
/// `luck` is random: it spreads those who were turned away at the same time.
pub(super) fn pause(error: &ProviderError, attempt: u32, patience: &Patience, luck: u32) -> Option<Duration> {
    let Again(asked) = error.passing()?;
    if attempt >= patience.attempts {
        return None;
    }
    let backoff = patience.backoff.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
    let share = f64::from(luck) / f64::from(u32::MAX);
    match asked {
        Some(asked) if asked > patience.longest_wait => None,
        // Not before it was asked for.
        Some(asked) => Some(asked + patience.backoff.mul_f64(share / 2.0)),
        None => Some(backoff.min(patience.longest_wait).mul_f64(0.5 + share / 2.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn seconds_and_dates() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2026 07:28:00 GMT").unwrap();
        let after = |lines: &[(&'static str, &str)]| retry_after(&headers(lines), now).0;
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(after(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(after(&[("retry-after", "-1")]), Some(Duration::ZERO));
        for none in ["soon", "NaN", "inf", ""] {
            assert_eq!(after(&[("retry-after", none)]), None, "{none}");
        }
        let date = ("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT");
        assert_eq!(after(&[date]), Some(Duration::from_secs(30)));
        assert_eq!(after(&[date, ("date", "Wed, 21 Oct 2026 07:28:20 GMT")]), Some(Duration::from_secs(10)));
        assert_eq!(after(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]), Some(Duration::ZERO));
    }

    #[test]
    fn what_is_waited_for() {
        let patience = Patience::default();
        let limited = |again: Option<u64>| ProviderError::Overloaded {
            provider: "p".into(),
            status: Status(Some(529)),
            again: Again(again.map(Duration::from_secs)),
        };
        let pause = |error: &ProviderError, attempt, luck| pause(error, attempt, &patience, luck);
        assert_eq!(pause(&limited(None), 1, 0), Some(Duration::from_millis(500)));
        assert_eq!(pause(&limited(None), 3, u32::MAX), Some(Duration::from_secs(4)));
        assert_eq!(pause(&limited(None), 4, 0), None);
        assert_eq!(pause(&limited(Some(30)), 1, 0), Some(Duration::from_secs(30)));
        assert_eq!(pause(&limited(Some(61)), 1, 0), None);
        assert_eq!(pause(&ProviderError::CutStream { provider: "p".into() }, 1, 0), None);
    }
}
