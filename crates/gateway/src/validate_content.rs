//! Validates the input of a turn once, at the gateway; inner code relies on it. It checks sizes, media types and base64, not
//! whether the data really is an image or a sound.

use base64::Engine as _;
use base64::engine::DecodePaddingMode::Indifferent;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use tribune_runtime::ContentBlock;

use crate::error::ApiError;

/// Content blocks of one input.
const MAX_BLOCKS: usize = 64;
/// Bytes of all text and data of one input together.
const MAX_INPUT_BYTES: usize = 8 << 20;

/// Standard base64, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(Indifferent),
);

/// Refuses invalid input.
pub(super) fn check(content: &[ContentBlock]) -> Result<(), ApiError> {
    if content.is_empty() || content.len() > MAX_BLOCKS {
        return Err(ApiError::params(format!("input.content holds 1 to {MAX_BLOCKS} blocks")));
    }
    let bytes: usize = content.iter().map(size).sum();
    if bytes > MAX_INPUT_BYTES {
        return Err(ApiError::new("too_large", format!("an input has at most {MAX_INPUT_BYTES} bytes")));
    }
    for (at, block) in content.iter().enumerate() {
        if let Err(what) = fault(block) {
            return Err(ApiError::params(format!("input.content[{at}]: {what}")));
        }
    }
    Ok(())
}

fn size(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text { text } => text.len(),
        ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => data.len(),
        ContentBlock::Resource { resource } => {
            resource.text.as_ref().map_or(0, String::len) + resource.blob.as_ref().map_or(0, String::len)
        }
    }
}

fn fault(block: &ContentBlock) -> Result<(), &'static str> {
    match block {
        ContentBlock::Text { .. } => Ok(()),
        ContentBlock::Image { data, mime_type } => media(data, mime_type, "image/"),
        ContentBlock::Audio { data, mime_type } => media(data, mime_type, "audio/"),
        ContentBlock::Resource { resource } => {
            if resource.uri.trim().is_empty() {
                return Err("uri must name the resource");
            }
            if resource.mime_type.as_ref().is_some_and(|kind| !kind.contains('/')) {
                return Err("mimeType must be a media type such as text/plain, or be left out");
            }
            match &resource.blob {
                Some(blob) if !is_base64(blob) => Err("blob must be base64"),
                Some(_) | None => Ok(()),
            }
        }
    }
}

fn media(data: &str, mime_type: &str, kind: &str) -> Result<(), &'static str> {
    if mime_type.strip_prefix(kind).is_none_or(str::is_empty) {
        return Err(match kind {
            "image/" => "mimeType must be that of an image, such as image/png",
            _ => "mimeType must be that of a sound, such as audio/wav",
        });
    }
    match !data.is_empty() && is_base64(data) {
        true => Ok(()),
        false => Err("data must be base64"),
    }
}

fn is_base64(text: &str) -> bool {
    BASE64.decode(text).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(block: Value) -> String {
        let block: ContentBlock = serde_json::from_value(block).unwrap();
        check(&[block]).map_or_else(|error| error.message, |()| "fine".to_owned())
    }

    #[test]
    fn invalid_content_is_refused_with_its_position() {
        let image = |data: &str, kind: &str| json!({ "type": "image", "data": data, "mimeType": kind });
        let resource = |resource: Value| json!({ "type": "resource", "resource": resource });
        for (block, expected) in [
            (image("aGk=", "image/png"), "fine"),
            (image("aGk", "image/png"), "fine"),
            (image("not base64", "image/png"), "input.content[0]: data must be base64"),
            (image("", "image/png"), "input.content[0]: data must be base64"),
            (image("aGk=", ""), "input.content[0]: mimeType must be that of an image, such as image/png"),
            (
                image("aGk=", "text/plain"),
                "input.content[0]: mimeType must be that of an image, such as image/png",
            ),
            (json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }), "fine"),
            (
                json!({ "type": "audio", "data": "aGk=", "mimeType": "wav" }),
                "input.content[0]: mimeType must be that of a sound, such as audio/wav",
            ),
            (resource(json!({ "uri": "file:///a", "text": "" })), "fine"),
            (resource(json!({ "uri": "file:///a", "blob": "aGk=", "mimeType": "a/b" })), "fine"),
            (resource(json!({ "uri": " ", "text": "x" })), "input.content[0]: uri must name the resource"),
            (resource(json!({ "uri": "file:///a", "blob": "?" })), "input.content[0]: blob must be base64"),
            (resource(json!({ "uri": "file:///a" })), "fine"),
            (
                resource(json!({ "uri": "file:///a", "text": "x", "mimeType": "" })),
                "input.content[0]: mimeType must be a media type such as text/plain, or be left out",
            ),
        ] {
            let shown = block.to_string();
            assert_eq!(checked(block), expected, "{shown}");
        }
    }
}
