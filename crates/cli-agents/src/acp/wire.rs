//! The JSON-RPC of ACP agents. What an agent sends is not checked beyond what is needed: its ids go back as they came,
//! and unknown members are ignored.

use serde_json::Value;
use tribune_json_rpc::{self as json_rpc, ErrorObject, RpcMessage};

use crate::codec::{AgentMessage, ErrorResponse};

pub(super) use tribune_json_rpc::{INTERNAL_ERROR as INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND};
/// The named resource does not exist.
pub(super) const NOT_FOUND: i64 = -32002;

/// The message on a line; `None` if there is none.
pub(super) fn parse(line: &str) -> Option<AgentMessage> {
    let message = serde_json::from_str::<RpcMessage<Value>>(line).ok()?;
    let method = match message.method {
        Some(Value::String(method)) => method,
        Some(_) => return None,
        None => return parse_response(message.id?, message.result, message.error),
    };
    let params = message.params.unwrap_or_default();
    match message.id {
        None if method == "session/update" => Some(AgentMessage::Notification(params)),
        // Unknown extensions.
        None if method.starts_with('_') => Some(AgentMessage::OutOfProtocol(method)),
        None => Some(AgentMessage::Ignored),
        Some(id @ (Value::Number(_) | Value::String(_))) => {
            Some(AgentMessage::Request { id, method, params })
        }
        Some(_) => None,
    }
}

fn parse_response(id: Value, result: Option<Value>, error: Option<Value>) -> Option<AgentMessage> {
    let result = match (result, error) {
        (Some(result), None) => Ok(result),
        (_, Some(error)) => {
            let (code, message) = (error["code"].as_i64(), error["message"].as_str());
            Err(ErrorResponse::new(code.unwrap_or_default(), message.unwrap_or_default()))
        }
        (None, None) => return None,
    };
    Some(id.as_u64().map_or(AgentMessage::UnknownResponse, |id| AgentMessage::Response { id, result }))
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json_rpc::request(id, method, params)
}

pub(super) fn notification(method: &str, params: &Value) -> String {
    json_rpc::notification(method, params)
}

pub(super) fn response(id: &Value, result: &Value) -> String {
    json_rpc::response(id, result)
}

pub(super) fn error(id: &Value, code: i64, message: &str) -> String {
    json_rpc::error_response(id, &ErrorObject::new(code, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_what_it_says_or_nothing() {
        let asked = |id: Value| AgentMessage::Request { id, method: "m".into(), params: json!({ "a": 1 }) };
        assert_eq!(parse(r#"{"jsonrpc":"2.0","id":0,"method":"m","params":{"a":1}}"#), Some(asked(json!(0))));
        assert_eq!(parse(r#"{"id":"x-1","method":"m","params":{"a":1}}"#), Some(asked(json!("x-1"))));
        assert_eq!(
            parse(r#"{"method":"session/update","params":1}"#),
            Some(AgentMessage::Notification(json!(1)))
        );
        assert_eq!(parse(r#"{"method":"n"}"#), Some(AgentMessage::Ignored));
        assert_eq!(
            parse(r#"{"method":"_n","params":{"a":1}}"#),
            Some(AgentMessage::OutOfProtocol("_n".into()))
        );
        assert_eq!(
            parse(r#"{"id":3,"result":null}"#),
            Some(AgentMessage::Response { id: 3, result: Ok(Value::Null) })
        );
        assert_eq!(parse(r#"{"id":"three","result":1}"#), Some(AgentMessage::UnknownResponse));
        let refused = ErrorResponse { code: -5, message: "no".into() };
        let line = r#"{"id":3,"error":{"code":-5,"message":"no"}}"#;
        assert_eq!(parse(line), Some(AgentMessage::Response { id: 3, result: Err(refused) }));
        for bad in
            ["", "warn: x", "[]", "3", r#"{"id":3}"#, r#"{"id":null,"method":"m"}"#, r#"{"method":3}"#, "{"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
