//! The JSON-RPC dialect of ACP: parses incoming messages and writes outgoing ones. Unknown members are ignored, because ACP is
//! extended that way.

use serde_json::Value;
use serde_json::value::RawValue;
use tribune_json_rpc::{
    self as json_rpc, ErrorObject, NULL_ID, PARSE_ERROR, Repeated, RequestId, RpcMessage, decode_member,
};

use crate::error::ApiError;
use crate::rpc;

pub(super) use tribune_json_rpc::{
    INTERNAL_ERROR as INTERNAL, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND,
};
pub(super) const CANCELLED: i64 = -32800;
pub(super) const AUTH_REQUIRED: i64 = -32000;
pub(super) const NOT_FOUND: i64 = -32002;

/// A parsed message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    Request {
        id: RequestId,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// The response to a request of Tribune.
    Answer {
        id: RequestId,
        answer: Result<Value, Value>,
    },
    /// Not a valid message. Holds the error response to send.
    Refused(String),
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

    fn error_object(&self) -> ErrorObject<'_> {
        ErrorObject::named(self.code, self.word, &self.message)
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

/// The members of a message by their types. A member that is null counts as missing.
struct AcpMembers<'a> {
    version: Option<String>,
    id: Option<&'a RawValue>,
    method: Option<String>,
    params: Option<Value>,
    result: Option<Value>,
    error: Option<Value>,
}

impl<'a> AcpMembers<'a> {
    /// `None` if a member has the wrong type, or occurs twice.
    fn decode(message: &RpcMessage<&'a RawValue>) -> Option<Self> {
        if message.repeated != Repeated::None {
            return None;
        }
        Some(Self {
            version: decode_member(message.jsonrpc).ok()?,
            id: message.id.filter(|id| id.get() != "null"),
            method: decode_member(message.method).ok()?,
            params: decode_member(message.params).ok()?,
            result: decode_member(message.result).ok()?,
            error: decode_member(message.error).ok()?,
        })
    }
}

/// Parses one message.
pub(super) fn read(text: &str) -> Incoming {
    let refuse = |code, word, what: &str| Incoming::Refused(failure(None, &Fault::new(code, word, what)));
    let invalid = |what: &str| refuse(INVALID_REQUEST, "invalid_request", what);
    if text.trim_start().starts_with('[') {
        return invalid("batches are not taken: send one message at a time");
    }
    let parsed = serde_json::from_str::<RpcMessage<&RawValue>>(text);
    // Whether the text is JSON decides between two errors, so it is checked again only if there is one.
    if parsed.is_err()
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
    {
        let what = format!("the message is not JSON (line {}, column {})", error.line(), error.column());
        return refuse(PARSE_ERROR, "parse_error", &what);
    }
    if let Err(what) = rpc::check_depth(text) {
        return refuse(PARSE_ERROR, "parse_error", &what);
    }
    let Some(members) = parsed.ok().and_then(|message| AcpMembers::decode(&message)) else {
        return invalid("the message is not JSON-RPC 2.0");
    };
    let id = match members.id.map(RequestId::from_raw) {
        Some(None) if decode_member::<Value>(members.id).is_err() => {
            return refuse(PARSE_ERROR, "parse_error", "the id is not JSON");
        }
        Some(None) => return invalid(&rpc::id_rule()),
        Some(id) => id,
        None => None,
    };
    if members.version.as_deref() != Some("2.0") {
        let fault = Fault::new(INVALID_REQUEST, "invalid_request", "`jsonrpc` must be \"2.0\"");
        return Incoming::Refused(failure(id.as_ref(), &fault));
    }
    let params = members.params.unwrap_or_default();
    match (id, members.method) {
        (Some(id), Some(method)) => Incoming::Request { id, method, params },
        (None, Some(method)) => Incoming::Notification { method, params },
        (Some(id), None) => {
            let answer = members.error.map_or_else(|| Ok(members.result.unwrap_or_default()), Err);
            Incoming::Answer { id, answer }
        }
        (None, None) => invalid("`method` is missing"),
    }
}

/// A success response.
pub(super) fn success(id: &RequestId, result: &Value) -> String {
    json_rpc::response(id, result)
}

/// An error response. The id is null if the request's id could not be parsed.
pub(super) fn failure(id: Option<&RequestId>, fault: &Fault) -> String {
    json_rpc::error_response(id.map_or(NULL_ID, RequestId::as_str), &fault.error_object())
}

pub(super) fn notification(method: &str, params: &Value) -> String {
    json_rpc::notification(method, params)
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json_rpc::request(id, method, params)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let id = |text: &str| RequestId::from_raw(serde_json::from_str(text).unwrap()).unwrap();
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
