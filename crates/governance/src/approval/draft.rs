//! Drafts: calls whose text a person may put into other words before allowing them. Only the words change, never who gets
//! them or where they are written.

use serde_json::Value;

/// The argument that holds the words of a call of `tool`, if a person may change them.
pub fn words(tool: &str) -> Option<&'static str> {
    match tool {
        "message" | "send_message" => Some("text"),
        "write" => Some("content"),
        "edit" => Some("new"),
        _ => None,
    }
}

/// The same call in other words. None if it has none that can be changed.
pub fn reworded(tool: &str, input: &Value, text: &str) -> Option<Value> {
    let mut input = input.clone();
    let words = input.get_mut(words(tool)?)?;
    words.is_string().then(|| *words = Value::String(text.to_owned()))?;
    Some(input)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_words_change() {
        let input = json!({ "to": "ada", "text": "hello" });
        assert_eq!(reworded("message", &input, "good day"), Some(json!({ "to": "ada", "text": "good day" })));
        assert_eq!(reworded("exec", &json!({ "command": "ls" }), "rm"), None);
        assert_eq!(reworded("write", &json!({ "path": "a" }), "x"), None);
        assert_eq!(reworded("write", &json!({ "path": "a", "content": 5 }), "x"), None);
    }
}
