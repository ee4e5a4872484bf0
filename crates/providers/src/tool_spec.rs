//! A tool as a model is told of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name, description and input schema of a tool: what a request offers to the model.
#[derive(Debug, Clone, PartialEq, Hash, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON schema of the input.
    pub input_schema: Value,
}
