//! Pattern matching: whether a response is the one that a guide shows.

use std::collections::BTreeMap;

use serde_json::Value;

/// The values of the placeholders in angle brackets.
pub(super) type Names = BTreeMap<String, Value>;

/// Whether `actual` matches `expected`. It may have members and elements that are not shown.
pub(super) fn matches(expected: &Value, actual: &Value, names: &mut Names) -> Result<(), String> {
    let differs = || Err(format!("expected {expected}, got {actual}"));
    match (expected, actual) {
        (Value::String(shown), _) if shown == "…" => Ok(()),
        (Value::String(shown), _) if name(shown).is_some() => {
            let bound = names.entry(shown.clone()).or_insert_with(|| actual.clone());
            if bound == actual { Ok(()) } else { Err(format!("{shown} is {bound}, got {actual}")) }
        }
        (Value::String(shown), Value::String(text)) => {
            if is_like(&fill(shown, names), text) {
                Ok(())
            } else {
                differs()
            }
        }
        (Value::Object(shown), Value::Object(members)) => {
            for (name, expected) in shown {
                let Some(actual) = members.get(name) else {
                    return Err(format!("`{name}` is missing in {actual}"));
                };
                matches(expected, actual, names).map_err(|why| format!("{name}: {why}"))?;
            }
            Ok(())
        }
        (Value::Array(shown), Value::Array(elements)) => {
            if shown.is_empty() != elements.is_empty() {
                return differs();
            }
            let mut rest = elements.iter();
            for expected in shown {
                // The bindings of an element that does not match are dropped.
                let found = rest.by_ref().find_map(|actual| {
                    let mut trial = names.clone();
                    matches(expected, actual, &mut trial).is_ok().then_some(trial)
                });
                match found {
                    Some(trial) => *names = trial,
                    None => return differs(),
                }
            }
            Ok(())
        }
        _ if expected == actual => Ok(()),
        _ => differs(),
    }
}

/// The name of a text that is only a placeholder.
fn name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('<')?.strip_suffix('>')?;
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(name)
}

/// Whether `text` matches `shown`, where `…` stands for any text.
pub(super) fn is_like(shown: &str, text: &str) -> bool {
    let mut pieces = shown.split('…');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut open_end = false;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
        open_end = piece.is_empty();
    }
    open_end || rest.is_empty()
}

/// A text with its placeholders replaced, and as many characters in place of `<2000 bytes>`.
pub(super) fn fill(text: &str, names: &Names) -> String {
    let mut filled = text.to_owned();
    for (name, value) in names {
        // A value that is no string replaces the quotation marks as well.
        filled = filled.replace(&format!("\"{name}\""), &value.to_string());
        let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        filled = filled.replace(name.as_str(), &plain);
    }
    while let Some(end) = filled.find(" bytes>") {
        let Some(start) = filled[..end].rfind('<') else { break };
        let count: usize = filled[start + 1..end].parse().unwrap();
        filled.replace_range(start..end + " bytes>".len(), &"x".repeat(count));
    }
    filled
}

#[test]
fn shown_members_and_elements_are_required() {
    use serde_json::json;
    let like = |expected: Value, actual: Value| matches(&expected, &actual, &mut Names::new()).is_ok();
    assert!(like(json!({"a": 1}), json!({"a": 1, "b": 2})));
    assert!(!like(json!({"a": 1, "b": 2}), json!({"a": 1})));
    assert!(like(json!({"a": "…"}), json!({"a": [1]})));
    assert!(like(json!(["b"]), json!(["a", "b", "c"])) && !like(json!(["b", "a"]), json!(["a", "b"])));
    assert!(like(json!([]), json!([])) && !like(json!([]), json!([1])));
    assert!(like(json!("a … c"), json!("a b c")) && !like(json!("a … d"), json!("a b c")));
    assert!(!like(json!("a"), json!("ab")) && like(json!("a…"), json!("ab")));
    assert!(like(json!(["<x>", "<x>"]), json!([1, 1])));
    assert!(!like(json!({"a": "<x>", "b": "<x>"}), json!({"a": 1, "b": 2})));
}
