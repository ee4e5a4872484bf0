//! What a call would touch of its agent's workspace if the agent carried it out itself: for labels, which follow data whoever
//! moves it. Where that cannot be told apart, it is the whole workspace.

use serde_json::Value;
use tribune_records::outcome::{Access, Resource};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::ToolCall;

use super::workspace_dir::Workspace;
use super::write_target::{Parents, Target};
use super::{HostTools, edit, read, search, web_fetch, write};

impl HostTools {
    /// Looks at the disk, so it blocks.
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
            // A page is nobody's word, which its manifest says.
            web_fetch::NAME => Vec::new(),
            // A program may touch anything, and what is not known may be one.
            _ => vec![Access::Read(Resource::Workspace), Access::Wrote(Resource::Workspace)],
        }
    }

    /// Why a call that the agent would carry out itself does not go by this path: it is another name of something, and the law
    /// judged by this one. The house's own tools refuse such a path when they open it. Looks at the disk, so it blocks.
    pub(super) fn other_name(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<String> {
        let path = match call.name.as_str() {
            read::NAME | write::NAME | edit::NAME | search::NAME => call.input.get("path")?.as_str()?,
            _ => return None,
        };
        // What is not in the workspace is in the box's own system, where nobody lays links.
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
        // Its folder may not be there yet, and whatever is made on the way is somewhere in the workspace.
        target.map_or(Resource::Workspace, |target| target.resource())
    }
}
