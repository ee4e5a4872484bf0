//! Drafts: calls whose text the approver may edit before allowing them. Only the text changes, never the recipient or the
//! target.

use serde_json::Value;

/// The argument that holds the text of a call of `tool`, if an approver may edit it.
pub fn words(tool: &str) -> Option<&'static str> {
    match tool {
        "message" | "send_message" => Some("text"),
        "write" => Some("content"),
        "edit" => Some("new"),
        _ => None,
    }
}

/// The input with its text replaced. `None` if it has no editable text.
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
    fn only_the_text_changes() {
        let input = json!({ "to": "ada", "text": "hello" });
        assert_eq!(reworded("message", &input, "good day"), Some(json!({ "to": "ada", "text": "good day" })));
        assert_eq!(reworded("exec", &json!({ "command": "ls" }), "rm"), None);
        assert_eq!(reworded("write", &json!({ "path": "a" }), "x"), None);
        assert_eq!(reworded("write", &json!({ "path": "a", "content": 5 }), "x"), None);
    }
}
