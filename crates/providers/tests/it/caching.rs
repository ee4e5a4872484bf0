//! Messages that were sent once are sent again byte for byte, so that providers can cache the prefix.

use serde_json::Value;
use tribune_providers::{ApiDialect, AssistantPart, ChatMessage, ToolResult};
use tribune_testkit::{FakeUpstream, ModelOutput, UpstreamReply};

use crate::fixture::{answered, client, request};

const TURNS: usize = 10;

/// Arguments as models write them: with spaces, escapes and unusual number formats.
fn arguments(turn: usize) -> String {
    format!("{{ \"path\" : \"ordner/{turn}\\u00e4.txt\",\n  \"n\":{turn}.50, \"z\":1, \"a\":[ ] }}")
}

fn say(turn: usize) -> ModelOutput {
    ModelOutput::new()
        .thinking(&format!("Gedanke {turn} 🤔"), &format!("c2lnbmF0dXI{turn}=="))
        .text(&format!("Runde {turn}:\n\t„los“"))
        .call(&format!("call_a{turn}"), "read", &arguments(turn))
        .call(&format!("call_b{turn}"), "list", "")
}

/// Runs ten rounds of calls and results, storing and reloading the conversation after each. Returns the request bodies.
async fn run_conversation(dialect: ApiDialect, write: fn(&ModelOutput) -> UpstreamReply) -> Vec<String> {
    let upstream = FakeUpstream::start().await;
    let client = client(dialect, &upstream);
    let mut conversation = vec![ChatMessage::user("los geht's")];
    for turn in 0..TURNS {
        upstream.reply(write(&say(turn)));
        let answer = answered(&client, &request(conversation.clone())).await;
        let results = answer.parts.iter().filter_map(|part| match part {
            AssistantPart::ToolUse { id, name, .. } => {
                Some(ToolResult {
                    id: id.clone(), content: format!("{name} → ok"), is_error: turn % 3 == 0
                })
            }
            _ => None,
        });
        let results = results.collect();
        conversation.push(ChatMessage::Assistant(answer.parts));
        conversation.push(ChatMessage::Results(results));
        let stored = serde_json::to_string(&conversation).unwrap();
        conversation = serde_json::from_str(&stored).unwrap();
    }
    upstream.requests().iter().map(|request| request.text().to_owned()).collect()
}

/// Each body starts with the whole previous body except its closing brackets.
fn assert_only_grows(bodies: &[String]) {
    assert_eq!(bodies.len(), TURNS);
    for pair in bodies.windows(2) {
        let before = pair[0].strip_suffix("]}").unwrap();
        assert!(pair[1].starts_with(before) && pair[1].len() > before.len());
        assert!(pair[1][before.len()..].starts_with(",{\"role\":\"assistant\""));
    }
}

#[tokio::test]
async fn anthropic_messages_only_grow() {
    let bodies = run_conversation(ApiDialect::Anthropic, ModelOutput::anthropic).await;
    assert_only_grows(&bodies);
    let last: Value = serde_json::from_str(&bodies[TURNS - 1]).unwrap();
    let messages = last["messages"].as_array().unwrap();
    for (turn, message) in messages.iter().filter(|message| message["role"] == "assistant").enumerate() {
        assert_eq!(message["content"][0]["thinking"], format!("Gedanke {turn} 🤔"));
        assert_eq!(message["content"][0]["signature"], format!("c2lnbmF0dXI{turn}=="));
        // Byte for byte, not only the same JSON value.
        assert!(bodies[TURNS - 1].contains(&format!("\"input\":{}", arguments(turn))));
    }
    // The breakpoints do not move and are outside of the messages.
    for body in &bodies {
        let (head, messages) = body.split_once("\"messages\":").unwrap();
        assert_eq!(
            (head.matches("cache_control").count(), messages.matches("cache_control").count()),
            (3, 0)
        );
    }
}

#[tokio::test]
async fn chat_completions_messages_only_grow() {
    for dialect in [ApiDialect::OpenAi, ApiDialect::OpenAiCompatible] {
        let bodies = run_conversation(dialect, ModelOutput::openai).await;
        assert_only_grows(&bodies);
        for turn in 0..TURNS - 1 {
            let arguments = serde_json::to_string(&arguments(turn)).unwrap();
            assert!(bodies[TURNS - 1].contains(&format!("\"arguments\":{arguments}")));
            let thought = format!("\"reasoning_content\":\"Gedanke {turn} 🤔\"");
            assert_eq!(bodies[TURNS - 1].contains(&thought), dialect == ApiDialect::OpenAiCompatible);
        }
    }
}
