//! The arguments of a tool call, in a form that can be sent back to a provider.
//!
//! Providers require a JSON object. An object is sent back byte for byte; empty text means `{}`; any other text
//! (invalid JSON from the model, or a truncated response) becomes `{"unparsed_arguments": "<the text>"}`, so that one
//! invalid call does not make every later request invalid and the model sees what it wrote.

use serde_json::json;
use serde_json::value::RawValue;

/// The arguments as a JSON object.
pub(super) fn object(text: &str) -> Box<RawValue> {
    let text = text.trim();
    let text = if text.is_empty() { "{}" } else { text };
    if text.starts_with('{')
        && let Ok(object) = RawValue::from_string(text.to_owned())
    {
        return object;
    }
    let wrapped = json!({ "unparsed_arguments": text }).to_string();
    RawValue::from_string(wrapped).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Whether the text is a complete JSON object.
pub(super) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_keeps_its_bytes_and_other_text_is_wrapped() {
        let spaced = "{ \"b\": 1.0,\n \"a\" : \"\\u00e4\", \"b\": 2 }";
        assert_eq!(object(spaced).get(), spaced);
        assert_eq!(object("").get(), "{}");
        assert_eq!(object(" \n").get(), "{}");
        assert_eq!(object("{\"a\":").get(), r#"{"unparsed_arguments":"{\"a\":"}"#);
        assert_eq!(object("[1]").get(), r#"{"unparsed_arguments":"[1]"}"#);
        assert_eq!(object("null").get(), r#"{"unparsed_arguments":"null"}"#);
    }
}
