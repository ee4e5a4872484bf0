//! Truncates a report of a call that is too long to be passed on: that a call is over matters more than its whole
//! outcome, which the ledger has.

use serde_json::{Map, Value, json};

/// Bytes that are kept of a text or of one piece of content.
const KEPT: usize = 16 << 10;

/// Pieces of content that are kept.
const PIECES: usize = 8;

/// Members that may be long, and that a client can do without.
const LONG: [&str; 3] = ["rawInput", "rawOutput", "_meta"];

/// Members that an update needs.
const NEEDED: [&str; 5] = ["sessionUpdate", "toolCallId", "status", "title", "kind"];

/// The line in at most `most` bytes, with a mark where something was left out. `None` if it is no update.
pub(crate) fn truncate_update(line: &str, most: usize) -> Option<String> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    let update = line.pointer_mut("/params/update")?.as_object_mut()?;
    for name in LONG {
        if let Some(value) = update.get_mut(name) {
            shorten(value);
        }
    }
    if let Some(Value::Array(pieces)) = update.get_mut("content") {
        let more = pieces.len().saturating_sub(PIECES);
        pieces.truncate(PIECES);
        pieces.iter_mut().for_each(shorten_piece);
        if more > 0 {
            pieces.push(text_piece(&format!("({more} more were left out)")));
        }
    }
    let short = line.to_string();
    if short.len() <= most {
        return Some(short);
    }
    // If other members are so long, only the needed ones are left.
    let update = line.pointer_mut("/params/update")?.as_object_mut()?;
    let needed = |(name, value): (String, Value)| {
        let fits = NEEDED.contains(&name.as_str()) && value.as_str().is_some_and(|text| text.len() <= KEPT);
        fits.then_some((name, value))
    };
    let mut bare: Map<String, Value> = std::mem::take(update).into_iter().filter_map(needed).collect();
    bare.insert("content".to_owned(), json!([text_piece("(too long to be shown)")]));
    *update = bare;
    Some(line.to_string()).filter(|short| short.len() <= most)
}

/// The value; a text is cut to its beginning.
fn shorten(value: &mut Value) {
    let bytes = value.to_string().len();
    if bytes <= KEPT {
        return;
    }
    *value = match value.as_str() {
        Some(text) => beginning(text).into(),
        None => json!({ "left_out": format!("{bytes} bytes") }),
    };
}

/// A piece of content. A text is cut to its beginning; a diff is left out, because its beginning alone would be wrong.
fn shorten_piece(piece: &mut Value) {
    let bytes = piece.to_string().len();
    if bytes <= KEPT {
        return;
    }
    *piece = match piece["content"]["text"].as_str() {
        Some(text) => text_piece(&beginning(text)),
        None => text_piece(&format!("(left out: {bytes} bytes)")),
    };
}

fn beginning(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(KEPT)];
    format!("{kept}\n(… and {} bytes that were left out)", text.len() - kept.len())
}

fn text_piece(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 256 << 10;

    fn update(update: Value) -> Value {
        let line = json!({ "method": "session/update", "params": { "sessionId": "s", "update": update } });
        let short = truncate_update(&line.to_string(), MOST).unwrap();
        assert!(short.len() <= MOST);
        let mut short: Value = serde_json::from_str(&short).unwrap();
        short["params"]["update"].take()
    }

    #[test]
    fn a_long_outcome_is_truncated_and_the_status_stays() {
        let long = "y".repeat(300_000);
        let diff = json!({ "type": "diff", "path": "/workspace/a", "newText": long });
        let said = update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "r1", "status": "completed",
            "content": [text_piece(&long), diff, text_piece("short")], "rawOutput": { "text": long }, "locations": [{ "path": "a" }],
        }));
        assert_eq!((&said["status"], &said["toolCallId"]), (&json!("completed"), &json!("r1")));
        let text = |at: usize| said["content"][at]["content"]["text"].as_str().unwrap();
        assert!(text(0).starts_with("yyy") && text(0).ends_with("283616 bytes that were left out)"));
        assert!(text(1).starts_with("(left out: 3000"), "{}", text(1));
        assert_eq!(text(2), "short");
        assert!(said["rawOutput"]["left_out"].is_string());
        assert_eq!(said["locations"], json!([{ "path": "a" }]));
    }

    #[test]
    fn other_long_members_leave_the_needed_ones() {
        let many: Vec<Value> = (0..50_000).map(|n| json!({ "path": n.to_string() })).collect();
        let said = update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "r1", "status": "failed", "locations": many,
        }));
        assert_eq!(said["status"], "failed");
        assert_eq!(said["locations"], Value::Null);
        let pieces: Vec<Value> = (0..100).map(|_| text_piece("x")).collect();
        assert_eq!(update(json!({ "content": pieces }))["content"].as_array().unwrap().len(), PIECES + 1);
        assert_eq!(truncate_update("{}", MOST), None);
        assert_eq!(truncate_update("no JSON", MOST), None);
    }
}
