//! The Chat Completions dialects.

use insta::assert_snapshot;
use tribune_providers::{
    ApiDialect, AssistantPart, ChatMessage, FinishReason, ProviderEndpoint, ToolResult, UserPart,
};
use tribune_testkit::{FakeUpstream, ModelOutput, UpstreamReply};

use crate::fixture::{KEY, answered, client, endpoint, hello, request, usage};
use crate::recordings;

fn call(id: &str, name: &str, arguments: &str) -> AssistantPart {
    AssistantPart::ToolUse { id: id.into(), name: name.into(), arguments: arguments.into(), signature: None }
}

#[tokio::test]
async fn response_with_thinking_text_and_parallel_calls() {
    let upstream = FakeUpstream::start().await;
    let say = ModelOutput::new()
        .thinking("想 🤔 a while", "")
        .text("Both – gleich.")
        .call("call_a", "read", r#"{"path": "straße.txt"}"#)
        .call("call_b", "list", "{}")
        .usage(40, 20, 60);
    let client = client(ApiDialect::OpenAiCompatible, &upstream);
    for reply in
        [say.openai(), say.openai().crlf().in_writes_of(1), say.openai().multiline_data().with_comments("x")]
    {
        upstream.reply(reply);
        let answer = answered(&client, &hello()).await;
        assert_eq!(
            answer.parts,
            [
                AssistantPart::Thinking { text: "想 🤔 a while".into(), signature: None },
                AssistantPart::Text("Both – gleich.".into()),
                call("call_a", "read", r#"{"path": "straße.txt"}"#),
                call("call_b", "list", "{}"),
            ]
        );
        assert_eq!((answer.usage, answer.finish_reason), (usage(40, 20, 60), Some(FinishReason::ToolUse)));
    }
    assert_eq!(upstream.connections(), 1);
}

fn conversation() -> Vec<ChatMessage> {
    vec![
        ChatMessage::User(vec![
            UserPart::Text("look".into()),
            UserPart::Image { mime_type: "image/png".into(), data: "iVBORw0KGgo=".into() },
        ]),
        ChatMessage::Assistant(vec![
            AssistantPart::Thinking { text: "hm".into(), signature: None },
            AssistantPart::Thinking { text: "Anthropic's".into(), signature: Some("c2ln".into()) },
            call("a", "read", r#"{ "path":"b", "a": 1.0 }"#),
            AssistantPart::ToolUse {
                id: "b".into(),
                name: "list".into(),
                arguments: String::new(),
                signature: Some("CiQB".into()),
            },
            call("c", "read", r#"{"path": "#),
        ]),
        ChatMessage::Results(vec![
            ToolResult { id: "a".into(), content: "text".into(), is_error: false },
            ToolResult { id: "b".into(), content: "not allowed".into(), is_error: true },
            ToolResult { id: "c".into(), content: String::new(), is_error: true },
        ]),
        ChatMessage::Assistant(vec![
            AssistantPart::Thinking { text: "done".into(), signature: None },
            AssistantPart::Text("There.".into()),
        ]),
        ChatMessage::user("and now?"),
    ]
}

#[tokio::test]
async fn what_is_sent() {
    let upstream = FakeUpstream::start().await;
    let mut bodies = Vec::new();
    for dialect in [ApiDialect::OpenAi, ApiDialect::OpenAiCompatible] {
        upstream.reply(ModelOutput::new().text("ok").openai());
        answered(&client(dialect, &upstream), &request(conversation())).await;
        let sent = upstream.requests().pop().unwrap();
        assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/chat/completions"));
        assert_eq!(sent.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert_eq!(sent.header("x-api-key"), None);
        bodies.push(sent.text().replace("},{", "},\n{").replace("[{", "[\n{"));
    }
    assert_snapshot!(bodies.join("\n\n"));
}

/// Failed turns leave user messages without a response, and some servers reject two user messages in a row.
#[tokio::test]
async fn adjacent_user_messages_are_merged() {
    let upstream = FakeUpstream::start().await;
    let image = UserPart::Image { mime_type: "image/png".into(), data: "AA==".into() };
    for (second, expected) in [
        (ChatMessage::user("two"), serde_json::json!("one\n\ntwo")),
        (
            ChatMessage::User(vec![image]),
            serde_json::json!([
                { "type": "text", "text": "one" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } },
            ]),
        ),
    ] {
        upstream.reply(ModelOutput::new().text("ok").openai());
        answered(&client(ApiDialect::OpenAi, &upstream), &request(vec![ChatMessage::user("one"), second]))
            .await;
        let sent = upstream.requests().pop().unwrap().json();
        let users: Vec<_> =
            sent["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user").collect();
        assert_eq!(users.len(), 1, "{users:?}");
        assert_eq!(users[0]["content"], expected);
    }
}

#[tokio::test]
async fn server_without_a_key() {
    let upstream = FakeUpstream::start().await;
    upstream.reply(UpstreamReply::stream(recordings::named("ollama").bytes));
    let keyless = ProviderEndpoint {
        key: None,
        key_env: None,
        ..endpoint(ApiDialect::OpenAiCompatible, &upstream.base_url())
    };
    let client = tribune_providers::ProviderClient::new(keyless).unwrap();
    let answer = answered(&client, &hello()).await;
    // Ollama sends `stop` after a call.
    assert_eq!((answer.text().as_str(), answer.finish_reason), ("Let me see.", Some(FinishReason::ToolUse)));
    assert_eq!(upstream.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn stop_reasons() {
    let upstream = FakeUpstream::start().await;
    let client = client(ApiDialect::OpenAi, &upstream);
    for (reason, expected) in [
        ("stop", FinishReason::EndTurn),
        ("length", FinishReason::MaxTokens),
        ("content_filter", FinishReason::Refusal),
        ("tool_calls", FinishReason::EndTurn),
        ("insufficient_system_resource", FinishReason::Other("insufficient_system_resource".into())),
    ] {
        upstream.reply(ModelOutput::new().text("x").stop(reason).openai());
        assert_eq!(answered(&client, &hello()).await.finish_reason, Some(expected), "{reason}");
    }
    let refusal = r#"data: {"choices":[{"index":0,"delta":{"refusal":"I won't."},"finish_reason":"stop"}]}"#;
    upstream.reply(UpstreamReply::stream(format!("{refusal}\n\ndata: [DONE]\n\n")));
    let answer = answered(&client, &hello()).await;
    assert_eq!((answer.text().as_str(), answer.finish_reason), ("I won't.", Some(FinishReason::Refusal)));
}

#[tokio::test]
async fn models_lists_the_model_names() {
    let upstream = FakeUpstream::start().await;
    upstream.set_models(&["kimi-k1-128k", "models/gemini-2.5-pro"]);
    let models = client(ApiDialect::OpenAiCompatible, &upstream).models().await.unwrap();
    assert_eq!(models, ["kimi-k1-128k", "gemini-2.5-pro"]);
    assert_eq!(upstream.requests()[0].path, "/models");
}
