//! `reasoning_details`, as OpenRouter streams them: thoughts in the form of whoever thought them, in pieces that are put
//! together here and go back as they came. Without them a model forgets in the middle of its calls what it was about, or is refused.

use serde_json::Value;

/// Members that are told piece by piece.
const GROWING: [&str; 2] = ["text", "summary"];

/// The pieces in a delta.
pub(super) fn read(delta: &Value) -> impl Iterator<Item = &Value> {
    delta
        .get("reasoning_details")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|one| one.is_object())
}

/// The words of a piece, for where nothing else tells them.
pub(super) fn words(detail: &Value) -> Option<&str> {
    GROWING.iter().find_map(|name| detail.get(name)?.as_str()).filter(|text| !text.is_empty())
}

/// Puts a piece behind what it goes on with. False if it is the first of another thought.
pub(crate) fn join(known: &mut Value, piece: &Value) -> bool {
    let same = |name: &str| known.get(name) == piece.get(name);
    // What is sealed comes whole.
    if !same("type") || !same("index") || piece.get("data").is_some() {
        return false;
    }
    // Without a number, a signature ends a thought.
    let is_signed = known.get("signature").is_some_and(Value::is_string);
    if piece.get("index").is_none_or(Value::is_null) && is_signed {
        return false;
    }
    let (Some(known), Some(piece)) = (known.as_object_mut(), piece.as_object()) else { return false };
    for (name, value) in piece.iter().filter(|(_, value)| !value.is_null()) {
        match (known.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&name.as_str()) => {
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

    fn joined(pieces: &[Value]) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        for piece in pieces {
            if !all.last_mut().is_some_and(|last| join(last, piece)) {
                all.push(piece.clone());
            }
        }
        all
    }

    #[test]
    fn pieces_become_the_thoughts_they_are_of() {
        let text = |index: u64, text: &str, signature: Value| json!({ "type": "reasoning.text", "text": text, "signature": signature, "id": null, "format": "f1", "index": index });
        let sealed = json!({ "type": "reasoning.encrypted", "data": "c2VhbGVk", "index": 2 });
        let pieces = [
            text(0, "I ", Value::Null),
            text(0, "look", Value::Null),
            text(0, "", "c2ln".into()),
            text(1, "again", Value::Null),
            sealed.clone(),
            sealed.clone(),
        ];
        assert_eq!(
            joined(&pieces),
            [text(0, "I look", "c2ln".into()), text(1, "again", Value::Null), sealed.clone(), sealed]
        );
        let bare = |text: &str| json!({ "type": "reasoning.summary", "summary": text });
        assert_eq!(joined(&[bare("a"), bare("b")]), [bare("ab")]);
        let signed = json!({ "type": "reasoning.text", "text": "a", "signature": "s" });
        assert_eq!(joined(&[signed.clone(), signed.clone()]), [signed.clone(), signed]);
    }
}
