//! Converts the result of a server's tool to text for an agent.

use serde_json::Value;

/// The text of a result, and whether the server marks it as an error. Content that is not text is left out and named.
pub(super) fn read(result: &Value) -> Option<(String, bool)> {
    let blocks = result["content"].as_array();
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    if blocks.is_none() && structured.is_none() {
        return None;
    }
    let mut parts: Vec<String> = blocks.into_iter().flatten().map(block).collect();
    if parts.is_empty() {
        parts.extend(structured.map(Value::to_string));
    }
    Some((parts.join("\n"), result["isError"] == true))
}

fn block(block: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let kind = block["type"].as_str().unwrap_or_default();
    let shown = match kind {
        "text" => text(&block["text"]),
        "resource" => text(&block["resource"]["text"]),
        "resource_link" => text(&block["uri"]).map(|uri| format!("[link: {uri}]")),
        _ => None,
    };
    let name = match kind {
        "image" | "audio" | "resource" => kind,
        _ => "something that is not text",
    };
    shown.unwrap_or_else(|| format!("[left out: {name}]"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_joined_and_other_content_is_named() {
        let result = json!({ "content": [
            { "type": "text", "text": "one" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource_link", "uri": "file:///b", "name": "b" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "file:///c", "blob": "AAAA" } },
            { "type": "hologram" }, 7,
        ], "structuredContent": { "n": 1 } });
        let expected = "one\ntwo\n[link: file:///b]\n[left out: image]\n[left out: resource]\n\
                        [left out: something that is not text]\n[left out: something that is not text]";
        assert_eq!(read(&result), Some((expected.to_owned(), false)));
        let structured = json!({ "content": [], "structuredContent": { "n": 1 }, "isError": false });
        assert_eq!(read(&structured), Some((r#"{"n":1}"#.to_owned(), false)));
        let failed = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
        assert_eq!(read(&failed), Some(("no".to_owned(), true)));
        assert_eq!(read(&json!({ "content": [] })), Some((String::new(), false)));
        for nonsense in [json!({}), json!("x"), Value::Null, json!({ "content": "x" })] {
            assert_eq!(read(&nonsense), None, "{nonsense}");
        }
    }
}
