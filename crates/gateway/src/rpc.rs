//! The frames of Tribune RPC: JSON-RPC 2.0, one request per text frame. The methods are in [`super::methods`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tribune_json_rpc::{self as json_rpc, NULL_ID, Repeated, RequestId, RpcMessage, decode_member};

use crate::api_types::Done;
use crate::decode;
use crate::error::ApiError;

/// A request with valid members. Its parameters are not decoded yet.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) id: RequestId,
    pub(super) method: String,
    params: Option<&'a RawValue>,
}

/// The content of a frame.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    Request(Request<'a>),
    /// A request without an id. It gets no answer and is ignored.
    Notification,
    /// Not a valid request; holds the error to send.
    Refused(String),
}

/// Parses a frame. An invalid frame gets exactly one error.
pub(super) fn read(text: &str) -> Frame<'_> {
    let refuse = |error: ApiError| Frame::Refused(failure(None, &error));
    let invalid = |what: &str| ApiError::new("invalid_request", what);
    let first = text.trim_start().as_bytes().first();
    if first == Some(&b'[') {
        return refuse(invalid("batches are not taken: send one request per frame"));
    }
    let parsed = serde_json::from_str::<RpcMessage<&RawValue>>(text);
    // Whether the text is JSON decides between two errors, so it is checked again only if there is one.
    if parsed.is_err()
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
    {
        let what = format!("the frame is not JSON: {}", describe_json_error(&error));
        return refuse(ApiError::new("parse_error", what));
    }
    if let Err(what) = check_depth(text) {
        return refuse(ApiError::new("parse_error", what));
    }
    if first != Some(&b'{') {
        return refuse(invalid("a request is an object"));
    }
    let message = match parsed {
        Ok(message) if message.repeated != Repeated::Id => message,
        Ok(_) | Err(_) => return refuse(invalid(MEMBERS)),
    };
    let id = match message.id.map(RequestId::from_raw) {
        Some(None) => return refuse(invalid(&id_rule())),
        Some(id) => id,
        None => None,
    };
    let answer = |what: &str| Frame::Refused(failure(id.as_ref(), &invalid(what)));
    let is_request = message.repeated == Repeated::None
        && !message.has_unknown_members
        && message.result.is_none()
        && message.error.is_none();
    let (Ok(version), Ok(method), true) =
        (decode_member::<String>(message.jsonrpc), decode_member::<String>(message.method), is_request)
    else {
        return answer(MEMBERS);
    };
    if version.as_deref() != Some("2.0") {
        return answer("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = method else {
        return answer("`method` is missing");
    };
    let params = message.params.filter(|params| params.get() != "null");
    id.map_or(Frame::Notification, |id| Frame::Request(Request { id, method, params }))
}

/// The error for unknown members, or members of the wrong type.
const MEMBERS: &str = "a request has the members jsonrpc, id, method and params, and method is a string";

/// The error for an invalid id.
pub(super) fn id_rule() -> String {
    format!("an id is a whole number or a string of at most {} bytes", RequestId::MAX_BYTES)
}

/// Nesting of a frame, at most. No request needs more; the parser's own limit is higher.
const MAX_DEPTH: usize = 64;

pub(super) fn check_depth(text: &str) -> Result<(), String> {
    match json_rpc::is_deeper_than(text, MAX_DEPTH) {
        true => Err(format!("the frame is nested deeper than {MAX_DEPTH}")),
        false => Ok(()),
    }
}

/// The position and kind of a JSON error, without repeating what was sent.
fn describe_json_error(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax => "it is malformed",
        serde_json::error::Category::Data => "it has unknown members, or members of the wrong type",
        serde_json::error::Category::Io => "it could not be read",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

impl Request<'_> {
    /// Decodes the parameters into the type of this method.
    pub(super) fn params<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let text = self.params.map_or("{}", RawValue::get);
        if !text.starts_with('{') {
            return Err(ApiError::params("params is an object"));
        }
        // Only known methods decode parameters, so the error may repeat the method name.
        decode::json(text, "params")
            .map_err(|error| ApiError::params(format!("{}: {}", self.method, error.message)))
    }

    /// Refuses parameters for a method that takes none.
    pub(super) fn no_params(&self) -> Result<(), ApiError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct None {}
        self.params::<None>().map(drop)
    }
}

pub(super) fn value(result: impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(result).map_err(|error| ApiError::new("internal", error.to_string()))
}

/// An error, as a frame. The id is null if the request has no valid one.
pub(super) fn failure(id: Option<&RequestId>, error: &ApiError) -> String {
    json_rpc::error_response(id.map_or(NULL_ID, RequestId::as_str), &error.to_rpc())
}

/// A result or an error, as a frame.
pub(super) fn response(id: &RequestId, answer: &Result<Value, ApiError>) -> String {
    match answer {
        Ok(result) => json_rpc::response(id, result),
        Err(error) => failure(Some(id), error),
    }
}

/// One event, as a notification.
pub(super) fn notification(session_key: &str, subscription: Option<u64>, event: &str) -> String {
    // A session key has no character that JSON would have to escape.
    let of_subscription =
        subscription.map_or_else(String::new, |number| format!(r#""subscription":{number},"#));
    json_rpc::notification(
        "session.event",
        format_args!(r#"{{"session_key":"{session_key}",{of_subscription}"event":{event}}}"#),
    )
}

/// The notification that a subscription has ended.
pub(super) fn ended(session_key: &str, subscription: u64, error: Option<&ApiError>) -> String {
    let mut params = json!({ "session_key": session_key, "subscription": subscription });
    if let Some(error) = error {
        params["error"] = json!(error.to_rpc());
    }
    json_rpc::notification("session.ended", &params)
}

/// The result of a method that returns nothing else.
pub(super) const DONE: Done = Done { ok: true };

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Value {
        match read(text) {
            Frame::Refused(answer) => serde_json::from_str(&answer).unwrap(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_invalid_request_gets_one_clear_error() {
        for (text, id, code) in [
            ("", Value::Null, -32700),
            ("{", Value::Null, -32700),
            ("nonsense", Value::Null, -32700),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"} trailing"#, Value::Null, -32700),
            ("[]", Value::Null, -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"x"}]"#, Value::Null, -32600),
            ("1", Value::Null, -32600),
            (r#"{"id":1,"method":"x"}"#, 1.into(), -32600),
            (r#"{"jsonrpc":"1.0","id":"a","method":"x"}"#, "a".into(), -32600),
            (r#"{"jsonrpc":"2.0","id":0}"#, 0.into(), -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, 1.into(), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","extra":1}"#, 1.into(), -32600),
            (r#"{"jsonrpc":"2.0","id":"a","methd":"x"}"#, "a".into(), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#, Value::Null, -32600),
            ("{}", Value::Null, -32600),
            (r#"{"jsonrpc":"2.0"}"#, Value::Null, -32600),
            (r#"{"method":"x"}"#, Value::Null, -32600),
        ] {
            let answer = refused(text);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &code.into()), "{text}");
        }
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}{}}}"#,
            "[".repeat(100),
            "]".repeat(100)
        );
        assert_eq!(refused(&deep)["error"]["code"], -32700);
        let deeper = "[".repeat(1_000_000);
        assert_eq!(refused(&format!("{{\"a\":{deeper}"))["error"]["code"], -32700);
    }

    #[test]
    fn an_id_is_returned_unchanged() {
        for id in ["0", "-1", "9007199254740993", "\"a\\u0041\"", "\"\""] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
            match read(&text) {
                Frame::Request(request) => assert_eq!(request.id.as_str(), id),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(read(r#"{"jsonrpc":"2.0","method":"x"}"#), Frame::Notification));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#)["error"]["code"], -32600);
    }
}
