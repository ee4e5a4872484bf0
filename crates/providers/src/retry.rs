//! Decides whether and when a request is retried.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use super::endpoint::RequestTimeouts;
use super::error::{ProviderError, RetryAfter};

/// Reads `Retry-After`: seconds, or a date. A date is compared with the provider's own clock if the response has a
/// `Date` header, and with `now` otherwise.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> RetryAfter {
    let date =
        |name| headers.get(name).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
    let text = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = text.and_then(|text| text.parse::<f64>().ok()).filter(|seconds| seconds.is_finite());
    if let Some(seconds) = seconds {
        return RetryAfter(Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    }
    let now = date(DATE).unwrap_or(now);
    RetryAfter(date(RETRY_AFTER).map(|then| then.duration_since(now).unwrap_or_default()))
}

/// The delay before the next attempt; `None` if the request is not retried.
///
/// `jitter` is a random number: it spreads the retries of clients that were rejected at the same time.
pub(super) fn delay(
    error: &ProviderError,
    attempt: u32,
    patience: &RequestTimeouts,
    jitter: u32,
) -> Option<Duration> {
    let RetryAfter(requested) = error.retry_after()?;
    if attempt >= patience.max_attempts {
        return None;
    }
    let backoff = patience.backoff.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
    let share = f64::from(jitter) / f64::from(u32::MAX);
    match requested {
        Some(requested) if requested > patience.max_retry_delay => None,
        // Jitter is only added, so that the retry is never earlier than requested.
        Some(requested) => Some(requested + patience.backoff.mul_f64(share / 2.0)),
        None => Some(backoff.min(patience.max_retry_delay).mul_f64(0.5 + share / 2.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::HttpStatus;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn retry_after_accepts_seconds_and_dates() {
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
    fn delay_uses_backoff_or_the_requested_delay_within_limits() {
        let patience = RequestTimeouts::default();
        let overloaded = |seconds: Option<u64>| ProviderError::Overloaded {
            provider: "p".into(),
            status: HttpStatus(Some(529)),
            retry_after: RetryAfter(seconds.map(Duration::from_secs)),
        };
        let delay = |error: &ProviderError, attempt, jitter| delay(error, attempt, &patience, jitter);
        assert_eq!(delay(&overloaded(None), 1, 0), Some(Duration::from_millis(500)));
        assert_eq!(delay(&overloaded(None), 3, u32::MAX), Some(Duration::from_secs(4)));
        assert_eq!(delay(&overloaded(None), 4, 0), None);
        assert_eq!(delay(&overloaded(Some(30)), 1, 0), Some(Duration::from_secs(30)));
        assert_eq!(delay(&overloaded(Some(61)), 1, 0), None);
        assert_eq!(delay(&ProviderError::TruncatedStream { provider: "p".into() }, 1, 0), None);
    }
}
