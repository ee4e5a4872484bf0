//! Parses JSON text strictly before it becomes part of an entry.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::JcsError;
use crate::limits::{MAX_DEPTH, MAX_ENTRY_BYTES, MAX_SAFE_INTEGER};

/// Parses `text`. It refuses what implementations interpret differently: duplicate keys, integers beyond 2^53-1, lone
/// surrogates and numbers out of range; and nesting or size beyond the limits.
pub fn parse(text: &[u8]) -> Result<Value, JcsError> {
    if text.len() > MAX_ENTRY_BYTES {
        return Err(JcsError::TooLarge { bytes: text.len(), limit: MAX_ENTRY_BYTES });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict { depth: MAX_DEPTH }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| {
            let message = error.to_string();
            if message.starts_with(TOO_DEEP) || message.starts_with("recursion limit exceeded") {
                JcsError::TooDeep { limit: MAX_DEPTH }
            } else {
                JcsError::Syntax(message)
            }
        })?;
    refuse_large_integers(text)?;
    Ok(value)
}

const TOO_DEEP: &str = "nested too deep";

struct Strict {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Strict {
    fn deeper<E: serde::de::Error>(&self) -> Result<usize, E> {
        self.depth.checked_sub(1).ok_or_else(|| E::custom(TOO_DEEP))
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Self { depth })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(Self { depth })?;
            if members.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

/// Refuses integer literals beyond 2^53-1. It scans the text, because the parser returns an integer of more than 64
/// bits as a rounded double. `text` must be valid JSON.
fn refuse_large_integers(text: &[u8]) -> Result<(), JcsError> {
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        match byte {
            b'"' => rest = after_string(rest),
            b'-' | b'0'..=b'9' => {
                let end = rest
                    .iter()
                    .position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
                    .unwrap_or(rest.len());
                let (token, after) = rest.split_at(end);
                let digits = token.strip_prefix(b"-").unwrap_or(token);
                let in_range = !digits.iter().all(u8::is_ascii_digit)
                    || digits.len() <= 16
                        && digits.iter().fold(0_u64, |n, d| n * 10 + u64::from(d - b'0')) <= MAX_SAFE_INTEGER;
                if !in_range {
                    return Err(JcsError::IntegerTooLarge(String::from_utf8_lossy(token).into_owned()));
                }
                rest = after;
            }
            _ => rest = &rest[1..],
        }
    }
    Ok(())
}

fn after_string(text: &[u8]) -> &[u8] {
    let mut i = 1;
    while i < text.len() {
        match text[i] {
            b'"' => return &text[i + 1..],
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
    &[]
}
