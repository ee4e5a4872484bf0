//! Predicts what a call would read and write in its agent's workspace if the agent executed it itself. Labels need this,
//! because they follow data whichever program moves it. If the access cannot be narrowed down, it is the whole workspace.

use serde_json::Value;
use tribune_records::outcome::{Access, Resource};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::ToolCall;

use super::workspace_dir::Workspace;
use super::write_target::{Parents, Target};
use super::{HostTools, edit, read, search, web_fetch, write};

impl HostTools {
    /// Predicts the access of a call. Blocks on the disk.
    pub(super) fn predict_access_of(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Vec<Access> {
        let text = |name: &str| call.input.get(name).and_then(Value::as_str).unwrap_or_default();
        let path = text("path");
        match call.name.as_str() {
            read::NAME => vec![Access::Read(self.found(ground, path))],
            write::NAME => vec![Access::Wrote(self.target(ground, path))],
            edit::NAME => {
                let file = self.target(ground, path);
                vec![Access::Read(file.clone()), Access::Wrote(file)]
            }
            search::NAME => vec![Access::Read(Resource::Workspace)],
            // The label of a page is in the manifest of the tool.
            web_fetch::NAME => Vec::new(),
            // A program may access anything, and an unknown tool may be a program.
            _ => vec![Access::Read(Resource::Workspace), Access::Wrote(Resource::Workspace)],
        }
    }

    /// Why a call that the agent would execute itself must not use this path: the path is another name of a file, and the
    /// verdict is about this name. The built-in tools refuse such a path when they open it. Blocks on the disk.
    pub(super) fn other_name(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<String> {
        let path = match call.name.as_str() {
            read::NAME | write::NAME | edit::NAME | search::NAME => call.input.get("path")?.as_str()?,
            _ => return None,
        };
        // An absolute path is in the sandbox's own system, where the agent creates no links.
        if path.starts_with('/') {
            return None;
        }
        match Workspace::open(&self.home, ground) {
            Ok(workspace) => workspace.other_name(path),
            Err(refused) => Some(refused.sentence),
        }
    }

    fn found(&self, ground: &WorkspaceRoots, path: &str) -> Resource {
        let place = || {
            let workspace = Workspace::open(&self.home, ground).ok()?;
            let opened = workspace.path(path).ok()?;
            Some(workspace.place(&opened).resource())
        };
        place().unwrap_or(Resource::Workspace)
    }

    fn target(&self, ground: &WorkspaceRoots, path: &str) -> Resource {
        let target = Workspace::open(&self.home, ground)
            .and_then(|workspace| Target::open(&workspace, path, Parents::Find));
        // Its folder may not exist yet; whatever is created on the way is somewhere in the workspace.
        target.map_or(Resource::Workspace, |target| target.resource())
    }
}
