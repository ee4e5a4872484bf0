//! Converts the content blocks of a prompt to [`ContentBlock`].

use std::path::Path;

use serde_json::Value;
use tribune_runtime::ContentBlock;

use super::wire::Fault;

/// Maximum characters of a title.
const MAX_TITLE: usize = 80;

/// Parses the blocks of a prompt.
pub(super) fn read(prompt: &Value, folder: &Path) -> Result<Vec<ContentBlock>, Fault> {
    let blocks = prompt.as_array().ok_or_else(|| Fault::params("`prompt` is a list of content blocks"))?;
    if blocks.is_empty() {
        return Err(Fault::params("`prompt` is empty: say something"));
    }
    blocks.iter().enumerate().map(|(at, block)| self::block(at, block, folder)).collect()
}

fn block(at: usize, block: &Value, folder: &Path) -> Result<ContentBlock, Fault> {
    let read =
        if block["type"] == "resource_link" { link(block, folder) } else { ContentBlock::from_peer(block) };
    let read = read.ok_or_else(|| {
        let what = "is no content block: text, image, audio, resource and resource_link are taken";
        Fault::params(format!("`prompt[{at}]` {what}"))
    })?;
    match &read {
        ContentBlock::Resource { resource } if resource.text.is_none() && resource.blob.is_none() => {
            Err(Fault::params(format!("`prompt[{at}].resource` has neither text nor blob")))
        }
        _ => Ok(read),
    }
}

/// Text that stands for a link. The agent reads the resource itself, if it may. A file in the workspace gets a relative
/// path, as in its tools.
fn link(block: &Value, folder: &Path) -> Option<ContentBlock> {
    let (uri, name) = (block["uri"].as_str()?, block["name"].as_str()?);
    Some(ContentBlock::text(format!("[{name}]({})", inside(uri, folder))))
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
