//! The id of a request to Tribune. Ids that CLI agents and MCP servers choose are not checked, and return as they came.

use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;

/// The id of a request in its original JSON form: a whole number, or a string of at most [`RequestId::MAX_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(String);

impl RequestId {
    pub const MAX_BYTES: usize = 256;

    /// The id in a message; `None` if it is none. Its digits and escapes stay as they are.
    pub fn from_raw(raw: &RawValue) -> Option<Self> {
        let value = serde_json::from_str(raw.get()).ok()?;
        is_valid(&value).then(|| Self(raw.get().to_owned()))
    }

    /// The id in the params of a message; `None` if it is none.
    pub fn from_value(value: &Value) -> Option<Self> {
        is_valid(value).then(|| Self(value.to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_valid(id: &Value) -> bool {
    match id {
        Value::String(text) => text.len() <= RequestId::MAX_BYTES,
        Value::Number(number) => number.is_i64() || number.is_u64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_whole_number_or_a_short_string() {
        let read = |text: &str| RequestId::from_raw(serde_json::from_str(text).unwrap());
        let long = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
        for text in ["0", "-1", "18446744073709551615", "\"\"", r#""a\u0041""#, &long(RequestId::MAX_BYTES)] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for text in ["null", "true", "1.5", "1e2", "[]", "{}", r#""\ud800""#, &long(RequestId::MAX_BYTES + 1)]
        {
            assert_eq!(read(text), None, "{text}");
        }
        for text in ["7", r#""a\"b""#] {
            assert_eq!(RequestId::from_value(&serde_json::from_str(text).unwrap()), read(text));
        }
    }
}
