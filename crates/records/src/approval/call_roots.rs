//! The folders that a call can reach, as an approval shows them and a grant matches them.
//!
//! They are a part of the session's workspace roots in the form that the ledger keeps. They do not open a folder or
//! resolve a path.

use serde::{Deserialize, Serialize};
use tribune_constitution::CallArgs;
use tribune_runtime::ToolCall;

use super::call_args::args_of;
use crate::workspace_roots::WorkspaceRoots;

/// The folders that a call can reach. The names of the fields are part of the ledger format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRoots {
    /// The additional directory of the call's path, or else the folder that the session works in, if that is not its
    /// agent's own workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The session's additional directories.
    #[serde(rename = "further", default, skip_serializing_if = "Vec::is_empty")]
    pub additional_directories: Vec<String>,
}

impl CallRoots {
    /// The folders of a call in a session with these roots.
    pub fn of_call(roots: &WorkspaceRoots, call: &ToolCall) -> Self {
        Self::of_args(roots, &args_of(&call.name, &call.input, roots.additional_directories()))
    }

    /// The folders of a call whose arguments are already derived.
    pub fn of_args(roots: &WorkspaceRoots, args: &CallArgs) -> Self {
        Self {
            workspace: args.folder.as_deref().or(roots.folder_name()).map(str::to_owned),
            additional_directories: roots.additional_directories().to_vec(),
        }
    }
}
