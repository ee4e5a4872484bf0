//! Merges `reasoning_details`, which OpenRouter streams: thoughts in the format of the provider that produced them.
//! They are sent back unchanged. Without them a model loses its train of thought between calls, or the provider rejects
//! the request.

use serde_json::Value;

/// Members that are streamed in parts and must be concatenated.
const STREAMED: [&str; 2] = ["text", "summary"];

/// The reasoning details in a delta.
pub(super) fn read(delta: &Value) -> impl Iterator<Item = &Value> {
    delta
        .get("reasoning_details")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|detail| detail.is_object())
}

/// The text of a detail, for deltas without a reasoning text.
pub(super) fn text(detail: &Value) -> Option<&str> {
    STREAMED.iter().find_map(|name| detail.get(name)?.as_str()).filter(|text| !text.is_empty())
}

/// Appends a detail to the thought that it continues. False if it starts another thought.
pub(crate) fn join(known: &mut Value, detail: &Value) -> bool {
    let is_same = |name: &str| known.get(name) == detail.get(name);
    // Encrypted details are complete.
    if !is_same("type") || !is_same("index") || detail.get("data").is_some() {
        return false;
    }
    // Without an index, a signature ends a thought.
    let is_signed = known.get("signature").is_some_and(Value::is_string);
    if detail.get("index").is_none_or(Value::is_null) && is_signed {
        return false;
    }
    let (Some(known), Some(detail)) = (known.as_object_mut(), detail.as_object()) else { return false };
    for (name, value) in detail.iter().filter(|(_, value)| !value.is_null()) {
        match (known.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(more)) if STREAMED.contains(&name.as_str()) => {
                text.push_str(more);
            }
            _ => {
                known.insert(name.clone(), value.clone());
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn joined(details: &[Value]) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        for detail in details {
            if !all.last_mut().is_some_and(|last| join(last, detail)) {
                all.push(detail.clone());
            }
        }
        all
    }

    #[test]
    fn join_merges_the_details_of_each_thought() {
        let text = |index: u64, text: &str, signature: Value| json!({ "type": "reasoning.text", "text": text, "signature": signature, "id": null, "format": "f1", "index": index });
        let encrypted = json!({ "type": "reasoning.encrypted", "data": "c2VhbGVk", "index": 2 });
        let details = [
            text(0, "I ", Value::Null),
            text(0, "look", Value::Null),
            text(0, "", "c2ln".into()),
            text(1, "again", Value::Null),
            encrypted.clone(),
            encrypted.clone(),
        ];
        assert_eq!(
            joined(&details),
            [text(0, "I look", "c2ln".into()), text(1, "again", Value::Null), encrypted.clone(), encrypted]
        );
        let bare = |text: &str| json!({ "type": "reasoning.summary", "summary": text });
        assert_eq!(joined(&[bare("a"), bare("b")]), [bare("ab")]);
        let signed = json!({ "type": "reasoning.text", "text": "a", "signature": "s" });
        assert_eq!(joined(&[signed.clone(), signed.clone()]), [signed.clone(), signed]);
    }
}
