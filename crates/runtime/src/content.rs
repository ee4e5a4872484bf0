//! Messages of people and agents. The JSON form is that of ACP's and MCP's content blocks; this is their only definition.
//!
//! Serde reads what clients of our own API send and refuses unknown members. [`ContentBlock::from_peer`] reads what other
//! programs send, who may add members. Every block is written with serde.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ContentBlock {
    Text {
        text: String,
    },
    Image {
        /// Base64.
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    Audio {
        /// Base64.
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    Resource {
        resource: Resource,
    },
}

/// An attachment, by value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    pub uri: String,
    #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    Tool,
    /// A message from another agent, placed before the user's.
    Mailbox,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub role: Role,
    pub content: Vec<ContentBlock>,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Mailbox => "mailbox",
        }
    }
}

impl ContentBlock {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Reads a block of a program that speaks ACP or MCP. Members without meaning here, such as annotations, are ignored.
    /// A link to a resource is no block: its reader decides what stands for it.
    pub fn from_peer(block: &Value) -> Option<Self> {
        Some(match block["type"].as_str()? {
            "text" => Self::Text { text: text_member(block, "text")? },
            "image" => {
                Self::Image { data: text_member(block, "data")?, mime_type: text_member(block, "mimeType")? }
            }
            "audio" => {
                Self::Audio { data: text_member(block, "data")?, mime_type: text_member(block, "mimeType")? }
            }
            "resource" => Self::Resource { resource: Resource::from_peer(&block["resource"])? },
            _ => return None,
        })
    }
}

impl Resource {
    fn from_peer(resource: &Value) -> Option<Self> {
        let optional = |name: &str| match &resource[name] {
            Value::Null => Some(None),
            Value::String(text) => Some(Some(text.clone())),
            _ => None,
        };
        Some(Self {
            uri: text_member(resource, "uri")?,
            mime_type: optional("mimeType")?,
            text: optional("text")?,
            blob: optional("blob")?,
        })
    }
}

fn text_member(of: &Value, name: &str) -> Option<String> {
    of[name].as_str().map(str::to_owned)
}

/// The text blocks of a message, joined with newlines.
pub fn text_of(content: &[ContentBlock]) -> String {
    let mut text = String::new();
    for block in content {
        if let ContentBlock::Text { text: more } = block {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(more);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_peer_may_add_members_and_a_client_may_not() {
        let resource = json!({ "uri": "u", "mimeType": "x/y", "text": "t", "blob": "AA==" });
        let blocks = [
            json!({ "type": "text", "text": "hi" }),
            json!({ "type": "image", "data": "AA==", "mimeType": "image/png" }),
            json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" }),
            json!({ "type": "resource", "resource": resource }),
            json!({ "type": "resource", "resource": { "uri": "u" } }),
        ];
        for block in blocks {
            let read = serde_json::from_value::<ContentBlock>(block.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), block);
            let mut more = block.clone();
            more["annotations"] = json!({ "priority": 1 });
            assert_eq!(ContentBlock::from_peer(&more), Some(read), "{more}");
            assert!(serde_json::from_value::<ContentBlock>(more).is_err(), "{block}");
        }
    }

    #[test]
    fn malformed_blocks_are_none() {
        for wrong in [
            json!(null),
            json!("text"),
            json!({ "type": "text" }),
            json!({ "type": "text", "text": 1 }),
            json!({ "type": "image", "data": "AA==" }),
            json!({ "type": "resource", "resource": { "text": "t" } }),
            json!({ "type": "resource", "resource": { "uri": "u", "text": 1 } }),
            json!({ "type": "resource_link", "uri": "u", "name": "n" }),
        ] {
            assert_eq!(ContentBlock::from_peer(&wrong), None, "{wrong}");
        }
    }
}
