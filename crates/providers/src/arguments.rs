//! The arguments of a call, as they may be sent back.
//!
//! A provider wants a JSON object there. Text that is one goes back byte for byte; no text means `{}`; anything else (the
//! model erred, or the answer was cut) becomes `{"unparsed_arguments": "<the text>"}`, so that one bad call does not make
//! every later request invalid and the model can see what it wrote.

use serde_json::json;
use serde_json::value::RawValue;

/// A JSON object that stands for the text.
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

/// Whether the text is a whole JSON object.
pub(super) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_its_bytes_and_the_rest_is_wrapped() {
        let spaced = "{ \"b\": 1.0,\n \"a\" : \"\\u00e4\", \"b\": 2 }";
        assert_eq!(object(spaced).get(), spaced);
        assert_eq!(object("").get(), "{}");
        assert_eq!(object(" \n").get(), "{}");
        assert_eq!(object("{\"a\":").get(), r#"{"unparsed_arguments":"{\"a\":"}"#);
        assert_eq!(object("[1]").get(), r#"{"unparsed_arguments":"[1]"}"#);
        assert_eq!(object("null").get(), r#"{"unparsed_arguments":"null"}"#);
    }
}
