//! Converts the content blocks of a prompt to [`ContentBlock`].

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use tribune_runtime::ContentBlock;
use tribune_runtime::content::Resource;

use super::wire::Fault;

/// Maximum characters of a title.
const MAX_TITLE: usize = 80;

/// A content block. Members without meaning to an agent, such as annotations, are ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    Image {
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    Audio {
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    Resource {
        resource: Embedded,
    },
    ResourceLink {
        uri: String,
        name: String,
    },
}

#[derive(Deserialize)]
struct Embedded {
    uri: String,
    #[serde(rename = "mimeType")]
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// Parses the blocks of a prompt.
pub(super) fn read(prompt: &Value, folder: &Path) -> Result<Vec<ContentBlock>, Fault> {
    let blocks = prompt.as_array().ok_or_else(|| Fault::params("`prompt` is a list of content blocks"))?;
    if blocks.is_empty() {
        return Err(Fault::params("`prompt` is empty: say something"));
    }
    blocks.iter().enumerate().map(|(at, block)| self::block(at, block, folder)).collect()
}

fn block(at: usize, block: &Value, folder: &Path) -> Result<ContentBlock, Fault> {
    let block = Block::deserialize(block).map_err(|_| {
        let what = "is no content block: text, image, audio, resource and resource_link are taken";
        Fault::params(format!("`prompt[{at}]` {what}"))
    })?;
    Ok(match block {
        Block::Text { text } => ContentBlock::Text { text },
        Block::Image { data, mime_type } => ContentBlock::Image { data, mime_type },
        Block::Audio { data, mime_type } => ContentBlock::Audio { data, mime_type },
        Block::Resource { resource: Embedded { uri, mime_type, text, blob } } => {
            if text.is_none() && blob.is_none() {
                return Err(Fault::params(format!("`prompt[{at}].resource` has neither text nor blob")));
            }
            ContentBlock::Resource { resource: Resource { uri, mime_type, text, blob } }
        }
        // The agent reads the resource itself, if it may. A file in the workspace gets a relative path, as in its tools.
        Block::ResourceLink { uri, name } => {
            ContentBlock::text(format!("[{name}]({})", inside(&uri, folder)))
        }
    })
}

/// The relative path of a file in the workspace; any other URI unchanged.
fn inside(uri: &str, folder: &Path) -> String {
    let path = uri.strip_prefix("file://").map(Path::new);
    match path.and_then(|path| path.strip_prefix(folder).ok()).and_then(Path::to_str) {
        Some(inside) if !inside.is_empty() => inside.to_owned(),
        _ => uri.to_owned(),
    }
}

/// The title of a session that begins with this prompt: its first line that is not empty.
pub(super) fn title(content: &[ContentBlock]) -> Option<String> {
    let text = content.iter().find_map(|block| match block {
        ContentBlock::Text { text } => text.lines().map(str::trim).find(|line| !line.is_empty()),
        ContentBlock::Image { .. } | ContentBlock::Audio { .. } | ContentBlock::Resource { .. } => None,
    })?;
    Some(text.chars().filter(|c| !c.is_control()).take(MAX_TITLE).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_known_block_type_is_accepted_and_no_other() {
        let folder = Path::new("/srv/project");
        let read = |block: Value| super::read(&json!([block]), folder).map_err(|fault| fault.message);
        let text = |text: &str| Ok(vec![ContentBlock::text(text)]);
        assert_eq!(read(json!({ "type": "text", "text": "a", "annotations": { "priority": 1 } })), text("a"));
        for kind in ["image", "audio"] {
            assert!(
                read(json!({ "type": kind, "data": "AA==", "mimeType": "x/y", "uri": "u" })).is_ok(),
                "{kind}"
            );
        }
        let link = |uri: &str| json!({ "type": "resource_link", "uri": uri, "name": "n", "size": 3 });
        assert_eq!(read(link("file:///srv/project/src/a.rs")), text("[n](src/a.rs)"));
        assert_eq!(read(link("file:///srv/projects/a.rs")), text("[n](file:///srv/projects/a.rs)"));
        assert!(read(json!({ "type": "resource", "resource": { "uri": "u", "text": "t" } })).is_ok());
        assert!(
            read(json!({ "type": "resource", "resource": { "uri": "u" } })).unwrap_err().contains("neither")
        );
        for wrong in [json!({ "type": "video" }), json!("text"), json!({ "type": "text" }), json!(null)] {
            assert!(read(wrong.clone()).unwrap_err().contains("prompt[0]"), "{wrong}");
        }
        assert!(super::read(&json!([]), folder).is_err() && super::read(&Value::Null, folder).is_err());
    }
}
