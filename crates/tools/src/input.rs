//! Reads the fields of a call's input. An error is a sentence that names the field.

use serde_json::{Map, Value};
use tribune_records::text::shown;

/// The input of one call, whose field names are known to be valid.
#[derive(Debug)]
pub(super) struct Input<'a> {
    fields: &'a Map<String, Value>,
}

impl<'a> Input<'a> {
    /// Checks that the input of `tool` is an object with no fields but these.
    pub(super) fn new(tool: &str, input: &'a Value, names: &[&str]) -> Result<Self, String> {
        let expected = || names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let Value::Object(fields) = input else {
            let kind = kind(input);
            return Err(format!("the input of {tool} is an object with {}, not {kind}", expected()));
        };
        match fields.keys().find(|name| !names.contains(&name.as_str())) {
            Some(unknown) => {
                Err(format!("{tool} has no field `{}`: its fields are {}", shown(unknown), expected()))
            }
            None => Ok(Self { fields }),
        }
    }

    /// A required text.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, String> {
        self.optional_text(name)?.ok_or_else(|| format!("`{name}` is missing: give it as a string"))
    }

    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.given(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("`{name}` is a string, not {}", kind(other))),
        }
    }

    /// A required text of at most `most` bytes.
    pub(super) fn bounded_text(&self, name: &str, most: usize) -> Result<&'a str, String> {
        self.optional_bounded_text(name, most)?
            .ok_or_else(|| format!("`{name}` is missing: give it as a string"))
    }

    pub(super) fn optional_bounded_text(&self, name: &str, most: usize) -> Result<Option<&'a str>, String> {
        match self.optional_text(name)? {
            Some(text) if text.len() > most => {
                Err(format!("`{name}` has {} bytes, and {most} are allowed: shorten it", text.len()))
            }
            text => Ok(text),
        }
    }

    /// One of the listed words.
    pub(super) fn word(&self, name: &str, words: &[&'static str]) -> Result<&'static str, String> {
        let text = self.text(name)?;
        let listed = || words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        words
            .iter()
            .find(|word| **word == text)
            .copied()
            .ok_or_else(|| format!("`{name}` is one of {}, not `{}`", listed(), shown(text)))
    }

    /// A list of at most `most` texts.
    pub(super) fn optional_texts(&self, name: &str, most: usize) -> Result<Option<Vec<&'a str>>, String> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let Value::Array(items) = value else {
            return Err(format!("`{name}` is a list of strings, not {}", kind(value)));
        };
        if items.len() > most {
            return Err(format!(
                "`{name}` has {} entries, and {most} are allowed: leave some out",
                items.len()
            ));
        }
        let text = |item: &'a Value| {
            item.as_str().ok_or_else(|| format!("`{name}` is a list of strings, and {} is in it", kind(item)))
        };
        items.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Refuses fields that have no meaning together with the other given fields.
    pub(super) fn without(&self, names: &[&str], why: &str) -> Result<(), String> {
        match names.iter().find(|name| self.given(name).is_some()) {
            Some(name) => Err(format!("`{name}` means nothing {why}: leave it out")),
            None => Ok(()),
        }
    }

    /// A non-negative whole number.
    pub(super) fn optional_number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let wanted = || match value {
            Value::Number(number) => format!("`{name}` is a whole number from 0 on, not {number}"),
            other => format!("`{name}` is a whole number, not {}", kind(other)),
        };
        value.as_u64().map(Some).ok_or_else(wanted)
    }

    /// The value of a field. `null` counts as absent, because models tend to write it for a field that they omit.
    fn given(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
