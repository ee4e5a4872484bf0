//! The members of a JSON-RPC message, as they were sent. Nothing is refused here but text that is no JSON object.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The members of a message. `P` is the type of each: `serde_json::Value`, or `&RawValue` to parse members later or
/// never. A member that is null is `Some`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcMessage<P> {
    pub jsonrpc: Option<P>,
    pub id: Option<P>,
    pub method: Option<P>,
    pub params: Option<P>,
    pub result: Option<P>,
    pub error: Option<P>,
    /// Whether there are members that JSON-RPC does not define. They are parsed as `P` and dropped.
    pub has_unknown_members: bool,
    /// Whether a member occurs more than once. The last value counts.
    pub repeated: Repeated,
}

/// The members of a message that occur more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeated {
    None,
    /// The id, whether others do or not: an error has no id that it could carry.
    Id,
    Others,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum MemberName {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Unknown,
}

impl<'de, P: Deserialize<'de>> Deserialize<'de> for RpcMessage<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RpcMessageVisitor(PhantomData))
    }
}

struct RpcMessageVisitor<P>(PhantomData<P>);

impl<'de, P: Deserialize<'de>> Visitor<'de> for RpcMessageVisitor<P> {
    type Value = RpcMessage<P>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut message = RpcMessage {
            jsonrpc: None,
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
            has_unknown_members: false,
            repeated: Repeated::None,
        };
        while let Some(member) = map.next_key()? {
            let value = map.next_value()?;
            let (slot, repeated) = match member {
                MemberName::Jsonrpc => (&mut message.jsonrpc, Repeated::Others),
                MemberName::Id => (&mut message.id, Repeated::Id),
                MemberName::Method => (&mut message.method, Repeated::Others),
                MemberName::Params => (&mut message.params, Repeated::Others),
                MemberName::Result => (&mut message.result, Repeated::Others),
                MemberName::Error => (&mut message.error, Repeated::Others),
                MemberName::Unknown => {
                    message.has_unknown_members = true;
                    continue;
                }
            };
            if slot.replace(value).is_some() && message.repeated != Repeated::Id {
                message.repeated = repeated;
            }
        }
        Ok(message)
    }
}

/// Parses a member. A member that is null counts as missing.
pub fn decode_member<T: DeserializeOwned>(member: Option<&RawValue>) -> serde_json::Result<Option<T>> {
    member.map_or(Ok(None), |raw| serde_json::from_str(raw.get()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(text: &str) -> serde_json::Result<RpcMessage<Value>> {
        serde_json::from_str(text)
    }

    #[test]
    fn members_are_kept_even_if_they_are_null() {
        let message =
            parse(r#"{"jsonrpc":"2.0","\u0069d":null,"method":7,"params":[1],"result":null,"error":{}}"#)
                .unwrap();
        let expected = RpcMessage {
            jsonrpc: Some(json!("2.0")),
            id: Some(Value::Null),
            method: Some(json!(7)),
            params: Some(json!([1])),
            result: Some(Value::Null),
            error: Some(json!({})),
            has_unknown_members: false,
            repeated: Repeated::None,
        };
        assert_eq!(message, expected);
    }

    #[test]
    fn unknown_and_repeated_members_are_reported() {
        for (text, has_unknown_members, repeated) in [
            ("{}", false, Repeated::None),
            (r#"{"a":1,"a":2,"ID":3}"#, true, Repeated::None),
            (r#"{"id":1,"id":2,"method":"a","method":"b"}"#, false, Repeated::Id),
            (r#"{"method":"a","method":"b","id":1,"id":2}"#, false, Repeated::Id),
            (r#"{"params":null,"params":1,"a":1}"#, true, Repeated::Others),
        ] {
            let message = parse(text).unwrap();
            assert_eq!(
                (message.has_unknown_members, message.repeated),
                (has_unknown_members, repeated),
                "{text}"
            );
        }
        assert_eq!(parse(r#"{"id":1,"id":2}"#).unwrap().id, Some(json!(2)));
    }

    #[test]
    fn only_an_object_is_a_message() {
        for text in ["", "{", "[]", "[{}]", "3", "null", "\"\"", "{} {}", r#"{"id":1,}"#, "x"] {
            assert!(parse(text).is_err(), "{text}");
            assert!(serde_json::from_str::<RpcMessage<&RawValue>>(text).is_err(), "{text}");
        }
        // A member is checked as strictly as its type: also one that nobody reads.
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for text in [r#"{"a":"\ud800"}"#, r#"{"a":1e999}"#, &deep] {
            assert!(parse(text).is_err(), "{text}");
            assert!(serde_json::from_str::<RpcMessage<&RawValue>>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn raw_members_are_decoded_later() {
        let text = r#"{"id":1e2,"method":"a\u0062","params":null}"#;
        let message: RpcMessage<&RawValue> = serde_json::from_str(text).unwrap();
        assert_eq!(message.id.map(RawValue::get), Some("1e2"));
        assert_eq!(decode_member(message.method).unwrap(), Some("ab".to_owned()));
        assert_eq!(decode_member::<Value>(message.params).unwrap(), None);
        assert_eq!(decode_member::<Value>(message.result).unwrap(), None);
        assert!(decode_member::<String>(message.id).is_err());
    }
}
