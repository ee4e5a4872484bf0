//! What the tests share.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tribune_providers::ToolSpec;
use tribune_providers::{
    Answer, ApiKey, BaseUrl, Client, Dialect, Endpoint, ModelEvent, ModelRequest, Patience, ProviderError,
    Said, TokenUsage,
};
use tribune_testkit::FakeUpstream;

/// In every endpoint, and never in anything that is shown.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef";

/// Little patience: tests wait for it to end.
pub(crate) fn patience() -> Patience {
    Patience {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        whole: Duration::from_secs(20),
        attempts: 3,
        backoff: Duration::from_millis(2),
        longest_wait: Duration::from_secs(2),
    }
}

pub(crate) fn endpoint(dialect: Dialect, base_url: &str) -> Endpoint {
    let provider = match dialect {
        Dialect::Anthropic => "anthropic",
        Dialect::OpenAi => "openai",
        Dialect::OpenAiCompatible => "moonshot",
        Dialect::Gemini => "gemini",
    };
    Endpoint {
        provider: provider.to_owned(),
        dialect,
        base_url: BaseUrl::parse(base_url).unwrap(),
        key: ApiKey::new(KEY),
        key_env: Some(format!("{}_API_KEY", provider.to_uppercase())),
        patience: patience(),
    }
}

pub(crate) fn client(dialect: Dialect, upstream: &FakeUpstream) -> Client {
    Client::new(endpoint(dialect, &upstream.base_url())).unwrap()
}

pub(crate) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: json!({ "properties": { "path": { "type": "string" } }, "type": "object" }),
    }
}

pub(crate) fn request(messages: Vec<Said>) -> ModelRequest {
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
    request(vec![Said::user("hello")])
}

/// Asks, and takes everything in.
pub(crate) async fn ask(client: &Client, request: &ModelRequest) -> (Answer, Option<ProviderError>) {
    let mut answer = Answer::default();
    let mut stream = match client.stream(request, &CancellationToken::new()).await {
        Ok(stream) => stream,
        Err(error) => return (answer, Some(error)),
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => answer.take(&event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (answer, Some(error));
            }
        }
    }
    (answer, None)
}

/// A whole answer.
pub(crate) async fn answered(client: &Client, request: &ModelRequest) -> Answer {
    let (answer, error) = ask(client, request).await;
    assert_eq!(error, None);
    answer
}

/// The error of a request that gets no answer at all.
pub(crate) async fn refused(client: &Client) -> ProviderError {
    let (answer, error) = ask(client, &hello()).await;
    assert_eq!(answer, Answer::default());
    error.expect("an error")
}

pub(crate) fn usage(input: u64, output: u64, cache_read: u64) -> TokenUsage {
    TokenUsage { input, output, cache_read, cache_written: 0 }
}

/// Events with neighbouring pieces of the same thing put together.
pub(crate) fn joined(events: &[ModelEvent]) -> Answer {
    let mut answer = Answer::default();
    events.iter().for_each(|event| answer.take(event));
    answer
}
