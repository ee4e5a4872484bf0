//! Writes messages, each on one line without its end. Nothing is checked: the caller knows what it sends.
//!
//! Arguments with `Display` must be displayed as JSON: a `serde_json::Value`, a [`RequestId`](crate::RequestId), an
//! [`ErrorObject`], a number, or text that is JSON already and is not parsed again.

use std::fmt::{self, Display};

use crate::error_object::ErrorObject;

/// The id of an error response to a message without a valid id.
pub const NULL_ID: &str = "null";

/// A string as JSON.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
    }
}

pub fn request(id: impl Display, method: &str, params: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#, Quoted(method))
}

pub fn notification(method: &str, params: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, Quoted(method))
}

pub fn response(id: impl Display, result: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub fn error_response(id: impl Display, error: &ErrorObject<'_>) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Repeated, RpcMessage};

    fn parse(text: &str) -> RpcMessage<Value> {
        assert!(!text.contains('\n'), "{text}");
        serde_json::from_str(text).unwrap()
    }

    fn members() -> RpcMessage<Value> {
        RpcMessage {
            jsonrpc: Some(json!("2.0")),
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
            has_unknown_members: false,
            repeated: Repeated::None,
        }
    }

    #[test]
    fn members_have_their_usual_order() {
        let (id, params) = (json!("a\"b"), json!({ "b": 1, "a": [] }));
        assert_eq!(
            request(7, "x/y", &params),
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"x/y","params":{params}}}"#)
        );
        assert_eq!(
            notification("\"", &params),
            format!(r#"{{"jsonrpc":"2.0","method":"\"","params":{params}}}"#)
        );
        assert_eq!(response(&id, "{}"), r#"{"jsonrpc":"2.0","id":"a\"b","result":{}}"#);
        assert_eq!(
            error_response(NULL_ID, &ErrorObject::new(-1, "no")),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#
        );
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_parsed(id in values(), value in values(), code: i64, method: String, message: String) {
            let (with_id, without_id) = (RpcMessage { id: Some(id.clone()), ..members() }, members());
            let (name, params) = (Some(json!(method)), Some(value.clone()));
            prop_assert_eq!(
                parse(&request(&id, &method, &value)),
                RpcMessage { method: name.clone(), params: params.clone(), ..with_id.clone() }
            );
            prop_assert_eq!(
                parse(&notification(&method, &value)),
                RpcMessage { method: name, params: params.clone(), ..without_id }
            );
            prop_assert_eq!(parse(&response(&id, &value)), RpcMessage { result: params, ..with_id.clone() });
            let error = json!({ "code": code, "message": message, "data": { "code": method } });
            prop_assert_eq!(
                parse(&error_response(&id, &ErrorObject::named(code, &method, &message))),
                RpcMessage { error: Some(error), ..with_id }
            );
        }
    }
}
