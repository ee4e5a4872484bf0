//! The dialect of Anthropic's Messages API.

use insta::assert_snapshot;
use tribune_providers::{
    ApiDialect, AssistantPart, ChatMessage, FinishReason, Thinking, ToolResult, UserPart,
};
use tribune_testkit::{FakeUpstream, ModelOutput};

use crate::fixture::{KEY, answered, client, hello, request, usage};

fn rich() -> ModelOutput {
    ModelOutput::new()
        .thinking("Wo liegt 東京? 🗼", "EqQBCgIYAhIM1gbcDa9GJwZA2b3h")
        .redacted("EmwKAhgBEgy3va3pzix/LafPsn4a")
        .text("I look into both – gleich.")
        .call("toolu_01A", "read", r#"{"path": "straße.txt"}"#)
        .call("toolu_01B", "list", "")
        .usage(472, 89, 1000)
}

#[tokio::test]
async fn response_with_thinking_text_and_parallel_calls() {
    let upstream = FakeUpstream::start().await;
    upstream.reply(rich().anthropic());
    let answer = answered(&client(ApiDialect::Anthropic, &upstream), &hello()).await;
    let call = |id: &str, name: &str, arguments: &str| AssistantPart::ToolUse {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
        signature: None,
    };
    assert_eq!(
        answer.parts,
        [
            AssistantPart::Thinking {
                text: "Wo liegt 東京? 🗼".into(),
                signature: Some("EqQBCgIYAhIM1gbcDa9GJwZA2b3h".into()),
            },
            AssistantPart::RedactedThinking { data: "EmwKAhgBEgy3va3pzix/LafPsn4a".into() },
            AssistantPart::Text("I look into both – gleich.".into()),
            call("toolu_01A", "read", r#"{"path": "straße.txt"}"#),
            call("toolu_01B", "list", ""),
        ]
    );
    assert_eq!((answer.usage, answer.finish_reason), (usage(472, 89, 1000), Some(FinishReason::ToolUse)));
}

#[tokio::test]
async fn response_does_not_depend_on_sse_framing() {
    let upstream = FakeUpstream::start().await;
    let client = client(ApiDialect::Anthropic, &upstream);
    let mut answers = Vec::new();
    for reply in [
        rich().anthropic(),
        rich().anthropic().crlf(),
        rich().anthropic().multiline_data().with_comments("keep-alive"),
        rich().anthropic().crlf().multiline_data().in_writes_of(1),
    ] {
        upstream.reply(reply);
        answers.push(answered(&client, &hello()).await);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    // Bodies were read to their end, so the connection was reused.
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn what_is_sent() {
    let upstream = FakeUpstream::start().await;
    upstream.reply(ModelOutput::new().text("ok").anthropic());
    let call = |id: &str, arguments: &str| AssistantPart::ToolUse {
        id: id.into(),
        name: "read".into(),
        arguments: arguments.into(),
        signature: None,
    };
    let mut request = request(vec![
        ChatMessage::User(vec![
            UserPart::Text("look".into()),
            UserPart::Image { mime_type: "image/png".into(), data: "iVBORw0KGgo=".into() },
        ]),
        ChatMessage::Assistant(vec![
            AssistantPart::Thinking { text: "hm".into(), signature: Some("c2ln".into()) },
            AssistantPart::Thinking { text: "of another provider".into(), signature: None },
            AssistantPart::RedactedThinking { data: "ZGF0YQ==".into() },
            AssistantPart::Text(String::new()),
            call("functions.read:0", r#"{ "path":"b", "a": 1.0 }"#),
            call("b", ""),
            call("c", r#"{"path": "#),
        ]),
        ChatMessage::Results(vec![
            ToolResult { id: "functions.read:0".into(), content: "text".into(), is_error: false },
            ToolResult { id: "b".into(), content: "not allowed".into(), is_error: true },
            ToolResult { id: "c".into(), content: String::new(), is_error: true },
        ]),
        ChatMessage::user("and now?"),
    ]);
    request.thinking = Some(Thinking::Budget(2048));
    answered(&client(ApiDialect::Anthropic, &upstream), &request).await;
    let sent = &upstream.requests()[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/v1/messages"));
    assert_eq!(sent.header("x-api-key"), Some(KEY));
    assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(sent.header("accept"), Some("text/event-stream"));
    assert_eq!(sent.header("authorization"), None);
    let lines = sent.text().replace("},{", "},\n{").replace("[{", "[\n{");
    assert_snapshot!(lines);
}

#[tokio::test]
async fn stop_reasons() {
    let upstream = FakeUpstream::start().await;
    let client = client(ApiDialect::Anthropic, &upstream);
    for (reason, expected) in [
        ("end_turn", FinishReason::EndTurn),
        ("stop_sequence", FinishReason::EndTurn),
        ("max_tokens", FinishReason::MaxTokens),
        ("model_context_window_exceeded", FinishReason::MaxTokens),
        ("refusal", FinishReason::Refusal),
        ("pause_turn", FinishReason::Other("pause_turn".into())),
        ("tool_use", FinishReason::EndTurn),
    ] {
        upstream.reply(ModelOutput::new().text("x").stop(reason).anthropic());
        assert_eq!(answered(&client, &hello()).await.finish_reason, Some(expected), "{reason}");
    }
}

#[tokio::test]
async fn models_lists_the_model_names() {
    let upstream = FakeUpstream::start().await;
    upstream.set_models(&["claude-opus-5-5", "claude-haiku-4-5"]);
    let models = client(ApiDialect::Anthropic, &upstream).models().await.unwrap();
    assert_eq!(models, ["claude-opus-5-5", "claude-haiku-4-5"]);
    assert_eq!(upstream.requests()[0].path, "/v1/models?limit=1000");
    assert_eq!(upstream.requests()[0].header("x-api-key"), Some(KEY));
}
