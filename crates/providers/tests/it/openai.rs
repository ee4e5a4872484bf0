//! The Chat Completions dialects.

use insta::assert_snapshot;
use tribune_providers::{AssistantPart, Dialect, Ended, Endpoint, Said, ToolResult, UserPart};
use tribune_testkit::{FakeUpstream, Reply, Say};

use crate::fixture::{KEY, answered, client, endpoint, hello, request, usage};
use crate::recordings;

fn call(id: &str, name: &str, arguments: &str) -> AssistantPart {
    AssistantPart::ToolUse { id: id.into(), name: name.into(), arguments: arguments.into(), signature: None }
}

#[tokio::test]
async fn response_with_thinking_text_and_parallel_calls() {
    let upstream = FakeUpstream::start().await;
    let say = Say::new()
        .thinking("想 🤔 a while", "")
        .text("Both – gleich.")
        .call("call_a", "read", r#"{"path": "straße.txt"}"#)
        .call("call_b", "list", "{}")
        .usage(40, 20, 60);
    let client = client(Dialect::OpenAiCompatible, &upstream);
    for reply in
        [say.openai(), say.openai().crlf().in_writes_of(1), say.openai().many_lines().with_comments("x")]
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
        assert_eq!((answer.usage, answer.ended), (usage(40, 20, 60), Some(Ended::ToolUse)));
    }
    assert_eq!(upstream.connections(), 1);
}

fn conversation() -> Vec<Said> {
    vec![
        Said::User(vec![
            UserPart::Text("look".into()),
            UserPart::Image { mime_type: "image/png".into(), data: "iVBORw0KGgo=".into() },
        ]),
        Said::Assistant(vec![
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
        Said::Results(vec![
            ToolResult { id: "a".into(), content: "text".into(), is_error: false },
            ToolResult { id: "b".into(), content: "not allowed".into(), is_error: true },
            ToolResult { id: "c".into(), content: String::new(), is_error: true },
        ]),
        Said::Assistant(vec![
            AssistantPart::Thinking { text: "done".into(), signature: None },
            AssistantPart::Text("There.".into()),
        ]),
        Said::user("and now?"),
    ]
}

#[tokio::test]
async fn what_is_sent() {
    let upstream = FakeUpstream::start().await;
    let mut bodies = Vec::new();
    for dialect in [Dialect::OpenAi, Dialect::OpenAiCompatible] {
        upstream.reply(Say::new().text("ok").openai());
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
        (Said::user("two"), serde_json::json!("one\n\ntwo")),
        (
            Said::User(vec![image]),
            serde_json::json!([
                { "type": "text", "text": "one" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } },
            ]),
        ),
    ] {
        upstream.reply(Say::new().text("ok").openai());
        answered(&client(Dialect::OpenAi, &upstream), &request(vec![Said::user("one"), second])).await;
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
    upstream.reply(Reply::stream(recordings::named("ollama").bytes));
    let keyless =
        Endpoint { key: None, key_env: None, ..endpoint(Dialect::OpenAiCompatible, &upstream.base_url()) };
    let client = tribune_providers::Client::new(keyless).unwrap();
    let answer = answered(&client, &hello()).await;
    // Ollama sends `stop` after a call.
    assert_eq!((answer.text().as_str(), answer.ended), ("Let me see.", Some(Ended::ToolUse)));
    assert_eq!(upstream.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn stop_reasons() {
    let upstream = FakeUpstream::start().await;
    let client = client(Dialect::OpenAi, &upstream);
    for (reason, expected) in [
        ("stop", Ended::EndTurn),
        ("length", Ended::MaxTokens),
        ("content_filter", Ended::Refusal),
        ("tool_calls", Ended::EndTurn),
        ("insufficient_system_resource", Ended::Other("insufficient_system_resource".into())),
    ] {
        upstream.reply(Say::new().text("x").stop(reason).openai());
        assert_eq!(answered(&client, &hello()).await.ended, Some(expected), "{reason}");
    }
    let refusal = r#"data: {"choices":[{"index":0,"delta":{"refusal":"I won't."},"finish_reason":"stop"}]}"#;
    upstream.reply(Reply::stream(format!("{refusal}\n\ndata: [DONE]\n\n")));
    let answer = answered(&client, &hello()).await;
    assert_eq!((answer.text().as_str(), answer.ended), ("I won't.", Some(Ended::Refusal)));
}

#[tokio::test]
async fn models_lists_the_model_names() {
    let upstream = FakeUpstream::start().await;
    upstream.lists(&["kimi-k1-128k", "models/gemini-2.5-pro"]);
    let models = client(Dialect::OpenAiCompatible, &upstream).models().await.unwrap();
    assert_eq!(models, ["kimi-k1-128k", "gemini-2.5-pro"]);
    assert_eq!(upstream.requests()[0].path, "/models");
}
