//! The JSON-RPC dialect of ACP: parses incoming messages and writes outgoing ones. Unknown members are ignored, because ACP is
//! extended that way.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::rpc;

pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL: i64 = -32603;
pub(super) const CANCELLED: i64 = -32800;
pub(super) const AUTH_REQUIRED: i64 = -32000;
pub(super) const NOT_FOUND: i64 = -32002;
const PARSE_ERROR: i64 = -32700;

/// Maximum bytes of a request id that is a string.
const MAX_ID_BYTES: usize = 256;

/// A parsed message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    Request {
        id: Id,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// The response to a request of Tribune.
    Answer {
        id: Id,
        answer: Result<Value, Value>,
    },
    /// Not a valid message. Holds the error response to send.
    Refused(String),
}

/// The id of a request in its original JSON form: a number or a string.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Id(String);

impl Id {
    /// The id in the params of a notification.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let fits = match value {
            Value::String(text) => text.len() <= MAX_ID_BYTES,
            Value::Number(number) => number.is_i64() || number.is_u64(),
            _ => false,
        };
        fits.then(|| Self(value.to_string()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The error of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub(super) code: i64,
    pub(super) message: String,
    /// The error code for programs (`data.code`).
    pub(super) word: &'static str,
}

impl Fault {
    pub(super) fn new(code: i64, word: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), word }
    }

    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, "invalid_params", message)
    }

    fn to_json(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "data": { "code": self.word } })
    }
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        let code = match error.code {
            "parse_error" => PARSE_ERROR,
            "invalid_request" | "busy" | "conflict" => INVALID_REQUEST,
            "method_not_found" => METHOD_NOT_FOUND,
            "invalid_params" | "too_large" | "unknown_agent" => INVALID_PARAMS,
            "unauthorized" | "forbidden" => AUTH_REQUIRED,
            "not_found" => NOT_FOUND,
            _ => INTERNAL,
        };
        Self::new(code, error.code, error.message)
    }
}

impl From<tribune_sessions::session::SessionError> for Fault {
    fn from(error: tribune_sessions::session::SessionError) -> Self {
        ApiError::from(error).into()
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: Option<String>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    params: Option<Value>,
    result: Option<Value>,
    error: Option<Value>,
}

/// Parses one message.
pub(super) fn read(text: &str) -> Incoming {
    let refuse = |code, word, what: &str| Incoming::Refused(failure(None, &Fault::new(code, word, what)));
    if text.trim_start().starts_with('[') {
        return refuse(
            INVALID_REQUEST,
            "invalid_request",
            "batches are not taken: send one message at a time",
        );
    }
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        let what = format!("the message is not JSON (line {}, column {})", error.line(), error.column());
        return refuse(PARSE_ERROR, "parse_error", &what);
    }
    if let Err(what) = rpc::check_depth(text) {
        return refuse(PARSE_ERROR, "parse_error", &what);
    }
    let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(text) else {
        return refuse(INVALID_REQUEST, "invalid_request", "the message is not JSON-RPC 2.0");
    };
    let id = match envelope.id.map(|id| serde_json::from_str::<Value>(id.get())) {
        None => None,
        Some(Ok(value)) => match Id::read(&value) {
            Some(_) => envelope.id.map(|id| Id(id.get().to_owned())),
            None => {
                let what = format!("an id is a whole number or a string of at most {MAX_ID_BYTES} bytes");
                return refuse(INVALID_REQUEST, "invalid_request", &what);
            }
        },
        Some(Err(_)) => return refuse(PARSE_ERROR, "parse_error", "the id is not JSON"),
    };
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        let fault = Fault::new(INVALID_REQUEST, "invalid_request", "`jsonrpc` must be \"2.0\"");
        return Incoming::Refused(failure(id.as_ref(), &fault));
    }
    let params = envelope.params.unwrap_or(Value::Null);
    match (id, envelope.method) {
        (Some(id), Some(method)) => Incoming::Request { id, method, params },
        (None, Some(method)) => Incoming::Notification { method, params },
        (Some(id), None) => match (envelope.error, envelope.result) {
            (Some(error), _) => Incoming::Answer { id, answer: Err(error) },
            (None, result) => Incoming::Answer { id, answer: Ok(result.unwrap_or(Value::Null)) },
        },
        (None, None) => refuse(INVALID_REQUEST, "invalid_request", "`method` is missing"),
    }
}

/// A success response.
pub(super) fn success(id: &Id, result: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.0)
}

/// An error response. The id is null if the request's id could not be parsed.
pub(super) fn failure(id: Option<&Id>, fault: &Fault) -> String {
    let id = id.map_or("null", Id::as_str);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, fault.to_json())
}

pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Value {
        match read(text) {
            Incoming::Refused(answer) => serde_json::from_str(&answer).unwrap(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_invalid_message_gets_one_error() {
        for (text, id, code) in [
            ("", Value::Null, PARSE_ERROR),
            ("{", Value::Null, PARSE_ERROR),
            ("nonsense", Value::Null, PARSE_ERROR),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"} trailing"#, Value::Null, PARSE_ERROR),
            ("[]", Value::Null, INVALID_REQUEST),
            ("1", Value::Null, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0"}"#, Value::Null, INVALID_REQUEST),
            (r#"{"id":1,"method":"x"}"#, 1.into(), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, Value::Null, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, Value::Null, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, Value::Null, INVALID_REQUEST),
        ] {
            let answer = refused(text);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &code.into()), "{text}");
        }
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}{}}}"#,
            "[".repeat(100),
            "]".repeat(100)
        );
        assert_eq!(refused(&deep)["error"]["code"], PARSE_ERROR);
    }

    #[test]
    fn requests_notifications_and_responses_are_distinguished() {
        let id = |text: &str| Id(text.to_owned());
        let (method, params) = ("x".to_owned(), Value::Null);
        let request = Incoming::Request { id: id("0"), method: method.clone(), params: params.clone() };
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":0,"method":"x","_new":1}"#), request);
        assert_eq!(read(r#"{"jsonrpc":"2.0","method":"x"}"#), Incoming::Notification { method, params });
        let answer = Incoming::Answer { id: id("\"a\""), answer: Ok(json!({ "b": 1 })) };
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":"a","result":{"b":1}}"#), answer);
        let error = Incoming::Answer { id: id("7"), answer: Err(json!({ "code": 1 })) };
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#), error);
    }
}
