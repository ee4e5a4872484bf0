//! The lines of stream-json: messages, and control requests with their responses, which both sides may send.

use serde_json::{Map, Value, json};

use crate::codec::{AgentMessage, ErrorResponse};
use tribune_runtime::content::ContentBlock;

/// Bytes of the id of a request of the agent's.
const MAX_ID: usize = 256;

/// The message on a line; `None` if there is none.
pub(super) fn parse(line: &str) -> Option<AgentMessage> {
    let Ok(Value::Object(mut object)) = serde_json::from_str::<Value>(line) else { return None };
    match object.get("type")?.as_str()? {
        "control_request" => {
            let id = object.remove("request_id")?;
            if !id.as_str().is_some_and(|id| (1..=MAX_ID).contains(&id.len())) {
                return None;
            }
            let params = object.remove("request")?;
            let method = params["subtype"].as_str()?.to_owned();
            Some(AgentMessage::Request { id, method, params })
        }
        "control_response" => match object.remove("response") {
            Some(Value::Object(response)) => answer(response),
            _ => None,
        },
        "keep_alive" => Some(AgentMessage::Ignored),
        _ => Some(AgentMessage::Notification(Value::Object(object))),
    }
}

fn answer(mut response: Map<String, Value>) -> Option<AgentMessage> {
    let id = response.get("request_id")?.as_str()?.parse().ok();
    let result = match response.get("subtype")?.as_str()? {
        "success" => Ok(response.remove("response").unwrap_or_default()),
        "error" => {
            Err(ErrorResponse::new(0, response.get("error").and_then(Value::as_str).unwrap_or_default()))
        }
        _ => return None,
    };
    Some(id.map_or(AgentMessage::UnknownResponse, |id| AgentMessage::Response { id, result }))
}

/// A control request of ours.
pub(super) fn request(id: u64, subtype: &str, params: &Value) -> String {
    let mut request = params.clone();
    if !request.is_object() {
        request = json!({});
    }
    request["subtype"] = subtype.into();
    json!({ "type": "control_request", "request_id": id.to_string(), "request": request }).to_string()
}

/// The response to a control request of the agent's.
pub(super) fn response(id: &Value, response: &Value) -> String {
    let response = json!({ "subtype": "success", "request_id": id, "response": response });
    json!({ "type": "control_response", "response": response }).to_string()
}

/// An error response.
pub(super) fn error(id: &Value, why: &str) -> String {
    let response = json!({ "subtype": "error", "request_id": id, "error": why });
    json!({ "type": "control_response", "response": response }).to_string()
}

/// The user's message.
pub(super) fn user_message(prompt: &[ContentBlock]) -> String {
    let content: Vec<Value> = prompt.iter().filter_map(block).collect();
    json!({ "type": "user", "message": { "role": "user", "content": content } }).to_string()
}

/// A block for the Messages API. Blocks that it does not take were refused before.
fn block(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({ "type": "text", "text": text })),
        ContentBlock::Image { data, mime_type } => {
            let source = json!({ "type": "base64", "media_type": mime_type, "data": data });
            Some(json!({ "type": "image", "source": source }))
        }
        ContentBlock::Audio { .. } | ContentBlock::Resource { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_it_says_or_nothing() {
        let asked = AgentMessage::Request {
            id: json!("x-1"),
            method: "can_use_tool".into(),
            params: json!({ "subtype": "can_use_tool", "a": 1 }),
        };
        let line =
            r#"{"type":"control_request","request_id":"x-1","request":{"subtype":"can_use_tool","a":1}}"#;
        assert_eq!(parse(line), Some(asked));
        let answered = |rest: &str| {
            parse(&format!(r#"{{"type":"control_response","response":{{"request_id":"3",{rest}}}}}"#))
        };
        let good = AgentMessage::Response { id: 3, result: Ok(json!({ "mode": "default" })) };
        assert_eq!(answered(r#""subtype":"success","response":{"mode":"default"}"#), Some(good));
        let bad =
            AgentMessage::Response { id: 3, result: Err(ErrorResponse { code: 0, message: "no".into() }) };
        assert_eq!(answered(r#""subtype":"error","error":"no""#), Some(bad));
        let stray = r#"{"type":"control_response","response":{"subtype":"success","request_id":"three"}}"#;
        assert_eq!(parse(stray), Some(AgentMessage::UnknownResponse));
        assert_eq!(parse(r#"{"type":"keep_alive"}"#), Some(AgentMessage::Ignored));
        let report = json!({ "type": "weather", "sun": 1 });
        assert_eq!(parse(&report.to_string()), Some(AgentMessage::Notification(report)));
        let long = format!(
            r#"{{"type":"control_request","request_id":"{}","request":{{"subtype":"x"}}}}"#,
            "x".repeat(MAX_ID + 1)
        );
        for bad in [
            "",
            "warn: x",
            "[]",
            "{}",
            r#"{"type":3}"#,
            r#"{"type":"control_request","request_id":"a"}"#,
            r#"{"type":"control_request","request_id":1,"request":{"subtype":"x"}}"#,
            r#"{"type":"control_request","request_id":"a","request":{}}"#,
            r#"{"type":"control_response"}"#,
            r#"{"type":"control_response","response":{"subtype":"maybe","request_id":"1"}}"#,
            &long,
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn requests_and_messages_have_claudes_format() {
        let sent: Value = serde_json::from_str(&request(7, "interrupt", &json!({}))).unwrap();
        assert_eq!(
            sent,
            json!({ "type": "control_request", "request_id": "7", "request": { "subtype": "interrupt" } })
        );
        let image = ContentBlock::Image { data: "QQ==".into(), mime_type: "image/png".into() };
        let sent: Value = serde_json::from_str(&user_message(&[ContentBlock::text("hi"), image])).unwrap();
        assert_eq!(
            sent["message"]["content"],
            json!([
                { "type": "text", "text": "hi" },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "QQ==" } },
            ])
        );
    }
}
