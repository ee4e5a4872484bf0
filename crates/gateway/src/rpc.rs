//! The frames of Tribune RPC: JSON-RPC 2.0, one request per text frame. The methods are in [`super::methods`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api_types::Done;
use crate::decode;
use crate::error::ApiError;

/// Bytes of a request id that is a string, at most.
const MAX_ID_BYTES: usize = 256;

/// A request with a valid envelope. Its parameters are not decoded yet.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// Unparsed, so that the answer carries it unchanged.
    pub(super) id: &'a RawValue,
    pub(super) method: String,
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    jsonrpc: Option<String>,
    /// Accepted here, but read through [`IdOnly`].
    #[serde(borrow, default, rename = "id")]
    _id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Extracts the id of a request that may be invalid, so that the error can carry it.
#[derive(Deserialize)]
struct IdOnly<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
}

/// Deserializes a member that is present, even if it is null.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
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
    let refuse = |error: ApiError| Frame::Refused(failure("null", &error));
    let invalid = |what: &str| ApiError::new("invalid_request", what);
    let first = text.trim_start().as_bytes().first();
    if first == Some(&b'[') {
        return refuse(invalid("batches are not taken: send one request per frame"));
    }
    // Check that the whole text is JSON before its members, or a syntax error would be reported as a wrong member.
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        return refuse(ApiError::new(
            "parse_error",
            format!("the frame is not JSON: {}", describe_json_error(&error)),
        ));
    }
    if let Err(what) = check_depth(text) {
        return refuse(ApiError::new("parse_error", what));
    }
    if first != Some(&b'{') {
        return refuse(invalid("a request is an object"));
    }
    let id = match serde_json::from_str(text) {
        Ok(IdOnly { id }) => id,
        Err(_) => return refuse(invalid(MEMBERS)),
    };
    if id.is_some_and(|id| !is_valid_id(id)) {
        return refuse(invalid(&format!(
            "an id is a whole number or a string of at most {MAX_ID_BYTES} bytes"
        )));
    }
    let answer = |what: &str| Frame::Refused(failure(id.map_or("null", RawValue::get), &invalid(what)));
    let Ok(Envelope { jsonrpc, method, params, .. }) = serde_json::from_str(text) else {
        return answer(MEMBERS);
    };
    if jsonrpc.as_deref() != Some("2.0") {
        return answer("`jsonrpc` must be \"2.0\"");
    }
    match (method, id) {
        (None, _) => answer("`method` is missing"),
        (Some(_), None) => Frame::Notification,
        (Some(method), Some(id)) => Frame::Request(Request { id, method, params }),
    }
}

/// The error for unknown members, or members of the wrong type.
const MEMBERS: &str = "a request has the members jsonrpc, id, method and params, and method is a string";

fn is_valid_id(id: &RawValue) -> bool {
    match serde_json::from_str(id.get()) {
        Ok(Value::String(text)) => text.len() <= MAX_ID_BYTES,
        Ok(Value::Number(number)) => number.is_i64() || number.is_u64(),
        _ => false,
    }
}

/// Nesting of a frame, at most. No request needs more; the parser's own limit is higher.
const MAX_DEPTH: usize = 64;

pub(super) fn check_depth(text: &str) -> Result<(), String> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!("the frame is nested deeper than {MAX_DEPTH}"));
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
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

/// A result, as a frame.
pub(super) fn success(id: &str, result: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// An error, as a frame.
pub(super) fn failure(id: &str, error: &ApiError) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, error.to_rpc())
}

/// One event, as a notification.
pub(super) fn notification(session_key: &str, subscription: Option<u64>, event: &str) -> String {
    // A session key has no character that JSON would have to escape.
    match subscription {
        None => format!(
            r#"{{"jsonrpc":"2.0","method":"session.event","params":{{"session_key":"{session_key}","event":{event}}}}}"#
        ),
        Some(subscription) => format!(
            r#"{{"jsonrpc":"2.0","method":"session.event","params":{{"session_key":"{session_key}","subscription":{subscription},"event":{event}}}}}"#
        ),
    }
}

/// The notification that a subscription has ended.
pub(super) fn ended(session_key: &str, subscription: u64, error: Option<&ApiError>) -> String {
    let mut params = json!({ "session_key": session_key, "subscription": subscription });
    if let Some(error) = error {
        params["error"] = error.to_rpc();
    }
    json!({ "jsonrpc": "2.0", "method": "session.ended", "params": params }).to_string()
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
                Frame::Request(request) => assert_eq!(request.id.get(), id),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(read(r#"{"jsonrpc":"2.0","method":"x"}"#), Frame::Notification));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#)["error"]["code"], -32600);
    }
}
