//! Retries and cancellation.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tribune_providers::{ApiDialect, ProviderClient, ProviderError};
use tribune_testkit::{FakeUpstream, ModelOutput, UpstreamReply};

use crate::fixture::{answered, client, endpoint, hello, refused};

fn overloaded() -> UpstreamReply {
    UpstreamReply::json(
        529,
        &json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }),
    )
}

#[tokio::test]
async fn transient_errors_are_retried() {
    let upstream = FakeUpstream::start().await;
    let in_stream =
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    upstream
        .reply(overloaded())
        // Also after the stream has started, as long as no output has arrived.
        .reply(ModelOutput::new().anthropic().first(1).then(format!("event: error\ndata: {in_stream}\n\n")))
        .reply(ModelOutput::new().text("there").anthropic());
    let answer = answered(&client(ApiDialect::Anthropic, &upstream), &hello()).await;
    assert_eq!(answer.text(), "there");
    let requests = upstream.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.body == requests[0].body));
}

#[tokio::test]
async fn number_of_attempts_is_limited() {
    let upstream = FakeUpstream::start().await;
    for _ in 0..9 {
        upstream.reply(UpstreamReply::page(500));
    }
    assert_eq!(refused(&client(ApiDialect::OpenAi, &upstream)).await.code(), "upstream_failed");
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    for status in [400, 401, 402, 403, 404, 413, 422] {
        let upstream = FakeUpstream::start().await;
        upstream.reply(UpstreamReply::json(status, &json!({})));
        refused(&client(ApiDialect::OpenAi, &upstream)).await;
        assert_eq!(upstream.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn retry_after_delays_the_retry() {
    let upstream = FakeUpstream::start().await;
    upstream
        .reply(UpstreamReply::json(429, &json!({})).header("retry-after", "1"))
        .reply(ModelOutput::new().text("there").openai());
    let began = Instant::now();
    answered(&client(ApiDialect::OpenAi, &upstream), &hello()).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn retry_after_beyond_the_limit_is_not_retried() {
    let upstream = FakeUpstream::start().await;
    let limited = UpstreamReply::json(429, &json!({}))
        .header("date", "Wed, 21 Oct 2026 07:28:00 GMT")
        .header("retry-after", "Wed, 21 Oct 2026 07:30:00 GMT");
    upstream.reply(limited);
    let error = refused(&client(ApiDialect::OpenAi, &upstream)).await;
    assert_eq!(error.to_string(), "the rate limit of openai is reached (429): try again in 120 s");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn cancellation_ends_every_wait() {
    let cancel_soon = || {
        let cancel = CancellationToken::new();
        let later = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            later.cancel();
        });
        cancel
    };
    let cancelled = ProviderError::Cancelled { provider: "anthropic".into() };
    // While waiting for the response head, between attempts, and in the middle of the answer.
    let upstream = FakeUpstream::start().await;
    let mut endpoint = endpoint(ApiDialect::Anthropic, &upstream.base_url());
    endpoint.timeouts.backoff = Duration::from_secs(2);
    let client = ProviderClient::new(endpoint).unwrap();
    for reply in [UpstreamReply::silence(), overloaded()] {
        upstream.reply(reply);
        let error = client.stream(&hello(), &cancel_soon()).await.unwrap_err();
        assert_eq!(error, cancelled);
    }
    upstream.reply(ModelOutput::new().text("one").anthropic().first(4).then_silence());
    let mut stream = client.stream(&hello(), &cancel_soon()).await.unwrap();
    let mut last = None;
    while let Some(event) = stream.next().await {
        last = Some(event);
    }
    assert_eq!(last, Some(Err(cancelled.clone())));
    // Cancelled before the start: no request is sent.
    let requests = upstream.requests().len();
    let done = CancellationToken::new();
    done.cancel();
    assert_eq!(client.stream(&hello(), &done).await.unwrap_err(), cancelled);
    assert_eq!(upstream.requests().len(), requests);
}
