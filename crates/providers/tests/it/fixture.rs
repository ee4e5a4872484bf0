//! What the tests share.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tribune_providers::ToolSpec;
use tribune_providers::{
    ApiDialect, ApiKey, BaseUrl, ChatMessage, ModelEvent, ModelRequest, ModelResponse, ProviderClient,
    ProviderEndpoint, ProviderError, RequestTimeouts, TokenUsage,
};
use tribune_testkit::FakeUpstream;

/// In every endpoint, and never in anything that is shown.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef";

/// Little patience: tests wait for it to end.
pub(crate) fn patience() -> RequestTimeouts {
    RequestTimeouts {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        total: Duration::from_secs(20),
        max_attempts: 3,
        backoff: Duration::from_millis(2),
        max_retry_delay: Duration::from_secs(2),
    }
}

pub(crate) fn endpoint(dialect: ApiDialect, base_url: &str) -> ProviderEndpoint {
    let provider = match dialect {
        ApiDialect::Anthropic => "anthropic",
        ApiDialect::OpenAi => "openai",
        ApiDialect::OpenAiCompatible => "moonshot",
        ApiDialect::Gemini => "gemini",
    };
    ProviderEndpoint {
        provider: provider.to_owned(),
        dialect,
        base_url: BaseUrl::parse(base_url).unwrap(),
        key: ApiKey::new(KEY),
        key_env: Some(format!("{}_API_KEY", provider.to_uppercase())),
        timeouts: patience(),
    }
}

pub(crate) fn client(dialect: ApiDialect, upstream: &FakeUpstream) -> ProviderClient {
    ProviderClient::new(endpoint(dialect, &upstream.base_url())).unwrap()
}

pub(crate) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: json!({ "properties": { "path": { "type": "string" } }, "type": "object" }),
    }
}

pub(crate) fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        model: "a-model".to_owned(),
        system: vec!["You are a tribune.".to_owned(), "Be brief.".to_owned()],
        messages,
        tools: vec![tool("read"), tool("list")],
        max_output_tokens: 4096,
        thinking: None,
    }
}

pub(crate) fn hello() -> ModelRequest {
    request(vec![ChatMessage::user("hello")])
}

/// Asks, and takes everything in.
pub(crate) async fn ask(
    client: &ProviderClient,
    request: &ModelRequest,
) -> (ModelResponse, Option<ProviderError>) {
    let mut answer = ModelResponse::default();
    let mut stream = match client.stream(request, &CancellationToken::new()).await {
        Ok(stream) => stream,
        Err(error) => return (answer, Some(error)),
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => answer.apply(&event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (answer, Some(error));
            }
        }
    }
    (answer, None)
}

/// A whole answer.
pub(crate) async fn answered(client: &ProviderClient, request: &ModelRequest) -> ModelResponse {
    let (answer, error) = ask(client, request).await;
    assert_eq!(error, None);
    answer
}

/// The error of a request that gets no answer at all.
pub(crate) async fn refused(client: &ProviderClient) -> ProviderError {
    let (answer, error) = ask(client, &hello()).await;
    assert_eq!(answer, ModelResponse::default());
    error.expect("an error")
}

pub(crate) fn usage(input: u64, output: u64, cache_read: u64) -> TokenUsage {
    TokenUsage { input, output, cache_read, cache_written: 0 }
}

/// Events with neighbouring pieces of the same thing put together.
pub(crate) fn joined(events: &[ModelEvent]) -> ModelResponse {
    let mut answer = ModelResponse::default();
    events.iter().for_each(|event| answer.apply(event));
    answer
}
